"""Programs of rows on a GPU: normalisations, softmax, sums over the last dimensions.

A group of threads has a row: neighbouring threads read neighbouring vectors of it, and keep them in
registers for all reductions of the row and for what is made of these in the end. Each reduction
ends in shuffles among the threads of a row, in shared memory beyond a warp. Rows that do not divide
into such vectors are read again, an element a thread. What is reduced once needs no registers for
all of a row, as a product of few rows by a matrix that lies along the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declared import Declared
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.rows import Rows, dots_of, rows_of
from tilewright.topi.pieces.sums import inline
from tilewright.topi.pieces.tiling import thread_axes

#: Turns of a loop that are written out, at most.
_WRITTEN = 16


@dataclass(frozen=True)
class RowTile:
    """``lanes`` threads have a row, ``vector`` neighbouring elements each at a time; a block has
    ``rows`` of them. All of it is ``kept`` in registers, or read where it is reduced."""

    rows: int = 4
    lanes: int = 32
    vector: int = 1
    kept: int = flag()


def schedule_rows(d: Declared, t: RowTile = RowTile()) -> Schedule:
    """The schedule of a program that has :func:`~tilewright.topi.pieces.rows.rows_of`."""
    rows = rows_of(d.problem) or dots_of(d.problem)
    assert rows is not None, d.problem
    found = inline(d.output)
    s, out = found.schedule, found.schedule[d.output]
    y, x = thread_axes(t.rows, t.lanes)[-2:]
    outer, inner = list(out.op.axis[: rows.rank]), list(out.op.axis[rows.rank :])
    if not rows.whole:
        outer, inner = [*outer, *inner], []
    block, row = out.split(out.fuse(*outer), factor=t.rows)
    out.reorder(block, row, *inner)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(row, y)
    if inner:
        _, lane = _lanes(out, inner, x, t, rows)
        out.vectorize(lane)
    sums = [*found.before, *([found.last] if found.last is not None else [])]
    for tensor in sums:
        stage = s[tensor]
        stage.set_scope("local")
        stage.compute_at(out, row)
        turn, lane = _lanes(stage, list(stage.op.reduce_axis), x, t, rows)
        stage.unroll(lane)
    for name in rows.read if t.vector > 1 else ():
        if t.kept:
            _load(s, d.inputs[name], out, row, x, t)
        else:  # of one reduction
            copy = _copied(s, d.inputs[name])
            copy.compute_at(stage, turn)
            copy.vectorize(copy.op.axis[-1])
    return s


def _lanes(
    stage: Stage, axes: Sequence[IterVar], x: IterVar, t: RowTile, rows: Rows
) -> tuple[IterVar, IterVar]:
    """The elements of a row among its threads: returns the loops over a thread's
    vectors, and of one."""
    axis = stage.fuse(*axes) if len(axes) > 1 else axes[0]
    vector, lane = stage.split(axis, factor=t.vector)
    turn, thread = stage.split(vector, factor=t.lanes)
    stage.reorder(thread, turn, lane)
    stage.bind(thread, x)
    if -(-rows.length // (t.lanes * t.vector)) <= _WRITTEN:
        stage.unroll(turn)
    return turn, lane


def _load(s: Schedule, source: Tensor, out: Stage, row: IterVar, x: IterVar, t: RowTile) -> None:
    """A row of an argument in the registers of its threads."""
    stage = _copied(s, source)
    step = t.vector * t.lanes
    *_, turn, thread, lane = stage.transform_layout(
        lambda *i: (*i[:-1], i[-1] // step, i[-1] // t.vector % t.lanes, i[-1] % t.vector)
    )
    stage.compute_at(out, row)
    stage.reorder(thread, turn, lane)
    stage.bind(thread, x)
    stage.unroll(turn)
    stage.vectorize(lane)


def _copied(s: Schedule, source: Tensor) -> Stage:
    """An argument in registers, for all that read it."""
    readers = [stage.op for stage in s.stages if source in stage.op.inputs]
    return s[s.cache_read(source, "local", readers)]
