"""Iterations of unrolled loops that are under the same condition share a branch.

Stands behind hoisting, which leaves a condition at the innermost loop it depends on, and before
partitioning. A filter's tap and a pixel of a tile read one row of an image wherever their sum is
the same. The rows become the loop, and what each of them is multiplied by stands in one branch:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import logical_and
>>> i, d, y = axes("i d y")
>>> A, W, S = buffer("A", 30), buffer("W", 3), buffer("S", 4)
>>> row = i * 4 + y + d - 1
>>> body = when(logical_and(row >= 0, row < 30), store(S[y], S[y] + A[row] * W[d]))
>>> nest = loop(d, 3, loop(y, 4, body, kind="unrolled"), kind="unrolled")
>>> print(group_guards(func(loop(i, 8, nest))).body)
for i in range(8):
    for d_y in T.unrolled(6):
        if 1 <= i * 4 + d_y and i * 4 + d_y < 31:
            for y in T.unrolled(T.max(d_y - 2, 0), T.min(d_y + 1, 4)):
                S[y] = S[y] + A[i * 4 + d_y - 1] * W[d_y - y]

The ends of the loop further in are known when the one around it is written out. What one element of
a result is a sum of keeps its order: that decides which loops are taken, as does that all which the
nest writes lies apart for one of its variables.

On a GPU a guard costs one predicate, and loops stay.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, ForKind, If, Let, Remark, Seq, Stmt, Store
from tilewright.ir.visit import Steps, exprs, statements, stores, uses
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.loops.simplify import simplified
from tilewright.lower.substitution import put

#: Iterations that a nest may have; they are written out.
_MOST = 64


def group_guards(func: Func) -> Func:
    """Let guards be decided once for all iterations that they guard alike; see the module's
    docstring."""
    if func.target.is_gpu:
        return func
    return replace(func, body=_Group(analyzer_of(func)).stmt(func.body))


class _Group(InContext):
    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        match s:
            case For(_, _, _, ForKind.UNROLLED, For(_, _, _, ForKind.UNROLLED, If(_, _, None))):
                assert isinstance(s.body, For)
                return self.grouped(s, s.body) or s
        return s

    def grouped(self, outer: For, inner: For) -> Stmt | None:
        """The nest with iterations of one condition side by side, where that is possible."""
        guard = inner.body
        assert isinstance(guard, If)
        if not all(isinstance(x, _PLAIN) for x in statements(guard)):
            return None
        for fine, coarse in ((outer, inner), (inner, outer)):
            step = self.step(guard.condition, fine.var, coarse.var)
            if step and _keeps_order(guard.then, fine.var, coarse.var, step):
                return self.along(fine, coarse, step, guard)
        return None

    def step(self, condition: Expr, fine: Var, coarse: Var) -> int:
        """The number k such that all of a condition depends on ``fine + k * coarse``; 0 where there
        is none."""
        found = 0
        for c in conjuncts(condition):
            if not (isinstance(c, E.Compare) and pure(c) and self.analyzer.is_index(c.a.dtype)):
                return 0
            form = self.analyzer.raw(c.a) - self.analyzer.raw(c.b)
            one, other = form.coefficient(fine), form.coefficient(coarse)
            if not one or not other or other % one or found not in (0, other // one):
                return 0
            if any(a not in (fine, coarse) and uses(a, {fine, coarse}) for a in form.terms):
                return 0
            found = other // one
        return found

    def along(self, fine: For, coarse: For, step: int, guard: If) -> Stmt | None:
        """The nest with a loop over the sum; of ``coarse`` only what ``fine`` completes to it."""
        n, m = _length(fine), _length(coarse)
        if n is None or m is None:
            return None
        count, first = n + abs(step) * (m - 1), min(0, step * (m - 1))
        if count >= n * m or count * m > _MOST:
            return None
        var = Var.make(f"{fine.var.name}_{coarse.var.name}", fine.var.dtype)
        body = put(guard, {fine.var: ops.sub(var, ops.mul(coarse.var, step))})
        last, other = (var, var - n + 1) if step > 0 else (n - 1 - var, ops.neg(var))
        low = ops.maximum(ops.ceildiv(other, abs(step)), 0)
        end = ops.minimum(ops.floordiv(last, abs(step)) + 1, m)
        with self.analyzer.scope():
            self.analyzer.bind(coarse.var, 0, m)
            self.analyzer.bind(var, first, count)
            condition = self.analyzer.simplify(body.condition)
        if uses(condition, {coarse.var}):
            return None
        inner = replace(coarse, min=low, extent=ops.sub(end, low), body=body.then)
        span = ops.const(first), ops.const(count)
        return simplified(self.analyzer, For(var, *span, ForKind.UNROLLED, If(condition, inner)))


#: What may stand in a nest.
_PLAIN = (For, If, Let, Remark, Seq, Store)


def _length(s: For) -> int | None:
    """The iterations of a loop from zero, where they are known."""
    if ops.is_const(s.min, 0) and isinstance(s.extent, IntImm):
        return s.extent.value
    return None


def _keeps_order(s: Stmt, fine: Var, coarse: Var, step: int) -> bool:
    """Whether iterations that write to one place keep their order when those of a smaller
    ``fine + step * coarse`` come first: places differ in a dimension that is one of the variables,
    and the other one grows with the sum."""
    written = {x.buffer for x in stores(s)}
    apart = (coarse, fine) if step > 0 else (coarse,)
    for buffer in written:
        places = [x.indices for x in stores(s) if x.buffer is buffer]
        places += [e.indices for e in exprs(s) if isinstance(e, Load) and e.buffer is buffer]
        if not any(
            all(place[d] is places[0][d] for place in places) and places[0][d] in apart
            for d in range(len(buffer.shape))
        ):
            return False
    return True
