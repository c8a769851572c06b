"""Gradients by the filter of small images as products of rows of dy and rows of x, by the schedule.

The sum over columns of dy is taken apart by ``rfactor``, which makes them an axis of the results,
by which those of the filter are skewed: both then say which column of x is read. Rows of dy are
taken in pairs, of which ``rfactor`` makes an axis too: rows of the filter are skewed by it, so that
a pair of rows of dy and a row of x have one product over images, whatever rows of the filter both
belong to, and those as far apart are one sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.bands import indices

#: Columns of a row that an instruction has; images that it sums over; by how much the columns of dy
#: are further apart in shared memory than there are places of x, so that fewer of a diagonal
#: conflict in a bank.
PLACES, DEPTH, APART = 8, 16, 2


@dataclass(frozen=True)
class PlaneGradientTile:
    """A block has ``channels`` warps, each with one channel, and goes through the batch by 16 *
    ``images`` images, which it copies ``stages - 1`` times ahead."""

    channels: int = 8
    images: int = 1
    stages: int = 4


class PlaneGradientProducts(NamedTuple):
    """The stages: ``rows`` of the filter (channel, filter of it, row, place, column of dy), sums of
    two ``products`` (channel, filter of it, distance, half, column of dy, place) over (images,
    image, pair), of rows of ``x`` and of ``dy``."""

    rows: Tensor
    products: Tensor
    x: Tensor
    dy: Tensor
    staged_x: Tensor
    staged_dy: Tensor
    first: int


def as_plane_gradient(s: Schedule, d: Declaration, images: int) -> PlaneGradientProducts:
    """The products of a gradient by the filter in NCHW, of ``images`` images at once."""
    p, total, left = d.problem, s[d.sum], d.problem.padding[1]
    (sh, sw), (dh, dw) = p.stride, p.dilation
    first = left + -left % PLACES  # where the first column of x is
    if d.padded is not None:  # say where x is, of which the rest is zero
        total.guard_by_zeros(d.padded, over=[total.op.reduce_axis[0]], finite=True)
    part = s.rfactor(d.sum, total.op.reduce_axis[2], -2)
    sums = s[part]
    *_, o, w = sums.op.axis
    sums.skew(w, o, scale=sw, step=dw, offset=first - left)
    rows = s.cache_write(part, "shared")
    s[part].compute_inline()

    sums = s[rows]
    n, oi = sums.op.reduce_axis
    i, n = sums.split(sums.pad_to(n, images), factor=images)
    pair, half = sums.split(sums.pad_to(oi, 2), factor=2)
    halves = s.rfactor(rows, half, 3)
    sums = s[halves]
    c, m, h, half, o, w = sums.op.axis
    e = sums.skew(h, half, scale=sh, step=dh)
    w, o = sums.pad_to(w, first + PLACES), sums.pad_to(o, PLACES)
    i, n, pair = sums.op.reduce_axis
    sums.reorder(c, m, e, half, o, w, i, n, pair)
    made = s.cache_write(halves, "fragment")
    s[halves].compute_inline()

    c, m, e, half, o, w = s[made].op.axis
    i, n, pair = s[made].op.reduce_axis
    (_, of_x, *_), (_, of_dy, *_) = (indices(s, made, read) for read in (d.source, d.weights))
    row: Any = pair.var * (2 * sh) + e.var
    dy = s.reindex(d.weights, made, [i, n, of_dy, pair, half, o], "fragment")
    x = s.reindex(d.source, made, [i, n, of_x, row, w], "fragment")
    s[made].guard_by_zeros(x, dy, over=[m, half, o, w, n, i], finite=True)
    planes = _planes(s, d.image, x), _planes(s, d.weights, dy)
    return PlaneGradientProducts(rows, made, x, dy, *planes, first)


def _planes(s: Schedule, image: Tensor, reader: Tensor) -> Tensor:
    """Whole images in shared memory."""
    high, wide = (int(n) for n in image.shape[-2:])
    i, n = s[reader].op.axis[:2]
    _, c, row, column = indices(s, reader, image)
    whole = (row, Range.from_extent(0, high)), (column, Range.from_extent(0, wide))
    kept: Tensor = s.reindex(image, reader, [i, n, c, *whole], "shared")
    return kept
