"""Convolutions in groups of few channels on Hopper, of images with channels last, from boxes that
all taps read.

A block computes one box of results after the other. TMA brings what all taps of a box see, once,
while the one before is multiplied and stored; warps load fragments of it for each tap. Where groups
are small, an instruction of a warp has fewer channels of other groups than one of a warpgroup; of
gradients by the input it multiplies the same fragment with the taps of all phases.
"""

from __future__ import annotations

import math

from tilewright.schedule import Schedule
from tilewright.target import instructions as found
from tilewright.target.devices import WARP
from tilewright.target.instruction import Instruction
from tilewright.topi.nn.box_factors import EIGHT
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.thin_boxes import ThinDeclaration
from tilewright.topi.pieces.box_products import innermost, load, over_threads
from tilewright.topi.pieces.box_results import share, stage_results, staged
from tilewright.topi.pieces.box_stores import store
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.pixel_fragments import load_fragments
from tilewright.topi.pieces.step_sums import axes_of
from tilewright.topi.pieces.tap_tiles import APART, WarpBoxTile, reads_turned
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: By type: the product, that of eight channels, and the loads of pixels and of taps, also turned.
_INSTRUCTIONS: dict[str, tuple[Instruction, ...]] = {
    "float16": (found.mma_f16, found.mma_f16_8, found.ldmatrix_a_blocks_f16, found.ldmatrix_b_f16,
                found.ldmatrix_b_trans_f16),
    "bfloat16": (found.mma_bf16, found.mma_bf16_8, found.ldmatrix_a_blocks_bf16,
                 found.ldmatrix_b_bf16, found.ldmatrix_b_trans_bf16),
}  # fmt: skip
#: Products of a warp up to which the loops over taps are written out.
_UNROLLED = 512


def schedule_warp_boxes(d: BoxDeclaration, tile: WarpBoxTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    pixels = d.boxes.seen
    assert pixels is not None
    rows = isinstance(d, ThinDeclaration)  # as they lie, of columns side by side
    copies = d.copies if rows else ()
    s = scheduled(d.output, d.sum, d.phased, d.by_pixels, pixels, *d.numbers, *copies)
    copy(s, copies)
    boxes = s.cache_read(d.left, "shared", [pixels])
    filters = s.cache_read(d.right, "shared", [d.sum])
    turned = reads_turned(d.problem, d.boxes.eights)
    if turned:
        s[filters].transform_layout(lambda *at: (*at[:-2], at[-1], at[-2]))
        (filters,) = s[filters].op.outputs
    taps = s.cache_read(filters, "fragment", [d.sum])
    results, out = staged(s, d), s[d.output]
    block, box, own = store(out, d, tile, one_by_one=True, together=True, in_turn=True)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    thread, place = (None, box) if own is None else (out.marks[own[0]].thread, own[1])
    warp = stage_results(s[results], d, tile, place, out, together=True, thread=thread)

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(out if own else s[results], own[0] if own else warp)
    phase, (*pixel, f) = axes_of(sums.op.axis, d)
    for axis, extent in zip((*pixel, f), (*tile.of_groups, tile.own_channels), strict=True):
        sums.align_bounds(axis, extent)
    products = math.prod(tile.of_groups) * tile.own // 128
    products *= math.prod(extent_of(x) for x in (*phase, *sums.op.reduce_axis)) // 16
    *tap, c = sums.op.reduce_axis
    c, deep = sums.split(c, factor=EIGHT if d.boxes.eights else 2 * EIGHT)
    n, y, x = pixel
    images, high, wide = tile.of_groups
    whole, extents, eight = innermost(sums, (y, n, x), (high, images, wide))
    (y, n, x), _, pairs = innermost(sums, whole, extents, 2)
    f, column = sums.split(f, factor=8)
    *down, across = tap
    # Of eights, one iteration is left for each of eight results.
    far, near = ([], [c]) if d.boxes.eights else ([c], [])
    sums.reorder(across, *far, n, x, *down, y, *phase, f, *near, *pairs, *eight, column, deep)
    sums.unroll(n, x, *down, y, *phase, f, *near)
    if products <= _UNROLLED:
        sums.unroll(across, *far)
    multiply, multiply_eight, load_pixels, *loads = _INSTRUCTIONS[d.problem.dtype]
    sums.tensorize(pairs[0], multiply_eight if d.boxes.eights else multiply)

    stage = s[pixels]
    stage.set_scope("fragment")
    stage.compute_at(sums, x)
    n, y, x, t, k = stage.op.axis
    if isinstance(d, ThinDeclaration) and d.anywhere:
        stage.unroll(n, y, x, t)
        if d.problem.stride[-1] * d.problem.channels % 2 == 0:
            k, pair = stage.split(k, factor=2)
            stage.vectorize(pair)
        stage.unroll(k)
    else:
        load_fragments(stage, (t, y), (n, x), k, (images, wide), load_pixels, turned=False)

    stage = s[taps]
    stage.compute_at(sums, far[0] if far else across)
    *others, f, k = stage.op.axis
    # Of few, registers keep most.
    if turned or (products > _UNROLLED and tile.own % 16 == 0):
        fo, f = stage.split(f, factor=16)
        ko, k = stage.split(k, factor=16)
        stage.reorder(*others, fo, ko, k, f)
        stage.unroll(*others, fo, ko)
        stage.tensorize(k, loads[turned])
    else:
        k, pair = stage.split(k, factor=2)
        stage.unroll(*others, f, k)
        stage.vectorize(pair)
    stage = s[filters]
    stage.compute_at(out, block)
    *others, row, column = stage.op.axis
    stage.storage_align(row, tile.channels if turned else extent_of(column), APART)
    f, c = (column, row) if turned else (row, column)
    forward = d.problem.pass_ == "forward"
    outer, inner = (f, c) if forward else (c, f)  # neighbours in the filter, too
    lanes = math.gcd(d.problem.channels // d.problem.groups, 8)
    inner, lane = stage.split(inner, factor=lanes)
    order = [outer, inner]
    if lanes > 1 and not (forward or turned):  # each element of a vector goes to another row
        outer, k = stage.split(outer, factor=2 * EIGHT)
        some, inner = stage.split(inner, factor=WARP // (2 * EIGHT))
        order = [outer, some, inner, k]
    stage.reorder(*others, *order, lane)
    over_threads(stage, stage.fuse(*others, *order), tile)
    stage.vectorize(lane)
    stage, seen = s[boxes], d.reach(tile.box)
    if rows:  # of whole 16 bytes
        stage.align_bounds(stage.op.axis[-1], EIGHT)
    else:
        seen = (*seen, extent_of(boxes.op.axis[-1]))
    load(
        stage, out, box, -len(seen), seen, tile.stages, apart=False, swizzled=not rows,
        producer=bool(tile.producer),
    )  # fmt: skip
    return s
