"""The tiles worth trying for programs of rows on a CPU, and the programs that they are for."""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.operators.program import Program
from tilewright.topi.pieces.row_reads import lies_along
from tilewright.topi.pieces.rows import reduced_rows
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.vector_rows import VectorRowTile

#: Elements of a task's rows, about, and of a row from which on two vectors of sums are worth
#: bringing together.
_TASK, _LONG = 2**13, 384
#: Elements of the widest vector.
_LEAST = 16


def vector_row_tiles(p: Problem, target: Target) -> list[VectorRowTile]:
    """The tiles worth trying, the best guess first: two vectors of sums where rows are long."""
    rows = reduced_rows(p)
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
    rows = reduced_rows(p)
    if rows is None or not (rows.read or lies_along(p)):
        return False
    return rows.length >= _LEAST and (rows.rank > 0 or not rows.whole)
