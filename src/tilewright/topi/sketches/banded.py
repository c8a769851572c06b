"""Depthwise convolution as products with banded matrices on tensor cores, channels first.

The products are those of :mod:`~tilewright.topi.pieces.bands`. Where the rows of a product are rows
of one image, each thread takes its elements of a matrix from the row of the filter, in shared
memory; where they are images, which share a matrix, a block makes the matrices of a filter there
once. Rows of the image are loaded one after another straight into the registers that instructions
read, some ahead, or copied to shared memory for all warpgroups of a block.

The gradient by one image is that image convolved with dy, stride and dilation changing places: a
warp sums rows of a filter over the images of a chunk, and the rows of dy lie in shared memory.
Chunks are parts of the sum over images that ``rfactor`` makes, and a second kernel adds them in
their order; of one chunk there is none.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.band_blocks import fill, store, store_chunks
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_parts import (
    PartProducts,
    as_part_products,
    fill_taps,
    multiply_parts,
)
from tilewright.topi.pieces.band_products import multiply
from tilewright.topi.pieces.band_tiles import BandTile, GradientTile, RowTile, StagedTile
from tilewright.topi.pieces.bands import Products, as_products
from tilewright.topi.pieces.staged_cuts import staged_bands
from tilewright.topi.pieces.staged_products import multiply_staged
from tilewright.topi.pieces.tiling import bind_all, thread_axes
from tilewright.topi.stages import scheduled


def schedule_banded(d: Declaration, tile: BandTile = RowTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW whose sums
    are in float32, or of its gradient by the filter.

    Where rows of a product are rows of an image, strides of rows are powers of two: others cannot
    be lowered. Images that are staged have an even number of columns.
    """
    s, total = scheduled(d.output, d.sum), d.sum
    staged = staged_bands(d.problem, tile) if isinstance(tile, StagedTile) else None
    cut = staged or Bands(d.problem, *tile.product)
    if isinstance(tile, GradientTile) and tile.chunks > 1:
        _, chunk = s[total].split(s[total].op.reduce_axis[0], factor=tile.chunks)
        total = s.rfactor(total, chunk, 0)
    made: Products | PartProducts
    if cut.terms:
        made = as_part_products(s, total, d.source, d.weights, cut)
    else:
        scope = "fragment" if cut.images == 1 else "shared"
        made = as_products(s, total, d.source, d.weights, cut, scope)
    if total is not d.output:
        s[total].compute_inline()
    if isinstance(tile, GradientTile):
        threads = thread_axes(min(tile.teams, tile.chunks), tile.groups, tile.lanes)
        sums, out, at = store_chunks(s, d, made.sums, cut, tile, threads[0])
        made, filled = made._replace(sums=sums), (s[sums], s[sums].op.reduce_axis[0])
    else:
        threads, out = thread_axes(tile.teams, tile.groups, tile.lanes), s[d.output]
        channel, at = store(out, cut, tile, threads)
        filled = out, channel
    s[made.sums].compute_at(out, at)
    s[made.taps].compute_at(*filled)
    if isinstance(made, PartProducts):
        multiply_parts(s, made, cut, tile.stages)
        fill_taps(s, made, threads)
        return s
    if cut.images > 1:
        s[made.matrix].compute_at(*filled)
    if isinstance(tile, StagedTile) and staged:
        multiply_staged(s, made, staged, tile, out)
    else:
        multiply(s, made, cut, tile.lanes, tile.stages)
    if isinstance(tile, GradientTile):
        bind_all(s[made.taps], s[made.taps].fuse(*s[made.taps].op.axis), threads)
    else:
        fill(s, made, cut, threads)
    return s
