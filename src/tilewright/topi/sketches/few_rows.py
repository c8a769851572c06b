"""Two products of few rows in one kernel, as squeeze-and-excite has them of means of images.

Each block computes all that is hidden of its rows, which neighbouring threads read along the sum,
into shared memory, and then a thread has neighbouring columns of the result. What is hidden is
computed again by each block, as weights are few: it is there sooner than by a kernel of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.nn.mlp import MlpDeclaration
from tilewright.topi.pieces.tiling import extent_of, thread_axes
from tilewright.topi.stages import scheduled

#: Turns of a loop that are written out, at most.
_WRITTEN = 32


@dataclass(frozen=True)
class FewRowTile:
    """A block has ``rows`` rows and ``groups`` of ``lanes`` threads. A group has one hidden element
    at a time, of which its threads read ``vector`` neighbouring weights at once; each thread has
    ``columns`` neighbours of the result."""

    rows: int = 1
    groups: int = 16
    lanes: int = 32
    vector: int = 8
    columns: int = 1


def schedule_few_rows(d: MlpDeclaration, t: FewRowTile = FewRowTile()) -> Schedule:
    """The schedule of a problem whose rows are not normalised."""
    s = scheduled(d.output, d.inner, d.hidden, d.product)
    y, x = thread_axes(t.groups, t.lanes)
    out = s[d.output]
    i, e = out.op.axis
    i, row = out.split(i, factor=t.rows)
    e, own = out.split(e, factor=t.groups * t.lanes * t.columns)
    group, own = out.split(own, factor=t.lanes * t.columns)
    thread, column = out.split(own, factor=t.columns)
    out.reorder(i, e, group, thread, row, column)
    block = out.fuse(i, e)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(group, y)
    out.bind(thread, x)
    out.vectorize(column)

    product = s[d.product]
    product.set_scope("local")
    product.compute_at(out, thread)
    row, column = product.op.axis
    (j,) = product.op.reduce_axis
    product.reorder(j, row, column)
    product.unroll(row, *([j] if extent_of(j) <= _WRITTEN else []))
    product.vectorize(column)

    hidden, inner = s[d.hidden], s[d.inner]
    hidden.set_scope("shared")
    hidden.compute_at(out, block)
    row, j = hidden.op.axis
    turn, group = hidden.split(j, factor=t.groups)
    hidden.reorder(turn, group, row)
    hidden.bind(group, y)
    vector, lane = inner.split(inner.op.reduce_axis[0], factor=t.vector)
    step, thread = inner.split(vector, factor=t.lanes)
    if t.rows * extent_of(step) * extent_of(turn) <= _WRITTEN:  # all loads on their way at once
        hidden.unroll(turn)
    parts = s[s.rfactor(d.inner, thread, d.inner.ndim)]
    for stage in (s[d.inner], parts):
        stage.set_scope("local")
        stage.compute_at(hidden, group)
    s[d.inner].bind(s[d.inner].op.reduce_axis[0], x)
    row, j, thread = parts.op.axis
    step, lane = (a for a in parts.leaf_iter_vars if a.kind == "reduce")
    parts.reorder(j, thread, step, row, lane)
    parts.bind(thread, x)
    parts.unroll(row, lane, *([step] if t.rows * extent_of(step) <= _WRITTEN else []))
    for factor in (d.a, d.b):
        copy = s[s.cache_read(factor, "local", [parts.op])]
        copy.compute_at(parts, step)
        copy.unroll(copy.op.axis[0])
        copy.vectorize(copy.op.axis[1])
    return s
