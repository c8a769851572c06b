"""Reductions of columns on a GPU, as sums over the pixels of images whose channels are last.

Neighbouring threads have vectors of neighbouring columns. Others of a block, along threadIdx.y,
share their elements, several loads of each thread at once, and reduce theirs through shuffles and
shared memory. Where that leaves a GPU idle, several blocks reduce a chunk each, and a second kernel
what they have found, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    columns = columns_of(d.problem)
    assert columns is not None, d.problem
    found = inline(d.output)
    s, total = found.schedule, found.last
    assert total is not None
    stage, sums = s[d.output], total
    joined = 0 if columns.joined > 1 else None
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
        joined = None if joined is None else joined + 1
    y, x = thread_axes(t.down, t.across)[-2:]
    *outer, column = stage.op.axis
    vector, lane = stage.split(column, factor=t.vector)
    block, own = stage.split(vector, factor=t.across)
    each = [] if joined is None else [outer.pop(joined)]
    stage.reorder(*outer, block, own, *each, lane)
    stage.unroll(*each)
    bind(stage, stage.fuse(*outer, block))
    stage.bind(own, x)
    stage.vectorize(lane)
    _reduce(s, sums, stage, own, y, t, [d.inputs[name] for name in columns.read], joined)
    return s


def _fused(stage: Stage) -> IterVar:
    axes = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
    return stage.fuse(*axes) if len(axes) > 1 else axes[0]


def _reduce(
    s: Schedule, sums: Tensor, stage: Stage, own: IterVar, y: IterVar, t: ColumnSumTile,
    read: Sequence[Tensor], joined: int | None,
) -> None:  # fmt: skip
    """The elements of a thread's columns, among those that share them; which of several sums it is
    says the axis ``joined``."""
    total = s[sums]
    step, thread = total.split(_fused(total), factor=t.down)
    step, load = total.split(step, factor=t.loads)
    part = s.rfactor(sums, thread, 0)
    total, parts = s[sums], s[part]
    for made in (total, parts):
        made.set_scope("local")
        made.compute_at(stage, own)
        made.unroll(made.op.axis[-1])
    each = []
    if joined is not None:
        total.unroll(total.op.axis[joined])
        each = [parts.op.axis[1 + joined]]
    total.bind(total.op.reduce_axis[0], y)
    thread, *outer, lane = (a for a in parts.op.axis if a not in each)
    step, load = (a for a in parts.leaf_iter_vars if a.kind == "reduce")
    parts.reorder(thread, *outer, step, load, *each, lane)
    parts.bind(thread, y)
    parts.unroll(load, *each)
    for source in read:
        readers = [reader.op for reader in s.stages if source in reader.op.inputs]
        copy = s[s.cache_read(source, "local", readers)]
        copy.compute_at(parts, load)
        copy.vectorize(copy.op.axis[-1])
