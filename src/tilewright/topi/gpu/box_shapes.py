"""Which boxes of results tiles of products have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from tilewright.ir.dtype import dtype
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.gpu.box_lines import LINE
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import ROWS

if TYPE_CHECKING:
    from tilewright.topi.gpu.box_sizes import Sizes

#: Warpgroups of a block, and tiles that may divide the channels of a result.
GROUPS, FEW_PARTS = (2, 1, 4, 3), 12
#: Blocks of a cluster: four took twice as long as two, of whatever layer.
PAIR = 2
#: Results of which those of a tile whose channels are rows are a multiple, of 16 bits and others.
_COLUMNS, _OTHER_COLUMNS = 8, 16
#: Channels of which those of a tile that fills all SMs are a multiple, the fewest, and the most.
_FILLING, _LEAST, _MOST = 8, 96, 176
#: By what part a box is slower whose rows in memory, of channels in blocks, are half as long.
_SHORT = 0.1


def turned_shapes(
    p: Convolution, extents: tuple[int, ...], split: bool
) -> list[tuple[int, int, tuple[int, ...], bool]]:
    """Tiles whose channels are rows of instructions: as many results as let each SM, or each of two
    blocks of it, have up to some of them, or, if they are ``split``, each tile some SMs; channels
    and the box."""
    found, (results, *single) = [], extents
    columns = _COLUMNS if dtype(p.dtype).bytes == 2 else _OTHER_COLUMNS
    for groups in GROUPS:
        channels = groups * ROWS
        if channels >= 2 * p.result_channels:
            continue
        parts = -(-p.result_channels // channels)
        for number in range(1, FEW_PARTS + 1):
            tiles = max(
                1, MACHINE.sms // (number * parts) if split else number * MACHINE.sms // parts
            )
            own = -(-results // (tiles * columns)) * columns
            if ROWS <= own <= LARGEST:
                found.append((own, channels, (own, *single), True))
    return list(dict.fromkeys(found))


def boxes_of(
    of: Sizes, rows: int, single: bool = False, across: Sequence[int] = ()
) -> list[tuple[int, ...]]:
    """Boxes of powers of two with that many results, of a ``single`` image or of several, as many
    ``across`` as one of these where there are some: the two with the least beyond the images, but
    those of which one of half as many rows has all. Of channels in blocks what is short of lines of
    memory counts too, and of equals the widest are taken."""
    found, extents = list[tuple[float, float, tuple[int, ...]]](), of.extents
    sizes = [1 << k for k in range(rows.bit_length())]
    for space in product(sizes, repeat=len(extents) - 1):
        if math.prod(space) > rows or (across and space[-1] not in across):
            continue
        box = (rows // math.prod(space), *space)
        if single and box[0] > 1:
            continue
        if True in [n * step > LARGEST for n, step in zip(box, of.strides, strict=True)]:
            continue
        first = 0 if of.block else 1
        if True in [n >= 2 * e for n, e in zip(box[first:], extents[first:], strict=True)]:
            continue
        whole = math.prod([-(-e // n) * n for e, n in zip(extents, box, strict=True)])
        if of.block:
            short = max(1.0, LINE / (of.block * space[-1])) - 1
            found.append((whole * (1 + _SHORT * short), -space[-1], box))
        else:
            found.append((whole, math.log2(max(space) / min(space)), box))
    return [box for _, _, box in sorted(found)[:2] if not of.is_less(box)]


def clusters(parts: int, boxes: int) -> Iterator[tuple[int, int]]:
    """How many blocks may share a box, or a filter, of as many tiles along each."""
    yield 1, 1
    if parts % PAIR == 0:
        yield PAIR, 1
    if boxes % PAIR == 0:
        yield 1, PAIR


def all_sms(number: int, wide: int, others: Sequence[int]) -> list[int]:
    """Channels of which as many tiles as SMs have all that there are, where ``number`` boxes have
    all results: in an even number of parts, too, which blocks may share.

    >>> all_sms(7, 2336, ()), all_sms(15, 1100, (136,)), all_sms(15, 4000, ())
    ([136], [144], [])
    """
    parts, found = MACHINE.sms // number, list[int]()
    for count in {parts, parts - parts % 2} - {0}:
        own = -(-wide // (count * _FILLING)) * _FILLING
        if _LEAST <= own <= _MOST and own not in (*others, *found):
            found.append(own)
    return sorted(found)
