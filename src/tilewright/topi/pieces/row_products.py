"""Gradients by the filter as products of rows of dy and rows of x, by the schedule.

The sum over columns of dy is taken apart by ``rfactor``, which makes them an axis of the results,
by which those of the filter are skewed: both then say where x is read, and dy is read at one of
them alone, so that a row of dy and a row of x have a product of matrices, over images. The sum
that is left goes along diagonals. Rows of dy are skewed by some of the filter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.bands import indices
from tilewright.topi.pieces.row_product_cuts import RowProducts
from tilewright.topi.pieces.tiling import extent_of


class DiagonalProducts(NamedTuple):
    """The stages: ``products`` (channel, filter of it, group of rows, row of a group, tap, column
    of dy, column of x), over (images, turn, position, image), of ``x`` (images, channel, row modulo
    taps, row by taps, blocks of 8 columns by 8 images, columns first) and ``dy`` (images, channel,
    row, the same); ``kept``, a copy of products; and the first column of x in both."""

    products: Tensor
    kept: Tensor
    x: Tensor
    dy: Tensor
    first: int


def as_row_products(s: Schedule, d: Declaration, cut: RowProducts) -> DiagonalProducts:
    """The products of a gradient by the filter in NCHW, of stride and dilation 1 down the image;
    the stage of the sums adds the diagonals of those that are ``kept``."""
    p, left, total = d.problem, d.problem.padding[1], s[d.sum]
    if d.padded is not None:  # say where x is, of which the rest is zero
        total.guard_by_zeros(d.padded, over=[total.op.reduce_axis[0]], finite=True)
    part = s.rfactor(d.sum, total.op.reduce_axis[2], -1)
    sums = s[part]
    c, m, h, w, o = sums.op.axis
    n, oi = sums.op.reduce_axis
    rows = cut.together * cut.taps
    h = sums.pad_to(h, cut.blocks * cut.groups * rows)
    group, h = sums.split(h, factor=rows)
    j, tap = sums.split(h, factor=cut.taps)
    first = left + -left % 8  # where blocks begin
    w = sums.skew(w, o, scale=p.stride[1], step=p.dilation[1], offset=first - left)
    w, o = sums.pad_to(w, first + cut.columns), sums.pad_to(o, cut.width)
    turn, t = sums.split(sums.pad_to(sums.skew(oi, tap), cut.steps), factor=cut.steps)
    i, n = sums.split(sums.pad_to(n, cut.images), factor=cut.images)
    sums.reorder(c, m, group, j, tap, o, w, i, turn, t, n)
    made = s.cache_write(part, "fragment")

    c, m, group, j, tap, o, w = s[made].op.axis
    i, turn, t, n = s[made].op.reduce_axis
    at: Any = turn.var * cut.steps + t.var
    (_, of_x, *_), (_, of_dy, *_) = (indices(s, made, read) for read in (d.source, d.weights))
    dy = s.reindex(d.weights, made, [i, of_dy, tap.var - at, n, o], "shared")
    row = at + (group.var * cut.together + j.var) * cut.taps
    high = extent_of(turn, t) + (extent_of(group) * cut.together - 1) * cut.taps
    before = -p.padding[0] % cut.taps  # so that the first row of x is the first of some
    row = row, _whole(-before, before + high, cut.taps)
    x = s.reindex(d.source, made, [i, of_x, row, n, (w, _whole(0, extent_of(w), 8))], "shared")
    s[made].guard_by_zeros(x, dy, over=[m, j, tap, o, w, n, i], finite=True)
    taps = cut.taps
    s[x].transform_layout(
        lambda i, c, r, n, w: [i, c, r % taps, r // taps, w // 8, n // 8, n % 8, w % 8]
    )
    s[dy].transform_layout(lambda i, c, r, n, w: [i, c, r, w // 8, n // 8, n % 8, w % 8])
    kept = s.cache_read(made, "shared", [part])
    s[part].compute_inline()
    return DiagonalProducts(made, kept, s[x].op.output(0), s[dy].op.output(0), first)


def _whole(first: int, extent: int, factor: int) -> Range:
    return Range.from_extent(first, -(-extent // factor) * factor)
