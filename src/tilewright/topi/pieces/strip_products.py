"""Sums over windows as products of strips of an image with bands of filters, by the schedule.

Columns and rows of a window are skewed by those of the result, as in
:mod:`~tilewright.topi.pieces.bands`, by few columns: all matrices of a filter lie in registers, and
a row of the image is read once for all rows of results that see it. Rows of a product are strips
and groups of columns of an image, and images. What is not finite in the image spreads to the
outputs of a product, and of pairs of channels to both where zeros are multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir.itervar import IterVar, Range
from tilewright.schedule import Schedule, Stage
from tilewright.target.instruction import Instruction
from tilewright.target.instructions import load_pairs, mma_bf16, mma_f16
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.bands import indices
from tilewright.topi.pieces.plane_band_cuts import PIXELS, READ, band_cut, check
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PlaneBandTile
from tilewright.topi.pieces.strips import Strips


class StripProducts(NamedTuple):
    """The stages: ``sums`` of products of ``pixels``, read from an ``image`` in shared memory in
    boxes of ``box``, with ``bands``; of pairs of channels ``taps``, of which these are made, unless
    zeros are skipped.

    Loops of ``sums`` are over what a warp has, its ``tiles``; over rows and parts of the image and
    what sees them, which are ``unrolled``; and over a ``product``, which ``multiply`` is. Those of
    ``pixels`` that are ``read`` at once are what ``load`` is.
    """

    sums: Tensor
    pixels: Tensor
    image: Tensor
    bands: Tensor
    box: tuple[int, ...]
    tiles: list[IterVar]
    unrolled: list[IterVar]
    product: list[IterVar]
    read: list[IterVar]
    multiply: Instruction
    load: Instruction
    taps: Tensor | None = None


def digits(stage: Stage, axis: IterVar, *factors: int) -> IterVar:
    """Split an axis, and each inner part again; returns the last."""
    for factor in factors:
        _, axis = stage.split(axis, factor=factor)
    return axis


def skewed(
    sums: Stage, cut: Strips, rows: tuple[IterVar, IterVar], columns: tuple[IterVar, IterVar],
    lead: int = 0,
) -> IterVar:  # fmt: skip
    """Skew the rows and columns of a window by those of the result; returns the columns."""
    (sh, sw), (dh, dw) = cut.stride, cut.dilation
    sums.skew(*rows, scale=sh, step=dh)
    return sums.skew(*columns, scale=sw, step=dw, offset=lead)


def beyond(value: Any, images: IterVar, turns: int, deep: int = 1) -> tuple[Any, Range]:
    """An axis of images, with those that there are not but blocks go through: they are zero, as
    TMA has them."""
    assert images.dom is not None
    return value, Range.from_extent(0, (images.dom.extent + turns) * deep)


def guard(
    s: Schedule, made: Tensor, pixels: Tensor, bands: Tensor, row: IterVar, own: list[IterVar]
) -> None:
    """Leave out of the sums what ``row`` of the results does not see, and rows of the image that
    are padding in all tiles; ``own`` are the axes of ``bands`` within a product."""
    _, *rest = s[made].op.reduce_axis
    tile = [a for a in s[made].op.axis if a is not row]
    over = {pixels: [*tile, *rest], bands: own}
    s[made].guard_by_zeros(pixels, bands, over=over, finite=True)


def as_plane_bands(s: Schedule, d: Declaration, tile: PlaneBandTile) -> StripProducts:
    """The products of planes, channels first. Raises :class:`LanguageError` as
    :func:`~tilewright.topi.pieces.plane_band_cuts.check` does.

    ``sums`` have the axes (images, image, lots of channels, channel, tile down, block of strips,
    strip, row, tile across, block of groups, group, output), and are over (row, part, place, pair,
    pixel). ``pixels`` are (the tiles; channel, blocks, row, part; image, strip, group, place, pair,
    pixel), ``image`` (the tiles; image, channel, row, column), ``bands`` (channel, row, part,
    place, pair, pixel, output).
    """
    check(d.problem, tile)
    cut, sums, kind = band_cut(d.problem, tile), s[d.sum], d.problem.dtype
    (deep, strips, groups), (high, wide, lots) = cut.matrix, cut.tile
    n, c, h, w = sums.op.axis
    di, dj = sums.op.reduce_axis
    sums.split(sums.pad_to(n, deep), factor=deep)
    sums.split(c, factor=lots)
    row = digits(sums, sums.pad_to(h, high), high, strips * cut.rows, cut.rows)
    output = digits(sums, sums.pad_to(w, wide), wide, groups * PLANE_OUTPUTS, PLANE_OUTPUTS)
    j = skewed(sums, cut, (di, row), (dj, output), cut.lead)
    digits(sums, sums.pad_to(j, PIXELS), PIXELS, READ, 2)
    made = s.cache_write(d.sum, "fragment")

    no, i, co, ci, down, hs, strip, row, across, ws, group, output = s[made].op.axis
    r, *q = s[made].op.reduce_axis
    *_, tap, _ = indices(s, made, d.weights)
    at = [ci, hs, ws, r, q[0], i, strip, group, *q[1:]]
    pixels = s.reindex(d.source, made, [no, co, down, across, *at], "fragment")
    bands = s.reindex(d.weights, made, [co.var * lots + ci.var, tap, *q, output], "fragment")
    no, co, down, across, ci, hs, ws, r, part, i, strip, group, *rest = s[pixels].op.axis
    line = (hs.var * strips + strip.var) * (cut.rows * cut.stride[0]) + r.var
    column: Any = (ws.var * groups + group.var) * (PLANE_OUTPUTS * cut.stride[1])
    for axis, each in zip((part, *rest), (PIXELS, READ, 2, 1), strict=True):
        column += axis.var * each
    whole = Range.from_extent(cut.lead - cut.margin, cut.row_stride)
    first = beyond(no, no, tile.turns if deep > 1 else 0)
    seen = [i, ci, line, (column, whole)]
    image = s.reindex(d.image, pixels, [first, co, down, across, *seen], "shared")
    guard(s, made, pixels, bands, row, [*q, output])
    for axis, extent in zip(s[image].op.axis[-2:], cut.box[2:], strict=True):
        s[image].align_bounds(axis, extent)
    no, i, co, ci, down, hs, strip, row, across, ws, group, output = s[made].op.axis
    r, part, place, pair, low = s[made].op.reduce_axis
    return StripProducts(
        made, pixels, image, bands, cut.box, [no, co, down, across, ci, hs, ws], [r, part, row],
        [i, strip, group, output, pair, place, low], list(s[pixels].op.axis[-6:]),
        {"float16": mma_f16, "bfloat16": mma_bf16}[kind],
        load_pairs(cut.matrix, READ, READ // 2, kind),
    )  # fmt: skip
