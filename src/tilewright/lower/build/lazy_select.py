"""A choice one of whose values may read out of bounds evaluates only the chosen one.

Stands early: later passes read the condition of an :class:`IfThenElse` as a guard of what it
chooses, and it is what a padded input becomes:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import select, logical_and
>>> i, = axes("i")
>>> A, B = buffer("A", 8), buffer("B", 10)
>>> padded = select(logical_and(1 <= i, i < 9), A[i - 1], 0.0)
>>> print(lazy_select(func(loop(i, 10, store(B[i], padded)))).body)
for i in range(10):
    B[i] = T.if_then_else(i >= 1 and i < 9, A[i - 1], T.float32(0))

A choice between values that can both be read stays, as selecting is cheaper than branching.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.ir.expr import Expr, IfThenElse, Select
from tilewright.ir.func import Func
from tilewright.ir.visit import distinct
from tilewright.lower.context import InContext, analyzer_of, reads_in_bounds


def lazy_select(func: Func) -> Func:
    """Turn a ``Select`` that may read out of bounds into an ``IfThenElse``."""
    if not any(type(e) is Select for e in distinct(func.body)):
        return func
    return replace(func, body=_Lazy(analyzer_of(func)).stmt(func.body))


def lazy(analyzer: Analyzer, e: Expr) -> Expr:
    """``e`` with every ``Select`` lazy that may read out of bounds."""
    return _Lazy(analyzer).expr(e)


class _Lazy(InContext):
    def expr(self, e: Expr) -> Expr:
        if type(e) is not Select or e.condition.dtype.lanes > 1:
            return super().expr(e)
        if reads_in_bounds(self.analyzer, e.on_true) and reads_in_bounds(self.analyzer, e.on_false):
            return super().expr(e)
        return super().expr(IfThenElse(e.condition, e.on_true, e.on_false))
