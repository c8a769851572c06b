"""Programs of rows: what reduces over the last dimensions, and what is made of that in a row."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass

from tilewright.ir.expr import Load, Reduce
from tilewright.ir.ops import is_const
from tilewright.ir.visit import walk
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.pieces.counts import declared
from tilewright.topi.pieces.reads import above, computed, extent, is_own, loads
from tilewright.topi.pieces.sums import reduces
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Rows:
    """Rows that a program reduces, each by itself.

    Attributes
    ----------
    rank : how many dimensions count rows; those behind them are of a row.
    shape : of the dimensions of a row.
    count, reductions : how many rows there are, and how often each is reduced.
    whole : whether the result has rows, not one element of each.
    read : the arguments whose elements a reduction reads where its own stand; of some, all rows
        read one.
    """

    rank: int
    shape: tuple[int, ...]
    count: int
    reductions: int
    whole: bool
    read: tuple[str, ...]

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape)


def rows_of(p: Problem) -> Rows | None:
    """The rows of a problem of which some arguments are ``read`` where their own stand; None where
    it is no program of such."""
    found = reduced_rows(p)
    return found if found is not None and found.read else None


@functools.lru_cache(512)
def reduced_rows(p: Problem) -> Rows | None:
    """The rows of a problem, however they are read; None where it is no program of rows.

    It is one if all its reductions are over the same last dimensions, and every stage reads of
    another one elements of its own row: where its own stands, all that it reduces, or the only one.
    """
    d = declared(p)
    ops = list(computed(d.output))
    sums = [op for op in ops if reduces(op)]
    if not sums or any(len(op.body) != 1 for op in ops):
        return None
    axes = sums[0].reduce_axis
    shape = tuple(extent(a) for a in axes)
    rank = max((len(x.indices) for x in loads(sums[0])), default=0) - len(axes)
    if rank < 0 or None in shape or math.prod(shape) < 2:
        return None
    if not all(_reduces_rows(op, rank, shape) for op in sums):
        return None
    result = [int(e) for e in d.output.shape]
    whole = tuple(result[rank:]) == shape
    if not whole and math.prod(result[rank:]) != 1:
        return None
    strange: set[Tensor] = set()
    times = Counter(x.buffer for op in ops for x in loads(op))
    for op in ops:
        for x in loads(op):
            made = [t for t in op.inputs if t.buffer is x.buffer]
            if not is_own(op, x, rank):
                if any(reduces(t.op) for t in above(made) if isinstance(t.op, ComputeOp)):
                    return None
                once = times[x.buffer] == 1
                of_row = is_own(op, x, rank, behind=True) or (once and _is_of_row(op, x, rank))
                strange |= set() if of_row else above(made)
    reduced = above([t for op in sums for t in op.inputs]) - strange
    given = ((n, t) for n, t in d.inputs.items() if t in reduced)
    read = tuple(n for n, t in given if tuple(map(int, t.shape[-len(shape) :])) == shape)
    return Rows(rank, shape, math.prod(result[:rank]), len(sums), whole, read)


@functools.lru_cache(512)
def dots_of(p: Problem) -> Rows | None:
    """Sums of products of rows, a pair of them for each element of the result, as rows that are
    reduced; None where a problem is no such sum, or two of its arguments lie otherwise."""
    d = declared(p)
    ops = list(computed(d.output))
    sums = [op for op in ops if reduces(op)]
    if len(sums) != 1 or any(len(op.body) != 1 for op in ops):
        return None
    op, body = sums[0], sums[0].body[0]
    if not isinstance(body, Reduce) or not is_const(body.condition, 1) or len(op.reduce_axis) != 1:
        return None
    result, length = [int(e) for e in d.output.shape], extent(op.reduce_axis[0])
    made = {o.output(0).buffer for o in ops}
    if [int(e) for e in op.output(0).shape] != result or length is None:
        return None
    if any(x.buffer in made and not is_own(o, x) for o in ops if o is not op for x in loads(o)):
        return None
    along, lies = op.reduce_axis[0].var, [a.var for a in op.axis]
    found = {
        x.buffer for x in loads(op)
        if x.indices[-1:] == (along,) and all(i in lies or is_const(i, 0) for i in x.indices[:-1])
    }  # fmt: skip
    read = tuple(n for n, t in d.inputs.items() if t.buffer in found)
    if len(read) != 2 or len(op.inputs) != 2:
        return None
    return Rows(len(result), (length,), math.prod(result), 1, False, read)


def _is_of_row(op: ComputeOp, x: Load, rank: int) -> bool:
    """Whether an operation reads a row where its own stands, of another place among rows."""
    rows, inner = op.axis[:rank], op.reduce_axis if reduces(op) else op.axis[rank:]
    own = {a.var for a in inner}
    return list(x.indices[rank:]) == [a.var for a in inner] and not any(
        own & set(walk(i)) for i in x.indices[: len(rows)]
    )


def _reduces_rows(op: ComputeOp, rank: int, shape: tuple[int, ...]) -> bool:
    body = op.body[0]
    return (
        isinstance(body, Reduce)
        and tuple(extent(a) for a in op.reduce_axis) == shape
        and is_const(body.condition, 1)
        and all(extent(a) == 1 for a in op.axis[rank:])
    )
