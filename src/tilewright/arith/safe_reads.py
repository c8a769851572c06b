"""Whether an expression reads only what is there, whatever its loops' variables are."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir.expr import And, Expr, IntImm, Load, Or, Reduce, Select
from tilewright.ir.ops import const, logical_not
from tilewright.ir.visit import children


def reads_in_bounds(analyzer: Analyzer, e: Expr) -> bool:
    """Whether every read in ``e`` that is carried out is proved to lie within its buffer.

    A branch of a choice is read only where its condition holds; ``Select`` counts as such a choice
    because lowering makes it one where a branch needs it.
    """
    return not unproved_reads(analyzer, e, most=1)


def unproved_reads(analyzer: Analyzer, e: Expr, most: int = 10**6) -> list[Expr]:
    """What would have to hold besides, so that every read in ``e`` lies within its buffer: the
    first ``most`` such conditions."""
    found: list[Expr] = []
    for condition, part in _parts(e):
        if len(found) < most:
            found += _where(analyzer, condition, part, most - len(found))
    if isinstance(e, Load):
        for i, extent in zip(e.indices, e.buffer.shape, strict=True):
            for inside in (i >= const(0), i < extent):
                if len(found) < most and not analyzer.prove(inside):
                    found.append(inside)
    return found


def _parts(e: Expr) -> list[tuple[Expr | None, Expr]]:
    """What an expression is made of, and the conditions under which it is evaluated."""
    match e:
        case Select(condition, on_true, on_false):
            no = logical_not(condition)
            return [(None, condition), (condition, on_true), (no, on_false)]
        case And(a, b) | Or(a, b):
            return [(None, a), (a if isinstance(e, And) else logical_not(a), b)]
        case Reduce(_, source, _, condition, _, init):
            return [(None, x) for x in (condition, *init)] + [(condition, x) for x in source]
    parts = (c for c in children(e) if isinstance(c, Expr) and not isinstance(c, IntImm))
    return [(None, c) for c in parts]


def _where(analyzer: Analyzer, condition: Expr | None, e: Expr, most: int) -> list[Expr]:
    """The same where ``condition`` holds; it reads nothing where that never does: a row of a padded
    image may be all padding."""
    if condition is None:
        return unproved_reads(analyzer, e, most)
    with analyzer.assume(condition):
        found = unproved_reads(analyzer, e, most)
    return [] if found and analyzer.prove(logical_not(condition)) else found
