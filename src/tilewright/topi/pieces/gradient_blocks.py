"""The loops of gradients by the filter over blocks and groups of threads."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_blocks import neighbours
from tilewright.topi.pieces.box_tiles import ROWS, BoxGradientTile
from tilewright.topi.pieces.cluster_sums import (
    CLUSTERS,
    keep_parts,
    lanes_of,
    rows_of,
    share_out,
    sum_parts,
)
from tilewright.topi.pieces.tiling import extent_of


def axes_of(
    stage: Stage, added: bool, tile: BoxGradientTile
) -> tuple[list[IterVar], IterVar, list[IterVar], IterVar]:
    """The axes of a stage: those of blocks, filters, those of the taps that a block has, and
    channels."""
    *others, c = stage.op.axis
    m = others.pop(int(added))
    if not tile.rows:
        return others, m, [], c
    *others, wide = others
    if len(others) == int(added):  # of one row
        return others, m, list(stage.split(wide, nparts=1)), c
    return others[:-1], m, [others[-1], wide], c


def blocks_of(out: Stage, d: BoxDeclaration, tile: BoxGradientTile, added: bool) -> IterVar:
    """Divide results, or parts of them where these are to be ``added``, among blocks and groups of
    threads; returns the loop over groups."""
    others, m, taps, c = axes_of(out, added, tile)
    counts = [-(-extent_of(a) // e) for a, e in ((m, tile.filters), (c, tile.channels))]
    blocks, m = out.split(m, factor=tile.filters)
    parts, c = out.split(c, factor=tile.channels)
    group, m = out.split(m, factor=ROWS)
    groups, inner = [group], [m, c]
    if tile.rows:
        above, high = out.split(taps[0], factor=tile.rows)
        others, groups, inner = [*others, above], [high, group], [m, taps[1], c]
    blocks, *ranks = neighbours(out, blocks, counts[0], tile.x_to)
    parts, *more = neighbours(out, parts, counts[1], tile.dy_to)
    ranks += more
    out.reorder(*others, blocks, parts, *ranks, *groups, *inner)
    out.bind(out.fuse(*others, blocks, parts, *ranks), te.thread_axis("blockIdx.x"))
    group = out.fuse(*groups)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    if extent_of(d.sum.op.axis[-1]) % 2 == 0:
        out.vectorize(out.split(c, factor=2)[1])
    return group


def in_cluster(s: Schedule, d: BoxDeclaration, parts: Stage, tile: BoxGradientTile) -> IterVar:
    """The same where the blocks of a cluster have parts, and add them."""
    out, wide = s[d.output], extent_of(d.sum.op.axis[-1])
    m, *taps, c = out.op.axis
    blocks, m = out.split(m, factor=tile.filters)
    some, c = out.split(c, factor=tile.channels)
    lanes, threads = math.gcd(wide, widths(d.output.dtype).chunk), tile.groups * tile.lanes
    results = tile.filters * tile.channels
    lanes = math.gcd(lanes_of(results, tile.splits, threads), lanes)
    c, lane = out.split(c, factor=lanes)
    out.reorder(blocks, *taps, some, m, c, lane)
    block = out.fuse(blocks, *taps, some)
    out.bind(block, te.thread_axis(CLUSTERS))
    own = rows_of(tile.filters, tile.channels // lanes, tile.splits, threads)
    share_out(out, m, c, lane, tile.splits, own, (tile.groups, tile.lanes))
    out.vectorize(lane)
    sum_parts(s[d.sum], out)
    part, m, *taps, c = parts.op.axis
    keep_parts(parts, out, block, (tile.filters, *(1 for _ in taps), tile.channels))
    group, m = parts.split(m, factor=ROWS)
    parts.reorder(part, group, m, *taps, c)
    parts.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    if wide % 2 == 0:
        parts.vectorize(parts.split(c, factor=2)[1])
    return group
