"""What a producer comes to and what not: whole warps, barriers, mbarriers, stores by TMA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.correctness.test_producers import Block, plan_of

from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.codegen.mbarriers import slots
from tilewright.ir.errors import LoweringError
from tilewright.ir.func import Module
from tilewright.ir.stmt import Queue
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.sim.program import simulate
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load, tma_store
from tilewright.verify import check

N, HOPPER = 64, "cuda -arch=sm_90a"


def _threads(stage: Any, i: Any, j: Any, x: int = 32, y: int = 4) -> None:
    outer, lane = stage.split(j, factor=x)
    turn, row = stage.split(i, factor=y)
    stage.reorder(turn, row, outer, lane)
    stage.bind(lane, te.thread_axis((0, x), "threadIdx.x"))
    stage.bind(row, te.thread_axis((0, y), "threadIdx.y"))


def _boxes(s: Schedule, tile: Any, reader: Any, at: Any) -> None:
    """Boxes of ``tile`` that a producer brings, some ahead of a loop of ``reader``."""
    stage = s[tile]
    stage.set_scope("shared")
    stage.compute_at(s[reader], at)
    for axis in tile.op.axis:
        stage.align_bounds(axis, N)
    stage.tensorize(tile.op.axis[0], tma_load((N, N), "float16", 0))
    stage.pipeline(3, producer=True)


def _added(x: int, y: int) -> Module:
    """One more than each element, by ``x`` by ``y`` threads."""
    a = te.placeholder((N, N), "float16", name="A")
    tile = te.compute((N, N), lambda i, j: a[i, j], name="Tile")
    b = te.compute((N, N), lambda i, j: tile[i, j] + te.const(1, "float16"), name="B")
    s = te.create_schedule(b.op)
    outer, turn, i, j = s[b].tile(*b.op.axis, N, N)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    _threads(s[b], i, j, x, y)
    _boxes(s, tile, b, turn)
    return lower(s, [a, b], HOPPER)


@pytest.mark.parametrize(("x", "y"), [(16, 1), (5, 4), (40, 1)])
def test_blocks_of_no_whole_warps_have_no_producer(x: int, y: int) -> None:
    with pytest.raises(LoweringError, match="Bind whole warps, or leave out `producer`"):
        _added(x, y)


@pytest.mark.parametrize(("x", "y", "alike"), [(16, 8, False), (32, 4, True)])
def test_rows_of_threads_are_those_of_a_warp_where_its_threads_have_one(
    x: int, y: int, alike: bool
) -> None:
    text = generate(_added(x, y), "sm_90a").text
    (line,) = [s for s in text.splitlines() if "const int threadIdx_y =" in s and " % " in s]
    assert ("__shfl_sync" in line) is alike
    assert f"threadIdx.x / {x} % {y}" in line


def test_mbarriers_are_enough_where_a_producer_comes_to_no_barrier_of_the_block() -> None:
    """Boxes that are not pipelined are loaded between barriers that the producer does not see."""
    shape = (N, 4 * N)
    a = te.placeholder(shape, "float16", name="A")
    tile = te.compute(shape, lambda i, j: a[i, j], name="Tile")
    more = [te.placeholder((N, N), "float16", name=f"P{k}") for k in range(3)]
    alone = [
        te.compute((N, N), lambda i, j, p=p: p[i, j], name=f"L{k}") for k, p in enumerate(more)
    ]
    turned: list[Any] = []
    for k, t in enumerate(alone):
        before = turned[-1] if turned else None
        turned.append(te.compute(
            (N, N), lambda i, j, t=t, v=before: t[j, i] if v is None else v[j, i] + t[i, j],
            name=f"U{k}",
        ))  # fmt: skip
    read = (*alone, *turned)
    b = te.compute(shape, lambda i, j: sum((x[i, j % N] for x in read), tile[i, j]), name="B")
    s = te.create_schedule(b.op)
    outer, turn, i, j = s[b].tile(*b.op.axis, N, N)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    _threads(s[b], i, j)
    _boxes(s, tile, b, turn)
    for t, u in zip(alone, turned, strict=True):
        for x in (t, u):
            s[x].set_scope("shared")
            s[x].compute_at(s[b], outer)
        s[t].tensorize(t.op.axis[0], tma_load((N, N), "float16", 0))
        _threads(s[u], *u.op.axis)
    (func,) = lower(s, [a, *more, b], HOPPER).funcs
    for seed in range(100):
        Block(plan_of(func), {"tma": slots(func, "tma")}, seed).run()


def test_a_wait_for_what_is_stored_from_shared_memory_is_behind_a_barrier_of_the_block() -> None:
    """Else other warps write again what TMA still reads."""
    shape = (N, 4 * N)
    a = te.placeholder(shape, "float16", name="A")
    tile = te.compute(shape, lambda i, j: a[i, j], name="Tile")
    v = te.compute(shape, lambda i, j: tile[i, j] + te.const(1, "float16"), name="V")
    u = te.compute(shape, lambda i, j: v[j % N, j // N * N + i], name="U")
    b = te.compute(shape, lambda i, j: u[i, j // N * N + (N - 1 - j % N)] + v[i, j], name="B")
    s = te.create_schedule(b.op)
    kept = s.cache_write(b, "shared")
    outer, turn, i, _ = s[b].tile(*b.op.axis, N, N)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].tensorize(i, tma_store((N, N), "float16", 0))
    for t in (kept, u, v):
        s[t].set_scope("shared")
        s[t].compute_at(s[b], turn)
        for axis in t.op.axis:
            s[t].align_bounds(axis, N)
        _threads(s[t], *t.op.axis)
    _boxes(s, tile, b, turn)
    module = lower(s, [a, b], HOPPER)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("float16")
    result = np.full(shape, np.nan, "float16")
    assert check(module.funcs[0]) == []
    assert simulate(module, [x, result]).findings == []
    first = x.reshape(N, 4, N).transpose(1, 0, 2) + np.float16(1)
    exact = (first.transpose(0, 2, 1)[:, :, ::-1] + first).transpose(1, 0, 2).reshape(shape)
    assert np.array_equal(result, exact)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("producer", [False, True])
def test_late_boxes_of_a_pipeline_are_asked_for_in_front_of_their_use(
    producer: bool, stages: int
) -> None:
    shape = (N, 5 * N)
    a, c = (te.placeholder(shape, "float16", name=name) for name in "AC")
    tile, late = (
        te.compute(shape, lambda i, j, t=t: t[i, j], name=name)
        for t, name in ((a, "Tile"), (c, "Late"))
    )
    half = te.compute(shape, lambda i, j: tile[i, j] + te.const(1, "float16"), name="Half")

    def turned(i: Any, j: Any) -> Any:
        return half[i, j // N * N + (N - 1 - j % N)] * late[i, j]

    b = te.compute(shape, turned, name="B")
    s = te.create_schedule(b.op)
    outer, turn, i, j = s[b].tile(*b.op.axis, N, N)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    _threads(s[b], i, j)
    s[half].align_bounds(half.op.axis[0], N)
    s[half].align_bounds(half.op.axis[1], N)
    s[half].set_scope("shared")
    s[half].compute_at(s[b], turn)
    _threads(s[half], *half.op.axis)
    for t, kind in ((tile, False), (late, True)):
        s[t].set_scope("shared")
        s[t].compute_at(s[b], turn)
        for axis in t.op.axis:
            s[t].align_bounds(axis, N)
        s[t].tensorize(t.op.axis[0], tma_load((N, N), "float16", 0, late=kind))
        s[t].pipeline(stages, producer=producer)
    module = lower(s, [a, c, b], HOPPER)
    (func,) = module.funcs
    assert check(func) == []
    queues = [x.queue for x in statements(func.body) if isinstance(x, Queue) and x.action == "wait"]
    assert queues.count("tma_late") == 1
    found = {name: slots(func, name) for name in ("tma", "tma_late")}
    for seed in range(100 if producer else 0):
        Block(plan_of(func), found, seed).run()
    x, y = (np.random.default_rng(k).integers(-9, 9, shape).astype("float16") for k in (0, 1))
    result = np.full(shape, np.nan, "float16")
    assert simulate(module, [x, y, result]).findings == []
    half_of = (x + np.float16(1)).reshape(N, 5, N)[:, :, ::-1].reshape(shape)
    assert np.array_equal(result, half_of * y)
