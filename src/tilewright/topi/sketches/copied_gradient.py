"""Gradients by the filter in TF32 on Hopper's tensor cores, of which one operand is turned.

A kernel copies one operand with images last. Then step by step TMA brings a pixel of some images of
the other, channels last, and what the tap sees of the copy; each thread loads what it multiplies of
the former into registers, and tensor cores read the latter in shared memory. Each of ``splits``
blocks sums a part of the steps; another kernel adds these in a fixed order.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.target.instructions import wgmma
from tilewright.te import Tensor
from tilewright.topi.nn.box_factors import EIGHT
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import load
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.pieces.gradient_blocks import split_steps, summed_in_blocks
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_copied_gradient(d: BoxDeclaration, tile: BoxGradientTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.turned_gradients.declare_turned_gradient`."""
    s = scheduled(d.output, d.sum, *d.copies)
    copy(s, d.copies)
    w, (images, *_) = widths(d.problem.dtype), d.boxes.pixels
    writer, total, added = d.output, d.sum, 0
    kept: tuple[Tensor, ...] = ()
    split = tile.splits > 1 or d.placed
    total = total if split else s.cache_write(writer, "fragment")
    eights, *space, half, pair = s[total].op.reduce_axis
    step, eight = s[total].split(eights, factor=images // EIGHT)
    s[total].reorder(step, *space, eight, half, pair)
    step = s[total].fuse(step, *space)
    if split:
        writer, added, kept = split_steps(s, d, total, step, tile)
        total = s.cache_write(writer, "fragment")
        step, eight, half, pair = s[total].op.reduce_axis
    left, right = (s.cache_read(t, "shared", [total]) for t in (d.left, d.right))
    held = s.cache_read(left, "fragment", [total])

    others, m, _, c = summed_in_blocks(s, d, total, writer, kept, added, tile)
    sums = s[total]
    sums.reorder(*others, step, eight, m, *sums.split(c, factor=8), half, pair)
    sums.unroll(eight)
    sums.tensorize(m, wgmma(tile.channels, "tf32", left="registers", swizzles=(0, 4 * images)))
    loads = s[held]
    loads.compute_at(sums, step)
    loads.set_scope("fragment")
    loads.unroll(*loads.op.axis)
    alone = bool(tile.producer)
    # A box has several rows of channels where these are whole.
    high = (tile.filters // w.row,) if extent_of(total.op.axis[added]) % w.row == 0 else ()
    load(
        s[left], sums, step, -4 - len(high), (*high, images, 1, 1, w.row), tile.stages,
        cluster=tile.dy_to, producer=alone,
    )  # fmt: skip
    load(
        s[right], sums, step, -4, (tile.channels, 1, 1, images), tile.stages,
        cluster=tile.x_to, producer=alone,
    )  # fmt: skip
    return s
