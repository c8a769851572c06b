"""Depthwise convolution in 16 bits on tensor cores, channels last, by pairs of channels.

The products are those of :mod:`~tilewright.topi.pieces.pair_products`. A block goes from tile to
tile, and on to the next image; what a tile sees comes to shared memory as one box, by TMA, while
the tile before it is computed. A warp has the bands of the filters of some channels in
registers, or where products skip zeros their taps; it reads what a row of the image is for all rows
of a product at once, sixteen or eight of them, for several pairs of channels, and adds it to all
rows of results that see it. Results go through shared memory,
so that they are stored in chunks of 16 bytes, one next to the other.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import (
    load_pairs,
    mma_bf16,
    mma_bf16_8,
    mma_f16,
    mma_f16_8,
    mma_pairs_bf16,
    mma_pairs_f16,
    tma_load,
)
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.pair_cuts import PairCut, check, pair_cut
from tilewright.topi.pieces.pair_products import as_channel_pairs
from tilewright.topi.pieces.strip_products import StripProducts
from tilewright.topi.pieces.strip_tiles import SPARSE_OUTPUTS, PairTile, SparsePairTile
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, thread_axes
from tilewright.topi.stages import image_axes, scheduled

#: By type and pixels of a product.
_MULTIPLY = {
    ("float16", 4): mma_f16_8, ("float16", 8): mma_f16, ("float16", 16): mma_pairs_f16,
    ("bfloat16", 4): mma_bf16_8, ("bfloat16", 8): mma_bf16, ("bfloat16", 16): mma_pairs_bf16,
}  # fmt: skip
#: Threads of a warp; elements of 16 bits that a thread stores at once.
_LANES, _STORED = 32, 8


def schedule_channel_pairs(
    d: Declaration, tile: PairTile | SparsePairTile = PairTile()
) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NHWC. Raises
    :class:`LanguageError` as :func:`~tilewright.topi.pieces.pair_cuts.check` does."""
    check(tile)
    s, cut, kind = scheduled(d.output, d.sum), pair_cut(d.problem, tile), d.problem.dtype
    staged = s.cache_write(d.output, "shared")
    made = as_channel_pairs(s, d, cut, tile.turns)
    s[d.sum].compute_inline()
    out, results = s[d.output], s[staged]
    threads = thread_axes(tile.down * tile.across, tile.lots, _LANES)
    block, turn = _store(out, d.layout, tile, threads)
    results.compute_at(out, turn)
    s[made.sums].compute_at(results, _share_out(results, d.layout, tile, threads))
    _multiply(s, made, cut, kind)
    _hold_filters(s, made, (out, block), threads[1])
    box = s[made.image]
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    if tile.swizzle:
        box.swizzle(tile.swizzle)
    # Of a tile as high as the image, rows that are padding are not read.
    rows = (tile.high - tile.rows) * cut.stride[0] + extent_of(s[made.sums].op.reduce_axis[0])
    seen = (tile.images_per_mma, rows, cut.seen(tile.high, tile.wide)[1], tile.channels)
    box.tensorize(box.op.axis[0], tma_load(seen, kind, swizzle=tile.swizzle))
    return s


def _hold_filters(
    s: Schedule, made: StripProducts, at: tuple[Stage, IterVar], warps: IterVar
) -> None:
    """What products read of the filters of a warp's channels, in registers for all tiles."""
    held = s[made.bands]
    held.compute_at(*at)
    held.bind(held.op.axis[0], warps)
    if made.taps is None:
        held.unroll(*held.op.axis[1:])
        return
    *rows, q, ci, output, cj = held.op.axis[1:]
    held.reorder(*rows, q, output, cj, ci)
    held.unroll(*rows, q, output, cj, ci)
    s[made.taps].compute_at(held, cj)  # read once for both channels of a pixel


def _store(
    out: Stage, layout: str, tile: PairTile, threads: list[IterVar]
) -> tuple[IterVar, IterVar]:
    """Whole pixels, in chunks of 16 bytes that neighbouring threads store side by side. Returns the
    loops over blocks and over their tiles."""
    n, c, h, w = image_axes(out, layout)
    n, image = out.split(n, factor=tile.images_per_mma)
    cb, c = out.split(c, factor=tile.channels)
    wb, w = out.split(w, factor=tile.wide)
    hb, row = out.split(h, factor=tile.high)
    out.reorder(n, hb, wb, cb, image, row, w, c)
    tiles, turn = out.split(out.fuse(n, hb, wb), factor=tile.turns)
    out.reorder(tiles, cb, turn)
    block = bind(out, out.fuse(tiles, cb))
    c, lane = out.split(c, factor=_STORED)
    bind_all(out, out.fuse(image, row, w, c), threads)
    out.vectorize(lane)
    return block, turn


def _share_out(results: Stage, layout: str, tile: PairTile, threads: list[IterVar]) -> IterVar:
    """The results of a tile among warps, as their sums lie. Returns the loop over lots of
    channels, in which a warp has all of its own."""
    image, c, row, w = image_axes(results, layout)
    results.storage_align(w, 2 * _STORED, _STORED)  # so that pixels meet no bank twice
    if tile.outputs == SPARSE_OUTPUTS:  # nor do strips, of which a thread's neighbours are
        results.storage_align(row, 8 * _STORED, _STORED * (1 + tile.rows % 2))
    extents = (tile.images_per_mma, tile.rows * tile.strips, tile.outputs * tile.groups, tile.own)
    for axis, extent in zip((image, row, w, c), extents, strict=True):
        results.align_bounds(axis, extent)
    lot, c = results.split(c, factor=tile.own)
    w, output = results.split(w, factor=tile.outputs)
    across, group = results.split(w, factor=tile.groups)
    h, row = results.split(row, factor=tile.rows)
    down, strip = results.split(h, factor=tile.strips)
    results.reorder(down, across, lot, row, image, strip, group, output, c)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(lot, threads[1])
    results.unroll(row)
    results.vectorize(c)
    return lot


def _multiply(s: Schedule, made: StripProducts, cut: PairCut, kind: str) -> None:
    """Sums, row by row of what the image has, which is read once."""
    sums, pixels = s[made.sums], s[made.pixels]
    no, image, h, strip, row, w, group, output, lot, pair, c = sums.op.axis
    r, part, *summed = sums.op.reduce_axis
    sums.reorder(no, h, w, lot, r, part, pair, row, image, strip, group, output, c, *summed)
    sums.unroll(r, part, pair, row)
    sums.tensorize(image, _MULTIPLY[kind, cut.pixels])
    pixels.compute_at(sums, part)
    *_, image, strip, group, pair, q, c = pixels.op.axis
    pixels.reorder(image, strip, group, q, pair, c)
    pixels.tensorize(image, load_pairs(cut.matrix, cut.pixels, cut.pairs, kind))
