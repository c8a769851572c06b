"""The loops of gradients by the filter over blocks and groups of threads."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_blocks import neighbours
from tilewright.topi.pieces.box_parts import add_parts
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
    stage: Stage, added: int, tile: BoxGradientTile
) -> tuple[list[IterVar], IterVar, list[IterVar], IterVar]:
    """The axes of a stage, the first of which are ``added`` ones, of parts: those of blocks,
    filters, those of the taps that a block has, and channels."""
    *others, c = stage.op.axis
    m = others.pop(added)
    if not tile.rows:
        return others, m, [], c
    *others, wide = others
    if len(others) == added:  # of one row
        return others, m, list(stage.split(wide, nparts=1)), c
    return others[:-1], m, [others[-1], wide], c


def box_steps(sums: Stage, d: BoxDeclaration) -> tuple[IterVar, list[IterVar]]:
    """The loop over boxes of pixels, and those within one."""
    axes = zip(sums.op.reduce_axis, d.boxes.pixels, strict=True)
    pairs = [sums.split(a, factor=e) for a, e in axes]
    sums.reorder(*(outer for outer, _ in pairs), *(inner for _, inner in pairs))
    return sums.fuse(*(outer for outer, _ in pairs)), [inner for _, inner in pairs]


def split_steps(
    s: Schedule, d: BoxDeclaration, total: Tensor, step: IterVar, tile: BoxGradientTile
) -> tuple[Tensor, int, tuple[Tensor, Tensor]]:
    """Divide the steps of a ``total`` among the blocks of a tile: what has the parts, the number of
    its axes before those of results; and what the blocks of a cluster add, if they do, and its sum.
    """
    alone = tile.cluster == 1  # a cluster adds all
    step, _ = s[total].split(
        step, nparts=tile.splits if alone else tile.splits // (tile.cluster or 1)
    )
    writer = s.rfactor(total, step)
    total = s.cache_write(total, "local") if total is d.output else total
    if alone:
        return writer, 1, (d.output, total)
    add_parts(s, d.output, total)
    if not tile.cluster:
        return writer, 1, (d.output, total)
    total = s.cache_write(writer, "local")
    step, _ = s[total].split(s[total].op.reduce_axis[0], nparts=tile.cluster)
    return s.rfactor(total, step), 2, (writer, total)


def blocks_of(out: Stage, d: BoxDeclaration, tile: BoxGradientTile, added: int) -> IterVar:
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


def in_cluster(
    s: Schedule, d: BoxDeclaration, output: Tensor, total: Tensor, parts: Stage,
    tile: BoxGradientTile,
) -> IterVar:  # fmt: skip
    """The same where the blocks of a cluster have parts of the ``total`` of an ``output``, and add
    them: of all results, or of parts that another kernel adds, whose number comes first."""
    out, wide = s[output], extent_of(d.sum.op.axis[-1])
    whole = out.op.axis[: len(output.shape) - len(d.sum.shape)]
    m, *taps, c = out.op.axis[len(whole) :]
    count = tile.splits if tile.cluster == 1 else tile.cluster
    blocks, m = out.split(m, factor=tile.filters)
    some, c = out.split(c, factor=tile.channels)
    lanes, threads = math.gcd(wide, widths(d.output.dtype).chunk), tile.groups * tile.lanes
    lanes = math.gcd(lanes_of(tile.filters * tile.channels, count, threads), lanes)
    c, lane = out.split(c, factor=lanes)
    out.reorder(*whole, blocks, *taps, some, m, c, lane)
    block = out.fuse(*whole, blocks, *taps, some)
    out.bind(block, te.thread_axis(CLUSTERS))
    rows = rows_of(tile.filters, tile.channels // lanes, count, threads)
    share_out(out, m, c, lane, count, rows, (tile.groups, tile.lanes))
    out.vectorize(lane)
    sum_parts(s[total], out)
    part, *axes = parts.op.axis
    m, *taps, c = axes[len(whole) :]
    ones = (1,) * len(whole)
    keep_parts(parts, out, block, (*ones, tile.filters, *(1 for _ in taps), tile.channels))
    group, m = parts.split(m, factor=ROWS)
    parts.reorder(part, *axes[: len(whole)], group, m, *taps, c)
    parts.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    if wide % 2 == 0:
        parts.vectorize(parts.split(c, factor=2)[1])
    return group


def summed_in_blocks(
    s: Schedule, d: BoxDeclaration, total: Tensor, writer: Tensor, kept: tuple[Tensor, ...],
    added: int, tile: BoxGradientTile,
) -> tuple[list[IterVar], IterVar, list[IterVar], IterVar]:  # fmt: skip
    """Compute the sums ``total`` in blocks of their ``writer``, of whole tiles, and in clusters add
    what is ``kept``; returns the axes of the sums as :func:`axes_of` does."""
    if tile.cluster:
        output, added_up = kept
        group = in_cluster(s, d, output, added_up, s[writer], tile)
    else:
        group = blocks_of(s[writer], d, tile, added)
    s[total].compute_at(s[writer], group)
    others, m, taps, c = axes_of(s[total], added, tile)
    s[total].align_bounds(m, ROWS)
    s[total].align_bounds(c, tile.channels)
    return others, m, taps, c
