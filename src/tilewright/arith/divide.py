"""Floor division and remainder of affine forms.

Each rule is exact: with ``//`` rounding down and ``0 <= x % c < c`` for positive c,

==================================  =========================================================
``(c*x + y) // c``                  ``x + y // c``
``(g*x + k) // (g*c)``              ``(x + k//g) // c``
``x // c``                          ``m`` where x stays within [m*c, m*c + c)
``(g*x + y) // (g*c)``              ``(x + m) // c`` where y stays within [m*g, m*g + g)
``(x//a + k) // c``                 ``(x + a*k) // (a*c)``
``(x % (a*c)) // c``                ``(x // c) % a``
``(c*x + y) % c``                   ``y % c``
``(g*x + k) % (g*c)``               ``g * ((x + k//g) % c) + k % g``
``x % c``                           ``x - m*c`` where x stays within [m*c, m*c + c)
``(g*x + y) % (g*c)``               ``g * ((x + m) % c) + y - m*g`` where y stays as above
``(x % (a*c) + y) % c``             ``(x + y) % c``
``(k - x) // c``                    ``-((x + c-1 - k) // c)``, so that x counts upwards
``(k - x) % c``                     ``c-1 - (x + c-1 - k) % c``
==================================  =========================================================
"""

from __future__ import annotations

from math import gcd, inf
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant, of_atom
from tilewright.arith.bounds import lower, span
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType


