"""Gradients by the filter as bands of products of rows of x and rows of dy, by the schedule.

Columns of dy are skewed by those of the filter: the column of x that both say is what is summed
over. The sum over rows of dy is taken apart by ``rfactor``, which makes some of them, in tiles, an
axis of the results, by which the rows of the filter are skewed: a row of x is what both say, and
the sum that is left goes along diagonals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright import te
from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.bands import indices
from tilewright.topi.pieces.row_band_cuts import ROWS, RowBands, RowBandTile


class RowBandProducts(NamedTuple):
    """The stages: ``total``, the sum along diagonals of what is ``kept`` in shared memory of
    ``products`` (chunk, channel, filter of it, warp, column of the filter, phase, half, row of x,
    row of dy), over (step, block of rows, phase of columns, thread, column), of ``seen``, which are
    rows of ``x``, and ``moved``, which are parts of ``dy``."""

    total: Tensor
    kept: Tensor
    products: Tensor
    seen: Tensor
    moved: Tensor
    x: Tensor
    dy: list[Tensor]


def as_row_bands(s: Schedule, d: Declaration, cut: RowBands, tile: RowBandTile) -> RowBandProducts:
    """The products of a gradient by the filter in NCHW; ``d.sum`` is a copy of the total, over
    (chunk, warp, row of dy)."""
    (sh, sw), (dh, dw), left = d.problem.stride, d.problem.dilation, d.problem.padding[1]
    sums = s[d.sum]
    _, _, _, w = sums.op.axis
    _, _, ow = sums.op.reduce_axis
    sums.skew(ow, w, scale=dw, step=sw)
    total = s.cache_write(d.sum, "local")
    part = _shared_out(s, d, total, cut, tile)

    sums = s[part]
    chunk, warp, row, c, m, h, w = sums.op.axis
    i = sums.skew(h, row, scale=sh, step=dh)
    i, phase = sums.split(sums.pad_to(i, 2 * ROWS * sh), factor=sh)
    half, i = sums.split(i, factor=ROWS)
    sums.reorder(chunk, c, m, warp, w, phase, half, i, row)
    made = s.cache_write(part, "fragment")

    products = s[made]
    chunk, c, m, warp, w, phase, half, i, row = products.op.axis
    step, block, side, thread, own = products.op.reduce_axis
    at = [step, chunk, warp]
    (_, of_x, *_), (_, of_dy, *_) = (indices(s, made, read) for read in (d.source, d.weights))
    column: Any = thread.var * cut.share + own.var
    seen = s.reindex(d.source, made, [*at, of_x, block, side, phase, half, i, column], "fragment")
    before, behind = cut.around
    far = own.var + te.floordiv(side.var + left - w.var * dw, sw)
    whole = far, Range.from_extent(-before, before + cut.share + behind)
    dy = s.reindex(d.weights, made, [*at, of_dy, block, row, thread, whole], "fragment")
    over = [a for a in (*products.op.axis, *products.op.reduce_axis) if a not in (w, side)]
    products.guard_by_zeros(seen, dy, over=over, finite=True)

    _, block, side, thread, own = products.op.reduce_axis
    *_, of_dy, _, _, _, _ = indices(s, made, dy)
    moved = s.reindex(dy, made, [w, side, *at, of_dy, block, row, thread, own], "fragment")
    parts = s.partition(dy, s[dy].op.axis[-1], cut.points) if cut.points else [dy]
    if cut.points:
        s[dy].compute_inline()
    *at, c, block, side, phase, half, i, column = s[seen].op.axis
    line: Any = (block.var + half.var) * ROWS + i.var
    x = s.reindex(d.image, seen, [*at, c, phase, line, column.var * sw + side.var], "fragment")
    kept = s.cache_read(made, "shared", [part])
    s[part].compute_inline()
    return RowBandProducts(total, kept, made, seen, moved, x, parts)


def _shared_out(
    s: Schedule, d: Declaration, total: Tensor, cut: RowBands, tile: RowBandTile
) -> Tensor:
    """Tiles of x and dy among chunks and warps, and rows of dy, as axes of a stage of its own."""
    sums, sw = s[total], d.problem.stride[1]
    if d.padded is not None:  # columns begin with those of x
        h, (_, oh, _) = sums.op.axis[2], sums.op.reduce_axis
        sums.guard_by_zeros(d.padded, over=[oh, h], finite=True)
    n, oh, column = sums.op.reduce_axis
    down, rows = sums.split(sums.pad_to(oh, cut.rows), factor=cut.rows)
    block, row = sums.split(rows, factor=ROWS)
    column, side = sums.split(sums.pad_to(column, cut.columns * sw), factor=sw)
    across, column = sums.split(column, factor=cut.columns)
    thread, own = sums.split(column, factor=cut.share)
    sums.reorder(n, down, across, block, row, side, thread, own)
    step, warp = sums.split(sums.fuse(n, down, across), factor=tile.warps)
    step, chunk = sums.split(step, factor=tile.chunks)
    made: Tensor = s.rfactor(total, [chunk, warp, row])
    return made
