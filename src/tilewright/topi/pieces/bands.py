"""Sums over windows as products with banded (Toeplitz) matrices, made by the schedule.

The column of a window is *skewed* by that of the result: the column of the image that both say is
what is summed over (docs/decisions/0019-windows-as-products.md). Where the rows of a product are
images, so is the row: one row of the image then meets a matrix for each row of the result, and
these lie one behind the other, so that the window of them that a row meets slides by one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tilewright.ir.expr import Expr, Load
from tilewright.ir.visit import distinct
from tilewright.schedule import Schedule
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.pieces.band_cuts import BLOCK, Bands
from tilewright.topi.pieces.staged_cuts import StagedBands


class Products(NamedTuple):
    """The stages: ``sums`` of products of ``image`` and ``matrix``, which is made of ``taps``, rows
    of what the image is convolved with, between zeros."""

    sums: Tensor
    image: Tensor
    matrix: Tensor
    taps: Tensor


def as_products(
    s: Schedule, total: Tensor, image: Tensor, filter: Tensor, cut: Bands, scope: str
) -> Products:
    """Make a sum over windows of ``image``, of whose axes the last two are rows and columns, one of
    products with matrices that lie in ``scope``.

    Axes of the sums are (..., row tile, row, column tile, column), before which images are two too
    where a product has several; they are summed over (..., row, chunk, column), or (..., row,
    phase, chunk, column), rows in two where some of them are staged at once: rows of results are
    then (group, row). Values that are not finite in the image spread over a tile.
    """
    made, sw, slides = skewed(s, total, cut), cut.stride[1], cut.images > 1
    staged = cut if isinstance(cut, StagedBands) else None
    *outer, hi, _, wi = s[made].op.axis
    *rest, jo, ji = s[made].op.reduce_axis
    j = jo.var * cut.chunk + ji.var
    *of_filter, _, _ = indices(s, made, filter)
    kept = s.reindex(image, made, indices(s, made, image), "shared" if staged else "fragment")
    matrix = s.reindex(filter, made, [*of_filter, tap_row(s, made, cut), wi, j], scope)
    *of_row, i, j = s[matrix].op.axis
    taps = s.reindex(filter, matrix, [*of_row, j.var - i.var * sw], "shared")
    over = [*outer[1:2], hi, wi, ji] if slides else [hi, wi, ji]
    over += [] if cut.whole else [jo]
    around = [*rest[-2:], outer[-1]] if staged and staged.staged else []
    s[made].guard_by_zeros(kept, matrix, over=over, finite=True, around=around)
    phases = cut.stride[0] if slides else 1
    s[matrix].transform_layout(partial(_places, cut, phases, staged is None))
    return Products(made, kept, s[matrix].op.output(0), taps)


def skewed(s: Schedule, total: Tensor, cut: Bands) -> Tensor:
    """Declare a sum over windows over the loops of :func:`as_products`; columns of a tile, and of a
    chunk, are two loops where what is multiplied is known block by block."""
    sums, (sh, sw), slides = s[total], cut.stride, cut.images > 1
    staged = cut if isinstance(cut, StagedBands) else None
    block, together = (staged.block_rows, staged.together) if staged else (cut.rows, 1)
    *outer, h, w = sums.op.axis
    *_, di, dj = sums.op.reduce_axis
    if slides:
        sums.split(sums.pad_to(outer[0], cut.images), factor=cut.images)
    _, row = sums.split(sums.pad_to(h, block), factor=block)
    _, column = sums.split(sums.pad_to(w, cut.columns), factor=cut.columns)
    if slides:
        lead = sh * staged.lead if staged else 0
        r = sums.skew(di, row, scale=sh, step=cut.dilation[0], offset=lead)
        q, _ = sums.split(sums.pad_to(r, sh * together), factor=sh)
    if staged:
        sums.split(q, factor=together)
        sums.split(row, factor=cut.rows)
    j = sums.skew(dj, column, scale=sw, step=cut.dilation[1], offset=cut.first)
    filled = max(cut.chunk, staged.box) if staged and cut.whole else cut.chunk  # by whole boxes
    sums.split(sums.pad_to(j, filled), factor=cut.chunk)
    if cut.terms:
        sums.split(column, factor=BLOCK)
    made: Tensor = s.cache_write(total, "fragment")
    return made


def tap_row(s: Schedule, made: Tensor, cut: Bands) -> Any:
    """The number of the matrix that a row of the image is multiplied by: neighbouring rows of
    results have neighbouring matrices."""
    *outer, hi, _, _ = s[made].op.axis[: -1 if cut.terms else None]
    *rest, _, _ = s[made].op.reduce_axis
    if cut.images == 1:
        return rest[-1]
    staged, sh = cut if isinstance(cut, StagedBands) else None, cut.stride[0]
    own = hi.var + (outer[-1].var * cut.rows if staged else 0)
    number = rest[-2].var + (rest[-3].var * staged.together if staged else 0)
    return own * sh - number * sh - rest[-1].var


def _places(cut: Bands, phases: int, turned: bool, *at: Any) -> list[Any]:
    """Where an element of a matrix lies, in blocks of 8 by 8: a thread has :attr:`Bands.share`
    neighbours of a row of results, two of them in each block; and of what it loads of a row of the
    image, where columns are ``turned``, two neighbours."""
    *of, e, w, j = at
    own, chunk = cut.share, cut.chunk
    columns = j // 8, j % 8
    if turned:
        within = j // 2 % (chunk // 8), j // (chunk // 4) % 4 * 2 + j % 2
        columns = j // chunk * (chunk // 8) + within[0], within[1]
    return [
        *of, *((e % phases, e // phases) if phases > 1 else (e,)),
        w // 2 % (own // 2), columns[0], w // own * 2 + w % 2, columns[1],
    ]  # fmt: skip


def indices(s: Schedule, reader: Tensor, tensor: Tensor) -> list[Expr]:
    """Those at which a stage reads a tensor."""
    op = s[reader].op
    assert isinstance(op, ComputeOp)
    found = [
        e.indices
        for body in op.body
        for e in distinct(body)
        if isinstance(e, Load) and e.buffer is tensor.buffer
    ]
    return list(found[0])
