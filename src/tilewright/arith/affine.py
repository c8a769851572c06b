"""Affine forms: a sum of coefficient times atom, plus a constant.

An atom is a variable or an opaque term: a division, a remainder, a minimum, a load, a product of
variables. Two forms are equal as numbers wherever they are equal as forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm, Var

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType


class Affine:
    """``sum(coefficient * atom for atom, coefficient in terms) + const``; not to be mutated."""

    __slots__ = ("const", "terms")

    def __init__(self, terms: dict[Expr, int], const: int = 0) -> None:
        self.terms, self.const = terms, const

    @property
    def is_const(self) -> bool:
        """Whether no atom is left."""
        return not self.terms

    def coefficient(self, atom: Expr) -> int:
        """The factor of an atom, 0 where it does not occur."""
        return self.terms.get(atom, 0)

    def without(self, atom: Expr) -> Affine:
        """The form less its term in ``atom``."""
        return Affine({a: k for a, k in self.terms.items() if a is not atom}, self.const)

    def combine(self, p: int, other: Affine, q: int) -> Affine:
        """``p * self + q * other``."""
        if p == 1:
            terms = dict(self.terms)
        else:
            terms = {a: k * p for a, k in self.terms.items()} if p else {}
        if q:
            for atom, k in other.terms.items():
                total = terms.get(atom, 0) + k * q
                if total:
                    terms[atom] = total
                else:
                    del terms[atom]
        return Affine(terms, self.const * p + other.const * q)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other)
        return self.combine(1, other, 1)

    def __sub__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const - other)
        return self.combine(1, other, -1)

    def __mul__(self, factor: int) -> Affine:
        return self if factor == 1 else self.combine(factor, self, 0)

    def __neg__(self) -> Affine:
        return Affine({a: -k for a, k in self.terms.items()}, -self.const)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affine) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.const))

    def __repr__(self) -> str:
        return f"Affine({self.to_expr(E.INT32)})"

    def to_expr(self, t: DType, ranks: dict[Expr, int] | None = None) -> Expr:
        """The form as an expression of type ``t``.

        Terms stand by falling degree and size of their coefficient, as nested loops give it,
        then in the order of ``ranks`` (which takes in atoms that are new to it), else of
        appearance. A constant comes last, or first where every term is negative.
        """
        terms, const = self.terms, self.const
        if not terms:
            return IntImm(t, const)
        items = list(terms.items())
        if ranks is not None:
            for atom in terms:
                if atom not in ranks:
                    ranks[atom] = len(ranks)
        if len(items) > 1:
            if ranks is not None:
                items.sort(key=lambda item: (-degree(item[0]), -abs(item[1]), ranks[item[0]]))
            else:
                items.sort(key=lambda item: (-degree(item[0]), -abs(item[1])))
            if items[0][1] < 0:
                first = next((i for i, item in enumerate(items) if item[1] > 0), 0)
                items.insert(0, items.pop(first))
        made: Expr | None = None
        if const > 0 and items[0][1] < 0:
            made, const = IntImm(t, const), 0
        for atom, k in items:
            size = abs(k)
            if made is None:
                made = atom if k == 1 else E.Mul(atom, IntImm(t, k))
                continue
            term = atom if size == 1 else E.Mul(atom, IntImm(t, size))
            made = E.Add(made, term) if k > 0 else E.Sub(made, term)
        assert made is not None
        if const > 0:
            return E.Add(made, IntImm(t, const))
        return E.Sub(made, IntImm(t, -const)) if const < 0 else made


def degree(atom: Expr) -> int:
    """How many factors an atom has."""
    found = 1
    while isinstance(atom, E.Mul):
        atom, found = atom.a, found + 1
    return found


def constant(value: int) -> Affine:
    """A form without atoms."""
    return Affine({}, value)


def of_atom(atom: Expr) -> Affine:
    """One atom, once."""
    return Affine({atom: 1}, 0)


def nested(cls: type[E.Binary], operands: Sequence[Expr]) -> Expr:
    """One expression of all operands, from the left."""
    made = operands[0]
    for operand in operands[1:]:
        made = cls(made, operand)
    return made


def as_affine(e: Expr, atom: Callable[[Expr], Affine] = of_atom) -> Affine:
    """An integer expression, not simplified, where ``atom`` says what the parts amount to that are
    neither sums nor multiples by a constant, or are arithmetic on data, which may wrap around."""
    terms: dict[Expr, int] = {}
    const = 0
    waiting = [(e, 1)]
    while waiting:
        e, k = waiting.pop()
        cls = type(e)
        if cls is not Var:
            if isinstance(e, IntImm):
                const += k * e.value
                continue
            if not e.exact:
                pass
            elif cls is E.Add or cls is E.Sub:
                assert isinstance(e, E.Binary)
                waiting.append((e.b, k if cls is E.Add else -k))
                waiting.append((e.a, k))
                continue
            elif cls is E.Mul:
                assert isinstance(e, E.Binary)
                if type(e.b) is IntImm:
                    waiting.append((e.a, k * e.b.value))
                    continue
                if type(e.a) is IntImm:
                    waiting.append((e.b, k * e.a.value))
                    continue
        found = atom(e)
        for a, c in found.terms.items():
            terms[a] = terms.get(a, 0) + k * c
        const += k * found.const
    return Affine({a: k for a, k in terms.items() if k}, const)
