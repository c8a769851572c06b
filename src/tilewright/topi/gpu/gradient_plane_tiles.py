"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_wgrad_planes`.

The best guess comes first, in cycles of the busiest multiprocessor: what its warps issue, or what
it copies.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_wgrad_planes import (
    VECTOR,
    GradientPlaneTile,
    margin_of,
    planes_of,
)
from tilewright.topi.gpu.machine import sees_nothing
from tilewright.topi.gpu.turns import evenly
from tilewright.topi.gpu.varied import varied
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.problem import Problem

#: Bytes of shared memory of a multiprocessor, of which a block has this much beside its tiles, and
#: what one block may take. Its sums lie where tiles of x did.
_SHARED, _OWN, _BLOCK = 228 * 1024, 2048, 227 * 1024
#: Registers of a multiprocessor, of a thread, and those of a thread beside sums and pixels.
_REGISTERS, _MOST, _OTHERS = 65536, 255, 24
#: Multiplications written out in a kernel, threads of a block, least and most, planes of one, and
#: tiles that are tried.
_CODE, _THREADS, _PLANES, _COUNT = 5000, (64, 512), 64, 50
#: Cycles in which a multiprocessor copies a kilobyte from memory, or from the second-level cache,
#: and cycles until a first tile is there.
_MEMORY, _CACHE, _LATENCY = 52, 36, 1500
#: Instructions of a tile that neither load nor multiply, cycles in which the threads of a block
#: wait for one another and for a tile that is there, and those of the sums of a block.
_TURN, _WAITS, _ENDS = 75, 300, 1200
#: Instructions that a scheduler with so many warps issues in a cycle, about.
_BUSY = (0.0, 0.6, 0.8, 0.88, 0.92, 0.94)
_WARP = 32


def gradient_plane_tiles(p: Problem, target: Target) -> list[GradientPlaneTile]:
    """Tiles that fit shared memory and registers, the best guess first."""
    return list(_ranked(p))


def suits_plane_sums(p: Problem) -> bool:
    """Whether the schedule is for a problem: one of float32 with stride and dilation 1, whose rows
    lie at multiples of 16 bytes, with a filter that fits registers. In 16 bits tensor cores are
    faster."""
    return (
        p.rank == 2
        and p.pass_ == "wgrad"
        and p.dtype == p.accumulate == "float32"
        and p.stride == p.dilation == (1, 1)
        and p.multiplier == 1
        and p.image[1] % VECTOR == p.out_image[1] % VECTOR == 0
        and not sees_nothing(p)
        and next(_tiles(p), None) is not None
    )


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[GradientPlaneTile, ...]:
    return varied(_tiles(p), lambda t: (t.rows, t.columns, t.down, t.across), _COUNT)


def _tiles(p: Problem) -> Iterator[tuple[float, GradientPlaneTile]]:
    """Tiles, with how many cycles they are thought to take."""
    (kh, kw), height, width = p.kernel, p.height, p.out_image[1]
    margin = margin_of(p)
    for columns, rows in product((4, 8), (2, 4, 7, 8, 14, 16)):
        held = kh * (kw + columns) + _seen(margin, columns, kw) * VECTOR + _OTHERS
        if columns >= 2 * max(4, width) or rows >= 2 * max(2, height):
            continue
        if 2 * rows < kh and rows < height:  # most of the rows of dy are for its neighbours
            continue
        if held > _MOST or rows * columns * kh * kw > _CODE:
            continue
        whole, high = -(-width // columns), -(-height // rows)
        for across, down in product(
            dict.fromkeys(-(-whole // n) for n in (1, 2, 4)),
            dict.fromkeys(-(-high // n) for n in (1, 2, 4, 8)),
        ):
            for channels, images in product((1, 2, 3, 4, 6, 8), (1, 2)):
                threads = across * down * channels * images
                if not _THREADS[0] <= threads <= _THREADS[1] or channels >= 2 * p.channels:
                    continue
                if images > p.batch or channels * images > _PLANES or threads * held > _REGISTERS:
                    continue
                cut = rows, columns, down, across, channels, images
                yield from _shared_out(p, cut, threads, held)


def _seen(margin: int, columns: int, kernel: int) -> int:
    """Vectors of a row of x that so many columns of dy see, behind a margin."""
    return -(-(margin + columns + kernel - 1) // VECTOR)


def _shared_out(
    p: Problem, part: tuple[int, ...], threads: int, held: int
) -> Iterator[tuple[float, GradientPlaneTile]]:
    """Among as many blocks as multiprocessors hold at once."""
    (kh, kw), tile = p.kernel, GradientPlaneTile(*part)
    cut = planes_of(p, tile)
    if max(*cut.x_tile, *cut.dy_tile) > LARGEST:
        return
    warps = -(-threads // _WARP)
    x, dy = math.prod(cut.x_tile) * 4, math.prod(cut.dy_tile) * 4
    copied = x + dy
    seen = _seen(cut.margin, tile.columns, kw)
    loads = tile.rows * seen + (tile.rows + kh - 1) * (tile.columns // VECTOR)
    issued = tile.rows * tile.columns * kh * kw + loads + _TURN
    count = -(-p.batch // tile.images) * math.prod(cut.grid)
    registers = _REGISTERS // (-(-held // 8) * 8 * warps * _WARP)
    for stages in (2, 3, 4):
        shared = max(stages * x, threads * kh * kw * 4) + stages * dy + _OWN
        fit = min(_SHARED // shared, registers, 2048 // threads)
        if shared > _BLOCK or not fit:
            continue
        for blocks in {
            fit,
            max(1, fit - 1),
            2 * fit,
            3 * fit,
            4 * fit,
        }:  # at once, or one after another
            chunks = evenly(cut.groups, count, blocks * MULTIPROCESSORS // cut.groups)
            steps = -(-count // chunks)
            resident = min(fit, -(-chunks * cut.groups // MULTIPROCESSORS))
            waves = -(-chunks * cut.groups // (fit * MULTIPROCESSORS))
            each = -(-resident * warps // 4)  # warps of the busiest scheduler
            busy = each * issued / _BUSY[min(each, len(_BUSY) - 1)]
            moved = resident * (warps * loads * 4 + copied / 128)
            turn = _WAITS / resident + max(busy, moved, resident * copied / 1024 * _CACHE)
            whole = p.bytes / min(MULTIPROCESSORS, chunks * cut.groups) / 1024 * _MEMORY
            first = resident * copied / 1024 * _MEMORY * (stages - 1) / steps + _LATENCY
            time = math.hypot(waves * steps * turn, whole) + first + _ENDS * waves
            yield time, replace(tile, stages=stages, chunks=chunks)
