"""Expressions in canonical form, and no statement that does nothing.

Stands wherever the passes before it leave arithmetic that the ranges of loops decide.

>>> from tilewright.lower.ir_builder import *
>>> o, i, k = axes("o i k")
>>> A, B = buffer("A", 32), buffer("B", 32)
>>> n = o * 8 + i
>>> body = when(n < 32, loop(k, 1, store(B[n + k], A[(n // 8) * 8 + n % 8] * 2.0)))
>>> print(simplify(func(loop(o, 4, loop(i, 8, body)))).body)
for o in range(4):
    for i in range(8):
        B[o * 8 + i] = A[o * 8 + i] * T.float32(2)

Loops over threads and PARALLEL loops stay, even those of one iteration: they say where a program
runs. So do the names of variables.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Analyzer, solve
from tilewright.arith.conditions import conjuncts
from tilewright.ir import ops
from tilewright.ir.expr import Broadcast, Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Evaluate,
    For,
    ForKind,
    If,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
    seq,
)
from tilewright.ir.visit import Rewriter, Steps, substitute, uses
from tilewright.lower.context import analyzer_of, pure

_STAYS = (ForKind.THREAD, ForKind.VTHREAD, ForKind.PARALLEL)
_SHRINKS = (ForKind.SERIAL, ForKind.UNROLLED)
NOTHING = Seq(())


def simplify(func: Func) -> Func:
    """Simplify the body of ``func``; see the module's docstring."""
    return replace(func, body=_Simplify(analyzer_of(func), False).stmt(func.body))


def simplified(analyzer: Analyzer, s: Stmt) -> Stmt:
    """``s`` simplified under what ``analyzer`` knows of the variables around it.

    Loops whose whole body is guarded by constant bounds of their variable are made to end there.
    """
    return _Simplify(analyzer, True).stmt(s)


class _Simplify(Rewriter):
    def __init__(self, analyzer: Analyzer, shrink: bool) -> None:
        self.analyzer, self.shrink = analyzer, shrink
        self.values: dict[Expr, Expr] = {}  # what takes the place of variables

    def expr(self, e: Expr) -> Expr:
        if self.values:
            e = substitute(e, self.values)
        return self.analyzer.simplify(e)

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For():
                return (yield self.loop(s))
            case If(condition, then, orelse):
                return (yield self.branch(s, condition, then, orelse))
            case Seq(stmts):
                made = []
                for x in stmts:
                    made.append((yield self.steps(x)))
                if all(new is old for new, old in zip(made, stmts, strict=True)):
                    return s
                return seq(*(x for x in made if not _empty(x)))
            case Let(var, value, body):
                value = self.expr(value)
                if ops.is_const(value):
                    self.values[var] = value
                    return (yield self.steps(body))
                with self.analyzer.scope():
                    if pure(value) and value.dtype.lanes == 1:
                        self.analyzer.define(var, value)
                    body = yield self.steps(body)
                if _empty(body):
                    return NOTHING
                return s if value is s.value and body is s.body else Let(var, value, body)
            case Allocate() | Remark():
                made_stmt = yield from super().steps(s)
                return NOTHING if _empty(made_stmt.body) else made_stmt
            case Store():
                found = yield from super().steps(s)
                assert isinstance(found, Store)
                match found.predicate:
                    case Broadcast(IntImm(_, on)) | IntImm(_, on):
                        return replace(found, predicate=None) if on else NOTHING
                return found
            case Evaluate():
                return (yield from super().steps(s))
            case AllReduce(reducer, buffers, indices, source, condition, axes, everywhere):
                # An axis of one thread has a value, but here it is meant as an axis.
                indices, source = tuple(map(self.expr, indices)), tuple(map(self.expr, source))
                condition = self.expr(condition)
                return AllReduce(reducer, buffers, indices, source, condition, axes, everywhere)
        # Barriers; instructions, whose body keeps its shape, loops of one iteration too.
        found = substitute(s, self.values)
        return found

    def loop(self, s: For) -> Steps:
        low, extent = self.expr(s.min), self.expr(s.extent)
        if s.kind not in _STAYS:
            if isinstance(extent, IntImm) and extent.value <= 0:
                return NOTHING
            # One that pipelines go on across stays for these, even where it runs once.
            once = ops.is_const(extent, 1) and s.pipelines is None
            if once and (ops.is_const(low) or pure(low)):
                # Not by a walk through the body: such loops may nest.
                self.values[s.var] = low
                alone = yield self.steps(s.body)
                del self.values[s.var]
                return alone
        with self.analyzer.scope():
            self.analyzer.bind(s.var, low, extent)
            body = yield self.steps(s.body)
        if _empty(body):
            return NOTHING
        if self.shrink and s.kind in _SHRINKS and isinstance(body, If) and body.orelse is None:
            narrow = self.guarded(s.var, low, extent, body.condition)
            if narrow is not None:
                narrowed = replace(s, min=narrow[0], extent=narrow[1], body=body)
                return (yield self.loop(narrowed))
        if low is s.min and extent is s.extent and body is s.body:
            return s
        return replace(s, min=low, extent=extent, body=body)

    def guarded(self, var: Var, low: Expr, extent: Expr, guard: Expr) -> tuple[Expr, Expr] | None:
        """The part of a loop of known ends in which the guard of its whole body can hold."""
        if not (isinstance(low, IntImm) and isinstance(extent, IntImm)):
            return None
        first, last = low.value, low.value + extent.value - 1
        for c in conjuncts(guard):
            if not (pure(c) and uses(c, {var})):
                continue
            lower, upper, _ = solve(c, var, self.analyzer)
            first = max([first, *(e.value for e in lower if isinstance(e, IntImm))])
            last = min([last, *(e.value for e in upper if isinstance(e, IntImm))])
        if first == low.value and last - first + 1 == extent.value:
            return None
        return ops.const(first, var.dtype), ops.const(max(0, last - first + 1), var.dtype)

    def branch(self, s: If, condition: Expr, then: Stmt, orelse: Stmt | None) -> Steps:
        condition = self.expr(condition)
        if isinstance(condition, IntImm):
            chosen = then if condition.value else orelse
            return NOTHING if chosen is None else (yield self.steps(chosen))
        with self.analyzer.assume(condition):
            then = yield self.steps(then)
        if orelse is not None:
            with self.analyzer.assume(ops.logical_not(condition)):
                orelse = yield self.steps(orelse)
            orelse = None if _empty(orelse) else orelse
        if _empty(then):
            if orelse is None:
                return NOTHING
            return If(self.expr(ops.logical_not(condition)), orelse)
        same = condition is s.condition and then is s.then and orelse is s.orelse
        return s if same else If(condition, then, orelse)


def _empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts
