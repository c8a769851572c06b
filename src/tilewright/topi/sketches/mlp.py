"""Two products on Hopper's tensor cores, of which the first one's results never leave registers.

A block takes some rows, a warpgroup 64 of them. Hidden elements come in steps: a warpgroup
multiplies its rows, which stay in shared memory, with the weights of a step, computes the function
of the sums where they lie, and multiplies that, as the left factor, with the weights behind.
Weights of both products come by TMA, ahead.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.nn.mlp import MlpDeclaration
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
    out = s[d.output]
    i, e = out.op.axis
    block, i = out.split(i, factor=GROUP_ROWS * tile.groups)
    group, row = out.split(i, factor=GROUP_ROWS)
    e, column = out.split(e, factor=COLUMNS)
    column, pair = out.split(column, factor=2)
    out.reorder(block, group, row, e, column, pair)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.vectorize(pair)
    threads = thread_axes(tile.groups, LANES)
    out.bind(group, threads[0])
    hold(s, out, group, d.product)

    product = s[d.product]
    turn, j = product.split(product.op.reduce_axis[0], factor=tile.step)
    multiply_rows(product, [turn], j, dtype, "j", extent_of(product.op.axis[-1]))
    hold(s, product, turn, d.inner, d.hidden)
    by_columns(s[d.hidden])
    inner = s[d.inner]
    multiply_rows(inner, [], inner.op.reduce_axis[0], dtype, "k", tile.step)
    if d.norm is None:
        bring_rows(s, d.a, d.inner, out, block, GROUP_ROWS * tile.groups)
    else:
        normalize_rows(s, d.a, d.norm, out, block, threads)
    bring_rows(s, d.b, d.inner, product, turn, tile.step, tile.stages)
    bring_rows(s, d.c, d.product, product, turn, tile.step, tile.stages)
    for numbers in d.numbers:  # which threads would wait for in each step
        stage = s[numbers]
        stage.set_scope("shared")
        stage.compute_at(product, turn)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        stage.tensorize(stage.op.axis[0], tma_load((tile.step,), str(numbers.dtype)))
    return s