def floordiv(az: Analyzer, x: Affine, c: int, t: DType) -> Affine:
    """``x // c`` for positive c."""
    if c == 1:
        return x
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, k in x.terms.items():
        if k % c:
            rest[atom] = k
        else:
            whole[atom] = k // c
    if not rest:
        return Affine(whole, x.const // c)
    const = x.const
    g = gcd(c, *rest.values())
    if g > 1:
        rest = {atom: k // g for atom, k in rest.items()}
        const, c = const // g, c // g
    more, const = divmod(const, c)
    return Affine(whole, more).combine(1, _small_quotient(az, Affine(rest, const), c, t), 1)


def _small_quotient(az: Analyzer, x: Affine, c: int, t: DType) -> Affine:
    """``x // c`` where neither a term nor a factor can be taken out."""
    period = _period(az, x, c)
    if period is not None:
        return constant(period)
    parts = _split(az, x, c)
    if parts is not None:
        g, high, _ = parts
        return floordiv(az, high, c // g, t)
    if len(x.terms) == 1:
        ((atom, k),) = x.terms.items()
        if k == 1:
            match atom:
                case E.FloorDiv(y, IntImm(_, d)) if d > 0:
                    return floordiv(az, az.affine(y) + x.const * d, c * d, t)
                case E.FloorMod(y, IntImm(_, d)) if d > 0 and d % c == 0 and x.const == 0:
                    return floormod(az, floordiv(az, az.affine(y), c, t), d // c, t)
    if all(k < 0 for k in x.terms.values()):
        return -_small_quotient(az, -x + (c - 1), c, t)
    joined = az.normal(x)
    if joined is not x:
        return floordiv(az, joined, c, t)
    return of_atom(E.FloorDiv(az.to_expr(x, t), IntImm(t, c)))


def floormod(az: Analyzer, x: Affine, c: int, t: DType) -> Affine:
    """``x % c`` for positive c."""
    if c == 1:
        return constant(0)
    period = _period(az, x, c)
    if period is not None:
        return x - period * c
    terms, const = x.terms, x.const
    while True:
        nested = next((a for a, k in terms.items() if _removable(a, k, c)), None)
        if nested is None:
            break
        assert isinstance(nested, E.FloorMod)
        form = Affine(terms, const)
        form = form.without(nested).combine(1, az.affine(nested.a), terms[nested])
        terms, const = form.terms, form.const
    # Coefficients beyond c stay, so that x % c names the same x as x // c does beside it.
    rest = {atom: k for atom, k in terms.items() if k % c}
    if not rest:
        return constant(const % c)
    g = gcd(c, *rest.values())
    left = const % g
    if g > 1:
        rest = {atom: k // g for atom, k in rest.items()}
        const, c = const // g, c // g
    return (_small_remainder(az, Affine(rest, const % c), c, t) * g) + left


def _removable(atom: Expr, k: int, c: int) -> bool:
    """Whether ``k * atom`` is ``k * (y % d)`` with c a divisor of k * d."""
    match atom:
        case E.FloorMod(_, IntImm(_, d)):
            return d > 0 and d * k % c == 0
    return False


def _small_remainder(az: Analyzer, x: Affine, c: int, t: DType) -> Affine:
    """``x % c`` where neither a term nor a factor can be taken out."""
    if c == 1:
        return constant(0)
    period = _period(az, x, c)
    if period is not None:
        return x - period * c
    parts = _split(az, x, c)
    if parts is not None:
        g, high, low = parts
        return az.normal((floormod(az, high, c // g, t) * g) + low)
    if all(k < 0 for k in x.terms.values()):
        return -_small_remainder(az, -x + (c - 1), c, t) + (c - 1)
    joined = az.normal(x)
    if joined is not x:
        return floormod(az, joined, c, t)
    return of_atom(E.FloorMod(az.to_expr(x, t), IntImm(t, c)))


def _period(az: Analyzer, x: Affine, c: int) -> int | None:
    """The m for which x stays within [m*c, m*c + c), or None."""
    lo, hi = span(az, x)
    if lo > -inf and hi < inf and lo // c == hi // c:
        return int(lo // c)
    if az.context.facts:
        lo = lower(az, x, 1)
        if lo > -inf:
            m = int(lo // c)
            if lower(az, -x + (m * c + c - 1), 1, 0) >= 0:
                return m
    return None


def _split(az: Analyzer, x: Affine, c: int) -> tuple[int, Affine, Affine] | None:
    """``g, high, low`` with ``x == g*high + low`` and low within [0, g), g a factor of c."""
    if len(x.terms) < 2:
        return None
    factors = {gcd(k, c) for k in x.terms.values()}
    factors.discard(1)
    for g in sorted(factors, reverse=True):
        low = Affine({a: k for a, k in x.terms.items() if k % g}, x.const)
        lo, hi = span(az, low)
        if lo > -inf and hi < inf and lo // g == hi // g:
            m = int(lo // g)
            high = {a: k // g for a, k in x.terms.items() if k % g == 0}
            return g, Affine(high, m), low - m * g
    return None


def divide(az: Analyzer, x: Affine, y: Affine, t: DType) -> Affine:
    """``x // y``; 0 where y is 0."""
    if y.is_const and y.const:
        return floordiv(az, x if y.const > 0 else -x, abs(y.const), t)
    whole, rest = _symbolic_split(az, x, y)
    if (whole.terms or whole.const) and not _nonzero(az, y):
        whole, rest = constant(0), x
    if not rest.terms and rest.const == 0:
        return whole
    if _within(az, rest, y):
        return whole
    return whole + of_atom(E.FloorDiv(az.to_expr(rest, t), az.to_expr(y, t)))


def modulo(az: Analyzer, x: Affine, y: Affine, t: DType) -> Affine:
    """``x % y``; 0 where y is 0."""
    if y.is_const and y.const:
        if y.const > 0:
            return floormod(az, x, y.const, t)
        return -floormod(az, -x, -y.const, t)
    _, rest = _symbolic_split(az, x, y)
    if (not rest.terms and rest.const == 0) or _within(az, rest, y):
        return rest
    return of_atom(E.FloorMod(az.to_expr(rest, t), az.to_expr(y, t)))


def _nonzero(az: Analyzer, y: Affine) -> bool:
    return lower(az, y, 2, 1) >= 1 or lower(az, -y, 2, 1) >= 1


def _within(az: Analyzer, x: Affine, y: Affine) -> bool:
    """Whether 0 <= x < y."""
    return lower(az, x, 2, 0) >= 0 and lower(az, y - x - 1, 3, 0) >= 0


def _symbolic_split(az: Analyzer, x: Affine, y: Affine) -> tuple[Affine, Affine]:
    """``whole, rest`` with ``x == whole * y + rest``; whole is 0 where y is not one term."""
    if len(y.terms) != 1 or y.const:
        return constant(0), x
    ((divisor, unit),) = y.terms.items()
    whole, rest = constant(0), Affine({}, x.const)
    for atom, k in x.terms.items():
        part = az.exact_quotient(Affine({atom: k}), divisor) if k % unit == 0 else None
        if part is None:
            rest = rest + Affine({atom: k})
        else:
            scaled = Affine({a: q // unit for a, q in part.terms.items()}, part.const // unit)
            whole = whole + scaled
    return whole, rest


def truncdiv(az: Analyzer, x: Affine, y: Affine, t: DType) -> Affine | None:
    """``x / y`` rounded towards zero where the rounding is known, or None."""
    if span(az, y)[0] >= 1:
        if lower(az, x, 1, 0) >= 0:
            return divide(az, x, y, t)
        if lower(az, -x, 1, 0) >= 0:
            return -divide(az, -x, y, t)
    if y.is_const and y.const:
        c = y.const
        if x.const % c == 0 and all(k % c == 0 for k in x.terms.values()):
            return Affine({a: k // c for a, k in x.terms.items()}, x.const // c)
        if c < 0:
            found = truncdiv(az, x, -y, t)
            return None if found is None else -found
    return None


def truncmod(az: Analyzer, x: Affine, y: Affine, t: DType) -> Affine | None:
    """The remainder of :func:`truncdiv` where the rounding is known, or None."""
    if y.is_const and y.const < 0:
        return truncmod(az, x, -y, t)
    if span(az, y)[0] >= 1:
        if lower(az, x, 1, 0) >= 0:
            return modulo(az, x, y, t)
        if lower(az, -x, 1, 0) >= 0:
            return -modulo(az, -x, y, t)
    return None
