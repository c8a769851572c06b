"""Minima and maxima of forms.

=====================  ==============================
``min(x, y)``          ``x`` where x <= y is known
``min(x + z, y + z)``  ``min(x, y) + z``
``min(x + z, y) - z``  ``min(x, y - z)``
``min(x, 3) + 1``      ``min(x + 1, 4)``
=====================  ==============================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.arith.affine import Affine, nested
from tilewright.arith.bounds import lower
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType


def absorb(az: Analyzer, form: Affine, atom: E.Min | E.Max, k: int) -> Affine | None:
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
        if any(at_most(az, other, form, sign) for other in kept):
            continue
        kept = [other for other in kept if not at_most(az, form, other, sign)]
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
    made = nested(cls, [az.to_expr(o, t) for o in _ordered(az, kept)])
    return Affine({made: 1}).combine(1, Affine(common, shift), 1)


def _flattened(az: Analyzer, cls: type[E.Binary], form: Affine) -> list[Affine]:
    other = E.Max if cls is E.Min else E.Min
    for atom, k in form.terms.items():
        if (type(atom) is cls and k == 1) or (type(atom) is other and k == -1):
            rest = form.without(atom)
            return [rest.combine(1, az.affine(e), k) for e in operands_of(atom)]
    return [form]


def at_most(az: Analyzer, a: Affine, b: Affine, sign: int) -> bool:
    """Whether ``a`` is at most ``b``, or with a ``sign`` of -1 at least, as far as known."""
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


def branches(az: Analyzer, form: Affine, cls: type[E.Binary]) -> list[Affine]:
    """Forms of which this one is the minimum or maximum (``cls``); itself, where it is none."""
    found = _flattened(az, cls, form)
    return [az.normal(part) for part in found]
