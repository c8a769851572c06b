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
            return (
                reads_in_bounds(analyzer, condition)
                and _where(analyzer, condition, on_true)
                and _where(analyzer, logical_not(condition), on_false)
            )
        case And(a, b) | Or(a, b):
            known = a if isinstance(e, And) else logical_not(a)
            return reads_in_bounds(analyzer, a) and _where(analyzer, known, b)
        case Reduce(_, source, _, condition, _, init):
            if not all(reads_in_bounds(analyzer, x) for x in (condition, *init)):
                return False
            return all(_where(analyzer, condition, x) for x in source)
        case Load(buffer, indices, _):
            inside = (
                logical_and(i >= const(0), i < extent)
                for i, extent in zip(indices, buffer.shape, strict=True)
            )
            if not all(analyzer.prove(condition) for condition in inside):
                return False
    found = (c for c in children(e) if isinstance(c, Expr) and not isinstance(c, IntImm))
    return all(reads_in_bounds(analyzer, c) for c in found)


def _where(analyzer: Analyzer, condition: Expr, e: Expr) -> bool:
    """Whether ``e`` reads only what is there where ``condition`` holds; it reads nothing where that
    never does: a row of a padded image may be all padding."""
    with analyzer.assume(condition):
        if reads_in_bounds(analyzer, e):
            return True
    return analyzer.prove(logical_not(condition))
