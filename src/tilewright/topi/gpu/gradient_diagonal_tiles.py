"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_wgrad_diagonal`.

The best guess comes first: a time, of what tensor cores multiply, what shared memory is read for,
what comes through the second-level cache and what memory moves.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_wgrad_diagonal import DiagonalGradientTile, gradient_cut
from tilewright.topi.gpu.machine import Machine, eights_of, has_eights, sees_nothing
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.depthwise_wgrad_diagonal import PIXELS
from tilewright.topi.problem import Problem

#: Registers of a thread beside what it multiplies, tiles that are worth trying.
_OTHERS, _MOST = 44, 160
#: Products written out at most, and registers of a thread.
_CODE, _MOST_REGISTERS = 1024, 250
#: Microseconds of the second kernel and of the ends of the first.
_ENDS = 2.5


def gradient_diagonal_tiles(p: Problem, target: Target) -> list[DiagonalGradientTile]:
    """Tiles that fit, the best guess first."""
    return list(_ranked(p))


def suits_diagonal_gradient(p: Problem) -> bool:
    """Whether the schedule is for a problem: one of 16 bits, whose pixels begin at multiples of 16
    bytes, with filters that fit registers."""
    suits = p.pass_ == "wgrad" and has_eights(p) and not sees_nothing(p)
    return suits and bool(_ranked(p))


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[DiagonalGradientTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p), key=lambda pair: pair[0])
    return tuple(dict.fromkeys(tile for cost, tile in found if cost < math.inf))


def _tiles(p: Problem) -> Iterator[tuple[float, DiagonalGradientTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    height, width = p.out_image
    groups = -(-width // PIXELS)
    across = sorted({-(-groups // parts) for parts in (1, 2, 3, 4, 7)})
    rows = [n for n in (2, 4, 6, 8, 10, 14, 16) if whole(height, n) <= 1.2 * height] or [2]
    for r, down, x, e in product(rows, (1, 2, 4, 7), across, eights_of(p)):
        if not 2 <= down * x * e <= 24 or r * down >= 2 * height:
            continue
        for stages in (2, 3):
            tile = DiagonalGradientTile(r, down, x, e, stages, 1)
            yield from _shared_out(p, tile)


def _shared_out(
    p: Problem, tile: DiagonalGradientTile
) -> Iterator[tuple[float, DiagonalGradientTile]]:
    """Among as many blocks as multiprocessors hold at once."""
    cut, (height, width) = gradient_cut(p, tile), p.out_image
    x, dy = cut.x_part, cut.dy_part
    products = tile.rows * p.kernel[0] * cut.pairs
    registers = 4 * p.kernel[0] * cut.pairs + 2 * tile.rows + _OTHERS
    pixels = math.prod(x) + math.prod(dy)
    warps = tile.down * tile.across * tile.eights
    given = warps * cut.pairs * 2 * 64 * 4  # what the block adds up, a row of the filter
    space = tile.stages * pixels * cut.channels * 2 + given + Machine.OWN
    if max(*x, *dy) > LARGEST or products > _CODE or registers > _MOST_REGISTERS:
        return
    most = Machine.resident(warps, registers, space)
    groups = -(-p.channels // cut.channels)
    count = p.batch * math.prod(cut.grid)
    loads = cut.seen(0, tile.rows) * cut.pairs + tile.rows // 2
    work = Machine.busy(products, loads, tile.eights, 60)
    for resident in {most, most - 1} - {0, -1}:
        chunks = max(1, min(count, resident * MULTIPROCESSORS // groups))
        steps = -(-count // chunks)
        waves = -(-chunks * groups // (resident * MULTIPROCESSORS))
        blocks = min(resident, -(-chunks * groups // MULTIPROCESSORS))
        busy = steps * blocks * warps * work / Machine.CYCLES * (1 + 7 / (blocks * warps))
        box = pixels * max(cut.channels * 2 + 12, 80)
        cache = steps * chunks * groups * box / Machine.CACHE
        read = p.batch * (math.prod(p.image) + height * width) * p.channels * 2
        memory = read / Machine.MEMORY * (1.24 if groups > 1 else 1.0)
        waits = steps * 1.0 / (blocks * (tile.stages - 1))
        slowest = math.pow(busy**4 + cache**4 + memory**4 + waits**4, 0.25)
        yield waves * slowest + _ENDS, replace(tile, chunks=chunks)
