"""Depthwise convolution in 16 bits on tensor cores, channels first, of planes by bands of filters.

The products are those of :mod:`~tilewright.topi.pieces.strip_products`. A block has some channels,
and goes through tiles of their images; what a tile sees, halo and padding included, comes to shared
memory as one box, by TMA, while the tile before it is computed. A warp has the bands of a channel's
filter in registers, reads a row of all its strips at once, and adds it to all rows of results that
see it. Results go through shared memory, so that they are stored in chunks of 16 bytes.

Where rows are no multiples of 16 bytes, or short, threads copy what a tile sees chunk by chunk
instead, in the background too.
"""

from __future__ import annotations

from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import copy_async, load_pairs, mma_bf16, mma_f16, tma_load
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.staging import share_rows
from tilewright.topi.pieces.plane_band_cuts import CHUNK, READ, PlaneBandCut, band_cut, check
from tilewright.topi.pieces.strip_products import StripProducts, as_plane_bands
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PlaneBandTile
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, thread_axes
from tilewright.topi.stages import scheduled

_MULTIPLY = {"float16": mma_f16, "bfloat16": mma_bf16}
_LANES = 32


def schedule_plane_bands(d: Declaration, tile: PlaneBandTile = PlaneBandTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW. Raises
    :class:`LanguageError` as :func:`~tilewright.topi.pieces.plane_band_cuts.check` does."""
    check(d.problem, tile)
    s, cut, kind = scheduled(d.output, d.sum), band_cut(d.problem, tile), d.problem.dtype
    staged = s.cache_write(d.output, "shared")
    made = as_plane_bands(s, d, cut, tile.turns)
    s[d.sum].compute_inline()
    out, results = s[d.output], s[staged]
    threads = thread_axes(tile.down * tile.across, tile.channels, _LANES)
    block, turn = _store(out, cut, tile, threads)
    results.compute_at(out, turn)
    s[made.sums].compute_at(results, _share_out(results, tile, threads))
    _multiply(s, made, cut, kind)
    bands = s[made.bands]
    bands.compute_at(out, block)
    bands.bind(bands.op.axis[0], threads[1])
    bands.unroll(*bands.op.axis[1:])
    image = s[made.image]
    image.compute_at(out, turn)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    *_, images, channel, row, column = image.op.axis
    for axis, extent in zip((row, column), cut.box[2:], strict=True):
        image.align_bounds(axis, extent)
    if tile.boxed:
        image.tensorize(images, tma_load(cut.box, kind))
        return s
    column, lane = image.split(column, factor=cut.chunk)
    image.tensorize(lane, copy_async(cut.chunk, kind))
    image.reorder(images, channel, row, column)
    columns = cut.row_stride // cut.chunk
    bind_all(image, share_rows(image, row, column, columns, extent_of(*threads)), threads)
    return s


def _store(
    out: Stage, cut: PlaneBandCut, tile: PlaneBandTile, threads: list[IterVar]
) -> tuple[IterVar, IterVar]:
    """Whole rows, in chunks of 16 bytes that neighbouring threads store side by side. Returns the
    loops over blocks and over their tiles."""
    high, wide, channels = tile.size
    n, c, h, w = out.op.axis
    n, image = out.split(n, factor=tile.matrix[0])
    cb, c = out.split(c, factor=channels)
    wb, w = out.split(w, factor=wide)
    hb, row = out.split(h, factor=high)
    out.reorder(n, hb, wb, cb, image, c, row, w)
    tiles, turn = out.split(out.fuse(n, hb, wb), factor=tile.turns)
    out.reorder(tiles, cb, turn)
    block = bind(out, out.fuse(tiles, cb))
    stored = gcd(CHUNK, cut.result[1])
    w, lane = out.split(w, factor=stored)
    bind_all(out, share_rows(out, row, w, wide // stored, extent_of(*threads)), threads)
    out.vectorize(lane)
    return block, turn


def _share_out(results: Stage, tile: PlaneBandTile, threads: list[IterVar]) -> IterVar:
    """The results of a tile among warps, as their sums lie. Returns the loop over channels."""
    image, c, row, w = results.op.axis
    images, strips, groups = tile.matrix
    extents = images, tile.rows * strips, PLANE_OUTPUTS * groups
    for axis, extent in zip((image, row, w), extents, strict=True):
        results.align_bounds(axis, extent)
    w, output = results.split(w, factor=PLANE_OUTPUTS)
    output, low = results.split(output, factor=2)
    across, group = results.split(w, factor=groups)
    h, row = results.split(row, factor=tile.rows)
    down, strip = results.split(h, factor=strips)
    results.reorder(down, across, c, row, image, strip, group, output, low)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(c, threads[1])
    results.unroll(row)
    results.vectorize(low)
    return c


def _multiply(s: Schedule, made: StripProducts, cut: PlaneBandCut, kind: str) -> None:
    """Sums, row by row of what the image has, which is read once."""
    sums, pixels = s[made.sums], s[made.pixels]
    no, image, co, c, down, h, strip, row, across, w, group, output = sums.op.axis
    r, part, place, pair, low = sums.op.reduce_axis
    tiles = [no, co, down, across, c, h, w]
    sums.reorder(*tiles, r, part, row, image, strip, group, output, pair, place, low)
    sums.unroll(r, part, row)
    sums.tensorize(image, _MULTIPLY[kind])
    pixels.compute_at(sums, part)
    image = pixels.op.axis[-6]
    pixels.tensorize(image, load_pairs(cut.matrix, READ, READ // 2, kind))
