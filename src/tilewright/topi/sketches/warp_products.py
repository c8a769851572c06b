"""3xTF32 on Hopper without copies of halves: products of boxes by warps, which take both factors
apart in registers.

A block computes a box of results and some of their channels. Step by step TMA brings what a tap
sees and the filter, in float32; warps load fragments of both, take each apart into a large and a
small TF32, and add what a step sums to float32. So an image is read once, where the halves of
:mod:`~tilewright.topi.sketches.box_products` are written, and read, in twice as many bytes.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_tf32
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import innermost, load, step_of
from tilewright.topi.pieces.box_results import share, stage_results, staged
from tilewright.topi.pieces.box_stores import store
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tap_tiles import WarpBoxTile
from tilewright.topi.stages import scheduled

#: Columns of an instruction, and channels that it sums.
_COLUMNS, _DEEP = 8, 8


def schedule_warp_products(d: BoxDeclaration, tile: WarpBoxTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input without strides."""
    s = scheduled(d.output, d.sum, d.by_pixels, *d.numbers, *d.copies)
    copy(s, d.copies)
    parts = s.in_tf32(d.sum, 3)
    term, *taps, c = s[d.sum].op.reduce_axis
    c, k = s[d.sum].split(c, factor=step_of(d))
    s[d.sum].reorder(*taps, c, term, k)
    total = s.rfactor(d.sum, s[d.sum].fuse(*taps, c))
    boxes = [s.cache_read(t, "shared", [x]) for t, x in zip((d.left, d.right), parts, strict=True)]
    loaded = [s.cache_read(t, "fragment", [x]) for t, x in zip(boxes, parts, strict=True)]
    results, out = staged(s, d), s[d.output]
    block, box, _ = store(out, d, tile, one_by_one=tile.boxes > 1, alike=bool(d.numbers))
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    warp = stage_results(s[results], d, tile, box, out)

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[results], warp)
    (at,) = sums.op.reduce_axis
    *pixel, f = sums.op.axis
    for axis, extent in zip((*pixel, f), (*tile.of_groups, tile.own_channels), strict=True):
        sums.align_bounds(axis, extent)
    sums.reorder(at, *pixel, f)
    sums.vectorize(sums.split(f, factor=2)[1])

    products = s[total]
    products.set_scope("fragment")
    products.compute_at(sums, at)
    step, *pixel, f = products.op.axis
    term, k = products.op.reduce_axis
    for axis, extent in zip((*pixel, f), (*tile.of_groups, tile.own_channels), strict=True):
        products.align_bounds(axis, extent)
    whole, extents, eight = innermost(products, pixel, tile.of_groups)
    whole, _, pair = innermost(products, whole, extents, 2)
    f, column = products.split(f, factor=_COLUMNS)
    part, k = products.split(k, factor=_DEEP)
    products.reorder(step, part, *whole, term, f, *pair, *eight, column, k)
    products.unroll(part, *whole, term, f)
    products.tensorize(pair[0], mma_tf32)
    for x, y, loop in zip(loaded, parts, (whole[-1], part), strict=True):
        for stage in (s[x], s[y]):
            stage.set_scope("fragment")
            stage.compute_at(products, loop)
            stage.unroll(*stage.op.axis)
    over = box if tile.boxes > 1 else None
    sides = ((-2 - 2 * d.space, tile.box), (-2 - d.space, (tile.channels,)))
    for x, (first, side) in zip(boxes, sides, strict=True):
        load(
            s[x], sums, at, first, (*side, step_of(d)), tile.stages, over=over,
            windows=d.boxes.windows and x is boxes[0], producer=bool(tile.producer),
        )  # fmt: skip
    return s
