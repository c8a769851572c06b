"""Reductions of columns on a GPU, as sums over the pixels of images whose channels are last.

Neighbouring threads have vectors of neighbouring columns. Others of a block, along threadIdx.y,
share their elements, several loads of each thread at once, and reduce theirs through shuffles and
shared memory. Where that leaves a GPU idle, several blocks reduce a chunk each, and a second kernel
what they have found, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.columns import columns_of
from tilewright.topi.pieces.sums import inline
from tilewright.topi.pieces.tiling import bind, spread, thread_axes

#: Threads of a block that adds up chunks.
_ADDERS = 64


@dataclass(frozen=True)
class ColumnSumTile:
    """A thread has ``vector`` columns, and ``loads`` elements of each at once; a block ``across``
    such vectors, the elements of which ``down`` threads share. ``chunks`` blocks share these."""

    vector: int = 1
    across: int = 32
    down: int = 8
    loads: int = 4
    chunks: int = 1


def schedule_column_sums(d: Declared, t: ColumnSumTile = ColumnSumTile()) -> Schedule:
    """The schedule of a program that has :func:`~tilewright.topi.pieces.rows.columns_of`."""
    found = inline(d.output)
    s, total = found.schedule, found.last
    assert total is not None
    stage, sums = s[d.output], total
    if t.chunks > 1:
        reduction = s[total]
        chunk, _ = reduction.split(_fused(reduction), nparts=t.chunks)
        part = s.rfactor(total, chunk, 0)
        thread = spread(stage, stage.op.axis, _ADDERS)
        reduction = s[total]
        reduction.set_scope("local")
        reduction.compute_at(stage, thread)
        reduction.unroll(*reduction.op.reduce_axis)
        sums = s.cache_write(part, "local")
        stage = s[part]
    y, x = thread_axes(t.down, t.across)[-2:]
    *outer, column = stage.op.axis
    vector, lane = stage.split(column, factor=t.vector)
    block, own = stage.split(vector, factor=t.across)
    stage.reorder(*outer, block, own, lane)
    bind(stage, stage.fuse(*outer, block))
    stage.bind(own, x)
    stage.vectorize(lane)
    _reduce(s, sums, stage, own, y, t, d)
    return s


def _fused(stage: Stage) -> IterVar:
    axes = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
    return stage.fuse(*axes) if len(axes) > 1 else axes[0]


def _reduce(
    s: Schedule, sums: Tensor, stage: Stage, own: IterVar, y: IterVar, t: ColumnSumTile,
    d: Declared,
) -> None:  # fmt: skip
    """The elements of a thread's columns, among those that share them."""
    total = s[sums]
    step, thread = total.split(_fused(total), factor=t.down)
    step, load = total.split(step, factor=t.loads)
    part = s.rfactor(sums, thread, 0)
    total, parts = s[sums], s[part]
    for made in (total, parts):
        made.set_scope("local")
        made.compute_at(stage, own)
        made.unroll(made.op.axis[-1])
    total.bind(total.op.reduce_axis[0], y)
    thread, *outer, lane = parts.op.axis
    step, load = (a for a in parts.leaf_iter_vars if a.kind == "reduce")
    parts.reorder(thread, *outer, step, load, lane)
    parts.bind(thread, y)
    parts.unroll(load)
    columns = columns_of(d.problem)
    assert columns is not None, d.problem
    for name in columns.read:
        source = d.inputs[name]
        readers = [reader.op for reader in s.stages if source in reader.op.inputs]
        copy = s[s.cache_read(source, "local", readers)]
        copy.compute_at(parts, load)
        copy.vectorize(copy.op.axis[-1])
