"""Programs of rows on a CPU: normalisations, softmax, sums over the last dimensions.

A row is reduced in vectors along it, as often as the program does, and then what is made of these
sums is written: it stays in the first-level cache meanwhile. Each lane has its part of a reduction,
and the lanes of several vectors come together at the end of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.declared import Declared
from tilewright.topi.operators.program import Program
from tilewright.topi.pieces.rows import rows_of
from tilewright.topi.pieces.sums import inline
from tilewright.topi.problem import Problem

#: Elements of a task's rows, about, and of a row from which on two vectors of sums are worth
#: bringing together.
_TASK, _LONG = 2**13, 384
#: Elements of the widest vector.
_LEAST = 16


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


def vector_row_tiles(p: Problem, target: Target) -> list[VectorRowTile]:
    """The tiles worth trying, the best guess first: two vectors of sums where rows are long."""
    rows = rows_of(p)
    assert rows is not None, p
    wide, length = lanes(p, target), rows.length
    parts = (2, 1, 4) if length > _LONG else (1, 2, 4)
    most = max(1, min(rows.count, _TASK // length))
    whole = [n for n in range(1, most + 1) if rows.count % n == 0]
    each = whole[-1] if 4 * whole[-1] > most else most
    return [VectorRowTile(each, wide, n * wide) for n in parts if n * wide <= length]


def suits(p: Problem) -> bool:
    """Whether it is a program of several rows of floats that are as long as a vector."""
    if not isinstance(p, Program) or not dtype(p.accumulate).is_float:
        return False
    rows = rows_of(p)
    return rows is not None and rows.length >= _LEAST and (rows.rank > 0 or not rows.whole)
