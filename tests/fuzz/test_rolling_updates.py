"""Softmax in steps of any size, over any rows, of some keys or all: as NumPy has it in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright import te

SIZES = st.integers(1, 6)


@given(
    rows=SIZES, keys=st.integers(1, 19), width=SIZES, step=st.integers(1, 8),
    reach=st.none() | st.integers(0, 18), power=st.sampled_from(["exp", "exp2"]),
    unrolled=st.booleans(), inlined=st.booleans(), seed=st.integers(0, 99),
    target=st.sampled_from(["llvm", "sim"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_softmax_in_steps(rows, keys, width, step, reach, power, unrolled, inlined, seed, target):
    x, v = te.placeholder((rows, keys), name="x"), te.placeholder((keys, width), name="v")
    j, k, t = (te.reduce_axis((0, keys), n) for n in "jkt")

    def where(i, key):
        """Which keys a row has: some up to its own number and ``reach``, or all."""
        return None if reach is None else key <= i + reach

    largest = te.compute((rows,), lambda i: te.max(x[i, j], axis=j, where=where(i, j)), name="M")
    powers = te.compute(
        (rows, keys), lambda i, l: getattr(te, power)(x[i, l] - largest[i]), name="P"
    )
    weighted = te.compute(
        (rows, width),
        lambda i, e: te.sum(powers[i, k] * v[k, e], axis=k, where=where(i, k)),
        name="W",
    )
    total = te.compute((rows,), lambda i: te.sum(powers[i, t], axis=t, where=where(i, t)), name="T")
    out = te.compute((rows, width), lambda i, e: weighted[i, e] / total[i], name="O")
    s = te.create_schedule(out.op)
    row, column = s[out].op.axis
    if target == "sim":
        s[out].bind(row, te.thread_axis("threadIdx.x"))
    s[weighted].compute_at(s[out], row if seed % 2 else column)
    turn, _ = s[weighted].split(k, factor=step)
    s[weighted].reorder(turn, *s[weighted].op.axis)
    if unrolled:
        s[weighted].unroll(turn)
    s[largest].rolling_update(s[largest].split(j, factor=step)[0], s[weighted], turn)
    s[total].compute_with(s[total].split(t, factor=step)[0], s[weighted], turn)
    if inlined:
        s[powers].compute_inline()
    else:
        s[powers].compute_at(s[weighted], turn)
    for tensor in (largest, weighted, total, *([] if inlined else [powers])):
        s[tensor].set_scope("local")
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 4, (rows, keys)), rng.normal(0, 1, (keys, width))
    arrays = [a.astype("float32"), b.astype("float32"), np.empty((rows, width), "float32")]
    tilewright.build(s, [x, v, out], target)(*arrays)
    a, b = arrays[0].astype("float64"), arrays[1].astype("float64")
    taken = np.ones((rows, keys), bool)
    if reach is not None:
        taken = np.arange(keys)[None] <= np.arange(rows)[:, None] + reach
    best = np.where(taken, a, -np.inf).max(1, keepdims=True)
    weights = np.where(taken, (np.e if power == "exp" else 2.0) ** (a - best), 0.0)
    assert np.allclose(arrays[2], weights @ b / weights.sum(1, keepdims=True), rtol=1e-4, atol=1e-5)
