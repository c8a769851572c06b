"""The tiles worth trying for :mod:`~tilewright.topi.pieces.pixel_boxes`, best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.devices import REGISTERS, WARP
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, best, columns, pick
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.machine import slides
from tilewright.topi.gpu.staged_times import Work, brought, in_turns, spare_of, written
from tilewright.topi.nn.depthwise_byte_dots import APART
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.pixel_boxes import BoxTile, has_dots, multiplied, seen

#: Threads of a block, and what it does with them.
_GRID = ("threads_x", "threads_y", "threads_z")
#: Multiplications written out at most.
_CODE = 4096
#: Of how many fillings of the registers of a thread tiles are worth trying.
_THREADS = 28
#: Registers of a thread beside those that inputs, filters and sums take.
_OTHERS = 22
#: By bytes of an input, instructions that make it a number in the type of sums.
_CONVERTED = {1: 1.8, 2: 1.6}
#: The same of one that is turned into a word instead: of two pixels six for four channels.
_TURNED = 0.75


@functools.lru_cache(64)
def box_tiles(p: Conv) -> Sequence[BoxTile]:
    """Tiles that fit, the best guess first."""
    tile = _blocks(p)
    found = in_turns(tile, work(p, tile))
    return found or (BoxTile(1, 1, 1, 1, 1, 16 // dtype(p.dtype).bytes, keeps=0),)


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    size, (height, width) = dtype(p.dtype).bytes, p.result_image
    (rows, across, channels), (h, w, c) = seen(p, tile), tile.whole
    beside = -(-p.channels // c)
    read = math.prod(p.out_image if p.pass_ == "dgrad" else p.image)
    # Parts of pixels reach memory one after the other.
    moved = p.batch * p.channels * (height * width + read) * size * np.where(beside > 1, 1.24, 1.0)
    registers = np.maximum(32, _registers(p, tile)[1])
    loads, issued = _instructions(p, tile)
    return Work(
        warps=-(-math.prod(tile.threads) // WARP), registers=registers,
        staged=rows * across * channels * size,
        kept=p.kernel_h * channels * multiplied(p, tile)[2], line=-(-height // h),
        beside=p.batch * -(-width // w) * beside, products=0,
        loads=0, issued=issued + loads * (_conflicts(p, tile) - 1), once=0,
        brought=brought(rows * across, channels * size), moved=moved,
        fits=np.maximum(rows, across) <= LARGEST,
        spare=spare_of((*p.result_image, p.channels), tile.within(p), (rows, across)),
    )  # fmt: skip


def _conflicts(p: Conv, tile: Any) -> Array:
    """How often a warp's load takes turns at banks."""
    size, step = dtype(p.dtype).bytes, p.stride[1] if p.pass_ == "forward" else 1
    across, lane = tile.threads_x[:, None], np.arange(WARP)
    place = lane % across * (tile.vector * size)[:, None]
    apart = tile.columns * step * seen(p, tile)[2] * size
    place += lane // across % tile.threads_y[:, None] * apart[:, None]
    return bank_conflicts(place, tile.vector * size)


