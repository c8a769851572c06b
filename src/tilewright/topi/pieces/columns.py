"""Programs that reduce columns: over all that lies behind the last dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Expr, Load, Reduce
from tilewright.ir.ops import is_const
from tilewright.te import Tensor
from tilewright.topi.pieces.counts import declared, elements
from tilewright.topi.pieces.reads import above, computed, extent, is_own, loads
from tilewright.topi.pieces.sums import reduces
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Columns:
    """Columns that a program reduces: of all that lies behind the last dimension.

    Attributes
    ----------
    count, outer : columns that are neighbours, and groups of these.
    joined : sums of one column, along the first dimension of the result.
    length : elements of a column.
    read : the arguments that are reduced, each where its own element stands.
    """

    count: int
    outer: int
    joined: int
    length: int
    read: tuple[str, ...]


@functools.lru_cache(512)
def columns_of(p: Problem) -> Columns | None:
    """The columns of a problem; None where it is no reduction of columns, of which elements of the
    result are made one by one."""
    d = declared(p)
    ops = list(computed(d.output))
    sums = [op for op in ops if reduces(op)]
    if len(sums) != 1 or any(len(op.body) != 1 for op in ops):
        return None
    total, body = sums[0].output(0), sums[0].body[0]
    extents = [extent(a) for a in total.op.reduce_axis]
    result = [int(e) for e in d.output.shape]
    if [int(e) for e in total.shape] != result or result[-1:] in ([], [1]) or None in extents:
        return None
    if not isinstance(body, Reduce) or not is_const(body.condition, 1):
        return None
    upper = above([total])
    behind = [op for op in ops if op.output(0) not in upper]
    made = {total.buffer, *(op.output(0).buffer for op in behind)}
    if any(x.buffer in made and not is_own(op, x) for op in behind for x in loads(op)):
        return None
    own = [a.var for a in (*total.op.axis, *total.op.reduce_axis)]
    column = own[len(result) - 1]
    seen = {i for x in loads(sums[0]) for i in x.indices}
    joined = result[0] if len(result) > 1 and own[0] not in seen else 1
    moved: set[Tensor] = set()
    for op in set(ops) - set(behind):
        other = {
            x.buffer for x in loads(op)
            if not (_is_of(x, own, column) if op is total.op else is_own(op, x))
        }  # fmt: skip
        moved |= above([t for t in op.inputs if t.buffer in other])
    length = math.prod(extents)
    whole = math.prod(result) // joined * length
    given = ((n, t) for n, t in d.inputs.items() if t in upper - moved)
    read = tuple(n for n, t in given if elements(t) == whole)
    outer = math.prod(result[:-1]) // joined
    return Columns(result[-1], outer, joined, length, read) if read else None


def _is_of(x: Load, own: Sequence[Expr], column: Expr) -> bool:
    """Whether a reduction reads neighbours for neighbouring columns."""
    return x.indices[-1:] == (column,) and all(i in own or is_const(i, 0) for i in x.indices)
