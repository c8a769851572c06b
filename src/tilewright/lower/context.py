"""Rewriting with everything known about the variables in scope."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.spans import greatest_extent
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, If, Let, Stmt
from tilewright.ir.visit import Rewriter, Steps, exprs, symbolic_extents


def analyzer_of(func: Func) -> Analyzer:
    """What is known everywhere in ``func``: launch axes, and extents that are not negative."""
    analyzer = Analyzer()
    analyzer.shapes(p for p in func.params if isinstance(p, Buffer))
    for p in func.params:
        if isinstance(p, Var) and p.least:  # otherwise a scalar may be negative
            analyzer.symbol(p)
    for axis in func.launch:
        analyzer.bind(axis.var, 0, axis.extent)
    return analyzer


def bind_extents(analyzer: Analyzer, params: Iterable[Buffer | Var]) -> None:
    """Let the extents of arrays among ``params`` range as far as a call may give them; another
    number may be any of its type."""
    for p in params:
        for var in symbolic_extents(p) if isinstance(p, Buffer) else ():
            analyzer.bind(var, 0, greatest_extent(var) + 1)


def pure(e: Expr) -> bool:
    """Whether ``e`` reads no memory and calls nothing, so that it can be assumed or moved."""
    return e.exact or not any(isinstance(x, (Load, E.Call, E.LetExpr)) for x in exprs(e))


class InContext(Rewriter):
    """A rewriter whose ``analyzer`` knows loop ranges, definitions and conditions on the way down.

    The branches of :class:`IfThenElse` are rewritten under its condition, those of
    :class:`Select` are not, for both are evaluated.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For(var, low, extent, _, body):
                low, extent = self.expr(low), self.expr(extent)
                with self.analyzer.scope():
                    self.analyzer.bind(var, low, extent)
                    body = yield self.steps(body)
                same = low is s.min and extent is s.extent and body is s.body
                return s if same else replace(s, min=low, extent=extent, body=body)
            case If(condition, then, orelse):
                condition = self.expr(condition)
                then = yield self.under(condition, then)
                if orelse is not None:
                    orelse = yield self.under(ops.logical_not(condition), orelse)
                same = condition is s.condition and then is s.then and orelse is s.orelse
                return s if same else If(condition, then, orelse)
            case Let(var, value, body):
                value = self.expr(value)
                with self.analyzer.scope():
                    self.define(var, value)
                    body = yield self.steps(body)
                same = value is s.value and body is s.body
                return s if same else Let(var, value, body)
        return (yield from super().steps(s))

    def expr(self, e: Expr) -> Expr:
        match e:
            case E.IfThenElse(condition, on_true, on_false):
                condition = self.expr(condition)
                on_true = self.expr_under(condition, on_true)
                on_false = self.expr_under(ops.logical_not(condition), on_false)
                same = condition is e.condition and on_true is e.on_true and on_false is e.on_false
                return e if same else E.IfThenElse(condition, on_true, on_false)
            case E.And(a, b) | E.Or(a, b):
                a = self.expr(a)
                known = a if isinstance(e, E.And) else ops.logical_not(a)
                b = self.expr_under(known, b)
                return e if a is e.a and b is e.b else type(e)(a, b)
        return super().expr(e)

    def define(self, var: Var, value: Expr) -> None:
        known = var.dtype.is_int or var.dtype.is_bool
        if known and value.dtype.lanes == 1 and pure(value):
            self.analyzer.define(var, value)

    def under(self, condition: Expr, s: Stmt) -> Steps:
        """``s`` rewritten where ``condition`` holds."""
        with ExitStack() as stack:
            if condition.dtype.lanes == 1 and pure(condition):
                stack.enter_context(self.analyzer.assume(condition))
            return (yield self.steps(s))

    def expr_under(self, condition: Expr, e: Expr) -> Expr:
        """``e`` rewritten where ``condition`` holds."""
        with ExitStack() as stack:
            if condition.dtype.lanes == 1 and pure(condition):
                stack.enter_context(self.analyzer.assume(condition))
            return self.expr(e)


def in_bounds(analyzer: Analyzer, load: Load) -> bool:
    """Whether a scalar read is provably inside its buffer for all values of the variables."""
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        if not (analyzer.prove(index >= 0) and analyzer.prove(index < extent)):
            return False
    return True


class _Reads(InContext):
    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.safe = True

    def expr(self, e: Expr) -> Expr:
        if not self.safe:
            return e
        if isinstance(e, Load):
            scalar = all(i.dtype.lanes == 1 for i in e.indices)
            self.safe = scalar and in_bounds(self.analyzer, e)
        return super().expr(e)


def reads_in_bounds(analyzer: Analyzer, e: Expr) -> bool:
    """Whether all reads of ``e`` are provably in bounds wherever ``e`` is evaluated."""
    if not any(isinstance(x, Load) for x in exprs(e)):
        return True
    reads = _Reads(analyzer)
    reads.expr(e)
    return reads.safe
