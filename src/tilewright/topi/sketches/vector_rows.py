"""Programs of rows on a CPU: normalisations, softmax, sums over the last dimensions.

A row is reduced in vectors along it, as often as the program does, and then what is made of these
sums is written: it stays in the first-level cache meanwhile. Each lane has its part of a reduction,
and the lanes of several vectors come together at the end of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.rows import rows_of
from tilewright.topi.pieces.sums import inline


@dataclass(frozen=True)
class VectorRowTile:
    """A task has ``rows``, reduced ``parts`` elements at a time and written ``lanes`` at a time."""

    rows: int = 8
    lanes: int = 16
    parts: int = 16


def schedule_vector_rows(d: Declared, t: VectorRowTile = VectorRowTile()) -> Schedule:
    """The schedule of a program that has :func:`~tilewright.topi.pieces.rows.rows_of`."""
    rows = rows_of(d.problem)
    assert rows is not None, d.problem
    found = inline(d.output)
    s, out = found.schedule, found.schedule[d.output]
    axes = list(out.op.axis)
    outer, inner = axes[: rows.rank], axes[rows.rank :]
    if not rows.whole:
        outer, inner = axes, []
    task, row = out.split(out.fuse(*outer), factor=t.rows)
    out.reorder(task, row, *inner)
    out.parallel(task)
    if inner:
        _, lane = out.split(out.fuse(*inner), factor=t.lanes)
        out.vectorize(lane)
    sums = [*found.before, *([found.last] if found.last is not None else [])]
    for tensor in sums:
        stage = s[tensor]
        reduced = list(stage.op.reduce_axis)
        _, part = stage.split(stage.fuse(*reduced), factor=t.parts)
        parts = s[s.rfactor(tensor, part, tensor.ndim)]
        stage.set_scope("local")
        stage.compute_at(out, row)
        stage.unroll(*stage.op.reduce_axis)
        parts.set_scope("local")
        parts.compute_at(out, row)
        *before, lane = parts.op.axis
        parts.reorder(*before, *parts.op.reduce_axis, lane)
        parts.vectorize(lane)
    return s
