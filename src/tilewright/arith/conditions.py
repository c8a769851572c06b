"""Conditions: comparisons of integers in one canonical form, and their combinations.

A comparison is brought to ``form <= 0``, ``form == 0`` or ``form != 0``, where

==============================  ===========================================================
``g*x + k <= 0``                ``x + ceil(k/g) <= 0``
``g*x + k == 0``                false where k is no multiple of g
``g*x + y + k <= 0``            ``x <= m`` where ``(-k - y) // g == m`` for every y in range
``x // c + y <= 0``             ``x + c*y - c + 1 <= 0``
``-(x // c) + y <= 0``          ``-x + c*y <= 0``
``max(x, y) + z <= 0``          ``x + z <= 0 and y + z <= 0``, as for ``-min(x, y)``
==============================  ===========================================================

and what the bounds decide is decided. Positive terms then stand on the left and negative ones on
the right: ``3 <= h + ry``, ``h + ry < 19``, ``x < y + 4``.
"""

from __future__ import annotations

from math import gcd, inf
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine
from tilewright.arith.bounds import lower, span
from tilewright.arith.extrema import operands_of
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.ir.expr import BOOL, Expr, IntImm
from tilewright.ir.ops import logical_not

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

TRUE: Expr = IntImm(BOOL, 1)
FALSE: Expr = IntImm(BOOL, 0)

_FLIPPED: dict[type[E.Compare], type[E.Compare]] = {E.GT: E.LT, E.GE: E.LE}


def truth(value: bool) -> Expr:
    """The constant."""
    return TRUE if value else FALSE


def condition(az: Analyzer, e: Expr) -> Expr:
    """The canonical form of a scalar condition."""
    made = _condition(az, e)
    if not isinstance(made, IntImm):
        known = az.context.truths.get(made)
        if known is not None:
            return truth(known)
    return made


