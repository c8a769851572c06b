"""The region that an index covers as some of its variables vary, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant
from tilewright.arith.bounds import lower, span
from tilewright.arith.divide import divide, floordiv, floormod
from tilewright.arith.integers import exact_quotient, extremum, factors, multiply
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
    with az.scope():
        for var in domain:  # their domains are the ones given, and not those bound
            if var in az.context.bound or var in az.context.fixed:
                az.context.unbind(var)
        form = az.affine(e)
        lo, hi = _relaxed(az, form, ranges, set(domain), e)
    return az.to_expr(az.normal(lo), e.dtype), az.to_expr(az.normal(hi), e.dtype)


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
        case E.Mul():
            return _product(az, atom, ranges, over, e)
        case E.Cast(_, a) if az.is_index(a.dtype):
            lo, hi = parts(a)
            return (
                az.affine(E.Cast(t, az.to_expr(lo, a.dtype))),
                az.affine(E.Cast(t, az.to_expr(hi, a.dtype))),
            )
    least, most = span(az, Affine({atom: 1}))
    if least == -inf or most == inf:
        raise Unbounded(f"{atom} in {e} has no bounds: its value is known only when it is read")
    return constant(int(least)), constant(int(most))


def _same_period(az: Analyzer, lo: Affine, hi: Affine, c: int) -> bool:
    width = az.normal(hi - lo)
    most = -lower(az, -width, 1)
    if not 0 <= most < c:
        return False
    start = floormod(az, lo, c, E.INT32)
    return bool(lower(az, (-start) - width + (c - 1), 1, 0) >= 0)


def _product(
    az: Analyzer, atom: Expr, ranges: Mapping[Var, _Range], over: set[Var], e: Expr
) -> _Range:
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
    least, most = span(az, Affine({atom: 1}))
    if least == -inf or most == inf:
        raise Unbounded(f"{atom} in {e} is a product of several variables without bounds")
    return constant(int(least)), constant(int(most))


def extent(az: Analyzer, lo: Expr, hi: Expr) -> Expr:
    """See :meth:`tilewright.arith.Analyzer.extent`."""
    size = az.normal(az.affine(hi) - az.affine(lo) + 1)
    if not size.is_const:
        az.effort = 400
        most = -lower(az, -size, 3)
        if most < inf:
            return IntImm(hi.dtype, int(most))
    return az.to_expr(size, hi.dtype)
