"""Bounds of one variable implied by a conjunction of comparisons."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arith.affine import Affine
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.conditions import conjuncts, inequality_form
from tilewright.arith.extrema import operands_of
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.visit import uses


class Solution(NamedTuple):
    """``var >= e`` for each of ``lower``, ``var <= e`` for each of ``upper``, and ``rest``."""

    lower: list[Expr]
    upper: list[Expr]
    rest: list[Expr]


def solve(condition: Expr, var: Var, analyzer: Analyzer | None = None) -> Solution:
    """Take ``condition`` apart into bounds of ``var`` and the conjuncts that give none.

    The bounds and the rest together hold just where ``condition`` does. Coefficients of the
    variable are divided out exactly, and minima, maxima and divisions around it undone.
    ``analyzer`` says what is known about the other variables.

    >>> from tilewright.ir.ops import logical_and
    >>> x, n = Var.make("x"), Var.make("n")
    >>> solve(logical_and(3 <= x * 2, x * 4 < n, n < 50), x)
    Solution(lower=[2], upper=[(n + 3) // 4 - 1], rest=[n < 50])
    """
    az = analyzer or Analyzer()
    found = Solution([], [], [])
    for part in conjuncts(az.simplify(condition)):
        for term in conjuncts(part):
            if isinstance(term, IntImm) and term.value:
                continue
            if not _bounds(az, term, var, found):
                found.rest.append(term)
    return found


def _bounds(az: Analyzer, e: Expr, var: Var, into: Solution) -> bool:
    """Add the bounds that one conjunct gives; False where it is not of that form."""
    if not isinstance(e, E.Compare) or not e.exact or not uses(e, {var}):
        return False
    t = e.a.dtype
    made = Solution([], [], [])
    if isinstance(e, E.EQ):
        form = az.affine(e.a) - az.affine(e.b)
        solved = _at_most_zero(az, form, var, t, made) and _at_most_zero(az, -form, var, t, made)
    else:
        form_ = inequality_form(az, e)
        solved = form_ is not None and _at_most_zero(az, form_, var, t, made)
    if solved:
        for mine, theirs in zip(into, made, strict=True):
            mine.extend(x for x in theirs if x not in set(mine))
    return solved


def _at_most_zero(az: Analyzer, form: Affine, var: Var, t: DType, into: Solution) -> bool:
    holding = [atom for atom in form.terms if atom is var or uses(atom, {var})]
    if len(holding) != 1:
        return False
    atom = holding[0]
    k = form.terms[atom]
    rest = form.without(atom)
    if atom is var:
        if k > 0:  # var <= floor(-rest / k)
            into.upper.append(_quotient(az, -rest, k, t))
        else:  # var >= ceil(rest / -k)
            into.lower.append(_quotient(az, rest - k - 1, -k, t))
        return True
    match atom:
        case E.FloorDiv(a, IntImm(_, c)) if c > 0:
            x = az.affine(a)
            if k > 0:  # x // c <= m where m = floor(-rest / k): x <= c*m + c - 1
                m = az.affine(_quotient(az, -rest, k, t))
                return _at_most_zero(az, x - m * c - (c - 1), var, t, into)
            m = az.affine(_quotient(az, rest - k - 1, -k, t))
            return _at_most_zero(az, (m * c) - x, var, t, into)
        case E.Max() | E.Min() if (type(atom) is E.Max) == (k > 0):
            for operand in operands_of(atom):
                part = rest.combine(1, az.affine(operand), k)
                if uses(operand, {var}):
                    if not _at_most_zero(az, part, var, t, into):
                        return False
                else:
                    into.rest.append(az.simplify(E.LE(az.to_expr(part, t), IntImm(t, 0))))
            return True
    return False


def _quotient(az: Analyzer, form: Affine, c: int, t: DType) -> Expr:
    from tilewright.arith.divide import floordiv

    return az.to_expr(az.normal(floordiv(az, form, c, t)), t)
