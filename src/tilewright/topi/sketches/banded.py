"""Depthwise convolution as products with banded matrices on tensor cores, channels first.

The products are those of :mod:`~tilewright.topi.pieces.bands`. Rows of the image are loaded one
after another straight into the registers that instructions read, some ahead. Where the rows of a
product are rows of one image, each thread takes its elements of a matrix from the row of the
filter, in shared memory; where they are images, which share a matrix, a block makes the matrices
of a filter there once: a warp loads them into its registers, 16 by 16 at a time, so that 32 images
need half as many loads as 16 for each product, and a warpgroup multiplies with them as they lie, of
several rows of results at once. Rows in the padding are not visited.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    ldmatrix_b_blocks_bf16,
    ldmatrix_b_blocks_f16,
    mma_bf16,
    mma_f16,
    wgmma,
)
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.band_blocks import fill, store
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_parts import as_part_products, fill_taps, multiply_parts
from tilewright.topi.pieces.band_tiles import LANES, ROWS, BandTile, RowTile
from tilewright.topi.pieces.bands import Products, as_products
from tilewright.topi.pieces.counts import Counts
from tilewright.topi.pieces.tiling import thread_axes
from tilewright.topi.stages import scheduled

_WARP = {
    "float16": (mma_f16, ldmatrix_b_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_b_blocks_bf16),
}


def schedule_banded(d: Declaration, tile: BandTile = RowTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW whose sums
    are in float32.

    Where rows of a product are rows of an image, strides of rows are powers of two: others cannot
    be lowered.
    """
    s, cut = scheduled(d.output, d.sum), Bands(d.problem, *tile.product)
    threads, out = thread_axes(tile.teams, tile.groups, tile.lanes), s[d.output]
    if cut.terms:
        parts = as_part_products(s, d.sum, d.source, d.weights, cut)
        if d.sum is not d.output:
            s[d.sum].compute_inline()
        channel, group = store(out, cut, tile, threads)
        s[parts.taps].compute_at(out, channel)
        fill_taps(s, parts, threads)
        s[parts.sums].compute_at(out, group)
        multiply_parts(s, parts, cut, tile.stages)
        return s
    scope = "fragment" if cut.images == 1 else "shared"
    made = as_products(s, d.sum, d.source, d.weights, cut, scope)
    s[d.sum].compute_inline()
    channel, group = store(out, cut, tile, threads)
    fill(s, made, cut, threads, (out, channel))
    s[made.sums].compute_at(out, group)
    multiply(s, made, cut, tile.lanes, tile.stages)
    return s


def multiply(s: Schedule, made: Products, cut: Bands, lanes: int, stages: int) -> None:
    """The products of ``lanes`` threads, one row of the image after another, which are loaded
    ``stages - 1`` ahead."""
    sums, kind = s[made.sums], str(made.image.dtype)
    *outer, h, wo, w = sums.op.axis
    *rest, chunk, j = sums.op.reduce_axis
    thread, j = sums.split(j, factor=cut.chunk // 4)
    step, j = sums.split(j, factor=4)
    half, low = sums.split(j, factor=2)
    quarter, w = sums.split(w, factor=cut.share)
    pair, side = sums.split(w, factor=2)
    multiplied = [quarter, side, half, thread, low]
    sums.unroll(chunk, step)
    if lanes > LANES:
        row, written = outer.pop(1), list[IterVar]()
        multiplied, instruction = [h, pair, *multiplied], wgmma(cut.rows * cut.columns, kind)
    else:
        instruction, load = _WARP[kind]
        if cut.images == 1:
            tiles, row = sums.split(h, factor=ROWS)
            written = [pair, tiles]
            s[made.matrix].compute_at(sums, pair)
        else:
            tiles, row = sums.split(outer.pop(1), factor=ROWS)
            pairs, pair = sums.split(pair, factor=2)
            written = [h, pairs, tiles, pair]
            loads = s[s.cache_read(made.matrix, "fragment", [made.sums])]
            loads.compute_at(sums, pairs)
            *of, jo, ko, ji, ki = loads.op.axis
            loads.reorder(*of, jo, ji, ko, ki)
            loads.tensorize(jo, load)
    sums.reorder(*outer, wo, *rest, chunk, step, *written, row, *multiplied)
    sums.unroll(*written)
    sums.tensorize(row, instruction)
    image = s[made.image]
    image.compute_at(sums, rest[-1])
    _, lane = image.split(image.op.axis[-1], factor=gcd(cut.image[1], cut.chunk // 4))
    image.vectorize(lane)
    if stages > 1:
        image.pipeline(stages)


def banded_counts(p: Any, tile: BandTile) -> Counts:
    """Of :func:`schedule_banded`."""
    cut = Bands(p, *tile.product)
    (down, across), (images, rows, columns) = cut.tiles, tile.product
    batch, channels = p.result.shape[:2]
    blocks = -(-batch // (images * tile.teams)) * channels * across
    blocks *= -(-down // (tile.groups * tile.turns))
    warps = -(-batch // images) * channels * across
    met = sum(cut.met(k) for k in range(down))
    copied = cut.kernel[0] * cut.taps if images == 1 else cut.matrix_bytes // 2
    return Counts(
        blocks, tile.lanes * tile.groups * tile.teams,
        warps * met * images * rows * columns * cut.depth, blocks * copied, prod(p.result.shape),
    )  # fmt: skip
