"""The parameters worth trying for a forward pass or a gradient by the input on a GPU, the best
guess first.

What would not fit the registers of a thread, or whose code would be very long, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from math import gcd
from typing import Any, TypeVar

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.columns import Array, Tiles, combinations, listed, pick, tile_of
from tilewright.topi.gpu.register_model import (
    CODE,
    REGISTERS,
    Window,
    cover,
    divisors,
    guess,
    in_planes,
    power,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.loop_order import AHEAD, EARLY, ROLLING, WHOLE
from tilewright.topi.pieces.register_tiles import PixelTile, PlaneTile, StripTile

#: Bytes of a filter in shared memory, or of the images of a block.
_SHARED = 40 * 1024
#: Pixels of an image that is small.
_PLANE = 1024
_ROWS = (1, 2, 4, 6, 7, 8, 14, 16, 28)
_THREADS = (64, 128, 256)

_Tile = TypeVar("_Tile")


def strip_tiles(given: Convolution, target: Target) -> Sequence[StripTile]:
    """For :func:`~tilewright.topi.sketches.registers.schedule_registers`."""
    window, p, size = Window(given), in_planes(given), dtype(given.dtype).bytes
    filters = p.multiplier if p.pass_ == "forward" else 1
    (h, w), whole = window.groups, window.taps(0)
    row = p.out_image[1] if window.gathers else p.width
    orders = _orders(window)
    bare = [
        (rows, vector, taps, by_row)
        for vector in ((8, 4, 2, 1) if size == 2 else (4, 2, 1))
        for rows in _ROWS
        if vector < 2 * max(2, w) and rows < 2 * h
        for by_row in (orders if rows > 1 else (WHOLE,))
        for taps in ((whole,) if by_row else dict.fromkeys((whole, min(whole, 3), 1)))
    ]
    which, wanted = combinations(range(len(bare)), _THREADS)
    rows, vector, taps, by_row = np.array(bare, "int64").reshape(-1, 4)[which].T
    wide = (by_row == ROLLING) | (by_row == EARLY)
    held = window.registers(rows, vector, 1, taps + (by_row == EARLY), by_row != WHOLE, wide)
    held = held + (filters - 1) * vector * np.where(by_row, 1, rows)
    code = window.code(rows, vector, 1, taps) * filters
    strips, x = -(-h // rows), cover(-(-w // vector), 32)
    y = cover(strips, np.maximum(1, wanted // x))
    z = power(np.maximum(1, np.minimum(64, wanted // (x * y))))
    loads = window.loads(rows, vector, taps) * window.waste(rows, vector)
    threads = p.batch * p.channels * strips * -(-w // vector)
    width = np.where(row % vector == 0, vector * size, size)
    cost = guess(loads, threads, width, held) * (1 + abs(np.log2(x * y * z / 128)) / 8)
    tile, fits = (
        StripTile(rows, vector, y, x, z, taps, by_row),
        (held <= REGISTERS) & (code <= CODE),
    )
    return _sorted(cost[fits], pick(tile, fits)) or [StripTile(1, 1, 1, 32, 1, 1)]


def has_small_planes(p: Conv) -> bool:
    """Whether :func:`~tilewright.topi.sketches.planes.schedule_planes` is for a problem."""
    return (
        p.multiplier == 1
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and math.prod(p.image) <= _PLANE
        and math.prod(p.out_image) <= _PLANE
    )


def small_plane_tiles(p: Conv, target: Target) -> Sequence[PlaneTile]:
    """For :func:`~tilewright.topi.sketches.planes.schedule_planes`."""
    window, size = Window(p), dtype(p.dtype).bytes
    (h, w), taps = window.groups, window.taps(0)
    rows, columns, order, wanted = combinations(
        (1, 2, 4, 7, 8, 14, 16), (1, 2, 4, 7, 8, 14), (AHEAD, ROLLING), (32, *_THREADS)
    )
    strips = -(-h // rows) * -(-w // columns)
    planes = divisors(p.result_channels, max(_THREADS))[np.maximum(1, wanted // strips)]
    held = window.registers(rows, columns, 1, p.kernel_h, True, True)
    both = (math.prod(p.image) + math.prod(p.out_image)) * size
    fits = (rows < 2 * h) & (columns < 2 * max(2, w)) & ((rows > 1) | (order == AHEAD))
    fits &= (held <= REGISTERS) & (window.code(rows, columns, 1, p.kernel_h) <= CODE)
    fits &= (planes * both <= _SHARED) & (planes * strips <= 1024)
    loads = window.loads(rows, columns, taps) * window.waste(rows, columns)
    cost = guess(loads, p.batch * p.result_channels * strips, 16, held)
    cost *= np.where(planes * math.prod(p.image) * size % 16 == 0, 1, 3)
    cost *= np.maximum(1.0, 64 / (planes * strips)) ** 0.5
    tile = tile_of(PlaneTile, (planes, rows, columns, order))
    return _sorted(cost[fits], pick(tile, fits)) or [PlaneTile(1, 1, 1)]


def pixel_tiles(given: Convolution, target: Target) -> Sequence[PixelTile]:
    """For :func:`~tilewright.topi.sketches.registers.schedule_registers`."""
    window, p, size = Window(given), in_planes(given), dtype(given.dtype).bytes
    (h, w), tile = window.groups, _pixel_blocks(p, window)
    rows, columns, vector = tile.rows, tile.columns, tile.vector
    held = _pixel_registers(window, tile)
    kept = tile.keeps * vector * window.taps(0) * p.kernel_w * window.planes
    fits = (held <= REGISTERS) & (window.code(rows, columns, vector, tile.taps) <= CODE)
    fits &= (tile.keeps == 0) | ((tile.by_row != WHOLE) & (held + kept <= REGISTERS))
    fits &= _filter_bytes(p, window, tile) <= _SHARED
    tile, held, kept = pick(tile, fits), held[fits], kept[fits]
    rows, columns, vector = tile.rows, tile.columns, tile.vector
    loads = window.loads(rows, columns, tile.taps) * window.waste(rows, columns)
    # a result of one channel needs all taps of that channel
    loads = loads + window.taps(0) * window.taps(1) * window.planes / (rows * columns)
    loads *= np.maximum(1.0, rows / 8)  # long programs are compiled less well
    threads = p.batch * -(-h // rows) * -(-w // columns) * -(-p.result_channels // vector)
    line = np.minimum(128, tile.threads_x * vector * size) / 128
    down = rows * tile.threads_z
    loads += window.seen(0, down, window.taps(0)) * window.planes / down
    cost = guess(loads, threads, np.minimum(16, vector * size) * line, held + kept)
    return _sorted(cost, tile) or [PixelTile(1, 1, 1, 1, 4, 1)]


def _pixel_blocks(p: Conv, window: Window) -> Any:
    """Vectors of neighbouring channels, and blocks of 128 or 256 threads."""
    (h, w), channels = window.groups, p.result_channels
    widest, whole = gcd(power(16 // dtype(p.dtype).bytes), channels), window.taps(0)
    orders = _orders(window)
    bare = [
        (rows, columns, vector, taps, by_row)
        for vector in dict.fromkeys((widest, max(1, widest // 2), max(1, widest // 4)))
        for rows, columns in product((1, 2, 4, 7, 8, 14), (1, 2, 4, 7, 8))
        if rows < 2 * h and columns < 2 * max(2, w)
        for by_row in (orders if rows > 1 else (WHOLE,))
        for taps in ((whole,) if by_row else dict.fromkeys((whole, min(whole, 3), 1)))
    ]
    which, most, wanted, narrow, high, keeps = combinations(
        range(len(bare)), (32, 16, 8), (128, 256), (0, 1), (0, 1), (0, 1)
    )
    rows, columns, vector, taps, by_row = np.array(bare, "int64").reshape(-1, 5)[which].T
    across = -(-channels // vector)
    x = cover(across, most)
    whole_y = np.maximum(1, np.minimum(wanted // x, -(-w // columns)))
    y = np.where(narrow, np.maximum(1, np.minimum(wanted // x // 2, whole_y)), whole_y)
    z = np.maximum(1, np.minimum(np.minimum(wanted // (x * y), -(-h // rows)), 64))
    z = np.where(high, z, 1)
    tile = tile_of(PixelTile, (rows, columns, vector, y, x, taps, by_row, z, keeps))
    others = ((narrow == 0) | (y < whole_y)) & ((high == 0) | (z > 1))
    return pick(tile, others & ((most == 32) | (across >= most)))


def _orders(window: Window) -> tuple[int, ...]:
    """The orders of rows worth trying: what several planes see is too much to load ahead."""
    ahead = (AHEAD,) if window.planes == 1 else ()
    return (WHOLE, ROLLING, *ahead, EARLY)


def _pixel_registers(window: Window, tile: Any) -> Any:
    """Registers of inputs and sums; where loads are branches, which they may be here, they all come
    first."""
    rolling = (tile.by_row == ROLLING) | (tile.by_row == EARLY)
    kept = tile.taps + (tile.by_row == EARLY)
    return window.registers(tile.rows, tile.columns, tile.vector, kept, rolling, rolling)


def _filter_bytes(p: Conv, window: Window, tile: Any) -> Any:
    """Of the filter in shared memory."""
    whole = (tile.by_row != WHOLE) | (tile.taps >= window.taps(0))
    rows = np.minimum(np.where(whole, p.kernel_h, tile.taps * window.phases[0]), p.kernel_h)
    channels = tile.threads_x * tile.vector * p.multiplier
    wide = ((tile.by_row == ROLLING) | (tile.by_row == EARLY)) & (tile.keeps == 0)
    size = np.where(wide, dtype(p.accumulate).bytes, dtype(p.dtype).bytes)
    return rows * p.kernel_w * channels * size * window.planes


def _sorted(cost: Array, tile: Any) -> Tiles[Any]:
    return listed(pick(tile, np.argsort(cost, kind="stable")))
