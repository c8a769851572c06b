"""Whether an expression reads only what is there, whatever its loops' variables are."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir.expr import And, Expr, IntImm, Load, Or, Reduce, Select
from tilewright.ir.ops import const, logical_and, logical_not
from tilewright.ir.visit import children


def reads_in_bounds(analyzer: Analyzer, e: Expr) -> bool:
    """Whether every read in ``e`` that is carried out is proved to lie within its buffer.

    A branch of a choice is read only where its condition holds; ``Select`` counts as such a choice
    because lowering makes it one where a branch needs it.
    """
    match e:
        case Select(condition, on_true, on_false):
            if not reads_in_bounds(analyzer, condition):
                return False
            with analyzer.assume(condition):
                if not reads_in_bounds(analyzer, on_true):
                    return False
            with analyzer.assume(logical_not(condition)):
                return reads_in_bounds(analyzer, on_false)
        case And(a, b) | Or(a, b):
            if not reads_in_bounds(analyzer, a):
                return False
            with analyzer.assume(a if isinstance(e, And) else logical_not(a)):
                return reads_in_bounds(analyzer, b)
        case Reduce(_, source, _, condition, _, init):
            if not all(reads_in_bounds(analyzer, x) for x in (condition, *init)):
                return False
            with analyzer.assume(condition):
                return all(reads_in_bounds(analyzer, x) for x in source)
        case Load(buffer, indices, _):
            inside = (
                logical_and(i >= const(0), i < extent)
                for i, extent in zip(indices, buffer.shape, strict=True)
            )
            if not all(analyzer.prove(condition) for condition in inside):
                return False
    found = (c for c in children(e) if isinstance(c, Expr) and not isinstance(c, IntImm))
    return all(reads_in_bounds(analyzer, c) for c in found)
