"""The tiles worth trying for groups of few channels, after the cycles that they are predicted to
take."""

from __future__ import annotations

import math
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.nn.byte_dots import TOGETHER
from tilewright.topi.nn.group_windows import LANES, QUARTER
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.group_windows import GroupTile
from tilewright.topi.template import DEPTHWISE

#: Rows and columns of tiles of registers.
_SHAPES = ((1, 8), (2, 4), (1, 7), (1, 10), (1, 14), (1, 6), (1, 4), (2, 7), (1, 2), (1, 1))
#: What changing places of a vector's lanes costs, in vectors of products; beginning a row of taps;
#: each of the registers that a tile lacks of these; writing a vector of results, and one of bytes.
_PLACED, _TURN, _LACKED, _REGISTERS, _RESULT, _BYTES = 0.5, 6.0, 10.0, 26, 4.0, 10.0
#: What a vector costs that is read of the image, more where a pixel's are not neighbours of others
#: that are read, and that is stored; a task.
_READ, _ALONE, _STORED, _TASK = 3.0, 3.0, 3.0, 500.0
#: Words that are stored for each of the results of a channel of a group, at most.
_FEW = 4
#: Bytes that a task keeps in the second-level cache, and how much longer it takes otherwise; and
#: with each doubling of what it stores beyond a first-level cache, before it is read.
_KEPT, _FARTHER, _FIRST, _LATER = 2**19, 1.1, 2**16, 0.023


def suits(p: Problem) -> bool:
    """Whether it is a forward pass with channels last of groups of 2, 4 or 8 channels each, of the
    image and of the result."""
    if not isinstance(p, Convolution) or p.operator in DEPTHWISE or p.pass_ != "forward":
        return False
    own = p.channels // p.groups
    return bool(p.channels_last) and own in (2, 4, 8) and p.multiplier == own


def suits_words(p: Problem) -> bool:
    """Whether it is one of bytes, whose groups are words and whose channels fill vectors; not where
    strides are such that an image is stored for few products."""
    if not (p.is_quantized and isinstance(p, Convolution) and suits(p)):
        return False
    words, rest = divmod(p.channels // p.groups, TOGETHER)
    few = words * math.prod(d.stride for d in p.dims) > _FEW
    return rest == 0 and p.channels % LANES == 0 and not few


def group_times(p: Convolution, target: Target) -> dict[GroupTile, float]:
    """For :func:`~tilewright.topi.sketches.group_windows.schedule_groups`, with what each takes."""
    wide, found = min(lanes(p, target), LANES), {}
    first, *_, width = p.out_extents if p.rank > 1 else (1, *p.out_extents)
    shares = p.rank == 2 and p.dims[0].stride == 1 and wide == LANES
    for (rows, columns), band, some in product(_SHAPES, (56, 28, 14, 7, 4, 2, 1), (1, 2, 4, 8)):
        if columns > max(width, 1) or rows > (first if p.rank == 2 else 1):
            continue
        if rows > 1 and not (shares or p.is_quantized):
            continue  # of half as many lanes, registers hold one row's pixels
        if some <= -(-p.channels // LANES):
            tile = GroupTile(rows, columns, wide, min(band, -(-first // rows) or 1), some)
            found[tile] = group_price(p, tile, target)
    return found


def group_price(p: Convolution, t: GroupTile, target: Target) -> float:
    """The time of a tile in that of a vector of products, to be compared with other schedules."""
    from tilewright.runtime.llvm_host import thread_count

    (*outer, taps), words = p.dims, p.is_quantized
    own = p.channels // p.groups // (TOGETHER if words else 1)
    vectors, each = -(-p.channels // LANES), LANES // t.lanes
    band = t.band * (t.rows if len(outer) == 1 else 1)
    rows = [min(band, outer[0].results), *(d.results for d in outer[1:])] if outer else []
    bands = -(-outer[0].results // band) if outer else 1
    seen = min((t.columns - 1) * taps.stride + taps.window, t.columns * taps.taps)
    sums, turns = t.rows * t.columns * each, math.prod(d.taps for d in outer)
    products = own * max(sums, 5) * taps.taps * turns
    if words:
        seen *= t.rows
    elif t.rows > 1:  # a turn for each row of the image that a tile sees
        *others, down = outer
        turns = math.prod(d.taps for d in others) * ((t.rows - 1) * down.stride + down.window)
    # The first of a part's channels is in place.
    moved = own * (1 - 1 / (own if p.channels % LANES else min(own, QUARTER)))
    turn = _PLACED * moved * seen * each * (not words) + _TURN
    turn += _LACKED * max(0.0, (seen + t.rows * t.columns) * each + 4 - _REGISTERS)
    tile = products + turns * turn + (_BYTES if words else _RESULT) * sums
    tiles = -(-math.prod(rows) // t.rows) * -(-taps.results // t.columns)
    pixels = math.prod((r - 1) * d.stride + d.window for r, d in zip(rows, outer, strict=False))
    pixels *= (taps.results - 1) * taps.stride + taps.window
    parts = own if words else max(1, own // QUARTER)
    copied = pixels * (_READ + _ALONE / t.vectors + parts * _STORED) * each
    task = t.vectors * (tiles * tile + copied) + _TASK
    kept = 4 * LANES * pixels * parts * t.vectors
    if kept > _KEPT:
        task *= _FARTHER
    if not words:
        task *= 1 + _LATER * max(0.0, math.log2(kept / _FIRST))
    packed = math.prod(d.taps for d in p.dims) * own * vectors * LANES
    packed *= "filter" not in p.constants
    threads = thread_count(target)
    tasks = p.batch * bands * -(-vectors // t.vectors)
    return float(-(-tasks // threads) * task + packed / threads)
