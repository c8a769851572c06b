"""How warpgroups multiply images that lie in shared memory with banded matrices.

Rows of the image are copied there in the background, some at a time, and all warpgroups of a block
multiply them, each for its own rows of results. Registers hold sums and nothing else; a row of the
image is read from memory once for all results of a block.
"""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import wgmma
from tilewright.topi.gpu.staging import stage_blocks, stage_boxes
from tilewright.topi.pieces.band_tiles import StagedTile
from tilewright.topi.pieces.bands import Products
from tilewright.topi.pieces.staged_cuts import StagedBands

#: Columns that an instruction sums over.
_DEPTH = 16


def multiply_staged(
    s: Schedule, made: Products, cut: StagedBands, tile: StagedTile, out: Stage
) -> None:
    """The products of a warpgroup, with what is staged for all of a block of ``out``, in blocks of
    8 by 8, or in rows of a box."""
    box, kind = tile.box, str(made.image.dtype)
    s[made.image].transform_layout(
        lambda n, c, h, w: (
            [n // cut.images, c, h, w // box, n % cut.images, w % box]
            if box
            else [n // cut.images, c, h, w // 8, n // 8 % 8, n % 8, w % 8]
        )
    )
    sums = s[made.sums]
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
    swizzle = box * dtype(kind).bytes
    sums.tensorize(eight, wgmma(cut.rows * cut.columns, kind, "k", "k", (swizzle, 0)))

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
    if box:
        stage_boxes(image)
    else:
        stage_blocks(image, image.op.axis[:-4], cut.image[1], tile.groups)
