"""Delete any one barrier, condition or bound from an article's program: verify or sim sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
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
from tilewright.topi.gpu.depthwise_shared import SharedTile, schedule_shared
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


PROGRAMS: dict[str, Callable[[], Program]] = {
    "000": article_000,
    "000, K5 with multiplier 2": lambda: article_000(8, 8, 5, 2),
    "000, fused": article_000_fused,
    **{f"003, v{i}": lambda i=i: article_003(i) for i in range(5)},  # type: ignore[misc]
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
    assert barriers == (1 if name.startswith("000") else 0)
