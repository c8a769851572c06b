"""Integer expressions as affine forms over simplified atoms.

Beyond what :mod:`tilewright.arith.divide` does to divisions:

===========================================  ==============================================
``k*(x % c) + k*c*(x // c)``                 ``k*x``
``k*((x + y//d) % c) + k*c*((d*x + y)//(c*d))``  ``k*(x + y//d)``
``k*(x % c) + k*c*(y // c)``                 ``k*y`` where c divides x - y
``k*x - k*c*(x // c)``                       ``k*(x % c)``
``k*a*((x//a) % b) + k*(x % a)``             ``k*(x % (a*b))``
``min(x, y)``                                ``x`` where x <= y is known
``min(x + z, y + z)``                        ``min(x, y) + z``
``min(x + z, y) - z``                        ``min(x, y - z)``
``min(x, 3) + 1``                            ``min(x + 1, 4)``
``x * (y + z)``                              ``x*y + x*z``
===========================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant, of_atom
from tilewright.arith.bounds import lower, span
from tilewright.arith.divide import divide, floordiv, floormod, modulo, truncdiv, truncmod
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType

#: How many terms a product of two sums may have to be written out.
_PRODUCT_LIMIT = 16


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
                found = _absorb(az, form, atom, k)
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


def _absorb(az: Analyzer, form: Affine, atom: E.Min | E.Max, k: int) -> Affine | None:
    """Move terms into a minimum or maximum where they cancel in one of its operands."""
    operands = [az.affine(e) for e in operands_of(atom)]
    moved = {
        a: c
        for a, c in form.terms.items()
        if a is not atom and any(o.terms.get(a) == -c * k for o in operands)
    }
    const = form.const if any(o.is_const for o in operands) else 0
    if not moved and not const:
        return None
    if not (atom.exact and all(a.exact for a in moved)):
        return None  # the greatest value of a type, and what is moved to it, are too much
    inside = Affine(moved, const)
    joined = extremum(az, type(atom), [o.combine(1, inside, k) for o in operands], atom.dtype)
    found = form.without(atom).combine(1, inside, -1).combine(1, joined, k)
    return None if found == form else found


def operands_of(atom: Expr) -> list[Expr]:
    """The operands of a minimum or maximum, those of nested ones of its kind in its place."""
    cls, found, stack = type(atom), [], [atom]
    while stack:
        e = stack.pop()
        if type(e) is cls:
            assert isinstance(e, E.Binary)
            stack += [e.b, e.a]
        else:
            found.append(e)
    return found


def extremum(az: Analyzer, cls: type[E.Binary], forms: Sequence[Affine], t: DType) -> Affine:
    """The minimum or maximum (``cls``) of forms."""
    flat: list[Affine] = []
    for form in forms:
        flat += _flattened(az, cls, az.normal(form))
    sign = 1 if cls is E.Min else -1
    kept: list[Affine] = []
    for form in flat:
        if any(_at_most(az, other, form, sign) for other in kept):
            continue
        kept = [other for other in kept if not _at_most(az, form, other, sign)]
        kept.append(form)
    if len(kept) == 1:
        return kept[0]
    first = kept[0].terms
    data = any(not atom.exact for o in kept for atom in o.terms)
    common = {a: k for a, k in first.items() if all(o.terms.get(a) == k for o in kept[1:])}
    shift = 0
    if data:
        common = {}
    if common:
        kept = [o.combine(1, Affine(common), -1) for o in kept]
    if not data and all(o.terms for o in kept):
        shift = min(o.const for o in kept)
        kept = [o - shift for o in kept]
    if common or shift:
        joined = [az.normal(o) for o in kept]
        if any(new is not old for new, old in zip(joined, kept, strict=True)):
            return extremum(az, cls, joined, t).combine(1, Affine(common, shift), 1)
    made = _nested(cls, [az.to_expr(o, t) for o in _ordered(az, kept)])
    return Affine({made: 1}).combine(1, Affine(common, shift), 1)


def _flattened(az: Analyzer, cls: type[E.Binary], form: Affine) -> list[Affine]:
    other = E.Max if cls is E.Min else E.Min
    for atom, k in form.terms.items():
        if (type(atom) is cls and k == 1) or (type(atom) is other and k == -1):
            rest = form.without(atom)
            return [rest.combine(1, az.affine(e), k) for e in operands_of(atom)]
    return [form]


def _at_most(az: Analyzer, a: Affine, b: Affine, sign: int) -> bool:
    return lower(az, b.combine(sign, a, -sign), 1, 0) >= 0


def _ordered(az: Analyzer, forms: list[Affine]) -> list[Affine]:
    """Operands in an order that does not depend on how they were written; a constant last."""
    ranks = az.ranks
    for form in forms:
        for atom in form.terms:
            ranks.setdefault(atom, len(ranks))
    return sorted(
        forms,
        key=lambda f: (not f.terms, sorted((ranks[a], k) for a, k in f.terms.items()), f.const),
    )


def _nested(cls: type[E.Binary], operands: list[Expr]) -> Expr:
    made = operands[0]
    for operand in operands[1:]:
        made = cls(made, operand)
    return made


def factors(atom: Expr) -> list[Expr]:
    """The factors of a product of atoms."""
    found: list[Expr] = []
    stack = [atom]
    while stack:
        e = stack.pop()
        if type(e) is E.Mul:
            assert isinstance(e, E.Mul)
            stack += [e.b, e.a]
        else:
            found.append(e)
    return found


def monomial(az: Analyzer, parts: list[Expr]) -> Affine:
    """The product of atoms, as one atom in a fixed order."""
    if not parts:
        return constant(1)
    for part in parts:
        az.ranks.setdefault(part, len(az.ranks))
    return of_atom(_nested(E.Mul, sorted(parts, key=az.ranks.__getitem__)))


def exact_quotient(az: Analyzer, form: Affine, divisor: Expr) -> Affine | None:
    """``form / divisor`` where every term is a multiple of the divisor's factors, or None."""
    if form.const:
        return None
    needed = factors(divisor)
    found = constant(0)
    for atom, k in form.terms.items():
        parts = factors(atom)
        for factor in needed:
            if factor not in set(parts):
                return None
            parts.remove(factor)
        found = found.combine(1, monomial(az, parts), k)
    return found


def multiply(az: Analyzer, a: Affine, b: Affine, t: DType) -> Affine:
    """The product of two forms, written out where it is not long."""
    if a.is_const or b.is_const:
        return (b * a.const if a.is_const else a * b.const) if a.const or b.const else constant(0)
    if (len(a.terms) + 1) * (len(b.terms) + 1) > _PRODUCT_LIMIT:
        return monomial(az, [az.to_expr(a, t), az.to_expr(b, t)])
    total = constant(a.const * b.const)
    if b.const:
        total = total.combine(1, Affine(a.terms), b.const)
    if a.const:
        total = total.combine(1, Affine(b.terms), a.const)
    for x, k in a.terms.items():
        for y, m in b.terms.items():
            total = total.combine(1, monomial(az, factors(x) + factors(y)), k * m)
    return total


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
        if _at_most(az, x, y, 1 if isinstance(e, E.Min) else -1):
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


def branches(az: Analyzer, form: Affine, cls: type[E.Binary]) -> list[Affine]:
    """Forms of which this one is the minimum or maximum (``cls``); itself, where it is none."""
    found = _flattened(az, cls, form)
    return [az.normal(part) for part in found]


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
