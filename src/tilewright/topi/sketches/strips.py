"""Depthwise convolution in 16 bits on tensor cores, of strips of images by bands of filters.

The products are those of :mod:`~tilewright.topi.pieces.strip_products`, channels first, or of
:mod:`~tilewright.topi.pieces.pair_products`, channels last. A block has some channels, and goes
from tile to tile, and on to the next image; what a tile sees, halo and padding included, comes to
shared memory as one box, by TMA, while the tile before it is computed. A warp has the bands of the
filters of its channels in registers, or where products skip zeros their taps; it reads what a row
of the image is for all rows of a product at once, and adds it to all rows of results that see it.
Results go through shared memory, so that they are stored in chunks of 16 bytes. Where rows of
planes are no multiples of these, threads copy what a tile sees chunk by chunk, too.
"""

from __future__ import annotations

from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import copy_async, tma_load
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.staging import share_rows
from tilewright.topi.pieces.pair_products import as_channel_pairs
from tilewright.topi.pieces.strip_products import StripProducts, as_plane_bands
from tilewright.topi.pieces.strip_tiles import SPARSE_OUTPUTS, PlaneBandTile, StripProductTile
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, thread_axes
from tilewright.topi.pieces.windows import extent
from tilewright.topi.stages import image_axes, scheduled

#: Threads of a warp; elements of 16 bits that a thread copies at once, at most.
_LANES, _CHUNK = 32, 8


def schedule_strips(d: Declaration, tile: StripProductTile = PlaneBandTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW by a
    :class:`PlaneBandTile`, in NHWC by a :class:`PairTile`. Raises :class:`LanguageError` as
    :func:`as_plane_bands` and :func:`as_channel_pairs` do."""
    s = scheduled(d.output, d.sum)
    staged = s.cache_write(d.output, "shared")
    if isinstance(tile, PlaneBandTile):
        made = as_plane_bands(s, d, tile)
    else:
        made = as_channel_pairs(s, d, tile)
    s[d.sum].compute_inline()
    out, results = s[d.output], s[staged]
    threads = thread_axes(tile.down * tile.across, tile.lots, _LANES)
    block, turn = _store(out, d, tile, threads)
    results.compute_at(out, turn)
    sums, pixels = s[made.sums], s[made.pixels]
    sums.compute_at(results, _share_out(results, d.layout, tile, threads))
    sums.reorder(*made.tiles, *made.unrolled, *made.product)
    sums.unroll(*made.unrolled)
    sums.tensorize(made.product[0], made.multiply)
    pixels.compute_at(sums, made.unrolled[1])
    pixels.reorder(*made.read)
    pixels.tensorize(made.read[0], made.load)
    _hold_filters(s, made, (out, block), threads[1])
    image = s[made.image]
    image.compute_at(out, turn)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    _copy(image, made.box, tile, gcd(_CHUNK, extent(d.image)), threads)
    return s


def _copy(
    image: Stage, box: tuple[int, ...], tile: StripProductTile, chunk: int,
    threads: list[IterVar],
) -> None:  # fmt: skip
    """What a tile sees, as one box, or in chunks."""
    *_, images, channel, row, column = image.op.axis
    kind = str(image.op.output(0).dtype)
    if tile.swizzle:
        image.swizzle(tile.swizzle)
    if tile.boxed:
        image.tensorize(images, tma_load(box, kind, swizzle=tile.swizzle))
        return
    column, lane = image.split(column, factor=chunk)
    image.tensorize(lane, copy_async(chunk, kind))
    image.reorder(images, channel, row, column)
    own = share_rows(image, row, column, box[-1] // chunk, extent_of(*threads))
    bind_all(image, own, threads)


def _hold_filters(
    s: Schedule, made: StripProducts, at: tuple[Stage, IterVar], warps: IterVar
) -> None:
    """What products read of the filters of a warp's channels, in registers for all tiles."""
    held = s[made.bands]
    held.compute_at(*at)
    held.bind(held.op.axis[0], warps)
    if made.taps is not None:
        *_, ci, output, cj = held.op.axis
        held.reorder(output, cj, ci)
        s[made.taps].compute_at(held, cj)  # read once for both channels of a pixel
    held.unroll(*held.op.axis[1:])


def _store(
    out: Stage, d: Declaration, tile: StripProductTile, threads: list[IterVar]
) -> tuple[IterVar, IterVar]:
    """Whole rows or pixels, in chunks that neighbouring threads store side by side. Returns the
    loops over blocks and over their tiles."""
    (high, wide, channels), stored = tile.size, gcd(_CHUNK, extent(d.output))
    n, c, h, w = image_axes(out, d.layout)
    n, image = out.split(n, factor=tile.matrix[0])
    cb, c = out.split(c, factor=channels)
    wb, w = out.split(w, factor=wide)
    hb, row = out.split(h, factor=high)
    out.reorder(n, hb, wb, cb, image, *((row, w, c) if d.channels_last else (c, row, w)))
    tiles, turn = out.split(out.fuse(n, hb, wb), factor=tile.turns)
    out.reorder(tiles, cb, turn)
    block = bind(out, out.fuse(tiles, cb))
    last, lane = out.split(c if d.channels_last else w, factor=stored)
    if d.channels_last:
        own = out.fuse(image, row, w, last)
    else:
        own = share_rows(out, row, last, wide // stored, extent_of(*threads))
    bind_all(out, own, threads)
    out.vectorize(lane)
    return block, turn


def _share_out(
    results: Stage, layout: str, tile: StripProductTile, threads: list[IterVar]
) -> IterVar:
    """The results of a tile among warps, as their sums lie. Returns the loop over lots of
    channels, in which a warp has all of its own."""
    image, c, row, w = image_axes(results, layout)
    images, strips, groups = tile.matrix
    if tile.own > 1:
        results.storage_align(w, 2 * _CHUNK, _CHUNK)  # so that pixels meet no bank twice
        if tile.outputs == SPARSE_OUTPUTS:  # nor do strips, of which a thread's neighbours are
            results.storage_align(row, 8 * _CHUNK, _CHUNK * (1 + tile.rows % 2))
    extents = (images, tile.rows * strips, tile.outputs * groups, tile.own)
    for axis, size in zip((image, row, w, c), extents, strict=True):
        results.align_bounds(axis, size)
    w, output = results.split(w, factor=tile.outputs)
    if tile.own > 1:
        lot, low = results.split(c, factor=tile.own)
    else:
        lot, (output, low) = c, results.split(output, factor=2)
    across, group = results.split(w, factor=groups)
    h, row = results.split(row, factor=tile.rows)
    down, strip = results.split(h, factor=strips)
    results.reorder(down, across, lot, row, image, strip, group, output, low)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(lot, threads[1])
    results.unroll(row)
    results.vectorize(low)
    return lot