def _lanes(p: Conv) -> list[tuple[int, int]]:
    """Threads along channels, and channels of each, of boxes with whole chunks of 16 bytes."""
    size = dtype(p.dtype).bytes
    found = []
    counts = (8, 12, 16, 18, 20, 24, 32, 36, 48, 64, 72, 96)
    for vector, lanes in [(v, n) for v in (4, 2, 1) for n in counts]:
        channels = lanes * vector
        chunks = channels * size % 16 == 0 and vector * size <= 8
        if chunks and channels <= LARGEST and whole(p.channels, channels) <= 1.15 * p.channels:
            found.append((lanes, vector))
    return found or [(16 // size, 1)]


def _blocks(p: Conv) -> Any:
    """Blocks of the threads whose results cost least."""
    (height, width), lanes = p.result_image, _lanes(p)
    threads = _threads(p, {v for _, v in lanes})
    threads = pick(threads, best(_dear(p, threads), _THREADS))
    return columns(BoxTile, [
        (rows, own, vector, z, y, x, 1, 1, keeps)
        for rows, own, vector, keeps in zip(
            *(n.tolist() for n in (threads.rows, threads.columns, threads.vector, threads.keeps)),
            strict=True,
        )
        for x, lane in lanes
        if lane == vector
        for y in dict.fromkeys([-(-width // (own * parts)) for parts in (1, 2, 3, 4, 7)])
        for z in (1, 2, 4)
        if 64 <= x * y * z <= 512 and rows * z < 2 * height
    ])  # fmt: skip


def _threads(p: Conv, vectors: set[int]) -> Any:
    """What threads may compute: that for which they have registers, and whose code is not long."""
    rows, across = (
        [n for n in sizes if whole(extent, n) <= 1.2 * extent] or [1]
        for extent, sizes in zip(
            p.result_image, ((1, 2, 3, 4, 5, 7, 8, 14, 28), (1, 2, 3, 4, 5, 7, 8)), strict=True
        )
    )
    tile = columns(BoxTile, [
        (r, c, vector, 1, 1, 1, 1, 1, keeps)
        for vector in sorted(vectors) for r in rows for c in across for keeps in (1, 0)
    ])  # fmt: skip
    kept, registers = _registers(p, tile)
    code = tile.rows * tile.columns * tile.vector * p.kernel_h * p.kernel_w
    return pick(tile, (np.maximum(kept, registers) <= 250) & (code <= _CODE))


def _alone(p: Conv, tile: Any) -> Any:
    """A thread of a tile."""
    return pick(tile, slice(None), **dict.fromkeys(_GRID, np.ones_like(tile.rows)))


def _registers(p: Conv, tile: Any) -> tuple[Any, Any]:
    """What a thread keeps of inputs and filters, and its registers."""
    kh, (_, pixels, _) = p.kernel_h, seen(p, _alone(p, tile))
    _, kw, _ = multiplied(p, tile)
    wide = np.where(has_dots(p, tile), pixels // APART, pixels)
    kept = ((kh - 1) * p.dilation[0] + 1) * wide * tile.vector + tile.keeps * kh * kw * tile.vector
    return kept, kept // 2 + tile.columns * tile.vector + _OTHERS


def _instructions(p: Conv, tile: Any) -> tuple[Array, Array]:
    """Loads of a thread in a turn, and its instructions with these."""
    kh, converted = p.kernel_h, _CONVERTED.get(dtype(p.dtype).bytes, 0.0)
    narrow, (kw, own, _), dots = converted > 0, multiplied(p, tile), has_dots(p, tile)
    (high, wide, _), results = seen(p, _alone(p, tile)), tile.rows * tile.columns
    unpacked = np.where(dots, 0, narrow * tile.vector)
    filters = kh * own * np.where(tile.keeps, 1 + unpacked, tile.rows)
    converted = np.where(dots, _TURNED, converted) * high * wide * tile.vector
    code = results * tile.vector * kh * kw + filters + converted + results * (1 + narrow) + 80
    return high * wide + 0 * tile.rows, np.asarray(code + high * wide)


def _dear(p: Conv, tile: Any) -> Array:
    """Instructions for each result, dearer where few warps have room for their registers."""
    results = tile.rows * tile.columns * tile.vector
    warps = REGISTERS / (WARP * np.maximum(32, _registers(p, tile)[1]))
    return np.asarray(written(_instructions(p, tile)[1]) / results * (1 + 7 / warps))


def suits_boxes(p: Conv) -> bool:
    """Whether tiles of pixels are for a problem: pixels begin at multiples of 16 bytes."""
    return p.rank == 2 and p.channels * dtype(p.dtype).bytes % 16 == 0 and slides(p)
