"""What a condition that holds says: ranges of atoms, linear facts, and the condition itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine
from tilewright.arith.conditions import conjuncts, inequality_form, negated
from tilewright.arith.extrema import operands_of
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.ops import logical_not
from tilewright.ir.visit import exprs

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

#: After this many conditions, variables that stand for others are taken as they are.
_MOST = 64


def reads_memory(e: Expr) -> bool:
    """Whether the value of an expression depends on what buffers hold."""
    return not e.exact and any(isinstance(part, (E.Load, E.Call)) for part in exprs(e))


def learn(az: Analyzer, condition: Expr) -> None:
    """Extend the present context, which is fresh, by a simplified condition that holds."""
    context = az.context
    parts = conjuncts(condition)
    for number, part in enumerate(parts):  # which grow by what variables stand for
        if isinstance(part, IntImm):
            continue
        context.truths[part] = True
        match part:
            case E.Not(a):
                context.truths[a] = False
                parts += _meaning(az, a, False) if number < _MOST else []
            case E.Var():
                parts += _meaning(az, part, True) if number < _MOST else []
            case E.EQ(a, b) if az.is_index(a.dtype):
                form = az.raw(a) - az.raw(b)
                _not_negative(az, form)
                _not_negative(az, -form)
            case E.NE(a, b) if az.is_index(a.dtype):
                _not_equal(az, az.raw(a) - az.raw(b))
            case _:
                form_ = inequality_form(az, part)
                if form_ is not None:
                    _not_negative(az, -form_)
        if not isinstance(part, E.Not):
            context.truths[negated(az, part)] = False


def _meaning(az: Analyzer, var: Expr, holds: bool) -> list[Expr]:
    """What also holds where a variable that stands for a condition does, or does not."""
    meaning = az.context.definitions.get(var) if isinstance(var, Var) else None
    if meaning is None:
        return []
    kept = [c for c in conjuncts(meaning if holds else logical_not(meaning)) if not reads_memory(c)]
    return [c for part in kept for c in conjuncts(az.simplify(part))]


def _not_negative(az: Analyzer, form: Affine) -> None:
    """Note a fact and, where it is about one division or choice, what follows for its parts."""
    context = az.context
    context.learn(form)
    for atom, k in form.terms.items():
        if k not in (1, -1):
            continue
        match atom:
            case E.FloorDiv(a, IntImm(_, c)) if c > 0:
                rest = form.without(atom) * c
                x = az.raw(a)
                _not_negative(az, rest + x if k > 0 else rest - x + (c - 1))
            case E.Min() | E.Max() if (type(atom) is E.Min) == (k > 0):
                rest = form.without(atom)
                for operand in operands_of(atom):
                    _not_negative(az, rest.combine(1, az.raw(operand), k))
    if len(form.terms) == 1:
        ((atom, k),) = form.terms.items()
        lo, hi = context.ranges[atom]
        if lo == hi and isinstance(atom, Var):
            context.fixed[atom] = Affine({}, int(lo))


def _not_equal(az: Analyzer, form: Affine) -> None:
    """An atom that is not at the end of its range is within the rest of it."""
    from tilewright.arith.bounds import span

    if len(form.terms) != 1:
        return
    ((atom, k),) = form.terms.items()
    if k not in (1, -1):
        return
    value = -form.const * k
    lo, hi = span(az, Affine({atom: 1}))
    if lo == value:
        _not_negative(az, Affine({atom: 1}, -value - 1))
    elif hi == value:
        _not_negative(az, Affine({atom: -1}, value - 1))
