"""The parameters worth trying for a forward pass or a gradient by the input on a GPU, the best
guess first.

What would not fit the registers of a thread, or whose code would be very long, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from math import gcd
from typing import TypeVar

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_pixels import PixelTile
from tilewright.topi.gpu.depthwise_planes import PlaneTile
from tilewright.topi.gpu.depthwise_strips import StripTile
from tilewright.topi.gpu.orders import AHEAD, EARLY, ROLLING, WHOLE
from tilewright.topi.gpu.window import CODE, REGISTERS, Window, cover, divisor, guess, power
from tilewright.topi.problem import Problem

#: Bytes of a filter in shared memory, or of the images of a block.
_SHARED = 40 * 1024
#: Pixels of an image that is small.
_PLANE = 1024
_ROWS = (1, 2, 4, 6, 7, 8, 14, 16, 28)
_THREADS = (64, 128, 256)

_Tile = TypeVar("_Tile")


def strip_tiles(p: Problem, target: Target) -> list[StripTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_strips.schedule_strips`."""
    window, size = Window(p), dtype(p.dtype).bytes
    filters = p.multiplier if p.pass_ == "forward" else 1
    (h, w) = window.groups
    row = p.out_image[1] if window.gathers else p.width
    found: list[tuple[float, StripTile]] = []
    for vector in (8, 4, 2, 1) if size == 2 else (4, 2, 1):
        if vector >= 2 * max(2, w):
            continue
        width = vector * size if row % vector == 0 else size
        for rows, taps, by_row, held in _orders(window, vector, filters):
            x = cover(-(-w // vector), 32)
            strips = -(-h // rows)
            loads = window.loads(rows, vector, taps) * window.waste(rows, vector)
            threads = p.batch * p.channels * strips * -(-w // vector)
            for wanted in _THREADS:
                y = cover(strips, max(1, wanted // x))
                z = power(max(1, min(64, wanted // (x * y))))
                tile = StripTile(rows, vector, y, x, z, taps, by_row)
                idle = 1 + abs(math.log2(x * y * z / 128)) / 8
                found.append((guess(loads, threads, width, held) * idle, tile))
    return _sorted(found) or [StripTile(1, 1, 1, 32, 1, 1)]


def _orders(window: Window, vector: int, filters: int) -> Iterator[tuple[int, int, int, float]]:
    """Rows, taps and orders of strips that fit, and what registers they hold."""
    whole = window.taps(0)
    for rows in _ROWS:
        if rows >= 2 * window.groups[0]:
            continue
        for by_row in (WHOLE, ROLLING, AHEAD, EARLY) if rows > 1 else (WHOLE,):
            choices = (whole,) if by_row else tuple(dict.fromkeys((whole, min(whole, 3), 1)))
            for taps in choices:
                wide = by_row in (ROLLING, EARLY)
                held = window.registers(
                    rows, vector, 1, taps + (by_row == EARLY), bool(by_row), wide
                )
                held += (filters - 1) * vector * (1 if by_row else rows)
                if held <= REGISTERS and window.code(rows, vector, 1, taps) * filters <= CODE:
                    yield rows, taps, by_row, held


def has_small_planes(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.gpu.depthwise_planes.schedule_planes` is for a problem."""
    return (
        p.multiplier == 1
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and math.prod(p.image) <= _PLANE
        and math.prod(p.out_image) <= _PLANE
    )


def small_plane_tiles(p: Problem, target: Target) -> list[PlaneTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_planes.schedule_planes`."""
    window, size = Window(p), dtype(p.dtype).bytes
    h, w = window.groups
    both = (math.prod(p.image) + math.prod(p.out_image)) * size
    found: list[tuple[float, PlaneTile]] = []
    for rows, columns in product((1, 2, 4, 7, 8, 14, 16), (1, 2, 4, 7, 8, 14)):
        if rows >= 2 * h or columns >= 2 * max(2, w):
            continue
        strips = -(-h // rows) * -(-w // columns)
        loads = window.loads(rows, columns, window.taps(0)) * window.waste(rows, columns)
        for by_row in (AHEAD, ROLLING) if rows > 1 else (AHEAD,):
            held = window.registers(rows, columns, 1, p.kernel_h, True, True)
            if held > REGISTERS or window.code(rows, columns, 1, p.kernel_h) > CODE:
                continue
            for wanted in (32, *_THREADS):
                planes = divisor(p.result_channels, max(1, wanted // strips))
                if planes * both > _SHARED or planes * strips > 1024:
                    continue
                ragged = 1 if planes * math.prod(p.image) * size % 16 == 0 else 3
                idle = math.sqrt(max(1.0, 64 / (planes * strips)))
                threads = p.batch * p.result_channels * strips
                cost = guess(loads, threads, 16, held) * ragged * idle
                found.append((cost, PlaneTile(planes, rows, columns, by_row)))
    return _sorted(found) or [PlaneTile(1, 1, 1)]


def pixel_tiles(p: Problem, target: Target) -> list[PixelTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_pixels.schedule_pixels`."""
    window, size = Window(p), dtype(p.dtype).bytes
    (h, w), channels = window.groups, p.result_channels
    widest = gcd(power(16 // size), channels)
    found: list[tuple[float, PixelTile]] = []
    for vector in dict.fromkeys((widest, max(1, widest // 2), max(1, widest // 4))):
        across = -(-channels // vector)
        for rows, columns in product((1, 2, 4, 7, 8, 14), (1, 2, 4, 7, 8)):
            if rows >= 2 * h or columns >= 2 * max(2, w):
                continue
            for taps, by_row, held in _pixel_orders(window, rows, columns, vector):
                loads = window.loads(rows, columns, taps) * window.waste(rows, columns)
                # a result of one channel needs all taps of that channel
                loads += window.taps(0) * window.taps(1) / (rows * columns)
                loads *= max(1.0, rows / 8)  # long programs are compiled less well
                threads = p.batch * -(-h // rows) * -(-w // columns) * across
                kept = vector * window.taps(0) * p.kernel_w
                choices = (0, 1) if by_row and held + kept <= REGISTERS else (0,)
                for shape, keeps in product(_pixel_threads(window, rows, columns, across), choices):
                    y, x, z = shape
                    tile = PixelTile(rows, columns, vector, y, x, taps, by_row, z, keeps)
                    if _filter_bytes(p, window, tile) > _SHARED:
                        continue
                    line = min(128, shape[1] * vector * size) / 128
                    halo = window.seen(0, rows * shape[2], window.taps(0)) / (rows * shape[2])
                    full = held + keeps * kept
                    cost = guess(loads + halo, threads, min(16, vector * size) * line, full)
                    found.append((cost, tile))
    return _sorted(found) or [PixelTile(1, 1, 1, 1, 4, 1)]


def _pixel_orders(
    window: Window, rows: int, columns: int, vector: int
) -> Iterator[tuple[int, int, float]]:
    """Taps and orders of pixels that fit, and what registers they hold."""
    whole = window.taps(0)
    for by_row in (WHOLE, ROLLING, AHEAD, EARLY) if rows > 1 else (WHOLE,):
        for taps in (whole,) if by_row else dict.fromkeys((whole, min(whole, 3), 1)):
            # Where loads are branches, which they may be here, they all come first.
            rolls = by_row in (ROLLING, EARLY)
            kept = taps + (by_row == EARLY)
            held = window.registers(rows, columns, vector, kept, rolls, rolls)
            if held <= REGISTERS and window.code(rows, columns, vector, taps) <= CODE:
                yield taps, by_row, held


def _pixel_threads(
    window: Window, rows: int, columns: int, across: int
) -> list[tuple[int, int, int]]:
    """Threads along columns, channels and rows of a block."""
    h, w = -(-window.groups[0] // rows), -(-window.groups[1] // columns)
    found = []
    for most, wanted in product((32, 16, 8), (128, 256)):
        if most < 32 and across < most:
            continue
        x = cover(across, most)
        for y in dict.fromkeys((max(1, min(wanted // x, w)), max(1, min(wanted // x // 2, w)))):
            for z in dict.fromkeys((1, max(1, min(wanted // (x * y), h, 64)))):
                found.append((y, x, z))
    return list(dict.fromkeys(found))


def _filter_bytes(p: Problem, window: Window, tile: PixelTile) -> int:
    """Of the filter in shared memory."""
    whole = tile.by_row or tile.taps >= window.taps(0)
    rows = p.kernel_h if whole else tile.taps * window.phases[0]
    channels = tile.threads_x * tile.vector * p.multiplier
    wide = tile.by_row in (ROLLING, EARLY) and not tile.keeps
    size = dtype(p.accumulate if wide else p.dtype).bytes
    return min(rows, p.kernel_h) * p.kernel_w * channels * size


def _sorted(found: list[tuple[float, _Tile]]) -> list[_Tile]:
    return [tile for _, tile in sorted(found, key=lambda pair: pair[0])]
