"""Delete a barrier or condition of an article's program, or move a bound: verify or sim sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from examples.article_000 import SharedTile, schedule_shared
from tests.support.mutation import mutants

from tilewright import te
from tilewright.ir import Buffer, Module
from tilewright.ir.expr import IntImm
from tilewright.ir.stmt import Sync
from tilewright.ir.visit import walk
from tilewright.lower.pipeline import lower
from tilewright.runtime.array import view
from tilewright.runtime.sim import SimulationError, compile_module
from tilewright.schedule import Schedule, create_schedule
from tilewright.target import Target
from tilewright.topi.elementwise import relu
from tilewright.topi.nn import depthwise_conv2d_nchw, scale_shift
from tilewright.verify import check

Program = tuple[Schedule, list[Any]]


def article_000(h: int = 16, w: int = 16, k: int = 3, multiplier: int = 1) -> Program:
    data = te.placeholder((1, 2, h, w), name="Input")
    weight = te.placeholder((2, multiplier, k, k), name="Filter")
    out = depthwise_conv2d_nchw(data, weight, 1, "SAME")
    return schedule_shared(out, SharedTile(8, 8, 2, 4, 2, 1)), [data, weight, out]


def article_000_fused() -> Program:
    data = te.placeholder((1, 2, 8, 8), name="Input")
    weight = te.placeholder((2, 1, 3, 3), name="Filter")
    scale, shift = te.placeholder((2,), name="Scale"), te.placeholder((2,), name="Shift")
    out = relu(scale_shift(depthwise_conv2d_nchw(data, weight, 1, "SAME"), scale, shift))
    return schedule_shared(out, SharedTile(8, 8, 2, 4)), [data, weight, scale, shift, out]


def article_003(version: int) -> Program:
    b, c, h, w, k = 1, 2, 8, 16, 3
    inp = te.placeholder((b, c, h, w), name="A")
    ker = te.placeholder((c, 1, k, k), name="W")
    ry, rx = te.reduce_axis((0, k), name="ry"), te.reduce_axis((0, k), name="rx")
    pad = (k - 1) // 2
    padded = te.compute(
        (b, c, h + 2 * pad, w + 2 * pad),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= pad, y < h + pad, x >= pad, x < w + pad),
            inp[b, c, y - pad, x - pad],
            te.const(0.0, "float32"),
        ),
        name="padded",
    )
    out = te.compute(
        (b, c, h, w),
        lambda b, c, y, x: te.sum(padded[b, c, y + ry, x + rx] * ker[c, 0, ry, rx], [ry, rx]),
        name="depthwise_conv",
    )
    s = create_schedule(out.op)
    s[padded].compute_inline()
    stage = s[out]
    axes = stage.op.axis
    if version < 2:
        stage.bind(axes[0], te.thread_axis("blockIdx.x"))
        if version == 1:
            stage.bind(axes[1], te.thread_axis("blockIdx.y"))
        return s, [inp, ker, out]
    fused = stage.fuse(axes[0], axes[1])
    stage.bind(fused, te.thread_axis("blockIdx.x"))
    if version == 2:
        stage.bind(axes[2], te.thread_axis("blockIdx.y"))
        return s, [inp, ker, out]
    h_outer, h_inner = stage.split(axes[2], factor=4)
    w_outer, w_inner = stage.split(axes[3], factor=4)
    if version == 4:
        stage.reorder(fused, h_outer, w_outer, h_inner, w_inner)
        h_outer = stage.fuse(h_outer, w_outer)
    stage.bind(h_outer, te.thread_axis("blockIdx.y"))
    stage.bind(h_inner, te.thread_axis("threadIdx.y"))
    stage.bind(w_inner, te.thread_axis("threadIdx.x"))
    return s, [inp, ker, out]


def article_004() -> Program:
    """Its third kernel: packed data and filter, bound, unrolled and vectorized; four kernels."""
    ci, co, size, k, vw, vc = 2, 4, 4, 3, 2, 4
    data = te.placeholder((1, ci, size, size), name="data")
    kernel = te.placeholder((co, ci, k, k), name="kernel")
    pad = te.compute(
        (1, ci, size + 2, size + 2),
        lambda n, c, y, x: te.if_then_else(
            te.all(y >= 1, y <= size, x >= 1, x <= size),
            data[n, c, y - 1, x - 1],
            te.const(0.0, "float32"),
        ),
        name="pad",
    )
    data_vec = te.compute(
        (1, size, size // vw, ci, k, vw + k - 1),
        lambda n, h, w, c, y, x: pad[n, c, h + y, w * vw + x],
        name="data_vec",
    )
    kernel_vec = te.compute(
        (co // vc, ci, k, k, vc),
        lambda o, c, y, x, v: kernel[o * vc + v, c, y, x],
        name="kernel_vec",
    )
    kc = te.reduce_axis((0, ci), name="kc")
    kh, kw = te.reduce_axis((0, k), name="kh"), te.reduce_axis((0, k), name="kw")
    conv = te.compute(
        (1, co // vc, size, size // vw, 1, vw, vc),
        lambda n, o, h, w, vh, x, v: te.sum(
            data_vec[n, h, w, kc, vh + kh, x + kw] * kernel_vec[o, kc, kh, kw, v], [kc, kh, kw]
        ),
        name="conv",
    )
    output = te.compute(
        (1, co, size, size),
        lambda n, o, h, w: conv[n, o // vc, h, w // vw, 0, w % vw, o % vc],
        name="output",
    )
    s = create_schedule(output.op)
    s[pad].compute_inline()

    def tile_and_bind(stage: Any, *axes: tuple[Any, int, str]) -> None:
        for axis, factor, tag in axes:
            outer, inner = stage.split(axis, factor=factor)
            stage.bind(outer, te.thread_axis(f"blockIdx.{tag}"))
            stage.bind(inner, te.thread_axis(f"threadIdx.{tag}"))

    _, h, w, c, _, x = s[data_vec].op.axis
    tile_and_bind(s[data_vec], (h, 1, "z"), (w, 1, "y"), (c, 1, "x"))
    s[data_vec].unroll(x)
    o, c, y, x, v = s[kernel_vec].op.axis
    tile_and_bind(s[kernel_vec], (o, 1, "y"), (c, 1, "x"))
    s[kernel_vec].unroll(y)
    s[kernel_vec].unroll(x)
    s[kernel_vec].vectorize(v)
    n, o, h, w, vh, x, v = s[conv].op.axis
    s[conv].reorder(n, o, h, w, vh, kc, kh, kw, x, v)
    tile_and_bind(s[conv], (o, 2, "z"), (h, 1, "y"), (w, 1, "x"))
    for axis in (kh, kw, x):
        s[conv].unroll(axis)
    s[conv].vectorize(v)
    _, o, h, w = s[output].op.axis
    tile_and_bind(s[output], (o, 2, "z"), (h, 1, "y"), (w, 1, "x"))
    return s, [data, kernel, output]


def row_sums() -> Program:
    """A sum across threads, by rfactor: shuffles within a warp, shared memory beyond."""
    A = te.placeholder((4, 100), name="A")
    k = te.reduce_axis((0, 100), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], k), name="B")
    s = create_schedule(B.op)
    _, inner = s[B].split(B.op.reduce_axis[0], factor=64)
    partial = s.rfactor(B, inner)
    s[B].bind(s[B].op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(s[B].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    s[partial].compute_at(s[B], s[B].op.reduce_axis[0])
    return s, [A, B]


PROGRAMS: dict[str, Callable[[], Program]] = {
    "000": article_000,
    "000, K5 with multiplier 2": lambda: article_000(8, 8, 5, 2),
    "000, fused": article_000_fused,
    "004, kernel 3": article_004,
    "sums across threads": row_sums,
    **{f"003, v{i}": lambda i=i: article_003(i) for i in range(5)},
}


def arrays(module: Module) -> list[np.ndarray]:
    """Small positive integers: sums are exact, and nothing cancels."""
    rng = np.random.default_rng(0)
    shapes = [
        [n.value for n in p.shape if isinstance(n, IntImm)]
        for p in module.params
        if isinstance(p, Buffer)
    ]
    return [rng.integers(1, 9, shape).astype("float32") for shape in shapes]


def run(module: Module, given: list[np.ndarray]) -> list[np.ndarray]:
    """What sim makes of the arrays; raises where it sees something wrong."""
    made = [a.copy() for a in given]
    compile_module(module, Target.parse("sim")).launch([view(a) for a in made], {})
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_mutant_is_caught(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    module = lower(schedule, args, "sim")
    assert [finding for func in module.funcs for finding in check(func)] == []
    given = arrays(module)
    right = run(module, given)
    survivors, seen = [], 0
    for mutant in mutants(module):
        seen += 1
        if any(check(func) for func in mutant.module.funcs):
            continue
        try:
            found = run(mutant.module, given)
        except SimulationError:
            continue
        if all((a == b).all() for a, b in zip(found, right, strict=True)):
            survivors.append(f"{mutant.lacks} in\n{mutant.module}")
    assert not survivors, survivors[0]
    assert seen
    barriers = sum(isinstance(s, Sync) for func in module.funcs for s in walk(func.body))
    assert barriers == (1 if name.startswith(("000", "sums")) else 0)
