"""The parameters worth trying for a problem on a GPU, the best guess first.

A guess weighs how much of what a thread loads it uses again against how many threads there are to
hide the time that loads take. What would not fit the registers of a thread, or whose code would be
very long, is left out.
"""

from __future__ import annotations

import math
from itertools import product
from math import gcd
from typing import TypeVar

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_pixels import PixelTile
from tilewright.topi.gpu.depthwise_planes import PlaneTile
from tilewright.topi.gpu.depthwise_strips import AHEAD, ROLLING, StripTile
from tilewright.topi.gpu.depthwise_wgrad import ReductionTile
from tilewright.topi.problem import Problem

#: Sums and inputs in registers, addresses and taps besides.
_REGISTERS = 150
#: Multiplications written out in a kernel.
_CODE = 2048
#: Threads that keep a large GPU busy.
_THREADS = 100_000
_MOST = 32
#: Pixels of an image that is small.
_PLANE = 1024
#: Bytes of a filter in shared memory, or of the images of a block.
_SHARED = 40 * 1024

_Tile = TypeVar("_Tile")


def _power(limit: int) -> int:
    """The largest power of two up to ``limit``."""
    return 1 << (max(1, limit).bit_length() - 1)


def _cover(extent: int, most: int) -> int:
    """The number of threads, at most ``most``, that cover ``extent`` with the least waste."""
    rounds = -(-extent // most)
    return -(-extent // rounds)


class _Window:
    """The input of a tile of outputs, and what it takes to sum it."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.gathers = p.pass_ == "dgrad"
        self.phases = p.stride if self.gathers else (1, 1)
        image = p.image if self.gathers else p.out_image
        self.groups = tuple(-(-e // s) for e, s in zip(image, self.phases, strict=True))

    def taps(self, k: int) -> int:
        """Along one dimension, those that one output sees."""
        return -(-self.p.kernel[k] // self.phases[k])

    def seen(self, k: int, outputs: int, taps: int) -> int:
        """Inputs along one dimension of so many outputs and taps."""
        step = 1 if self.gathers else self.p.stride[k]
        spread = 1 if self.phases[k] > 1 else self.p.dilation[k]
        return (outputs - 1) * step + (taps - 1) * spread + 1

    def tile(self, rows: int, columns: int, lanes: int, taps: int) -> tuple[int, int, float]:
        """Registers, multiplications written out, and inputs loaded for each output."""
        sums = rows * columns * lanes * self.phases[0] * self.phases[1]
        rounds = -(-self.taps(0) // taps)
        half = 2 if dtype(self.p.dtype).bytes == 2 else 1
        block = self.seen(0, rows, taps) * self.seen(1, columns, self.taps(1))
        code = sums * taps * self.taps(1)
        return sums + block * lanes // half, code, block * rounds / (rows * columns)


def pixel_tiles(p: Problem, target: Target) -> list[PixelTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_pixels.schedule_pixels`."""
    window, size = _Window(p), dtype(p.dtype).bytes
    widest = gcd(_power(16 // size), p.result_channels)
    found: list[tuple[float, PixelTile]] = []
    vectors, across = dict.fromkeys((widest, max(1, widest // 2))), p.result_channels
    strips = product((1, 2, 4, 8), (1, 2, 4, 7, 8))
    wholes = dict.fromkeys((window.taps(0), min(window.taps(0), 3), 1))
    for vector, (rows, columns), taps, most in product(vectors, strips, wholes, (32, 8)):
        if rows >= 2 * window.groups[0] or columns >= 2 * window.groups[1]:
            continue
        x = _cover(-(-across // vector), most)
        y = max(1, min(128 // x, -(-window.groups[1] // columns)))
        registers, code, loads = window.tile(rows, columns, vector, taps)
        tile = PixelTile(rows, columns, vector, y, x, taps)
        small = _filter_bytes(p, window, tile) <= _SHARED
        if registers <= _REGISTERS and code <= _CODE and small:
            count = -(-window.groups[0] // rows) * -(-window.groups[1] // columns)
            threads = p.batch * count * -(-across // vector)
            width = min(16, vector * size) * (1 if x * vector * size >= 128 else 0.25)
            found.append((_cost(loads, threads, width), tile))
    return _best(found) or [PixelTile(1, 1, 1, 1, 4, 1)]


def _filter_bytes(p: Problem, window: _Window, tile: PixelTile) -> int:
    """Of the filter in shared memory."""
    rows = tile.taps * window.phases[0] if tile.taps < window.taps(0) else p.kernel_h
    channels = tile.threads_x * tile.vector * p.multiplier
    return min(rows, p.kernel_h) * p.kernel_w * channels * dtype(p.dtype).bytes


def has_small_planes(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.gpu.depthwise_planes.schedule_planes` is for a problem."""
    return (
        p.multiplier == 1
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and math.prod(p.image) <= _PLANE
        and math.prod(p.out_image) <= _PLANE
    )


def plane_tiles(p: Problem, target: Target) -> list[PlaneTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_planes.schedule_planes`."""
    window, size = _Window(p), dtype(p.dtype).bytes
    h, w = p.result_shape[-2:] if p.rank == 2 else (1, p.result_shape[-1])
    both = (math.prod(p.image) + math.prod(p.out_image)) * size
    found: list[tuple[float, PlaneTile]] = []
    for rows, columns in product((1, 2, 4, 7, 8, 14, 16), (1, 2, 4, 7, 8, 14)):
        if rows >= 2 * h or columns >= 2 * max(2, w):
            continue
        strips = -(-h // rows) * -(-w // columns)
        for by_row in (AHEAD, ROLLING) if rows > 1 else (AHEAD,):
            sums = columns * (1 if by_row else rows)
            step = 1 if window.gathers else p.stride[1]
            live = p.kernel_h * ((columns - 1) * step + p.kernel_w)
            if sums + live > _REGISTERS + 40 or rows * columns * math.prod(p.kernel) > 2 * _CODE:
                continue
            seen = window.seen(0, rows, p.kernel_h) * window.seen(1, columns, p.kernel_w)
            for wanted in (64, 128, 256):
                planes = _divisor(p.result_channels, max(1, wanted // strips))
                if planes * both > _SHARED or planes * strips > 1024:
                    continue
                waste = rows * columns * strips / (h * w)
                idle = math.sqrt(max(1.0, _THREADS / (p.batch * p.result_channels * strips)))
                ragged = 1 if planes * math.prod(p.image) * size % 16 == 0 else 4
                narrow = math.sqrt(max(1.0, 64 / (planes * strips)))
                cost = seen / (rows * columns) * waste * idle * ragged * narrow
                found.append((cost, PlaneTile(planes, rows, columns, by_row)))
    return _best(found) or [PlaneTile(1, 1, 1)]


def _divisor(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` up to ``most``."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


def strip_tiles(p: Problem, target: Target) -> list[StripTile]:
    """For :func:`~tilewright.topi.gpu.depthwise_strips.schedule_strips`."""
    window, size = _Window(p), dtype(p.dtype).bytes
    filters = p.multiplier if p.pass_ == "forward" else 1
    found: list[tuple[float, StripTile]] = []
    for vector, rows in product((4, 8, 2, 1) if size == 2 else (4, 2, 1), (1, 2, 4, 6, 8)):
        if rows >= 2 * window.groups[0] or vector >= 2 * max(2, window.groups[1]):
            continue
        x = _cover(-(-window.groups[1] // vector), 32)
        y = _cover(-(-window.groups[0] // rows), max(1, 128 // x))
        z = max(1, min(64, 128 // (x * y)))
        for taps in dict.fromkeys((window.taps(0), min(window.taps(0), 3), 1)):
            registers, code, loads = window.tile(rows, vector, 1, taps)
            if registers + (filters - 1) * rows * vector > _REGISTERS or code * filters > _CODE:
                continue
            strips = -(-window.groups[0] // rows) * -(-window.groups[1] // vector)
            threads = p.batch * p.channels * strips
            found.append(
                (_cost(loads, threads, vector * size), StripTile(rows, vector, y, x, z, taps))
            )
    return _best(found) or [StripTile(1, 1, 1, 32, 1, 1)]


def reduction_tiles(p: Problem, target: Target) -> list[ReductionTile]:
    """For the schedules of :mod:`~tilewright.topi.gpu.depthwise_wgrad`."""
    last, size = p.layout.endswith("C"), dtype(p.dtype).bytes
    widest = gcd(_power(16 // size), p.channels) if last and p.multiplier == 1 else 1
    (oh, ow) = p.out_image
    found: list[tuple[float, ReductionTile]] = []
    for vector in dict.fromkeys((widest, max(1, widest // 2), max(1, widest // 4))):
        for rows, columns in product((1, 2, 4), (1, 2, 4, 8) if last else (4, 8, 2)):
            if rows >= 2 * oh or columns >= 2 * max(2, ow):
                continue
            for taps in dict.fromkeys((p.kernel_h, min(p.kernel_h, 3), 1)):
                sums = taps * p.kernel_w * vector
                inputs = ((rows - 1) * p.stride[0] + (taps - 1) * p.dilation[0] + 1) * (
                    (columns - 1) * p.stride[1] + (p.kernel_w - 1) * p.dilation[1] + 1
                )
                held = sums + (inputs + rows * columns) * vector
                if held > _REGISTERS or sums * rows * columns > _CODE // 2:
                    continue
                loads = (inputs + rows * columns) * -(-p.kernel_h // taps) / (rows * columns)
                tiles = p.batch * -(-oh // rows) * -(-ow // columns)
                width = (vector if last else columns) * size
                tile = _reduction(p, last, (rows, columns, taps, vector), tiles)
                found.append((loads * math.sqrt(16 / min(16, width)), tile))
    return _best(found) or [ReductionTile(1, 1, 1, 1, 32, 1, 8)]


def _reduction(
    p: Problem, last: bool, tile: tuple[int, int, int, int], tiles: int
) -> ReductionTile:
    """With as many threads as keep a GPU busy, and not more than there are tiles."""
    *_, taps, vector = tile
    across = -(-p.out_channels // vector)
    threads = _cover(across, 32) if last else min(4, across)
    lanes = 4 if last else 32
    groups = across * -(-p.kernel_h // taps)
    chunks = max(1, min(_THREADS // (groups * lanes) + 1, tiles // (2 * lanes), 512))
    return ReductionTile(*tile, lanes, threads, chunks)


def _cost(loads: float, threads: int, width: float) -> float:
    """A guess: loads for each output, dearer where they are narrow or too few threads run.

    ``width`` is of a load, in bytes.
    """
    narrow, idle = math.sqrt(16 / min(16, width)), math.sqrt(max(1.0, _THREADS / threads))
    return loads * narrow * idle


def _best(found: list[tuple[float, _Tile]]) -> list[_Tile]:
    return [tile for _, tile in sorted(found, key=lambda pair: pair[0])][:_MOST]
