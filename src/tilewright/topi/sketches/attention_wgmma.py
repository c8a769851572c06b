"""Attention on Hopper's tensor cores: keys and values come by TMA, and stay in shared memory.

A block takes some rows of one head, a warpgroup 64 of them, whose scores, powers and results stay
in its registers, as :mod:`~tilewright.topi.sketches.attention_mma` says of a warp. Keys come in
steps, in boxes that tensor cores read where they lie; sums are rescaled where a larger score comes.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.nn.attention import AttentionDeclaration
from tilewright.topi.pieces.attention import AttentionGroupTile, reads_mask_ahead
from tilewright.topi.pieces.group_rows import GROUP_ROWS, LANES, bring_rows, multiply_rows
from tilewright.topi.pieces.tiling import extent_of, thread_axes
from tilewright.topi.pieces.warp_rows import (
    COLUMNS,
    by_columns,
    hold,
    sum_rows_with,
    update_rows,
)
from tilewright.topi.stages import scheduled


def schedule_attention_wgmma(d: AttentionDeclaration, tile: AttentionGroupTile) -> Schedule:
    """The schedule of :func:`declare_wgmma`."""
    p = d.problem
    assert d.factors is not None
    s = scheduled(d.output, d.q, d.k, d.v, d.scores, d.masked, d.largest, d.powers, d.factors,
                  d.total, d.share, d.weighted)  # fmt: skip
    out = s[d.output]
    axes = list(out.op.axis)
    b, h, i, e = axes if p.layout == "BHSD" else (axes[0], axes[2], axes[1], axes[3])
    block, i = out.split(i, factor=GROUP_ROWS * tile.groups)
    group, row = out.split(i, factor=GROUP_ROWS)
    e, column = out.split(e, factor=COLUMNS)
    column, pair = out.split(column, factor=2)
    out.reorder(b, h, block, group, row, e, column, pair)
    block = out.fuse(b, h, block)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.vectorize(pair)
    out.bind(group, thread_axes(tile.groups, LANES)[0])
    hold(s, out, group, d.share, d.weighted)

    values = s[d.weighted]
    turn, j = values.split(values.op.reduce_axis[0], factor=tile.step)
    multiply_rows(values, [turn], j, p.dtype, "j", extent_of(values.op.axis[-1]))
    update_rows(s, d.largest, values, turn, tile.step)
    sum_rows_with(s, d.total, out, group, values, turn, tile.step)
    # A mask is read while tensor cores multiply, or a step ahead.
    ahead = reads_mask_ahead(p)
    given = [s.cache_read(d.inputs["mask"], "fragment", [d.masked])] if ahead else []
    made = [d.scores, d.masked, d.powers, d.factors]
    hold(s, values, turn, *given, *made)
    for tensor in (*given, *made[1:]):
        by_columns(s[tensor])
    for tensor in given if tile.masks > 1 else ():
        s[tensor].pipeline(tile.masks)
    multiply_rows(s[d.scores], [], s[d.scores].op.reduce_axis[0], p.dtype, "k", tile.step)
    rows = GROUP_ROWS * tile.groups
    bring_rows(s, d.q, d.scores, out, block, rows)
    for tensor, reader in ((d.k, d.scores), (d.v, d.weighted)):
        bring_rows(s, tensor, reader, values, turn, tile.step, tile.stages)
    return s
