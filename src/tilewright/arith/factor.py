"""Expressions in terms of other ones: ``h + kh - 1`` is ``v - 1`` where ``v`` is ``h + kh``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from tilewright.arith.affine import Affine, as_affine
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import Rewriter, free_vars


def factored(
    e: Expr, axes: Iterable[Var], values: Sequence[Expr], names: Sequence[Expr]
) -> Expr | None:
    """``e``, of ``axes`` and other variables, in terms of ``names``, which stand for ``values``.

    None where ``axes`` are left: where integer multiples of ``values`` add up to no form in ``e``.

    >>> h, k, v, w = (Var.make(name) for name in "hkvw")
    >>> factored(h * 2 + k * 2 - 1, [h, k], [h + k, h], [v, w])
    v * 2 - 1
    >>> factored((h * 2 + k) // 4, [h, k], [h + k, h], [v, w])
    (v + w) // 4
    >>> factored(h % 2 + k + (h - k) // 2, [h, k], [h, k + (h - k) // 2], [v, w])
    w + v % 2
    >>> factored(k, [h, k], [h + k], [v])
    """
    rewriter = _Factored(axes, values, names)
    made = rewriter.expr(e)
    return made if rewriter.axes.isdisjoint(free_vars(made)) else None


class _Factored(Rewriter):
    def __init__(self, axes: Iterable[Var], values: Sequence[Expr], names: Sequence[Expr]) -> None:
        self.axes = set(axes)
        self.values = [as_affine(value) for value in values]
        self.names = [as_affine(name) for name in names]

    def expr(self, e: Expr) -> Expr:
        if not (e.dtype.is_int and e.exact):
            return super().expr(e)
        form = as_affine(e)
        whole = self.solved(form)
        if whole is not None:
            return whole.to_expr(e.dtype)
        if len(form.terms) == 1 and e in form.terms:
            return super().expr(e)
        simple: dict[Expr, int] = {a: k for a, k in form.terms.items() if isinstance(a, Var)}
        total = self.solved(Affine(simple, form.const))
        if total is None:  # with what else stands in values
            known = {atom for value in self.values for atom in value.terms}
            simple |= {a: k for a, k in form.terms.items() if a in known}
            total = self.solved(Affine(simple, form.const))
        if total is None:
            return e
        for atom, factor in form.terms.items():
            if atom not in simple:
                total = total.combine(1, as_affine(self.expr(atom)), factor)
        return total.to_expr(e.dtype)

    def solved(self, form: Affine) -> Affine | None:
        """``form`` as a sum of multiples of the names, where there is one."""
        own = {atom: k for atom, k in form.terms.items() if self.touches(atom)}
        factors = _multiples(own, [value.terms for value in self.values])
        if factors is None:
            return None
        found = Affine({a: k for a, k in form.terms.items() if a not in own}, form.const)
        for factor, value, name in zip(factors, self.values, self.names, strict=True):
            found = found.combine(1, name, factor).combine(1, Affine({}, value.const), -factor)
        return found

    def touches(self, atom: Expr) -> bool:
        return not self.axes.isdisjoint(free_vars(atom))


def _multiples(
    wanted: Mapping[Expr, int], values: Sequence[Mapping[Expr, int]]
) -> list[int] | None:
    """Integers by which ``values`` add up to ``wanted``; None where elimination finds none."""
    atoms = list(dict.fromkeys(atom for form in (wanted, *values) for atom in form))
    rows = [[*(value.get(atom, 0) for value in values), wanted.get(atom, 0)] for atom in atoms]
    pivots: list[int] = []
    for column in range(len(values)):
        top = len(pivots)
        at = next((r for r in range(top, len(rows)) if rows[r][column]), None)
        if at is None:
            continue
        rows[top], rows[at] = rows[at], rows[top]
        for r, row in enumerate(rows):
            if r != top and row[column]:
                rows[r] = _without(row, rows[top], column)
        pivots.append(column)
    found = [0] * len(values)
    for row, column in zip(rows, pivots, strict=False):
        found[column], rest = divmod(row[-1], row[column])
        if rest:
            return None
    return None if any(row[-1] for row in rows[len(pivots) :]) else found


def _without(row: list[int], other: list[int], column: int) -> list[int]:
    """A multiple of ``row`` and one of ``other`` that add up to 0 in ``column``, in least terms."""
    made = [x * other[column] - row[column] * y for x, y in zip(row, other, strict=True)]
    divisor = gcd(*made)
    return [x // divisor for x in made] if divisor > 1 else made
