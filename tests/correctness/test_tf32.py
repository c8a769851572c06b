"""Numbers in the 10 bits of mantissa that tensor cores take of a float32."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.runtime.ndarray import array
from tilewright.target.instructions import mma_tf32

FUNCTIONS = {
    "round_tf32": lambda bits: (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000),
    "truncate_tf32": lambda bits: bits & np.uint32(0xFFFFE000),
}


def samples() -> np.ndarray:
    """Random numbers of every magnitude, those halfway between two of TF32, and the ends."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0x00800000, 0x7F000000, 4096, dtype=np.uint32)
    halfway = bits[:512] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    beside = np.concatenate([halfway - np.uint32(1), halfway + np.uint32(1)])
    carry = np.array([0x3FFFF000, 0x3FFFEFFF, 0x3FFFFFFF, 0x40000000, 0x3F800001], np.uint32)
    found = np.concatenate([bits, halfway, beside, carry]).view("float32")
    return np.concatenate([found, -found, np.array([0.0, np.inf, -np.inf, 1.0], "float32")])


def applied(name: str, x: np.ndarray, target: str) -> np.ndarray:
    A = te.placeholder(x.shape, name="A")
    B = te.compute(x.shape, lambda i: getattr(te, name)(A[i]), name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        block, thread = s[B].split(B.op.axis[0], 64)
        s[B].bind(block, te.thread_axis("blockIdx.x"))
        s[B].bind(thread, te.thread_axis("threadIdx.x"))
    else:
        s[B].vectorize(s[B].split(B.op.axis[0], 8)[1])
    out = np.empty_like(x)
    kernel = tilewright.build(s, [A, B], target)
    if target == "cuda":
        there = [array(v, "cuda") for v in (x, out)]
        kernel(*there)
        return np.asarray(there[1].numpy())
    kernel(x, out)
    return out


@pytest.mark.parametrize(
    "target",
    [
        "llvm",
        "sim",
        pytest.param("opencl", marks=pytest.mark.needs_opencl),
        pytest.param("cuda", marks=pytest.mark.needs_cuda),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_target_keeps_the_same_bits(name: str, target: str) -> None:
    x = samples()
    found = applied(name, x, target)
    np.testing.assert_array_equal(found.view("uint32"), FUNCTIONS[name](x.view("uint32")))


def test_two_of_them_are_a_float32() -> None:
    x = np.random.default_rng(1).standard_normal(4096).astype("float32")
    large = applied("round_tf32", x, "sim")
    small = applied("truncate_tf32", x - large, "sim")
    assert (np.abs(large.astype("float64") + small - x) <= 2.0**-23 * np.abs(x)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_types_are_refused(name: str) -> None:
    A = te.placeholder((4,), "float16", name="A")
    with pytest.raises(LanguageError, match=f"{name} is of float32, not of float16: cast it first"):
        getattr(te, name)(A[0])


def test_what_is_computed_from_or_into_a_fragment_is_held_like_it() -> None:
    """A row times a row: each loaded value in two parts, three products, added up in float32."""
    A, B = (te.placeholder((n, 32), name=name) for name, n in (("A", 16), ("B", 8)))
    parts = [
        te.compute(
            (*x.shape, 2),
            lambda i, k, half, x=x: te.select(
                half.equal(0), x[i, k] - te.round_tf32(x[i, k]), te.round_tf32(x[i, k])
            ),
            name=f"{x.name}Parts",
        )
        for x in (A, B)
    ]
    ko, ki = te.reduce_axis((0, 4), name="ko"), te.reduce_axis((0, 8), name="ki")
    term = te.reduce_axis((0, 3), name="term")
    partial = te.compute(
        (16, 8, 4),
        lambda i, j, ko: te.sum(
            te.truncate_tf32(parts[0][i, ko * 8 + ki, (term + 1) // 2])
            * te.truncate_tf32(parts[1][j, ko * 8 + ki, (term + 1) % 2]),
            axis=[term, ki],
        ),
        name="Partial",
    )
    C = te.compute((16, 8), lambda i, j: te.sum(partial[i, j, ko], axis=ko), name="C")
    s = te.create_schedule(C.op)
    total = s.cache_write(C, "fragment")
    loaded = [s.cache_read(x, "fragment", [part]) for x, part in zip((A, B), parts, strict=True)]
    one, _ = s[C].split(C.op.axis[0], 16)
    s[C].bind(one, te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[C], one)
    (ko,) = s[total].op.reduce_axis
    s[total].reorder(ko, *s[total].op.axis)
    for tensor in (partial, *parts, *loaded):
        s[tensor].set_scope("fragment")
        s[tensor].compute_at(s[total], ko)
    i, j, _ = partial.op.axis
    s[partial].reorder(term, i, j, ki)
    s[partial].tensorize(i, mma_tf32)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype("float32") for n in ((16, 32), (8, 32)))
    c = np.full((16, 8), np.nan, "float32")
    tilewright.build(s, [A, B, C], "sim")(a, b, c)
    exact = a.astype("float64") @ b.T.astype("float64")
    assert np.linalg.norm(c - exact) < 2e-7 * np.linalg.norm(exact)
