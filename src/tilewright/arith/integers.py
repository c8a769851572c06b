"""Integer expressions as affine forms over simplified atoms.

Beyond what :mod:`tilewright.arith.divide` does to divisions, :mod:`tilewright.arith.extrema` to
minima and :mod:`tilewright.arith.products` to products:

===========================================  ==============================================
``k*(x % c) + k*c*(x // c)``                 ``k*x``
``k*((x + y//d) % c) + k*c*((d*x + y)//(c*d))``  ``k*(x + y//d)``
``k*(x % c) + k*c*(y // c)``                 ``k*y`` where c divides x - y
``k*x - k*c*(x // c)``                       ``k*(x % c)``
``k*a*((x//a) % b) + k*(x % a)``             ``k*(x % (a*b))``
===========================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, of_atom
from tilewright.arith.bounds import span
from tilewright.arith.divide import divide, floordiv, floormod, modulo, truncdiv, truncmod
from tilewright.arith.extrema import absorb, at_most, extremum
from tilewright.arith.products import multiply
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType


def term(az: Analyzer, e: Expr) -> Affine:
    """The form of an integer expression that is not itself a sum or a multiple."""
    rule = _RULES.get(type(e)) if e.exact else _DATA_RULES.get(type(e), _from_rebuilt)
    found = rule(az, e) if rule is not None else None
    return of_atom(az.rebuild(e)) if found is None else found


def normal(az: Analyzer, form: Affine) -> Affine:
    """The form with divisions, remainders, minima and maxima put together where they fit."""
    terms = form.terms
    if not terms or (len(terms) == 1 and not form.const):
        return form
    for atom in terms:
        if type(atom) in _JOINING:
            break
    else:
        return form
    while True:
        joined = _join(az, form)
        if joined is None:
            return form
        form = joined


def _join(az: Analyzer, form: Affine) -> Affine | None:
    for atom, k in form.terms.items():
        found: Affine | None = None
        match atom:
            case E.FloorMod(a, IntImm(_, c)) if c > 0 and len(form.terms) > 1:
                found = _join_remainder(az, form, atom, a, c, k)
            case E.FloorDiv(a, IntImm(_, c)) if c > 0 and k % c == 0 and len(form.terms) > 1:
                x = az.affine(a)
                factor = -k // c
                if _contains(form, x, factor):
                    mod = floormod(az, x, c, a.dtype)
                    found = form.combine(1, x, -factor).without(atom)
                    found = found.combine(1, mod, factor)
                    if _cost(found) >= _cost(form):
                        found = None
            case E.Min() | E.Max() if k in (1, -1):
                found = absorb(az, form, atom, k)
        if found is not None:
            return found
    return None


def _join_remainder(
    az: Analyzer, form: Affine, atom: Expr, a: Expr, c: int, k: int
) -> Affine | None:
    x = az.affine(a)
    for quotient in _quotients(az, x, c, a.dtype):
        if _contains(form, quotient, k * c):
            found = form.without(atom).combine(1, quotient, -k * c).combine(1, x, k)
            return _cheaper(az, found, form, _cost(x))
    for other, factor in form.terms.items():
        match other:
            case E.FloorDiv(b, IntImm(_, d)) if d % c == 0 and factor == k * c:
                y = floordiv(az, az.affine(b), d // c, a.dtype)  # x but for multiples of c
                if floormod(az, y, c, a.dtype).terms == {atom: 1}:
                    found = form.without(atom).without(other).combine(1, y, k)
                    return _cheaper(az, found, form, _cost(y))
    inner, more = (next(iter(x.terms)), x.const) if list(x.terms.values()) == [1] else (a, 0)
    match inner:
        case E.FloorDiv(b, IntImm(_, d)) if k % d == 0:
            y = az.affine(b) + more * d  # whose quotient is x
            low = floormod(az, y, d, a.dtype)
            if low.terms and _contains(form, low, k // d):
                found = form.without(atom).combine(1, low, -(k // d))
                return found.combine(1, floormod(az, y, c * d, a.dtype), k // d)
    return None


def _cheaper(az: Analyzer, found: Affine, form: Affine, more: int = 0) -> Affine | None:
    """What a form was joined to, where there is less to compute in it; of the form ``more``, for
    what it divides."""
    cost = _cost(form) + more
    if _cost(found) >= cost:  # what came in may be put together with the rest
        found = normal(az, found)
    return found if _cost(found) < cost else None


def _quotients(az: Analyzer, x: Affine, c: int, t: DType) -> Iterator[Affine]:
    """The ways in which ``x // c`` may be written: with a quotient in ``x``, as in
    ``(4 * i + j // 8) // 7``, as one of ``32 * i + j`` too."""
    yield floordiv(az, x, c, t)
    for atom, k in x.terms.items():
        match atom:
            case E.FloorDiv(b, IntImm(_, d)) if k == 1 and d > 0 and len(x.terms) > 1:
                yield floordiv(az, (x - of_atom(atom)) * d + az.affine(b), c * d, t)


def _cost(form: Affine) -> int:
    """How much there is to compute: a division counts for several terms."""
    return sum(8 if isinstance(atom, (E.FloorDiv, E.FloorMod)) else 1 for atom in form.terms)


def _contains(form: Affine, part: Affine, factor: int) -> bool:
    """Whether ``factor * part`` is among the terms, each with just that coefficient."""
    terms = form.terms
    return bool(part.terms) and all(terms.get(a) == k * factor for a, k in part.terms.items())


def _binary(
    rule: Callable[[Analyzer, Affine, Affine, DType], Affine | None],
) -> Callable[[Analyzer, Expr], Affine | None]:
    def apply(az: Analyzer, e: Expr) -> Affine | None:
        assert isinstance(e, E.Binary)
        found = rule(az, az.affine(e.a), az.affine(e.b), e.dtype)
        return None if found is None else normal(az, found)

    return apply


def _extremum_rule(az: Analyzer, e: Expr) -> Affine:
    assert isinstance(e, (E.Min, E.Max))
    return extremum(az, type(e), [az.affine(e.a), az.affine(e.b)], e.dtype)


def _shift(az: Analyzer, e: Expr) -> Affine | None:
    match e:
        case E.Shl(a, IntImm(_, bits)) if 0 <= bits < 31:
            return az.affine(a) * (1 << bits)
        case E.Shr(a, IntImm(_, bits)) if 0 <= bits < 31:
            return normal(az, floordiv(az, az.affine(a), 1 << bits, e.dtype))
    return None


def _mask(az: Analyzer, e: Expr) -> Affine | None:
    match e:
        case E.BitAnd(a, IntImm(_, mask)) if mask >= 0 and mask & (mask + 1) == 0:
            form = az.affine(a)
            lo, hi = span(az, form)
            if lo >= 0 and hi <= mask:
                return form
    return None


def _from_rebuilt(az: Analyzer, e: Expr) -> Affine:
    """The form of a node whose parts are simplified by themselves; it may lose its top."""
    made = az.rebuild(e)
    return of_atom(made) if type(made) is type(e) else az.affine(made)


def _data_extremum(az: Analyzer, e: Expr) -> Affine | None:
    """The one of two values of which data tells which is smaller."""
    assert isinstance(e, (E.Min, E.Max))
    a, b = az.affine(e.a), az.affine(e.b)
    for x, y in ((a, b), (b, a)):
        if at_most(az, x, y, 1 if isinstance(e, E.Min) else -1):
            return x
    return None


def _data_remainder(az: Analyzer, e: Expr) -> Affine | None:
    """``x`` for ``x % c`` where it is within ``[0, c)``."""
    match e:
        case E.FloorMod(a, IntImm(_, c)) if c > 0:
            form = az.affine(a)
            lo, hi = span(az, form)
            if lo >= 0 and hi < c:
                return form
    return None


_RULES: dict[type[Expr], Callable[[Analyzer, Expr], Affine | None]] = {
    E.Mul: _binary(multiply),
    E.FloorDiv: _binary(divide),
    E.FloorMod: _binary(modulo),
    E.TruncDiv: _binary(truncdiv),
    E.TruncMod: _binary(truncmod),
    E.Min: _extremum_rule,
    E.Max: _extremum_rule,
    E.Shl: _shift,
    E.Shr: _shift,
    E.BitAnd: _mask,
    E.Select: _from_rebuilt,
    E.IfThenElse: _from_rebuilt,
    E.Lane: _from_rebuilt,
    E.LetExpr: _from_rebuilt,
    E.Cast: _from_rebuilt,
    E.BitOr: _from_rebuilt,
    E.BitXor: _from_rebuilt,
}

#: Of arithmetic on data, which wraps around: nothing is computed that the expression does not.
_DATA_RULES: dict[type[Expr], Callable[[Analyzer, Expr], Affine | None]] = {
    E.FloorMod: _data_remainder,
    E.Min: _data_extremum,
    E.Max: _data_extremum,
    E.BitAnd: _mask,
}

_JOINING = frozenset((E.FloorMod, E.FloorDiv, E.Min, E.Max))


def implied(az: Analyzer, atom: Expr) -> list[Affine]:
    """Forms that are not negative by what an atom is: ``x - c*(x // c)``, ``x - min(x, y)``."""
    match atom:
        case E.FloorDiv(a, IntImm(_, c)) if c > 0:
            left = az.raw(a).combine(1, Affine({atom: 1}), -c)
            return [left, -left + (c - 1)]
        case E.FloorMod(a, IntImm(_, c)) if c > 0:
            x = az.raw(a)
            return [x - Affine({atom: 1})] if span(az, x)[0] >= 0 else []
        case E.Min(a, b):
            return [az.raw(a) - Affine({atom: 1}), az.raw(b) - Affine({atom: 1})]
        case E.Max(a, b):
            return [Affine({atom: 1}) - az.raw(a), Affine({atom: 1}) - az.raw(b)]
    return []
