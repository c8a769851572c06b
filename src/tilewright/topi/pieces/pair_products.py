"""Sums over windows as products of strips of an image, channels last, with bands of two filters."""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    load_pairs,
    mma_bf16,
    mma_bf16_8,
    mma_f16,
    mma_f16_8,
    mma_pairs_bf16,
    mma_pairs_f16,
)
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.bands import indices
from tilewright.topi.pieces.pair_cuts import check, pair_cut
from tilewright.topi.pieces.strip_products import StripProducts, beyond, digits, guard, skewed
from tilewright.topi.pieces.strip_tiles import CHANNELS, PairTile
from tilewright.topi.pieces.tiling import extent_of

#: By type and pixels of a product.
_MULTIPLY = {
    ("float16", 4): mma_f16_8, ("float16", 8): mma_f16, ("float16", 16): mma_pairs_f16,
    ("bfloat16", 4): mma_bf16_8, ("bfloat16", 8): mma_bf16, ("bfloat16", 16): mma_pairs_bf16,
}  # fmt: skip


def as_channel_pairs(s: Schedule, d: Declaration, tile: PairTile) -> StripProducts:
    """The products of pairs of channels, channels last. Raises :class:`LanguageError` as
    :func:`~tilewright.topi.pieces.pair_cuts.check` does.

    ``sums`` have the axes (images, image, blocks of strips, strip, row, blocks of groups, group,
    output, lots, pair, channel), and are over (row, part, pixel), and over the channels of a pair,
    where zeros are multiplied: an axis of one tap, skewed by the channel. ``pixels`` are (images,
    blocks, lots; row, part; image, strip, group, pair, pixel, channel), ``image`` that of the
    declaration, ``taps`` (lots, row, part, pair, pixel, output, channel), and ``bands`` the same
    with channels behind pixels.
    """
    check(tile)
    cut, sums, kind = pair_cut(d.problem, tile), s[d.sum], d.problem.dtype
    (deep, strips, groups), (high, wide, channels) = cut.matrix, cut.tile
    n, h, w, c = sums.op.axis
    di, dj = sums.op.reduce_axis
    sums.split(sums.pad_to(n, deep), factor=deep)
    row = digits(sums, sums.pad_to(h, high), strips * cut.rows, cut.rows)
    output = digits(sums, sums.pad_to(w, wide), groups * cut.outputs, cut.outputs)
    own = digits(sums, sums.pad_to(c, channels), cut.pairs * CHANNELS, CHANNELS)
    if not cut.sparse:
        dj, one = sums.split(dj, factor=1)
        sums.skew(one, own)
    j = skewed(sums, cut, (di, row), (dj, output))
    sums.split(sums.pad_to(j, cut.pixels), factor=cut.pixels)
    made = s.cache_write(d.sum, "fragment")

    no, i, ho, strip, row, wo, group, output, lot, pair, cj = s[made].op.axis
    r, part, q, *both = s[made].op.reduce_axis
    read = d.weights if d.packed is None else d.packed
    tap, *_ = indices(s, made, read)
    at = [i, strip, group, pair, q, *(both or [cj])]
    pixels = s.reindex(d.source, made, [no, ho, wo, lot, r, part, *at], "fragment")
    bands = s.reindex(read, made, [lot, tap, part, pair, q, *both, output, cj], "fragment")
    taps = None
    if both:
        *outer, _, output_of, own = s[bands].op.axis
        taps = s.reindex(d.weights, bands, [*outer, output_of, own], "local")
    no, ho, wo, e, r, part_of, i, strip, group, pair_of, q_of, of = s[pixels].op.axis
    first = beyond(no.var * deep + i.var, no, tile.turns if deep > 1 else 0, deep)
    line = (ho.var * strips + strip.var) * (cut.rows * cut.stride[0]) + r.var
    column = (wo.var * groups + group.var) * (cut.outputs * cut.stride[1])
    column += part_of.var * cut.pixels + q_of.var
    channel = (e.var * cut.pairs + pair_of.var) * CHANNELS + of.var
    image = s.reindex(d.image, pixels, [first, line, column, channel], "shared")
    guard(s, made, pixels, bands, row, [part, q, *both, output, lot, pair, cj])
    no, i, ho, strip, row, wo, group, output, lot, pair, cj = s[made].op.axis
    r, part, *summed = s[made].op.reduce_axis
    # Of a tile as high as the image, rows that are padding are not read.
    rows = (high - cut.rows) * cut.stride[0] + extent_of(r)
    *_, image_of, strip_of, group_of, pair_of, q_of, of = s[pixels].op.axis
    return StripProducts(
        made, pixels, image, bands, (deep, rows, cut.seen(high, wide)[1], channels),
        [no, ho, wo, lot], [r, part, pair, row], [i, strip, group, output, cj, *summed],
        [image_of, strip_of, group_of, q_of, pair_of, of], _MULTIPLY[kind, cut.pixels],
        load_pairs(cut.matrix, cut.pixels, cut.pairs, kind), taps,
    )  # fmt: skip
