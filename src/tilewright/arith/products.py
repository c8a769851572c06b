"""Products of forms, ``x*y + x*z`` of ``x * (y + z)``, and the atoms that products of atoms are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, constant, nested, of_atom
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType

#: How many terms a product of two sums may have to be written out.
_PRODUCT_LIMIT = 16


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
    return of_atom(nested(E.Mul, sorted(parts, key=az.ranks.__getitem__)))


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
