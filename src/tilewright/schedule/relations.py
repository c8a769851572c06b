"""How the axes of a stage came to be, and what follows for their extents and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir.expr import Expr
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add, ceildiv, const, floordiv, floormod, mul


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


Relation: TypeAlias = "Split | Fuse | Single"


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
