"""Two products on Hopper's tensor cores, of which the first one's results never leave registers.

A block takes some rows, a warpgroup 64 of them. Hidden elements come in steps: a warpgroup
multiplies its rows, which stay in shared memory, with the weights of a step, computes the function
of the sums where they lie, and multiplies that, as the left factor, with the weights behind.
Weights of both products come by TMA, ahead.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load
from tilewright.te import Tensor
from tilewright.topi.nn.mlp import MlpDeclaration
from tilewright.topi.pieces.cluster_sums import (
    CLUSTERS,
    RANK,
    keep_parts,
    lanes_of,
    share_out,
    sum_parts,
)
from tilewright.topi.pieces.group_rows import GROUP_ROWS, LANES, bring_rows, multiply_rows
from tilewright.topi.pieces.mlp import MlpTile, normalize_rows
from tilewright.topi.pieces.tiling import extent_of, thread_axes
from tilewright.topi.pieces.warp_rows import COLUMNS, by_columns, hold
from tilewright.topi.stages import scheduled


def schedule_mlp(d: MlpDeclaration, tile: MlpTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.pieces.mlp.declare_groups`."""
    dtype = d.problem.dtype
    kept = (d.a, d.b, d.c, d.inner, d.hidden, d.product)
    s = scheduled(d.output, *kept, *d.numbers, *(d.norm or ()))
    out, block, stored, total = _store(s, d, tile)
    hold(s, *stored, total)

    product = s[total]
    turn, j = product.split(product.op.reduce_axis[0], factor=tile.step)
    multiply_rows(product, [turn], j, dtype, "j", extent_of(product.op.axis[-1]))
    hold(s, product, turn, d.inner, d.hidden)
    by_columns(s[d.hidden])
    inner = s[d.inner]
    multiply_rows(inner, [], inner.op.reduce_axis[0], dtype, "k", tile.step)
    if d.norm is None:
        bring_rows(s, d.a, d.inner, out, block, GROUP_ROWS * tile.groups)
    else:
        normalize_rows(s, d.a, d.norm, out, block, thread_axes(tile.groups, LANES))
    bring_rows(s, d.b, d.inner, product, turn, tile.step, tile.stages)
    bring_rows(s, d.c, total, product, turn, tile.step, tile.stages)
    for numbers in d.numbers:  # which threads would wait for in each step
        stage = s[numbers]
        stage.set_scope("shared")
        stage.compute_at(product, turn)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        stage.tensorize(stage.op.axis[0], tma_load((tile.step,), str(numbers.dtype)))
    return s


def _store(
    s: Schedule, d: MlpDeclaration, tile: MlpTile
) -> tuple[Stage, IterVar, tuple[Stage, IterVar], Tensor]:
    """The results of a block among its threads; of several ``splits``, among those of a cluster,
    each of which adds the parts of some. Returns the stage of results, its loop over blocks, the
    stage and its loop at which a warpgroup's sums are computed, and those."""
    out, rows = s[d.output], GROUP_ROWS * tile.groups
    i, e = out.op.axis
    block, row = out.split(i, factor=rows)
    if tile.splits == 1:
        out.bind(block, te.thread_axis(RANK))
        return out, block, (out, _by_groups(out, [block], row, e, tile)), d.product
    sums = s[d.product]
    parts = s.rfactor(d.product, sums.split(sums.op.reduce_axis[0], nparts=tile.splits)[0])
    total = s.cache_write(parts, "fragment")
    out.bind(block, te.thread_axis(CLUSTERS))
    lanes = lanes_of(rows * extent_of(e), tile.splits, tile.groups * LANES)
    vector, lane = out.split(e, factor=lanes)
    out.reorder(block, row, vector, lane)
    share_out(out, row, vector, lane, tile.splits, 0, (tile.groups, LANES))
    out.vectorize(lane)
    sum_parts(sums, out)
    kept = s[parts]
    keep_parts(kept, out, block, (rows, extent_of(sums.op.axis[-1])))
    part, row, e = kept.op.axis
    return out, block, (kept, _by_groups(kept, [part], row, e, tile)), total


def _by_groups(
    stage: Stage, outside: list[IterVar], row: IterVar, e: IterVar, tile: MlpTile
) -> IterVar:
    """Rows among warpgroups, whose loop is returned, and columns as these hold them."""
    group, row = stage.split(row, factor=GROUP_ROWS)
    e, column = stage.split(e, factor=COLUMNS)
    column, pair = stage.split(column, factor=2)
    stage.reorder(*outside, group, row, e, column, pair)
    stage.bind(group, thread_axes(tile.groups, LANES)[0])
    stage.vectorize(pair)
    return group
