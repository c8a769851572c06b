"""Depthwise convolution on a GPU, channels last, of tiles of the image in shared memory.

A block goes down the image tile by tile. What a tile sees of some channels, halo and padding
included, comes into shared memory as one box, by TMA, while the tile before it is computed: no
thread has a guard or computes an address, and neighbours share what both of them see. A thread
computes ``rows`` by ``columns`` pixels of ``vector`` channels, row by row; a row of the input that
it read and converted serves all outputs whose windows hold it.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.declare import Declaration, declare_tiles
from tilewright.topi.gpu.orders import ROLLING, place_loads
from tilewright.topi.nn.depthwise_forward import Tile, whole
from tilewright.topi.problem import Problem
from tilewright.topi.stages import begin, image_axes, tap_axes

#: Bytes of shared memory, registers and warps of a multiprocessor, on GPUs with the most, and
#: registers of a thread beside what it keeps.
_SHARED, _REGISTERS, _WARPS, _OTHER = 227 * 1024, 65536, 64, 28
#: Multiplications written out, at most, and so many tiles are worth trying.
_CODE, _MOST = 4096, 160
#: Instructions of a thread that are there once.
_ONCE = 60


@dataclass(frozen=True)
class BoxTile:
    """A thread computes ``rows`` by ``columns`` pixels of ``vector`` channels; a block has
    ``threads_z`` threads down, ``threads_y`` across and ``threads_x`` along channels, and goes
    through ``turns`` tiles, one below the other, of which ``stages`` are in shared memory. With
    ``keeps`` (1 or 0) a thread has the filter of its channels in registers."""

    rows: int = 8
    columns: int = 4
    vector: int = 2
    threads_z: int = 1
    threads_y: int = 8
    threads_x: int = 16
    turns: int = 1
    stages: int = 1
    keeps: int = 1

    @property
    def whole(self) -> Tile:
        """Rows, columns and channels that a block computes at once."""
        return (
            self.rows * self.threads_z,
            self.columns * self.threads_y,
            self.vector * self.threads_x,
        )


def declare_boxes(p: Problem, tile: BoxTile, batch: Any = None) -> Declaration:
    """The program of a problem, in whole tiles; ``batch`` as in :func:`declare`."""
    return declare_tiles(p, tile.whole, batch)


def schedule_boxes(d: Declaration, tile: BoxTile = BoxTile()) -> Schedule:
    """The schedule of what :func:`declare_boxes` makes of a problem with the same ``tile``."""
    st, p = begin(d), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    boxed = s.cache_read(d.image, "shared", [st.sum]) if d.padded is None else d.padded
    data = s.cache_read(boxed, "local", [st.sum], p.accumulate)

    n, c, h, w = image_axes(out, p.layout)
    c, lane = out.split(c, factor=tile.vector)
    cb, tx = out.split(c, factor=tile.threads_x)
    w, column = out.split(w, factor=tile.columns)
    wb, ty = out.split(w, factor=tile.threads_y)
    h, row = out.split(h, factor=tile.rows)
    h, tz = out.split(h, factor=tile.threads_z)
    hb, turn = out.split(h, factor=tile.turns)
    out.reorder(n, hb, wb, cb, tz, ty, tx, turn, row, column, lane)
    block = out.fuse(n, hb, wb, cb)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(tz, te.thread_axis("threadIdx.z"))
    out.bind(ty, te.thread_axis("threadIdx.y"))
    out.bind(tx, te.thread_axis("threadIdx.x"))
    for axis in (row, column):
        out.unroll(axis)
    even = p.result_channels % tile.vector == 0
    (out.vectorize if even else out.unroll)(lane)

    sums.compute_at(out, row)
    *_, channel = sums.op.axis
    _, di, dj = tap_axes(sums, p.rank)
    sums.reorder(di, dj, *sums.op.axis[:-1], channel)
    for axis in (di, dj, *sums.op.axis):
        sums.unroll(axis)

    loads = s[data]
    place_loads(loads, ROLLING, out, row, tx, sums, di)
    for axis in loads.op.axis[:-1]:
        loads.unroll(axis)
    loads.vectorize(loads.op.axis[-1])

    box = s[boxed]
    box.set_scope("shared")
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    box.tensorize(box.op.axis[0], tma_load((1, *seen(p, tile)), p.dtype))

    assert d.packed is not None
    assert st.packed is not None
    st.packed.compute_inline()
    filter = s.cache_read(d.packed, "shared", [st.sum], None if tile.keeps else p.accumulate)
    if tile.keeps:
        kept = s[s.cache_read(filter, "local", [st.sum], p.accumulate)]
        kept.compute_at(out, turn)
        for axis in kept.op.axis[:-1]:
            kept.unroll(axis)
        kept.vectorize(kept.op.axis[-1])
    packed = s[filter]
    packed.compute_at(out, turn if tile.turns == 1 else block)
    *positions, channel = packed.op.axis
    packed.reorder(channel, *positions)  # as the filter lies
    rest = packed.fuse(channel, *positions)
    for extent, name in (
        (tile.threads_x, "x"), (tile.threads_y, "y"), (tile.threads_z, "z"),
    ):  # fmt: skip
        rest, threads = packed.split(rest, factor=extent)
        packed.bind(threads, te.thread_axis((0, extent), f"threadIdx.{name}"))
    return s


def seen(p: Problem, tile: BoxTile) -> Tile:
    """Rows, columns and channels of the input that a block's tile sees."""
    steps = p.stride if p.pass_ == "forward" else (1, 1)
    rows, columns = (
        (size - 1) * step + (k - 1) * e + 1
        for size, step, k, e in zip(tile.whole, steps, p.kernel, p.dilation, strict=False)
    )
    return rows, columns, tile.whole[2]


