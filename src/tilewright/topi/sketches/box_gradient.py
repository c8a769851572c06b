"""Gradients by the filter on Hopper's tensor cores, of images with channels last.

A block computes some filters by some channels of a tap. Step by step TMA brings a box of pixels of
dy and what the tap sees there, in both of which channels lie side by side; they are summed over
pixels, of which each of ``splits`` blocks has a part. Another kernel adds these in a fixed order,
or the blocks themselves where they are a cluster.

Where boxes are whole, a block has several rows of taps: TMA brings what all of them see, and an
instruction multiplies what a row of taps sees, in which neighbours are one pixel further.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.target.boxes import MOST_DIMENSIONS
from tilewright.target.instructions import wgmma
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import ROW
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import innermost, load
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.pieces.gradient_blocks import (
    box_steps,
    split_steps,
    summed_in_blocks,
)
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_box_gradient(d: BoxDeclaration, tile: BoxGradientTile) -> Schedule:
    """The schedule of a gradient by the filter."""
    s = scheduled(d.output, d.sum, *d.copies)
    copy(s, d.copies)
    writer, total, added = d.output, d.sum, 0
    kept: tuple[Tensor, ...] = ()
    step, pixel = box_steps(s[total], d) if tile.splits > 1 or d.placed else (None, [])
    if step is not None:
        writer, added, kept = split_steps(s, d, total, step, tile)
        total = s.cache_write(writer, "fragment")
    elif total is writer:
        total = s.cache_write(writer, "fragment")
    else:
        s[total].set_scope("fragment")
    left, right = (s.cache_read(t, "shared", [total]) for t in (d.left, d.right))

    others, m, taps, c = summed_in_blocks(s, d, total, writer, kept, added, tile)
    sums = s[total]
    if added:
        at, *pixel = sums.op.reduce_axis
    else:
        at, pixel = box_steps(sums, d)
    whole, extents, inner = innermost(sums, pixel, d.boxes.pixels)
    whole, _, pairs = innermost(sums, whole, extents, 2)
    rows, (tiles, column) = sums.split(m, factor=8), sums.split(c, factor=8)
    wide, row = tile.channels, min(tile.channels, ROW)
    if tile.rows:  # a row of taps are the columns of an instruction
        columns, wide = [taps[1], tiles, column], wide * extent_of(taps[1])
    else:
        columns = [*sums.split(tiles, factor=ROW // 8), column]
    sums.reorder(*others, at, *whole, *taps[:1], *rows, *columns, *pairs, *inner)
    sums.unroll(*whole, *taps[:1])
    sums.tensorize(
        rows[0],
        wgmma(wide, d.problem.dtype, left="i", right="j", swizzles=(2 * ROW, 2 * row)),
    )
    pixels, first, alone = d.boxes.pixels, -2 - d.space, bool(tile.producer)
    # A box has several rows of channels, which are whole, where it has a dimension for them: each
    # box takes as long to ask for as a few kilobytes take to come.
    filters, *_, channels = (extent_of(x) for x in d.sum.op.axis)
    high, deep = (
        (own // ROW,) if own > ROW and every % ROW == 0 and 1 - first <= MOST_DIMENSIONS else ()
        for own, every in ((tile.filters, filters), (tile.channels, channels))
    )
    load(
        s[left], sums, at, first - len(high), (*high, *pixels, ROW), tile.stages,
        cluster=tile.dy_to, producer=alone,
    )  # fmt: skip
    deep = () if tile.rows or d.boxes.windows else deep
    seen = d.reach(pixels, tile.rows) if tile.rows else (*deep, *pixels)
    load(
        s[right], sums, at, first - len(deep), (*seen, row), tile.stages, apart=not tile.rows,
        windows=d.boxes.windows, cluster=tile.x_to, producer=alone,
    )  # fmt: skip
    return s