def _condition(az: Analyzer, e: Expr) -> Expr:
    match e:
        case E.Compare(a, b) if e.exact and az.is_index(a.dtype):
            return _comparison(az, type(e), az.affine(a), az.affine(b), a.dtype)
        case E.And():
            return conjunction(az, conjuncts(e))
        case E.Or():
            return _disjunction(az, _parts(e, E.Or))
        case E.Not(a):
            return negation(az, a)
        case E.EQ(a, b) | E.NE(a, b) if a.dtype.is_bool:
            x, y = az.simplify(a), az.simplify(b)
            if isinstance(x, IntImm):
                x, y = y, x
            if isinstance(y, IntImm):
                return x if bool(y.value) == (type(e) is E.EQ) else negation(az, x)
            if x is y:
                return truth(type(e) is E.EQ)
            return type(e)(x, y)
        case E.Compare(a, b) if a.dtype.is_int:
            return _data_comparison(az, type(e), az.simplify(a), az.simplify(b))
    return az.rebuild(e)


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that an And, however nested, joins; in order of evaluation."""
    return _parts(e, E.And)


def _parts(e: Expr, cls: type[Expr]) -> list[Expr]:
    found, stack = [], [e]
    while stack:
        top = stack.pop()
        if type(top) is cls:
            assert isinstance(top, E.Binary)
            stack += [top.b, top.a]
        else:
            found.append(top)
    return found


def negation(az: Analyzer, e: Expr) -> Expr:
    """The canonical form of ``not e``."""
    match e:
        case E.And(a, b):
            return condition(az, E.Or(logical_not(a), logical_not(b)))
        case E.Or(a, b):
            return condition(az, E.And(logical_not(a), logical_not(b)))
        case E.Not(a):
            return az.simplify(a)
        case E.Compare(a, _) if not a.dtype.is_float:
            return condition(az, logical_not(e))
    inner = az.simplify(e)
    if isinstance(inner, (IntImm, E.Not, E.And, E.Or)):
        return truth(not inner.value) if isinstance(inner, IntImm) else negation(az, inner)
    if isinstance(inner, E.Compare) and not inner.a.dtype.is_float:
        return condition(az, logical_not(inner))
    return E.Not(inner)


def negated(az: Analyzer, e: Expr) -> Expr:
    """``not e`` for a canonical condition, by its structure alone: what holds where e fails."""
    match e:
        case E.And(a, b):
            return E.Or(negated(az, a), negated(az, b))
        case E.Or(a, b):
            return E.And(negated(az, a), negated(az, b))
        case E.Not(a):
            return a
        case E.EQ(a, b) if not a.dtype.is_float:
            return E.NE(a, b)
        case E.NE(a, b) if not a.dtype.is_float:
            return E.EQ(a, b)
    if isinstance(e, E.Compare) and not e.a.dtype.is_float and not e.exact:
        return logical_not(e)  # data is neither added to nor moved to the other side
    form = inequality_form(az, e)
    if form is not None:
        assert isinstance(e, E.Compare)
        return _inequality(az, -form + 1, e.a.dtype)
    return E.Not(e)


def _data_comparison(az: Analyzer, cls: type[E.Compare], a: Expr, b: Expr) -> Expr:
    """A comparison of integers that wrap around: only the ranges of the sides are used."""
    from tilewright.arith.bounds import value_span

    if a.dtype.lanes == 1:
        (alo, ahi), (blo, bhi) = value_span(az, a), value_span(az, b)
        if cls in _FLIPPED:
            return _data_comparison(az, _FLIPPED[cls], b, a)
        if a is b:
            return truth(cls in (E.LE, E.EQ))
        if cls is E.LT and (ahi < blo or alo >= bhi):
            return truth(ahi < blo)
        if cls is E.LE and (ahi <= blo or alo > bhi):
            return truth(ahi <= blo)
        if cls in (E.EQ, E.NE) and (ahi < blo or bhi < alo):
            return truth(cls is E.NE)
    return cls(a, b)


def _comparison(az: Analyzer, cls: type[Expr], a: Affine, b: Affine, t: DType) -> Expr:
    if cls is E.LT:
        return at_most_zero(az, a - b + 1, t)
    if cls is E.LE:
        return at_most_zero(az, a - b, t)
    if cls is E.GT:
        return at_most_zero(az, b - a + 1, t)
    if cls is E.GE:
        return at_most_zero(az, b - a, t)
    return _is_zero(az, az.normal(a - b), t, cls is E.EQ)


def at_most_zero(az: Analyzer, form: Affine, t: DType) -> Expr:
    """The canonical condition ``form <= 0``."""
    form = az.normal(form)
    while True:
        terms = form.terms
        if not terms:
            return truth(form.const <= 0)
        g = gcd(*terms.values())
        if g > 1:
            form = az.normal(Affine({a: k // g for a, k in terms.items()}, -(-form.const // g)))
            continue
        lo, hi = span(az, form)
        if lo > 0 or hi <= 0:
            return truth(hi <= 0)
        rounded = _without_remainder(az, form) or _without_division(az, form)
        if rounded is None:
            break
        form = az.normal(rounded)
    if len(form.terms) > 1 or az.context.facts:
        if lower(az, -form, 1, 0) >= 0:
            return TRUE
        if lower(az, form, 1, 1) >= 1:
            return FALSE
    chosen = _only_operand(az, form)
    if chosen is not None:
        return at_most_zero(az, chosen, t)
    split = _operands(az, form)
    if split is not None:
        return conjunction(az, [at_most_zero(az, part, t) for part in split])
    return _inequality(az, form, t)


def _without_remainder(az: Analyzer, form: Affine) -> Affine | None:
    """Drop the terms that cannot decide: the y of ``g*x + y + k <= 0``."""
    terms = form.terms
    if len(terms) < 2:
        return None
    for g in sorted({abs(k) for k in terms.values()}, reverse=True):
        if g == 1:
            break
        low = Affine({a: k for a, k in terms.items() if k % g}, form.const)
        if len(low.terms) == len(terms):
            continue
        lo, hi = span(az, low)
        if lo > -inf and hi < inf and -lo // g == -hi // g:
            high = {a: k // g for a, k in terms.items() if k % g == 0}
            return Affine(high, -int(-lo // g))
    return None


def _without_division(az: Analyzer, form: Affine) -> Affine | None:
    found: tuple[Expr, int, int] | None = None
    for atom, k in form.terms.items():
        if type(atom) is E.FloorDiv:
            match atom:
                case E.FloorDiv(a, IntImm(_, c)) if k in (1, -1) and c > 0 and found is None:
                    found = (a, k, c)
                case _:
                    return None
            rest = form.without(atom)
    if found is None:
        return None
    a, k, c = found
    x = az.affine(a)
    return (rest * c) + x - (c - 1) if k == 1 else (rest * c) - x


def _operands(az: Analyzer, form: Affine) -> list[Affine] | None:
    """The forms that are all at most zero where this one is: the operands of a maximum."""
    for atom, k in form.terms.items():
        if (type(atom) is E.Max and k > 0) or (type(atom) is E.Min and k < 0):
            rest = form.without(atom)
            return [az.normal(rest.combine(1, az.affine(e), k)) for e in operands_of(atom)]
    return None


def _only_operand(az: Analyzer, form: Affine) -> Affine | None:
    """The form with the one operand of a minimum that can bring it to zero in its place."""
    for atom, k in form.terms.items():
        if (type(atom) is E.Min and k > 0) or (type(atom) is E.Max and k < 0):
            rest = form.without(atom)
            parts = [rest.combine(1, az.affine(e), k) for e in operands_of(atom)]
            able = [part for part in parts if lower(az, part, 1, 1) < 1]
            if len(able) == 1:
                return able[0]
    return None


def _inequality(az: Analyzer, form: Affine, t: DType) -> Expr:
    """``form <= 0`` as a comparison, positive terms on the left and negative on the right."""
    left = {a: k for a, k in form.terms.items() if k > 0}
    right = {a: -k for a, k in form.terms.items() if k < 0}
    k = -form.const  # left <= right + k
    low, high = az.to_expr(Affine(left), t), az.to_expr(Affine(right), t)
    if not right:
        return E.LT(low, IntImm(t, k + 1))
    if not left:
        return E.LE(IntImm(t, -k), high)
    if k == 0:
        return E.LE(low, high)
    if k > 0:
        return E.LT(low, az.to_expr(Affine(right, k + 1), t))
    return E.LT(az.to_expr(Affine(left, -k - 1), t), high)


def _is_zero(az: Analyzer, form: Affine, t: DType, equal: bool) -> Expr:
    terms = form.terms
    if not terms:
        return truth((form.const == 0) == equal)
    g = gcd(*terms.values())
    if form.const % g:
        return truth(not equal)
    if g > 1:
        form = Affine({a: k // g for a, k in terms.items()}, form.const // g)
        return _is_zero(az, az.normal(form), t, equal)
    lo, hi = span(az, form)
    if lo > 0 or hi < 0 or lower(az, form, 1, 1) >= 1 or lower(az, -form, 1, 1) >= 1:
        return truth(not equal)
    if lo == hi == 0 or (lower(az, form, 1, 0) >= 0 and lower(az, -form, 1, 0) >= 0):
        return truth(equal)
    for atom in terms:
        az.ranks.setdefault(atom, len(az.ranks))
    first = min(terms, key=lambda a: (-abs(terms[a]), az.ranks[a]))
    if terms[first] < 0:
        form = -form
    left = Affine({a: k for a, k in form.terms.items() if k > 0})
    right = Affine({a: -k for a, k in form.terms.items() if k < 0}, -form.const)
    cls = E.EQ if equal else E.NE
    return cls(az.to_expr(left, t), az.to_expr(right, t))


def conjunction(az: Analyzer, parts: list[Expr]) -> Expr:
    """All of ``parts``, each simplified where those before it hold."""
    if len(parts) == 1:
        return condition(az, parts[0])
    outside = az.context
    kept: list[Expr] = []
    try:
        for part in parts:
            made = condition(az, part)
            if isinstance(made, IntImm):
                if made.value:
                    continue
                return FALSE
            for term in conjuncts(made):
                kept.append(term)
                az.enter(term)
    finally:
        az.context = outside
    return _joined(_irredundant(az, kept), E.And, TRUE)


def _disjunction(az: Analyzer, parts: list[Expr]) -> Expr:
    """Any of ``parts``, each simplified where those before it fail."""
    outside = az.context
    kept: list[Expr] = []
    try:
        for part in parts:
            made = condition(az, part)
            if isinstance(made, IntImm):
                if not made.value:
                    continue
                return TRUE
            for term in _parts(made, E.Or):
                kept.append(term)
                az.enter(negated(az, term))
    finally:
        az.context = outside
    needed = set(_irredundant(az, [negated(az, term) for term in kept]))
    kept = [term for term in kept if negated(az, term) in needed]
    return _joined(kept, E.Or, FALSE)


def _joined(parts: list[Expr], cls: type[E.Binary], empty: Expr) -> Expr:
    if not parts:
        return empty
    made = parts[0]
    for part in parts[1:]:
        made = cls(made, part)
    return made


def _irredundant(az: Analyzer, parts: list[Expr]) -> list[Expr]:
    """Drop the inequalities that one of the later parts implies by itself.

    Only parts of the same atoms are compared, so what the later one reads, the dropped one read
    too and did not guard. Nor may it guard anything between them.
    """
    if len(parts) < 2:
        return parts
    forms = [inequality_form(az, part) for part in parts]
    if sum(form is not None for form in forms) < 2:
        return parts
    kept = []
    for i, part in enumerate(parts):
        form = forms[i]
        if form is None or not _implied(az, form, parts[i + 1 :], forms[i + 1 :]):
            kept.append(part)
    return kept


def _implied(az: Analyzer, form: Affine, parts: list[Expr], forms: list[Affine | None]) -> bool:
    """Whether one of ``parts`` implies that ``form <= 0``, and none before it may fail."""
    for part, later in zip(parts, forms, strict=True):
        if (
            later is not None
            and later.terms.keys() == form.terms.keys()
            and span(az, form.combine(1, later, -1))[1] <= 0
        ):
            return True
        if az.from_memory(part):
            return False
    return False


def inequality_form(az: Analyzer, e: Expr) -> Affine | None:
    """The form that is at most zero where an inequality of indices holds."""
    if not isinstance(e, E.Compare) or not az.is_index(e.a.dtype):
        return None
    a, b = az.raw(e.a), az.raw(e.b)
    match e:
        case E.LE():
            return a - b
        case E.LT():
            return a - b + 1
        case E.GE():
            return b - a
        case E.GT():
            return b - a + 1
    return None
