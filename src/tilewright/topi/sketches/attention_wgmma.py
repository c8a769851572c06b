"""Attention on Hopper's tensor cores: keys and values come by TMA, and stay in shared memory.

A block takes some rows of one head, a warpgroup 64 of them, whose scores, powers and results stay
in its registers, as :mod:`~tilewright.topi.sketches.attention_mma` says of a warp. Keys come in
steps, in boxes that tensor cores read where they lie; sums are rescaled where a larger score comes.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load, wgmma
from tilewright.te import Tensor
from tilewright.topi.nn.attention import AttentionDeclaration
from tilewright.topi.pieces.attention import GROUP_ROWS, ROW, AttentionGroupTile
from tilewright.topi.pieces.tiling import extent_of, thread_axes
from tilewright.topi.pieces.warp_rows import (
    COLUMNS,
    by_columns,
    hold,
    sum_rows_with,
    update_rows,
)
from tilewright.topi.stages import scheduled

#: Threads of a warpgroup; what an instruction sums, and 16-bit numbers of a chunk.
_LANES, _DEEP, _CHUNK = 128, 16, 8


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
    out.bind(group, thread_axes(tile.groups, _LANES)[0])
    hold(s, out, group, d.share, d.weighted)

    values = s[d.weighted]
    turn, j = values.split(values.op.reduce_axis[0], factor=tile.step)
    _multiply(values, [turn], j, p.dtype, "j", extent_of(values.op.axis[-1]))
    update_rows(s, d.largest, values, turn, tile.step)
    sum_rows_with(s, d.total, out, group, values, turn, tile.step)
    made = [d.scores, d.masked, d.powers, d.factors]
    hold(s, values, turn, *made)
    for tensor in made[1:]:
        by_columns(s[tensor])
    _multiply(s[d.scores], [], s[d.scores].op.reduce_axis[0], p.dtype, "k", tile.step)
    rows = GROUP_ROWS * tile.groups
    _bring(s, d.q, d.scores, out, block, rows)
    for tensor, reader in ((d.k, d.scores), (d.v, d.weighted)):
        _bring(s, tensor, reader, values, turn, tile.step, tile.stages)
    return s


def _multiply(
    sums: Stage, outer: list[IterVar], k: IterVar, dtype: str, right: str, columns: int
) -> None:
    """A product of the matrices of a warpgroup. Neighbours of the right factor are those along "k",
    with the left one in shared memory too, or those along "j", its columns."""
    b, h, i, j = sums.op.axis
    sums.align_bounds(j, columns)
    part, k = sums.split(k, factor=_DEEP)
    rows, across = [i], list(sums.split(j, factor=COLUMNS))
    left, swizzles = "registers", (0, 2 * ROW)
    if right == "j":
        across = [*sums.split(across[0], factor=ROW // COLUMNS), across[1]]
    else:
        # Not in registers: ptxas 13.0 gives queries and powers the same ones, where they have as
        # many, though queries are needed in the next step.
        rows, left, swizzles = list(sums.split(i, factor=COLUMNS)), "k", (2 * ROW, 2 * ROW)
    sums.reorder(b, h, *outer, part, *rows, *across, *sums.split(k, factor=_CHUNK))
    sums.unroll(part)
    sums.tensorize(rows[0], wgmma(columns, dtype, left, right, swizzles))


def _bring(
    s: Schedule, tensor: Tensor, sums: Tensor, reader: Stage, at: IterVar, rows: int,
    stages: int = 1,
) -> None:  # fmt: skip
    """Copy rows of a factor to shared memory, ahead."""
    stage = s[s.cache_read(tensor, "shared", [sums])]
    s[tensor].compute_inline()
    stage.transform_layout(lambda b, h, j, e: (b, h, e // ROW, j, e % ROW))
    stage.compute_at(reader, at)
    stage.swizzle(2 * ROW)
    if stages > 1:
        stage.pipeline(stages)
    kind = str(tensor.dtype)
    stage.tensorize(stage.op.axis[-2], tma_load((rows, ROW), kind, swizzle=2 * ROW))
