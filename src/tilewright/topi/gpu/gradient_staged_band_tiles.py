"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_wgrad_staged_bands`.

The best guess comes first, in microseconds: what the warps of a multiprocessor multiply, what it
copies, and what a block waits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_wgrad_staged_bands import (
    VECTOR,
    StagedBandTile,
    staged_bands_of,
)
from tilewright.topi.gpu.gradient_band_tiles import has_bands
from tilewright.topi.gpu.turns import evenly
from tilewright.topi.gpu.varied import varied
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_wgrad_bands import DEPTH, ROWS
from tilewright.topi.problem import Problem

#: Bytes of shared memory of a multiprocessor, of which a block has this much beside what it uses,
#: and what one block may take.
_SHARED, _OWN, _BLOCK = 228 * 1024, 1024, 227 * 1024
#: Registers of a thread beside its sums and what it loads, most of a thread, and those of a
#: multiprocessor; warps of a block, at most, and products written out; tiles that are worth trying.
_OTHERS, _MOST_HELD, _FILE, _WARPS, _CODE, _MOST = 28, 240, 65536 // 32, 16, 600, 60
#: Cycles of a scheduler for a product and what belongs to it, those in which the next product of a
#: warp can begin, and those of a copy; cycles a microsecond; bytes a microsecond that memory and
#: its cache give; microseconds until a copy is there, and of the ends.
_PRODUCT, _APART, _COPY, _CYCLES, _MEMORY, _CACHE, _LOAD, _ENDS = (
    8, 11, 200, 1700, 4.2e6, 5.5e6, 1.0, 2.5,
)  # fmt: skip


def staged_band_tiles(p: Problem, target: Target) -> list[StagedBandTile]:
    """Tiles that fit registers and shared memory, the best guess first."""
    return list(_ranked(p))


def suits_staged_bands(p: Problem) -> bool:
    """Whether the schedule is for a problem: as :func:`has_bands`, and of rows that lie at
    multiples of 16 bytes, with one filter a channel."""
    return (
        has_bands(p)
        and p.multiplier == 1
        and p.image[1] % VECTOR == p.out_image[1] % VECTOR == 0
        and next(_tiles(p), None) is not None
    )


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[StagedBandTile, ...]:
    return varied(_tiles(p), lambda t: (t.blocks, t.columns, t.down, t.across), _MOST)


def _tiles(p: Problem) -> Iterator[tuple[float, StagedBandTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    height, width = p.out_image[0], p.image[1]
    for blocks, columns in product((1, 2, 4, 7), (16, 32, 64, 128)):
        if ROWS * blocks >= 2 * max(ROWS, height) or columns >= 2 * max(DEPTH, width):
            continue
        if blocks * columns // DEPTH * p.kernel_w > _CODE:
            continue
        whole, high = -(-width // columns), -(-height // (ROWS * blocks))
        for across, down, images in product(
            dict.fromkeys(-(-whole // n) for n in (1, 2)),
            dict.fromkeys(-(-high // n) for n in (1, 2, 4)),
            (1, 2, 4, 8),
        ):
            tile = StagedBandTile(blocks, columns, down, across, images)
            if 2 <= tile.warps <= _WARPS and images < 2 * p.batch:
                yield from _shared_out(p, tile)


def _shared_out(p: Problem, tile: StagedBandTile) -> Iterator[tuple[float, StagedBandTile]]:
    """Among as many blocks as multiprocessors hold at once."""
    cut, channels = staged_bands_of(p, tile), p.out_channels
    if max(*cut.x_tile, *cut.dy_tile) > LARGEST:
        return
    # All that a thread has of a copy is loaded at once.
    loaded = tile.blocks * (2 * cut.share + sum(cut.around)) + cut.share
    held = -(-(4 * p.kernel_w + loaded // 2 + _OTHERS) // 8) * 8
    products = tile.blocks * tile.columns // DEPTH * p.kernel_w
    copied = 2 * (math.prod(cut.x_tile) + math.prod(cut.dy_tile))
    count = -(-p.batch // tile.images) * math.prod(cut.grid)
    high, wide = cut.size
    seen = 2 * tile.images * min(wide, p.image[1]) * (2 * high + ROWS)
    for stages in (2, 3, 4):
        shared = stages * copied + tile.warps * p.kernel_w * 512 + _OWN
        fit = min(_SHARED // shared, _FILE // held // tile.warps)
        if shared > _BLOCK or held > _MOST_HELD or not fit:
            continue
        for blocks in {
            fit,
            max(1, fit - 1),
            2 * fit,
            3 * fit,
            4 * fit,
        }:  # at once, or one after another
            chunks = evenly(channels, count, blocks * MULTIPROCESSORS // channels)
            steps = -(-count // chunks)
            waves = -(-chunks * channels // (fit * MULTIPROCESSORS))
            full = min(fit, -(-chunks * channels // MULTIPROCESSORS))
            busy = steps * full * tile.warps / 4 * (products * _PRODUCT + _COPY / 2) / _CYCLES
            alone = steps * (products * _APART + _COPY) / _CYCLES
            waits = steps * _LOAD / (stages - 1)
            memory = p.bytes / _MEMORY * MULTIPROCESSORS / min(MULTIPROCESSORS, chunks * channels)
            cache = steps * chunks * channels * seen / _CACHE
            slowest = math.hypot(waves * max(busy, alone, waits), max(memory, cache))
            first = copied * (stages - 1) * full * MULTIPROCESSORS / _MEMORY / steps
            yield slowest + first + _ENDS, replace(tile, stages=stages, chunks=chunks)
