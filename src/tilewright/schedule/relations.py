"""How the axes of a stage came to be, and what follows for their extents and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir.expr import Expr
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add, ceildiv, const, floordiv, floormod, mul, sub


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``parent = outer * factor + inner``; of ``factor`` and ``nparts`` one is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    nparts: Expr | None
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """``fused = outer * extent(inner) + inner``."""

    outer: IterVar
    inner: IterVar
    fused: IterVar
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    """An axis of extent one out of nothing: ``fuse()`` of no axes."""

    axis: IterVar
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """``child = scale * by + step * parent + offset``: ``child`` takes the place of ``parent``."""

    parent: IterVar
    by: IterVar
    child: IterVar
    scale: int
    step: int
    offset: int
    where: str

    def distance(self, values: Mapping[IterVar, Expr]) -> Expr:
        """``step * parent``, as ``child`` and ``by`` say it."""
        return sub(sub(values[self.child], mul(values[self.by], self.scale)), self.offset)


@dataclass(frozen=True, slots=True, eq=False)
class Pad:
    """``child`` is ``parent``, up to a multiple of ``whole``."""

    parent: IterVar
    child: IterVar
    whole: int
    where: str


Relation: TypeAlias = "Split | Fuse | Single | Skew | Pad"


def parents(relation: Relation) -> tuple[IterVar, ...]:
    """The axes that take part in a relation from the side of the declaration."""
    match relation:
        case Split(parent) | Pad(parent):
            return (parent,)
        case Fuse(outer, inner):
            return outer, inner
        case Skew(parent, by):
            return parent, by
    return ()


def children(relation: Relation) -> tuple[IterVar, ...]:
    """The axes that take part in a relation from the side of the loops."""
    match relation:
        case Split(_, outer, inner):
            return outer, inner
        case Fuse(_, _, fused):
            return (fused,)
        case Skew(_, by, child):
            return child, by
        case Pad(_, child):
            return (child,)
    return (relation.axis,)


def consumed(relation: Relation) -> tuple[IterVar, ...]:
    """The axes that a relation makes others of: they are no loops any more."""
    return tuple(axis for axis in parents(relation) if axis not in children(relation))


def made(relation: Relation) -> tuple[IterVar, ...]:
    """The axes that a relation makes."""
    return tuple(axis for axis in children(relation) if axis not in parents(relation))


def descended(relations: list[Relation], axes: Iterable[IterVar]) -> set[IterVar]:
    """``axes``, and all that was made of one of them."""
    found = set(axes)
    for relation in relations:
        if not found.isdisjoint(consumed(relation)):
            found.update(made(relation))
    return found


def said(relation: Relation) -> str:
    """What became of the axes that a relation consumes."""
    match relation:
        case Skew():
            return "skewed"
        case Pad():
            return "padded"
    return "split or fused"


def pass_extents(
    relations: list[Relation], extents: dict[IterVar, Expr], simplify: Callable[[Expr], Expr]
) -> None:
    """Give every axis its extent, from the roots down; all axes start at zero."""
    for relation in relations:
        match relation:
            case Split(parent, outer, inner, factor, nparts):
                whole = extents[parent]
                if factor is not None:
                    extents[inner] = factor
                    extents[outer] = simplify(ceildiv(whole, factor))
                elif nparts is not None:
                    extents[outer] = nparts
                    extents[inner] = simplify(ceildiv(whole, nparts))
            case Fuse(outer, inner, fused):
                extents[fused] = simplify(mul(extents[outer], extents[inner]))
            case Single(axis):
                extents[axis] = const(1)
            case Skew(parent, by, child, scale, step, offset):
                last = add(mul(sub(extents[by], 1), scale), mul(sub(extents[parent], 1), step))
                extents[child] = simplify(add(last, offset + 1))
            case Pad(parent, child, whole):
                extents[child] = simplify(mul(ceildiv(extents[parent], whole), whole))


def pass_values(
    relations: list[Relation], extents: Mapping[IterVar, Expr], values: dict[IterVar, Expr]
) -> None:
    """Give every axis its value as an expression of the leaves, from the leaves up."""
    for relation in reversed(relations):
        match relation:
            case Split(parent, outer, inner):
                values[parent] = add(mul(values[outer], extents[inner]), values[inner])
            case Fuse(outer, inner, fused):
                values[outer] = floordiv(values[fused], extents[inner])
                values[inner] = floormod(values[fused], extents[inner])
            case Skew(parent, step=step):
                far = relation.distance(values)
                values[parent] = far if step == 1 else floordiv(far, step)
            case Pad(parent, child):
                values[parent] = values[child]


def guards(
    relation: Relation, extents: Mapping[IterVar, Expr], values: Mapping[IterVar, Expr]
) -> list[Expr]:
    """What must hold for an iteration of the children to stand for one of the parents; of all
    axes ``values`` count from zero."""
    match relation:
        case Split(parent) | Pad(parent):
            return [values[parent] < extents[parent]]
        case Skew(parent, step=step):
            far = relation.distance(values)
            found = [far >= 0, far < add(mul(sub(extents[parent], 1), step), 1)]
            return found if step == 1 else [*found, floormod(far, step).equal(0)]
    return []
