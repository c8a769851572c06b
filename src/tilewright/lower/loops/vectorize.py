"""Vectorised loops become statements on vectors.

Stands after partitioning, which takes boundary conditions out of most vectors, and after virtual
threads, whose copies it treats alike. The loop's variable becomes a ramp:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import if_then_else
>>> i, v = axes("i v")
>>> A, B = buffer("A", 30), buffer("B", 32)
>>> print(vectorize(func(loop(i, 8, loop(v, 4, store(B[i * 4 + v], 2.0), kind="vectorized")))).body)
for i in range(8):
    B[T.Ramp(i * 4, 1, 4)] = T.Broadcast(T.float32(2), 4)

A condition that differs between lanes masks what it guards:

>>> n = i * 4 + v
>>> body = store(B[n], if_then_else(n < 30, A[n], 0.0))
>>> print(vectorize(func(loop(i, 8, loop(v, 4, body, kind="vectorized")))).body)
for i in range(8):
    B[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(i * 4, 1, 4)].where(T.Ramp(i * 4, 1, 4) < T.Broadcast(30, 4))

Where lanes depend on one another, or a lane's work has no form as a vector, the loop stays, one
iteration after the other: a vectorised loop means what a serial one means.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import ops
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, ForKind, If, Stmt
from tilewright.ir.visit import Steps, exprs, statements
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.loops.lanes import on_vectors
from tilewright.lower.substitution import put

#: Longer vectors than this become a loop over shorter ones.
_MOST_LANES = 64


def vectorize(func: Func) -> Func:
    """Write the vectorised loops of ``func`` on vectors; see the module's docstring."""
    if not any(isinstance(s, For) and s.kind is ForKind.VECTORIZED for s in statements(func.body)):
        return func
    return replace(func, body=_Vectorize(analyzer_of(func)).stmt(func.body))


class _Vectorize(InContext):
    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        if not (isinstance(s, For) and s.kind is ForKind.VECTORIZED):
            return s
        serial = replace(s, kind=ForKind.SERIAL)
        if not isinstance(s.extent, IntImm) or any(e.dtype.lanes > 1 for e in exprs(s.body)):
            return serial  # a loop inside is on vectors already
        lanes = s.extent.value
        if lanes == 1 and s.min.exact:
            alone: Stmt = put(s.body, {s.var: s.min})
            return alone
        single = self.single(s) if lanes > 1 else serial
        if single is not None:
            return single
        if lanes > _MOST_LANES:
            part = next((n for n in (64, 32, 16, 8, 4, 2) if lanes % n == 0), 0)
            if not part:
                return serial
            outer, inner = Var.make(s.var.name, s.var.dtype), Var.make(s.var.name, s.var.dtype)
            zero, count = (ops.const(n, s.var.dtype) for n in (0, lanes // part))
            body = put(s.body, {s.var: s.min + outer * part + inner})
            short = replace(s, var=inner, min=zero, extent=ops.const(part, inner.dtype), body=body)
            return (yield self.steps(For(outer, zero, count, ForKind.SERIAL, short)))
        made = on_vectors(self.analyzer, s)
        return serial if made is None else made

    def single(self, loop: For) -> Stmt | None:
        """The work of a loop of which a condition leaves one iteration, or None."""
        body = loop.body
        if not (isinstance(body, If) and body.orelse is None and pure(body.condition)):
            return None
        with self.analyzer.scope():
            self.analyzer.bind(loop.var, loop.min, loop.extent)
            with self.analyzer.assume(body.condition):
                found = self.analyzer.bounds(loop.var)
        if found.lo is None or found.lo != found.hi:
            return None
        at = {loop.var: ops.const(found.lo, loop.var.dtype)}
        condition, then = self.analyzer.simplify(put(body.condition, at)), put(body.then, at)
        return then if self.analyzer.prove(condition) else If(condition, then)
