"""Boxes that TMA stores from shared memory: on sim, in the proof, in CUDA C++, on Hopper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.changed import without
from tests.support.dense import convolution, product
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.ir.errors import LanguageError, LoweringError, TargetError
from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Queue, Seq, Sync
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime import array
from tilewright.target.instructions import instruction_named, tma_store
from tilewright.topi import Conv, Gemm
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES
from tilewright.verify import check

HOPPER = "cuda -arch=sm_90a"
TARGETS = ["sim", pytest.param(HOPPER, marks=pytest.mark.needs_cuda)]


def _tiles(shape: tuple[int, int] = (200, 72), swizzle: int = 128) -> tuple[Any, list[Any]]:
    """``B = A + 1`` by tiles of 64 by 64, which leave shared memory as boxes."""
    a = te.placeholder(shape, "float16", name="A")
    b = te.compute(shape, lambda i, j: a[i, j] + te.const(1, "float16"), name="B")
    s = te.create_schedule(b.op)
    tile = s.cache_write(b, "shared")
    out, (i, j) = s[b], b.op.axis
    outer_i, outer_j, inner_i, _ = out.tile(i, j, 64, 64)
    out.bind(outer_i, te.thread_axis("blockIdx.x"))
    out.tensorize(inner_i, tma_store((64, 64), "float16", swizzle))
    s[tile].compute_at(out, outer_j)
    for axis in tile.op.axis:
        s[tile].align_bounds(axis, 64)
    if swizzle:
        s[tile].swizzle(swizzle)
    x, y = tile.op.axis
    y, lane = s[tile].split(y, factor=32)
    x, warp = s[tile].split(x, factor=4)
    s[tile].reorder(x, warp, y, lane)
    s[tile].bind(lane, te.thread_axis((0, 32), "threadIdx.x"))
    s[tile].bind(warp, te.thread_axis((0, 4), "threadIdx.y"))
    return s, [a, b]


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("shape", [(200, 72), (64, 64), (3, 136)])
def test_what_is_outside_of_the_tensor_is_left_out(shape: tuple[int, int], swizzle: int) -> None:
    s, args = _tiles(shape, swizzle)
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    b = np.full(shape, np.nan, np.float16)
    tilewright.build(s, args, "sim")(a, b)
    np.testing.assert_array_equal(b, a + np.float16(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("rows", [64, 61])
def test_rows_of_a_box_may_be_apart(rows: int, swizzle: int, target: str) -> None:
    """Rows of even and of odd numbers leave in boxes of their own."""
    a = te.placeholder((rows, 72), "float16", name="A")

    def at(p: Any, i: Any, j: Any) -> Any:
        row = te.min(i * 2 + p, rows - 1)
        return a[row, j] + te.const(1, "float16")

    halves = te.compute((2, (rows + 1) // 2, 72), at, name="Halves")
    b = te.compute((rows, 72), lambda i, j: halves[i % 2, i // 2, j], name="B")
    s = te.create_schedule(b.op)
    s[halves].set_scope("shared")
    i, j = s[b].op.axis
    i, parity = s[b].split(i, factor=2)
    outer, i = s[b].split(i, factor=16)
    column, j = s[b].split(j, factor=64)
    s[b].reorder(parity, outer, column, i, j)
    s[b].bind(parity, te.thread_axis("blockIdx.x"))
    s[b].tensorize(i, tma_store((16, 64), "float16", swizzle))
    s[halves].compute_at(s[b], column)
    _, x, y = s[halves].op.axis
    s[halves].align_bounds(x, 16)
    s[halves].align_bounds(y, 64)
    if swizzle:
        s[halves].swizzle(swizzle)
    s[halves].bind(s[halves].split(y, factor=32)[1], te.thread_axis("threadIdx.x"))
    (func,) = lower(s, [a, b], HOPPER).funcs
    assert check(func) == []
    given = np.random.default_rng(0).standard_normal((rows, 72)).astype(np.float16)
    device = "cuda" if target == HOPPER else "cpu"
    found = array(np.full((rows, 72), np.nan, np.float16), device)
    tilewright.build(s, [a, b], target)(array(given, device), found)
    np.testing.assert_array_equal(found.numpy(), given + np.float16(1))


def _lowered() -> Func:
    s, args = _tiles((192, 192))
    return lower(s, args, HOPPER).funcs[0]


def test_one_thread_asks_for_a_box_and_waits_before_the_tile_is_written_again() -> None:
    func = _lowered()
    assert check(func) == []
    text = generate(Module("m", func.params, (func,)), "sm_90a").text
    kernel = text.partition('extern "C"')[2]
    before, behind = kernel.split("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group")
    assert "cp.async.bulk.wait_group.read 0" in before
    assert before.rpartition("fence.proxy.async")[2].count("__syncthreads") == 1
    assert before.endswith('if (threadIdx_y == 0 && threadIdx_x == 0) {\n      '
                           '// tma_store_float16_64x64_s128\n      asm volatile("')  # fmt: skip
    assert "cp.async.bulk.commit_group" in behind
    assert "cp.async.bulk.wait_group.read 0" in behind


def _found(func: Func) -> set[str]:
    return {x.kind for x in check(func)}


def test_every_fence_barrier_and_wait_between_is_needed() -> None:
    func = _lowered()
    assert _found(func) == set()
    kept = [
        s
        for s in statements(func.body)
        if isinstance(s, Sync) or (isinstance(s, Queue) and s.action in ("proxy", "wait"))
    ]
    for s in kept:
        assert _found(without(func, s)), s


def test_names_and_misuse() -> None:
    made = tma_store((8, 64), "float16", 128)
    assert instruction_named(made.name) is made
    with pytest.raises(LanguageError, match="tma_store: a box of 300 x 64 float16: there are 1 to"):
        tma_store((300, 64))
    s, args = _tiles((200, 68))
    with pytest.raises(LoweringError, match="cannot be tensorized with tma_store_float16_64x64"):
        tilewright.lower(s, args, HOPPER)


def test_a_kernel_that_reads_what_it_stores_is_refused() -> None:
    func = _lowered()
    a, b = func.params
    read = tilewright.ir.stmt.Evaluate(b[0, 0])  # type: ignore[union-attr]
    with pytest.raises(TargetError, match="B is read or written otherwise by the kernel"):
        generate(Module("m", (a, b), (replace(func, body=Seq((func.body, read))),)), "sm_90a")


def _conv(**more: Any) -> Conv:
    return Conv.parse((2, 72, 7, 9), (192, 72, 1, 1), 1, dtype="float16", layout="NHWC", **more)


#: Problems whose results leave so, in parts of tiles and one tile after the other.
STORED: list[tuple[str, Any, BoxProductTile]] = [
    ("gpu.box_products", Gemm(m=150, n=128, k=136, dtype="float16", transpose_b=True),
     BoxProductTile(64, 1, 1, 128, 3, boxes=2, staged=128, stores=1)),
    ("gpu.box_products", _conv(epilogue="bias+residual+relu"),
     BoxProductTile(128, 1, 1, 128, 3, staged=64, stores=1)),
    ("gpu.window_products",
     Conv.parse((1, 64, 9, 9), (64, 64, 3, 3), 1, padding=1, dtype="float16", layout="NHWC"),
     BoxProductTile(64, 1, 1, 64, 3, staged=64, stores=1)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), STORED, ids=lambda x: str(x)[:60])
def test_results_of_products_leave_so(name: str, p: Any, tile: Any, target: str) -> None:
    template = TEMPLATES[name]
    d = template.declare(p, tile)
    schedule = template.schedule(d, tile)
    for func in lower(schedule, d.args, HOPPER).funcs:
        assert check(func) == []
    kernel = tilewright.build(schedule, d.args, target)
    device = target.split()[0].replace("sim", "cpu")
    exact = product if isinstance(p, Gemm) else convolution
    assert run(p, kernel, device=device, exact=exact) < TOLERANCE[p.dtype]