def suits_boxes(p: Problem) -> bool:
    """Whether :func:`schedule_boxes` is for a problem: pixels begin at multiples of 16 bytes."""
    return (
        p.rank == 2
        and p.multiplier == 1
        and p.channels * dtype(p.dtype).bytes % 16 == 0
        and (p.pass_ == "forward" or p.stride == (1, 1))
    )


def box_tiles(p: Problem, target: Target) -> list[BoxTile]:
    """Tiles that fit, the best guess first."""
    found = heapq.nsmallest(_MOST, _tiles(p), key=lambda pair: pair[0])
    least = BoxTile(1, 1, 1, 1, 1, 16 // dtype(p.dtype).bytes, keeps=0)
    return [tile for cost, tile in found if cost < math.inf] or [least]


def _tiles(p: Problem) -> Iterator[tuple[float, BoxTile]]:
    """Tiles, with how slow they are thought to be."""
    height, width = p.image if p.pass_ == "dgrad" else p.out_image
    down, across = _parts(height, (1, 2, 4, 5, 7, 8, 14)), _parts(width, (1, 2, 3, 4, 5, 7, 8))
    for (lanes, vector), rows, columns, keeps in product(_lanes(p), down, across, (1, 0)):
        thread = BoxTile(rows, columns, vector, 1, 1, lanes, keeps=keeps)
        issued, registers = _thread(p, thread)
        if registers > 240:
            continue
        threads = dict.fromkeys(-(-width // (columns * parts)) for parts in (1, 2, 3, 4))
        for z, y in product((1, 2, 4), threads):
            if not 64 <= z * y * lanes <= 512 or rows * z >= 2 * height:
                continue
            tile = replace(thread, threads_z=z, threads_y=y)
            turns = -(-height // (rows * z))
            for made in (tile, *(replace(tile, turns=t, stages=2) for t in {2, 4, turns} if t > 1)):
                if made.turns < 2 * turns:
                    yield _cost(p, made, issued, registers), made


def _parts(extent: int, sizes: tuple[int, ...]) -> list[int]:
    """Sizes of parts of an extent that leave little of the last one empty."""
    return [n for n in sizes if whole(extent, n) <= 1.2 * extent] or [1]


def _lanes(p: Problem) -> list[tuple[int, int]]:
    """Threads along channels, and channels of each, of boxes with whole pieces of 16 bytes."""
    size = dtype(p.dtype).bytes
    found = []
    for vector, lanes in product((2, 1), (8, 12, 16, 18, 20, 24, 32, 36, 48, 64, 72, 96)):
        channels = lanes * vector
        if channels * size % 16 == 0 and whole(p.channels, channels) <= 1.15 * p.channels:
            found.append((lanes, vector))
    return found or [(16 // size, 1)]


def _thread(p: Problem, tile: BoxTile) -> tuple[float, int]:
    """Instructions of a thread for each result of its own, and its registers."""
    (kh, kw), vector, narrow = p.kernel, tile.vector, dtype(p.dtype).bytes == 2
    high, wide, _ = seen(p, replace(tile, threads_y=1, threads_z=1))
    kept = ((kh - 1) * p.dilation[0] + 1) * wide * vector + tile.columns * vector
    registers = kept + tile.keeps * kh * kw * vector + _OTHER
    results = tile.rows * tile.columns
    weights = kh * kw * (1 + narrow * vector if tile.keeps else tile.rows)
    converted = high * wide * vector * narrow
    issued = results * vector * kh * kw + high * wide + converted + weights
    issued += results * (1 + narrow) + _ONCE
    if issued > _CODE:
        return issued, _REGISTERS
    return issued / (results * vector), registers


def _cost(p: Problem, tile: BoxTile, issued: float, registers: int) -> float:
    """How slow a tile may be: instructions for each result that there is, dearer the fewer warps
    share a multiprocessor, and bytes; infinite where it does not fit."""
    size, (kh, kw) = dtype(p.dtype).bytes, p.kernel
    sh, sw = p.stride if p.pass_ == "forward" else (1, 1)
    warps = -(-tile.threads_x * tile.threads_y * tile.threads_z // 32)
    rows, columns, channels = seen(p, tile)
    taps = kh * kw * channels * (size if tile.keeps else 4)
    space = tile.stages * rows * columns * channels * size + taps + 1024
    if space > _SHARED or max(rows, columns) > LARGEST:
        return math.inf
    blocks = min(_SHARED // space, _REGISTERS // (warps * 32 * registers), _WARPS // warps, 32)
    if not blocks:
        return math.inf
    height, width = p.image if p.pass_ == "dgrad" else p.out_image
    h, w, c = tile.whole
    computed = whole(height, h * tile.turns) * whole(width, w) * whole(p.channels, c)
    waste = computed / (height * width * p.channels)
    halo = rows * columns / (h * w * sh * sw)  # bytes that come from the cache for each that is new
    across = (
        rows
        * columns
        / (h * w)
        / tile.vector
        * _conflicts(
            tile.threads_x, tile.threads_y, tile.vector * size, tile.columns * sw * channels * size
        )
    )
    busy = 1 + 4 / (blocks * warps)
    return waste * ((issued + across) * busy + (2 + halo) * size)


@functools.cache
def _conflicts(lanes: int, across: int, width: int, apart: int) -> int:
    """How often the threads of a warp take turns to read from shared memory: ``lanes`` that read
    ``width`` bytes each side by side, others ``apart`` bytes from them."""
    words: dict[int, set[int]] = {}
    for thread in range(32):
        y, x = divmod(thread, lanes)
        word = (y % across * apart + x * width) // 4
        words.setdefault(word % 32, set()).add(word)
    return max(len(found) for found in words.values())
