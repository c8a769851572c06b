"""The tiles worth trying for windows over packed operands, the best guess first.

Nothing is measured: a tile is the better the fewer vectors it reads for a product, as long as what
it keeps fits into the registers of a work-item and there are items enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.devices import WIDEST, OpenCLDevice
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import power
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.packed_windows import CHANNELS, COLUMNS, ROWS, channels, up
from tilewright.topi.opencl.candidates import machine
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.packing import PackTile
from tilewright.topi.template import DEPTHWISE

#: Multiplications of vectors written out in a kernel, at most, which drivers compile soon.
_CODE = 512
#: Work-items of a group, half as many of tiles of several vectors, and of them along channels, at
#: most; bytes of filters that they read at once: a line of the caches.
_GROUP, _ACROSS, _READ = 128, 8, 128
#: The same where parts of sums are stored, whose channels lie side by side, of tiles of one vector:
#: a warp then reads pixels together.
_WHOLE, _ROWS = 32, 8
#: How much longer a GPU's warp takes that reads several tiles' pixels of columns that are no power
#: of two: 1.3 to 1.4 on an H200.
_APART = 1.3
#: Columns of a tile.
_COLUMNS = (4, 8, 7, 14, 6, 5, 3, 2, 1)
#: Items that share the channels of a sum, and products in which one of them stores its part of a
#: sum, which another kernel adds.
_CHUNKS, _ADDED = (1, 2, 4, 8, 16, 32), 32


def suits(p: Problem) -> bool:
    """Whether it is a convolution that is dense or in groups, or its gradient by the input where
    that has no strides."""
    if not isinstance(p, Convolution) or p.operator in DEPTHWISE or p.is_relaid:
        return False
    return p.pass_ == "forward" or (p.pass_ == "dgrad" and set(p.stride) == {1})


def form(p: Convolution, t: PackTile) -> str:
    """The declaration that a tile schedules."""
    return "packed parts" if t.chunks > 1 else "packed"


def packing_times(p: Convolution, target: Target) -> dict[PackTile, float]:
    """For :func:`~tilewright.topi.sketches.packing.schedule_packing`."""
    place = machine(target)
    held = {t: _registers(p, t) for t in _tiles(p, place)}
    return {t: _cost(p, t, place) for t in held if held[t] <= place.registers} or held


def _tiles(p: Convolution, place: OpenCLDevice) -> Iterator[PackTile]:
    (per, own), (*_, height, width) = channels(p), Convolved(p).result
    filled, kept = per if p.groups > 1 else up(per, CHANNELS), int(not place.host)
    depth = max(d for d in (1, 2, 3, 4, 8) if own % d == 0 and d * dtype(p.dtype).bytes <= WIDEST)
    most = min(_vector(place, p.accumulate), power(2 * per - 1))
    most = math.gcd(filled, most)  # a vector is of one group
    for lanes, vectors, rows in product({most, max(1, most // 2)}, (1, 2, 4), (1, 2, 4)):
        if filled % (vectors * lanes) or vectors * lanes >= 2 * max(per, lanes):
            continue
        if (height % rows and ROWS % rows) or rows >= 2 * height:
            continue
        for columns in _COLUMNS:
            if (width % columns and COLUMNS % columns) or columns >= 2 * width:
                continue
            tiles = p.groups * -(-per // (vectors * lanes))
            line = max(1, _READ // (vectors * lanes * dtype(p.dtype).bytes))
            across = 1 if place.host else min(_ACROSS, power(tiles), line)
            items = min(_GROUP, place.group) // min(vectors, 2)
            along = 1 if place.host else items // across
            written = rows * columns * vectors * depth * p.kernel[-1]
            for unroll in (1, 0) if written <= _CODE else (0,):
                tile = PackTile(rows, columns, vectors, lanes, depth, across, along, unroll, kept)
                wide = vectors == 1 and tiles >= _WHOLE and place.group >= _WHOLE * _ROWS
                parts = replace(tile, across=_WHOLE, along=_ROWS) if wide else tile
                for n in _chunks(p, tile, place):
                    yield tile if n == 1 else replace(parts, chunks=n)


def _chunks(p: Convolution, t: PackTile, place: OpenCLDevice) -> Iterator[int]:
    """How many items may share a sum: more only where too few would be busy, and tiles end with the
    result."""
    (_, own), (*_, height, width) = channels(p), Convolved(p).result
    whole = height % t.rows == 0 and width % t.columns == 0 and not place.host
    for n in _CHUNKS:
        if n == 1 or (whole and own % (n * t.depth) == 0 and _items(p, t) * n < 2 * place.busy):
            yield n


def _items(p: Convolution, t: PackTile) -> int:
    (per, _), (*others, height, width) = channels(p), Convolved(p).result
    counts = [-(-e // n) for e, n in ((height, t.rows), (width, t.columns), (per, t.channels))]
    return int(p.batch * p.groups * math.prod((*counts, *others)))


def _vector(place: OpenCLDevice, kind: str) -> int:
    return place.vector // dtype(kind).bytes


def _seen(p: Convolution, t: PackTile) -> int:
    """Pixels that a step of a tile reads; a compiler that chooses itself reads all for each tap."""
    if not t.kept:
        return t.rows * t.columns * (p.kernel[-1] if t.unroll else 1)
    w, wide = Convolved(p), 1 + (p.kernel[-1] - 1) * t.unroll
    columns = (t.columns - 1) * w.stride[-1] + (wide - 1) * w.dilation[-1] + 1
    return t.rows * min(columns, t.columns * wide)


def _registers(p: Convolution, t: PackTile) -> float:
    """Bytes that a work-item keeps: sums, a vector of filters, and what it reads of the image."""
    read = _seen(p, t) * t.depth if t.kept else t.lanes
    sums = t.rows * t.columns * t.channels
    return (sums + t.channels + read) * dtype(p.accumulate).bytes


def _cost(p: Convolution, t: PackTile, place: OpenCLDevice) -> float:
    """What a product of a vector costs: itself, its part of what is read, what tiles compute
    beyond the result, and the work-items that lack one."""
    (per, own), (*_, height, width) = channels(p), Convolved(p).result
    counts = [-(-e // n) for e, n in ((height, t.rows), (width, t.columns), (per, t.channels))]
    beyond = math.prod(counts) * t.rows * t.columns * t.channels / (height * width * per)
    taps = p.kernel[-1] if t.unroll else 1
    read = _seen(p, t) / taps / (t.depth if t.kept else 1) + t.vectors
    idle = math.sqrt(max(1.0, place.busy / (_items(p, t) * t.chunks)))
    wide = _vector(place, p.accumulate) / t.lanes
    each = 1 + read / (t.rows * t.columns * t.vectors)
    if place.shared and t.across < _WHOLE and t.columns & (t.columns - 1):
        each *= _APART
    added = _ADDED * (t.chunks + 1) / (own * math.prod(p.kernel)) if t.chunks > 1 else 0.0
    return beyond * idle * wide * each + added + 0.01 * t.rows
