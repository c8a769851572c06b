"""Products of boxes in parts that the blocks of a cluster sum, for few tiles with many steps.

Each of ``splits`` blocks of a cluster adds its part of the taps and channels of one tile, as
:mod:`~tilewright.topi.sketches.box_products` does, and keeps what it has in shared memory. Each
then reads its share of the results from all of them, adds the parts in their order, computes the
epilogue and stores what it has: no other kernel, and nothing through the device's memory.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.schedule import Schedule
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_part_products import multiply_part, part_sums
from tilewright.topi.pieces.box_parts import in_parts
from tilewright.topi.pieces.box_products import by_groups
from tilewright.topi.pieces.box_results import share
from tilewright.topi.pieces.box_stores import store
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.cluster_sums import keep_parts, sum_parts
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_box_clusters(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input with stride 1."""
    s = scheduled(d.output, d.sum, *d.numbers, *d.copies)
    copy(s, d.copies)
    writer = in_parts(s, d, tile.splits)
    found = part_sums(s, d, writer)

    out, parts, sums = s[d.output], s[writer], s[d.sum]
    block, _, _ = store(out, d, replace(tile, staged=0), cluster=tile.splits)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    sum_parts(sums, out)
    keep_parts(parts, out, block, (*tile.box, tile.channels), bool(tile.turned))
    part, *pixel, f = parts.op.axis
    group = by_groups(parts, tile, [part], pixel, f, extent_of(d.sum.op.axis[-1]) % 2 == 0)
    multiply_part(s, d, tile, found, parts, group)
    return s
