"""Channels in such an order that each thread holds neighbours of a result.

A thread holds two neighbours of each eight columns of an instruction's result. Which channels are
these columns is free, as the filter lies in shared memory in any order of its channels: in that of
pairs of a thread, threads, and channels of a pair, a thread has 16 bytes of neighbours, which it
stores at once, and nothing goes through shared memory. Of more channels than four threads have,
those of the next four are the next eight columns. Where channels are no multiple of 64, bytes leave
by eights: four threads store a sector of memory. By fours, of 144 channels, they took twice as long
as through shared memory. What an epilogue reads is read so, too.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.box_tiles import BoxProductTile, columns_of
from tilewright.topi.pieces.tiling import extent_of

#: Threads that hold the columns of a row, and columns that one holds side by side.
_THREADS, _PAIR = 4, 2
#: Results of a byte that one stores at once, where these are not 16.
_HALF = 8


def leaves_directly(d: BoxDeclaration, tile: BoxProductTile) -> bool:
    """Whether results go from registers to global memory, some neighbours a thread."""
    boxes, wide = d.boxes, extent_of(d.sum.op.axis[-1])
    plain = not (boxes.turned or (boxes.blocks[1] and not boxes.whole)) and boxes.slices == 1
    plain = plain and not d.placed and d.pooled == 1
    whole = not (tile.turned or tile.stores) and tile.staged in (0, tile.channels)
    # Warps that store what is theirs at different times free no boxes of what is added.
    whole = whole and tile.splits == 1 and not (tile.staged and tile.added)
    if d.problem.dtype in ("float16", "bfloat16"):
        # Of a single box in steps of channels, all taps of a filter come at once as it lies; and a
        # tile of images with a filter each may have more rows than results.
        in_steps = boxes.whole and tile.boxes == 1 and tile.stages > 1
        several = not boxes.whole and len(boxes.right.shape) > 2 + d.space
        whole = whole and not (in_steps or several)
    return plain and whole and in_order(d.problem, wide, tile.channels)


def in_order(p: Any, wide: int, channels: int) -> bool:
    """Whether nothing stands against it in a problem whose result has ``wide`` channels, of which a
    tile has some, but how its filter lies."""
    return neighbours(p, wide, channels) > 0


def neighbours(p: Any, wide: int, channels: int) -> int:
    """Of how many channels a thread stores results at once: as many as are 16 bytes, or of bytes
    also 8, where tiles have no more for four threads, a sector of memory; 0 where :func:`in_order`
    is not."""
    w, images = widths(p.result_dtype), Images(p.result_layout)
    if (p.is_float8 and p.precision != "half") or columns_of(channels, p.dtype) != channels:
        return 0
    if not images.last and images.block == 0:
        return 0
    for own in (w.chunk, _HALF) if w.chunk > _HALF and images.last else (w.chunk,):
        if wide % own == 0 and channels % (_THREADS * own) == 0 and images.block % own == 0:
            return own
    return 0


def digits(d: BoxDeclaration, tile: BoxProductTile) -> tuple[int, int, int]:
    """Of channels in that order, that a box has: how many pairs a thread has, threads, and channels
    of a pair. All of a tile are in one box where these threads are a power of two."""
    chunk = neighbours(d.problem, extent_of(d.sum.op.axis[-1]), tile.channels)
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
