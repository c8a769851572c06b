"""Convolutions in groups of few channels on Hopper, of images with channels last, from boxes that
all taps read.

A block computes one box of results after the other. TMA brings what all taps of a box see, once,
while the one before is multiplied and stored; warps load fragments of it for each tap. Each warp
has some channels of the result, and their filters in registers from the beginning on: where groups
are small, an instruction of a warp has fewer channels of other groups than one of a warpgroup.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target import instructions as found
from tilewright.target.instruction import Instruction
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_products import innermost, load, over_threads
from tilewright.topi.pieces.box_results import share, stage_results, staged, store
from tilewright.topi.pieces.step_sums import axes_of
from tilewright.topi.pieces.tap_tiles import WarpBoxTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: By type: the product, and the load of pixels.
_INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "float16": (found.mma_f16, found.ldmatrix_a_blocks_f16),
    "bfloat16": (found.mma_bf16, found.ldmatrix_a_blocks_bf16),
}


def schedule_warp_boxes(d: BoxDeclaration, tile: WarpBoxTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    pixels = d.boxes.seen
    assert pixels is not None
    s = scheduled(d.output, d.sum, d.phased, d.by_pixels, pixels, *d.numbers)
    boxes = s.cache_read(d.left, "shared", [pixels])
    filters = s.cache_read(d.right, "shared", [d.sum])
    taps = s.cache_read(filters, "fragment", [d.sum])
    results, out = staged(s, d), s[d.output]
    block, box = store(out, d, tile, one_by_one=True)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    warp = stage_results(s[results], d, tile, box, out)

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[results], warp)
    phase, (*pixel, f) = axes_of(sums.op.axis, d)
    for axis, extent in zip((*pixel, f), (*tile.of_groups, tile.own_channels), strict=True):
        sums.align_bounds(axis, extent)
    *tap, c = sums.op.reduce_axis
    c, deep = sums.split(c, factor=16)
    whole, extents, inner = innermost(sums, pixel, tile.of_groups)
    whole, _, pairs = innermost(sums, whole, extents, 2)
    f, column = sums.split(f, factor=8)
    sums.reorder(*whole, *tap, c, *phase, f, *pairs, *inner, column, deep)
    sums.unroll(*whole, *tap, c, *phase, f)
    multiply, load_pixels = _INSTRUCTIONS[d.problem.dtype]
    sums.tensorize(pairs[0], multiply)

    stage = s[pixels]
    stage.set_scope("fragment")
    stage.compute_at(sums, c)
    *others, n, y, x, r, t, k = stage.op.axis
    others = [*others, r, t]
    k, eight = stage.split(k, factor=8)
    k, pair = stage.split(k, factor=2)
    whole, extents, inner = innermost(stage, (n, y, x), tile.of_groups)
    whole, _, pairs = innermost(stage, whole, extents, 2)
    stage.reorder(*others, *whole, k, *pairs, *inner, pair, eight)
    stage.unroll(*others, *whole, k)
    stage.tensorize(pairs[0], load_pixels)

    stage = s[taps]
    stage.compute_at(s[results], warp)
    *others, c = stage.op.axis
    c, pair = stage.split(c, factor=2)
    stage.unroll(*others, c)
    stage.vectorize(pair)
    stage = s[filters]
    stage.compute_at(out, block)
    over_threads(stage, stage.fuse(*stage.op.axis), tile)
    row = extent_of(boxes.op.axis[-1])
    load(s[boxes], out, box, -4, (*d.reach(tile.box), row), tile.stages, False)
    return s
