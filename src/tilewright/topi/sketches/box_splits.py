"""Products of boxes in parts, for so few results that their tiles leave most of a GPU idle.

Each of ``splits`` blocks of a tile adds its part of the taps and channels, as
:mod:`~tilewright.topi.sketches.box_products` does, and stores what it has in the type of sums.
Another kernel adds the parts in a fixed order, and computes the epilogue.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_part_products import multiply_part, part_sums
from tilewright.topi.pieces.box_parts import add_parts, in_parts
from tilewright.topi.pieces.box_products import by_groups
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.box_turns import is_free
from tilewright.topi.pieces.box_windows import pooled
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.step_sums import axes_of
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_box_splits(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    s = scheduled(d.output, d.sum, *d.copies)
    copy(s, d.copies)
    writer = in_parts(s, d, tile.splits)
    add_parts(s, d.output, d.sum, pooled(s, d))
    found = part_sums(s, d, writer)
    parts = s[writer]
    part, *axes = parts.op.axis
    phase, result = axes_of(axes, d)
    sizes = (*tile.box, tile.channels)
    pairs = [parts.split(x, factor=e) for x, e in zip(result, sizes, strict=True)]
    *pixel, f = (inner for _, inner in pairs)
    batch, *others = (outer for outer, _ in pairs)
    free = is_free(d)  # then no divisor may be a variable
    outside = [batch, *phase, *others] if free else [part, *phase, batch, *others]
    parts.reorder(part, *(x for x in outside if x is not part), *pixel, f)
    block = parts.fuse(*outside)
    parts.bind(block, te.thread_axis("blockIdx.x"))
    if free:
        parts.bind(part, te.thread_axis("blockIdx.y"))
    wide = extent_of(d.sum.op.axis[-1]) % 2 == 0
    group = by_groups(parts, tile, [part, block] if free else [block], pixel, f, wide)
    multiply_part(s, d, tile, found, parts, group)
    return s
