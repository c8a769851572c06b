"""Products of boxes in parts, for so few results that their tiles leave most of a GPU idle.

Each of ``splits`` blocks of a tile adds its part of the taps and channels, as
:mod:`~tilewright.topi.sketches.box_products` does, and stores what it has in the type of sums.
Another kernel adds the parts in a fixed order, and computes the epilogue.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_parts import add_parts, in_parts
from tilewright.topi.pieces.box_products import bring, by_groups
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.step_sums import add_steps, are_apart
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_box_splits(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input with stride 1."""
    s = scheduled(d.output, d.sum, *d.copies)
    copy(s, d.copies)
    writer = in_parts(s, d, tile.splits)
    add_parts(s, d.output, d.sum)
    total, summed = s.cache_write(writer, "fragment"), None
    if are_apart(d.problem):
        summed = s.rfactor(total, s[total].op.reduce_axis[0])
    boxes, taps = (s.cache_read(t, "shared", [summed or total]) for t in (d.left, d.right))
    parts = s[writer]
    part, *result = parts.op.axis
    sizes = (*tile.box, tile.channels)
    pairs = [parts.split(x, factor=e) for x, e in zip(result, sizes, strict=True)]
    *pixel, f = (inner for _, inner in pairs)
    parts.reorder(part, *(outer for outer, _ in pairs), *pixel, f)
    block = parts.fuse(part, *(outer for outer, _ in pairs))
    parts.bind(block, te.thread_axis("blockIdx.x"))
    wide = extent_of(d.sum.op.axis[-1]) % 2 == 0
    group = by_groups(parts, tile, [block], pixel, f, wide)

    sums = s[total]
    sums.compute_at(parts, group)
    if summed is None:
        at, k = sums.op.reduce_axis
        multiply(sums, d, tile, sums.op.axis[1:], at, k)
    else:
        at = add_steps(s, total, summed, d, tile)
    bring(sums, d, tile, at, s[boxes], s[taps])
    return s
