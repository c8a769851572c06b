"""Channels in such an order that each thread holds neighbours of a result.

A thread holds two neighbours of each eight columns of an instruction's result. Which channels are
these columns is free, as the filter lies in shared memory in any order of its channels: in that of
pairs of a thread, threads, and channels of a pair, a thread has 16 bytes of neighbours, which it
stores at once, and nothing goes through shared memory. Of more channels than four threads have,
those of the next four are the next eight columns.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.box_tiles import BoxProductTile, columns_of
from tilewright.topi.pieces.tiling import extent_of

#: Threads that hold the columns of a row, and columns that one holds side by side.
_THREADS, _PAIR = 4, 2
#: Bytes of results that leave so.
_BYTES = (1, 4)


def leaves_directly(d: BoxDeclaration, tile: BoxProductTile) -> bool:
    """Whether results go from registers to global memory, 16 bytes a thread."""
    boxes, wide = d.boxes, extent_of(d.sum.op.axis[-1])
    plain = not (boxes.turned or (boxes.blocks[1] and not boxes.whole)) and boxes.slices == 1
    plain = plain and not d.placed
    whole = not tile.turned and tile.staged in (0, tile.channels) and tile.splits == 1
    return plain and whole and in_order(d.problem, wide, tile.channels)


def in_order(p: Any, wide: int, channels: int) -> bool:
    """Whether nothing stands against it in a problem whose result has ``wide`` channels, of which a
    tile has some, but how its filter lies: results of 16 bits leave through shared memory."""
    w, images = widths(p.result_dtype), Images(p.result_layout)
    return (
        16 // w.chunk in _BYTES and not p.is_float8
        and wide % w.chunk == 0 and channels % (_THREADS * w.chunk) == 0
        and columns_of(channels, p.dtype) == channels
        and (images.last or (images.block > 0 and images.block % w.chunk == 0))
    )  # fmt: skip


def digits(d: BoxDeclaration, tile: BoxProductTile) -> tuple[int, int, int]:
    """Of channels in that order, that a box has: how many pairs a thread has, threads, and channels
    of a pair. All of a tile are in one box where these threads are a power of two."""
    chunk = widths(d.output.dtype).chunk
    threads = tile.channels // chunk
    return chunk // _PAIR, _THREADS if threads & (threads - 1) else threads, _PAIR


def in_order_of_threads(taps: Stage, d: BoxDeclaration, tile: BoxProductTile) -> None:
    """Keep a filter in shared memory with its channels in that order."""
    pairs, threads, two = digits(d, tile)
    own, at = pairs * two, len(taps.op.axis) - (2 if d.boxes.whole else 2 + d.space)

    def ordered(*index: Any) -> list[Any]:
        f = index[at]
        moved = [f // (threads * own), f % own // two, f % (threads * own) // own, f % two]
        return [*index[:at], *moved, *index[at + 1 :]]

    taps.transform_layout(ordered)


def columns_in_order(
    sums: Stage, f: IterVar, d: BoxDeclaration, tile: BoxProductTile
) -> list[IterVar]:
    """The loops over the columns of an instruction, of a loop over the channels of a tile."""
    pairs, threads, two = digits(d, tile)
    box, f = sums.split(f, factor=pairs * threads * two)
    thread, f = sums.split(f, factor=pairs * two)
    eight, thread = sums.split(thread, factor=_THREADS)
    pair, f = sums.split(f, factor=two)
    return [box, pair, eight, thread, f]
