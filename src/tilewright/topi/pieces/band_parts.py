"""Products with banded matrices in TF32: factors in parts, blocks without taps left out.

The hardware rounds its sums towards zero, always to the same side, so that a sum over a whole
filter would lose digits that float32 has: it adds up one row of taps, from zero, which ``rfactor``
makes a stage of its own, and the rows are added in float32 like any other numbers. The elements of
a matrix are taps, in shared memory: a thread takes them from there into registers, and as blocks of
8 by 8 on a diagonal are one, it needs ten or so for all of a row. The image is taken apart in
registers, once for all rows of results that it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_tf32
from tilewright.te import Tensor
from tilewright.topi.pieces.band_cuts import BLOCK, Bands
from tilewright.topi.pieces.band_tiles import LANES, ROWS
from tilewright.topi.pieces.bands import indices, skewed, tap_row
from tilewright.topi.pieces.tiling import extent_of

#: Rows of taps that a warp loads at once.
_AT_ONCE = 8


class PartProducts(NamedTuple):
    """The stages: ``sums`` of ``rows``, which are sums of products of ``parts`` of the ``image``
    and of ``matrix``, made of ``taps``, rows of what the image is convolved with, between zeros."""

    sums: Tensor
    rows: Tensor
    parts: Tensor
    image: Tensor
    matrix: Tensor
    taps: Tensor


def as_part_products(
    s: Schedule, total: Tensor, image: Tensor, filter: Tensor, cut: Bands
) -> PartProducts:
    """As :func:`~tilewright.topi.pieces.bands.as_products`, of float32, columns of a tile in blocks
    of 8; rows are summed over (term, chunk, column)."""
    found = {part.op.inputs[0].buffer: part for part in s.in_tf32(total, cut.terms)}
    of_image, of_filter = found[image.buffer], found[filter.buffer]
    made, sw = skewed(s, total, cut), cut.stride[1]
    *outer, hi, _, block, wi = s[made].op.axis
    *_, jo, ji = s[made].op.reduce_axis
    s[of_image].compute_inline()
    parts = s.reindex(of_image, made, indices(s, made, of_image), "fragment")
    loaded = s.reindex(image, parts, [*s[parts].op.axis[1:]], "fragment")
    *of_tap, _, _ = indices(s, made, of_filter)
    diagonal, tap = jo.var - block.var * sw, tap_row(s, made, cut)
    matrix = s.reindex(of_filter, made, [*of_tap, tap, diagonal, wi, ji], "fragment")
    s[of_filter].compute_inline()
    *of_row, d, i, j = s[matrix].op.axis
    taps = s.reindex(of_filter, matrix, [*of_row, d.var * BLOCK + j.var - i.var * sw], "shared")
    s[
        s.reindex(filter, taps, [*s[taps].op.axis[1:]])
    ].compute_inline()  # zeros have zeros for parts
    tile = [*outer[1:2], hi, wi, ji] if cut.images > 1 else [hi, wi, ji]
    along = [block] if cut.whole else [block, jo]
    over = {parts: [*tile, *along], matrix: tile}
    s[made].guard_by_zeros(parts, matrix, over=over, finite=True)
    _, *rest, _, _ = s[made].op.reduce_axis
    rows = s.rfactor(made, rest, -1)
    return PartProducts(made, rows, parts, loaded, matrix, taps)


def multiply_parts(s: Schedule, made: PartProducts, cut: Bands, stages: int) -> None:
    """The products of a warp, one row of the image after another, which are loaded ``stages - 1``
    ahead."""
    sums = s[made.sums]
    *outer, h, across, block, w = sums.op.axis
    rest = list(sums.op.reduce_axis)
    if cut.images == 1:
        tiles, row = sums.split(h, factor=ROWS)
        at, gathered, apart = [tiles], rest[-1], tiles
    else:
        tiles, row = sums.split(outer.pop(1), factor=ROWS)
        at, gathered, apart = [h, tiles], h, rest[-1]
    sums.reorder(*outer, across, *rest, *at, row, block, w)
    sums.unroll(*at)

    rows = s[made.rows]
    rows.set_scope("fragment")
    rows.compute_at(sums, tiles)
    *own, w = list(rows.op.axis)[: -len(rest)]
    turns = rows.op.axis[-len(rest) :]
    term, chunk, j = rows.op.reduce_axis
    block = own.pop()
    tiles, row = rows.split(own.pop(1 if cut.images > 1 else -2), factor=ROWS)
    quarter, side = rows.split(w, factor=2)
    thread, low = rows.split(j, factor=2)
    rows.reorder(*own, *turns, term, chunk, tiles, block, row, quarter, side, low, thread)
    rows.unroll(term, chunk, tiles, block)
    rows.tensorize(row, mma_tf32)

    matrix = s[made.matrix]
    matrix.compute_at(sums, gathered)
    matrix.unroll(*matrix.op.axis[:-2])
    parts = s[made.parts]
    parts.compute_at(sums, apart)
    parts.unroll(parts.op.axis[0])
    image = s[made.image]
    image.compute_at(sums, rest[-1])
    _, lane = image.split(image.op.axis[-1], factor=gcd(cut.image[1], 2))
    image.vectorize(lane)
    if stages > 1:
        image.pipeline(stages)


def fill_taps(s: Schedule, made: PartProducts, threads: Sequence[IterVar]) -> None:
    """Rows of taps, one for each warp of a block, ``threads`` of which the last are its lanes."""
    stage = s[made.taps]
    part, *rows, column = stage.op.axis
    row = stage.fuse(*rows)
    for thread in reversed(threads[:-1]):
        row, own = stage.split(row, factor=extent_of(thread))
        stage.bind(own, thread)
    few, row = stage.split(row, factor=_AT_ONCE)
    column, lane = stage.split(column, factor=LANES)
    stage.bind(lane, threads[-1])
    stage.reorder(few, row, column, lane, part)
    stage.unroll(row, column, part)
