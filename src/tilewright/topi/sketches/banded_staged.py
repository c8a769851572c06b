"""Depthwise convolution as products with banded matrices on Hopper, of images in shared memory.

The products are those of :mod:`~tilewright.topi.pieces.bands`: rows of the image are copied to
shared memory in the background, some at a time, and all warpgroups of a block multiply them there,
each for its own rows of results. Registers hold sums and nothing else; a row of the image is read
from memory once for all results of a block.
"""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.instructions import wgmma
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.staging import stage_blocks, stage_boxes
from tilewright.topi.pieces.band_blocks import fill, store
from tilewright.topi.pieces.band_tiles import StagedTile
from tilewright.topi.pieces.bands import as_products
from tilewright.topi.pieces.staged_cuts import StagedBands
from tilewright.topi.pieces.tiling import thread_axes
from tilewright.topi.stages import scheduled

#: Columns that an instruction sums over.
_DEPTH = 16


def schedule_banded_staged(d: Declaration, tile: StagedTile = StagedTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW of an even
    number of columns, whose sums are in float32."""
    s, kind = scheduled(d.output, d.sum), d.problem.dtype
    cut = StagedBands(d.problem, *tile.product, tile.groups, tile.staged, tile.box)
    made = as_products(s, d.sum, d.source, d.weights, cut, "shared")
    s[d.sum].compute_inline()
    s[made.image].transform_layout(
        lambda n, c, h, w: (
            [n // cut.images, c, h, w // tile.box, n % cut.images, w % tile.box]
            if tile.box
            else [n // cut.images, c, h, w // 8, n // 8 % 8, n % 8, w % 8]
        )
    )
    threads = thread_axes(tile.teams, tile.groups, tile.lanes)
    out = s[d.output]
    channel, group = store(out, cut, tile, threads)
    fill(s, made, cut, threads, (out, channel))

    sums = s[made.sums]
    sums.compute_at(out, group)
    many, n, *outer, h, wo, w = sums.op.axis
    turn, q, phase, chunk, j = sums.op.reduce_axis
    step, j = sums.split(j, factor=_DEPTH)
    half, j = sums.split(j, factor=8)
    eight, n = sums.split(n, factor=8)
    far, w = sums.split(w, factor=4 * cut.share)
    quarter, w = sums.split(w, factor=cut.share)
    pair, side = sums.split(w, factor=2)
    multiplied = [eight, n, h, far, pair, quarter, side, half, j]
    sums.reorder(many, *outer, wo, turn, q, phase, chunk, step, *multiplied)
    sums.unroll(chunk, step)
    swizzle = tile.box * dtype(kind).bytes
    sums.tensorize(eight, wgmma(tile.rows * tile.columns, kind, "k", "k", (swizzle, 0)))

    image = s[s[made.image].op.output(0)]
    first = out.leaf_iter_vars[1]  # the outermost loop of a block
    if tile.staged:
        image.compute_at(sums, turn)
        # So that each block has all turns, and none of them sees padding alone.
        even = cut.tiles[0] % (tile.groups * tile.turns) == 0 and cut.kernel[0] > 1
        image.pipeline(tile.stages, over=first if even else None)
    else:
        image.compute_at(out, first)
        if tile.stages > 1:
            image.pipeline(tile.stages)
    if tile.box:
        stage_boxes(image)
    else:
        stage_blocks(image, image.op.axis[:-4], cut.image[1], tile.groups)
    return s
