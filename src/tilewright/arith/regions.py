"""The region that an index covers as some of its variables vary, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant
from tilewright.arith.bounds import lower, span
from tilewright.arith.context import Context
from tilewright.arith.divide import divide, floordiv, floormod
from tilewright.arith.extrema import extremum
from tilewright.arith.products import exact_quotient, factors, multiply
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.visit import uses

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer

#: The least and the greatest value, as forms.
_Range = tuple[Affine, Affine]


class Unbounded(ArithmeticError):
    """An expression without bounds: it takes its value from memory, or from a call."""


def relax(az: Analyzer, e: Expr, domain: Mapping[Var, tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
    """See :meth:`tilewright.arith.Analyzer.relax`."""
    ranges = {var: (az.affine(lo), az.affine(hi)) for var, (lo, hi) in domain.items()}
    outside = az.context
    key = tuple(domain.items())
    inside = outside.children.get(key)
    if inside is None:
        inside = outside.children[key] = _within(az, ranges)
        inside.shared = True
    az.context = inside
    try:
        lo, hi = _relaxed(az, az.affine(e), ranges, set(domain), e)
    finally:
        az.context = outside
    return az.to_expr(az.normal(lo), e.dtype), az.to_expr(az.normal(hi), e.dtype)


def _within(az: Analyzer, ranges: Mapping[Var, _Range]) -> Context:
    """The context in which the domains given take the place of those bound."""
    inside = az.context.copy()
    inside.unbind({var for var in ranges if var in inside.bound or var in inside.ranges})
    for var, (least, most) in ranges.items():
        ends = lower(az, least, 1), -lower(az, -most, 1)
        if ends[0] <= ends[1]:
            inside.narrow(var, ends)
    return inside


def _relaxed(
    az: Analyzer, form: Affine, ranges: Mapping[Var, _Range], over: set[Var], e: Expr
) -> _Range:
    low = high = constant(form.const)
    for atom, k in form.terms.items():
        lo, hi = _atom(az, atom, ranges, over, e)
        if k < 0:
            lo, hi = hi, lo
        low, high = low.combine(1, lo, k), high.combine(1, hi, k)
    return az.normal(low), az.normal(high)


def _atom(
    az: Analyzer, atom: Expr, ranges: Mapping[Var, _Range], over: set[Var], e: Expr
) -> _Range:
    if isinstance(atom, Var):
        found = ranges.get(atom)
        return (Affine({atom: 1}), Affine({atom: 1})) if found is None else found
    if not uses(atom, over):
        return Affine({atom: 1}), Affine({atom: 1})
    try:
        found = _by_node(az, atom, ranges, over, e)
    except Unbounded:
        found = None
    if found is not None:
        return found
    least, most = span(az, Affine({atom: 1}))
    if least == -inf or most == inf:
        raise Unbounded(f"{atom} in {e} has no bounds: its value is known only when it is read")
    return constant(int(least)), constant(int(most))


def _by_node(
    az: Analyzer, atom: Expr, ranges: Mapping[Var, _Range], over: set[Var], e: Expr
) -> _Range | None:
    """The range of an atom by those of its parts, None where its kind does not tell."""

    def parts(x: Expr) -> _Range:
        return _relaxed(az, az.affine(x), ranges, over, e)

    t = atom.dtype
    match atom:
        case E.FloorDiv(a, IntImm(_, c)) if c > 0:
            lo, hi = parts(a)
            return floordiv(az, lo, c, t), floordiv(az, hi, c, t)
        case E.FloorMod(a, IntImm(_, c)) if c > 0:
            lo, hi = parts(a)
            first = floordiv(az, lo, c, t)
            if first == floordiv(az, hi, c, t) or _same_period(az, lo, hi, c):
                return floormod(az, lo, c, t), floormod(az, hi, c, t)
            return constant(0), constant(c - 1)
        case E.FloorDiv(a, b) if not uses(b, over) and span(az, az.affine(b))[0] > 0:
            lo, hi = parts(a)
            return divide(az, lo, az.affine(b), t), divide(az, hi, az.affine(b), t)
        case E.FloorMod(_, b) if not uses(b, over) and span(az, az.affine(b))[0] > 0:
            return constant(0), az.affine(b) - 1
        case E.Min(a, b) | E.Max(a, b):
            x, y = parts(a), parts(b)
            cls = type(atom)
            return extremum(az, cls, [x[0], y[0]], t), extremum(az, cls, [x[1], y[1]], t)
        case E.Select(_, a, b):
            x, y = parts(a), parts(b)
            return extremum(az, E.Min, [x[0], y[0]], t), extremum(az, E.Max, [x[1], y[1]], t)
        case E.Mul() if atom.exact:
            return _product(az, atom, ranges, over, e)
        case E.Cast(_, a) if atom.exact:
            lo, hi = parts(a)
            return (
                az.affine(E.Cast(t, az.to_expr(lo, a.dtype))),
                az.affine(E.Cast(t, az.to_expr(hi, a.dtype))),
            )
    return None


def _same_period(az: Analyzer, lo: Affine, hi: Affine, c: int) -> bool:
    width = az.normal(hi - lo)
    most = -lower(az, -width, 1)
    if not 0 <= most < c:
        return False
    start = floormod(az, lo, c, E.INT32)
    return bool(lower(az, (-start) - width + (c - 1), 1, 0) >= 0)


def _product(
    az: Analyzer, atom: Expr, ranges: Mapping[Var, _Range], over: set[Var], e: Expr
) -> _Range | None:
    """A product with one factor that varies, by the sign of the others."""
    varying = [f for f in factors(atom) if uses(f, over)]
    if len(varying) == 1:
        scale = exact_quotient(az, Affine({atom: 1}), varying[0])
        assert scale is not None
        lo, hi = _atom(az, varying[0], ranges, over, e)
        a, b = multiply(az, lo, scale, atom.dtype), multiply(az, hi, scale, atom.dtype)
        if lower(az, scale, 2, 0) >= 0:
            return a, b
        if lower(az, -scale, 2, 0) >= 0:
            return b, a
        t = atom.dtype
        return extremum(az, E.Min, [a, b], t), extremum(az, E.Max, [a, b], t)
    return None


def extent(az: Analyzer, lo: Expr, hi: Expr) -> Expr:
    """See :meth:`tilewright.arith.Analyzer.extent`."""
    size = az.normal(az.affine(hi) - az.affine(lo) + 1)
    if not size.is_const:
        az.effort = 400
        most = -lower(az, -size, 3)
        if most < inf:
            return IntImm(hi.dtype, int(most))
    return az.to_expr(size, hi.dtype)
