"""Vectors of integers as a base and a stride: arithmetic on ramps and broadcasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant
from tilewright.arith.bounds import span
from tilewright.arith.conditions import condition, truth
from tilewright.arith.divide import floordiv, floormod
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer


def simplify(az: Analyzer, e: Expr) -> Expr:
    """The canonical form of a vector."""
    t = e.dtype
    if t.kind == "int" and t.bits >= 32:
        found = _ramp(az, e)
        if found is not None:
            return _made(az, *found, e)
    match e:
        case E.Compare(a, b) if az.is_index(a.dtype.element):
            return _compare(az, e, a, b)
        case E.And(a, b) | E.Or(a, b):
            return _both(az, e, a, b)
        case E.Not(a):
            x = az.simplify(a)
            if isinstance(x, E.Broadcast):
                return E.Broadcast(az.simplify(E.Not(x.value)), t.lanes)
            return E.Not(x)
    return az.rebuild(e)


def _made(az: Analyzer, base: Affine, stride: Affine, e: Expr) -> Expr:
    t, lanes = e.dtype.element, e.dtype.lanes
    scalar = az.to_expr(az.normal(base), t)
    if not stride.terms and not stride.const:
        return E.Broadcast(scalar, lanes)
    return E.Ramp(scalar, az.to_expr(az.normal(stride), t), lanes)


def _ramp(az: Analyzer, e: Expr) -> tuple[Affine, Affine] | None:
    """Base and stride of a vector that is a ramp, stride 0 for a broadcast."""
    match e:
        case E.Broadcast(value, _):
            return az.affine(value), constant(0)
        case E.Ramp(base, stride, _):
            return az.affine(base), az.affine(stride)
        case E.Add(a, b) | E.Sub(a, b):
            x, y = _ramp(az, a), _ramp(az, b)
            if x is None or y is None:
                return None
            sign = 1 if isinstance(e, E.Add) else -1
            return x[0].combine(1, y[0], sign), x[1].combine(1, y[1], sign)
        case E.Mul(a, b):
            x, y = _ramp(az, a), _ramp(az, b)
            if x is None or y is None:
                return None
            if not _uniform(y):
                x, y = y, x
            if not _uniform(y) or not (y[0].is_const or _uniform(x)):
                return None
            t = e.dtype.element
            from tilewright.arith.products import multiply

            return multiply(az, x[0], y[0], t), multiply(az, x[1], y[0], t)
        case E.FloorDiv(a, b) | E.FloorMod(a, b) | E.TruncDiv(a, b) | E.TruncMod(a, b) if e.exact:
            return _division(az, e, a, b)
    if isinstance(e, (E.Min, E.Max)) and e.exact:
        x, y = _ramp(az, e.a), _ramp(az, e.b)
        if x is not None and y is not None and _uniform(x) and _uniform(y):
            from tilewright.arith.extrema import extremum

            return extremum(az, type(e), [x[0], y[0]], e.dtype.element), constant(0)
    return None


def _uniform(ramp: tuple[Affine, Affine]) -> bool:
    return not ramp[1].terms and not ramp[1].const


def _division(az: Analyzer, e: E.Binary, a: Expr, b: Expr) -> tuple[Affine, Affine] | None:
    x, y = _ramp(az, a), _ramp(az, b)
    if x is None or y is None or not _uniform(y):
        return None
    t, lanes = e.dtype.element, e.dtype.lanes
    if _uniform(x):
        scalar = type(e)(az.to_expr(x[0], t), az.to_expr(y[0], t))
        return az.affine(scalar), constant(0)
    base, stride = x
    if not y[0].is_const or y[0].const <= 0 or not stride.is_const:
        return None
    c, step = y[0].const, stride.const
    last = base + step * (lanes - 1)
    if isinstance(e, (E.TruncDiv, E.TruncMod)) and min(span(az, base)[0], span(az, last)[0]) < 0:
        return None
    divides = isinstance(e, (E.FloorDiv, E.TruncDiv))
    if step % c == 0:
        if divides:
            return floordiv(az, base, c, t), constant(step // c)
        return floormod(az, base, c, t), constant(0)
    first = floordiv(az, base, c, t)
    if first == floordiv(az, last, c, t):  # and the lanes between lie between
        return (first, constant(0)) if divides else (floormod(az, base, c, t), stride)
    return None


def _compare(az: Analyzer, e: E.Compare, a: Expr, b: Expr) -> Expr:
    lanes = e.dtype.lanes
    x, y = _ramp(az, a), _ramp(az, b)
    if x is not None and y is not None:
        t = a.dtype.element
        cls = type(e)

        def at(lane: int) -> Expr:
            left, right = x[0].combine(1, x[1], lane), y[0].combine(1, y[1], lane)
            return condition(az, cls(az.to_expr(left, t), az.to_expr(right, t)))

        if (x[1] == y[1] or _all_alike(e, x, y)) and (e.exact or (_uniform(x) and _uniform(y))):
            return E.Broadcast(at(0), lanes)
        if e.exact and not isinstance(
            e, (E.EQ, E.NE)
        ):  # where the ends agree, so do the lanes between
            first, last = at(0), at(lanes - 1)
            if first is last and isinstance(first, IntImm):
                return E.Broadcast(truth(bool(first.value)), lanes)
    left, right = az.simplify(a), az.simplify(b)
    return e if left is a and right is b else type(e)(left, right)


def _all_alike(e: E.Compare, x: tuple[Affine, Affine], y: tuple[Affine, Affine]) -> bool:
    """Whether a bound of a ramp is a multiple of its length away, so that no lane crosses it."""
    if isinstance(e, (E.LT, E.GE)):
        ramp, bound = x, y
    elif isinstance(e, (E.LE, E.GT)):
        ramp, bound = y, x
    else:
        return False
    if not _uniform(bound) or not ramp[1].is_const or ramp[1].const <= 0:
        return False
    length = ramp[1].const * e.dtype.lanes
    apart = bound[0].combine(1, ramp[0], -1)
    return not any(k % length for k in (apart.const, *apart.terms.values()))


def _both(az: Analyzer, e: E.And | E.Or, a: Expr, b: Expr) -> Expr:
    x, y = az.simplify(a), az.simplify(b)
    neutral = isinstance(e, E.And)
    for one, other in ((x, y), (y, x)):
        if isinstance(one, E.Broadcast) and isinstance(one.value, IntImm):
            return other if bool(one.value.value) == neutral else one
    if isinstance(x, E.Broadcast) and isinstance(y, E.Broadcast):
        joined = type(e)(x.value, y.value)
        return E.Broadcast(az.simplify(joined), e.dtype.lanes)
    return e if x is a and y is b else type(e)(x, y)
