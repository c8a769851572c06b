"""Choices: what one knob of a search space is set to, and how it is done to a schedule.

Each kind has the short name and the JSON form that it has in AutoTVM's logs: ``["tile_x", "sp",
[-1, 4, 8]]``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from tilewright.ir.errors import TilewrightError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule


class TuningError(TilewrightError):
    """A search space, a configuration or a measurement that has no meaning."""


@dataclass(frozen=True)
class SplitEntity:
    """The extents of the loops that an axis is split into, from the outermost in.

    The outermost is whatever the others leave, and written -1.
    """

    size: tuple[int, ...]
    kind: ClassVar[str] = "sp"

    def apply(self, s: Schedule, op: Any, axis: IterVar) -> list[IterVar]:
        """Split ``axis`` of ``s[op]``; the new axes, from the outermost in."""
        axes = []
        for position in range(1, len(self.size)):
            outer, axis = s[op].split(axis, factor=math.prod(self.size[position:]))
            axes.append(outer)
        return [*axes, axis]

    def to_json(self) -> Any:
        return list(self.size)

    def __repr__(self) -> str:
        return str(list(self.size))


@dataclass(frozen=True)
class ReorderEntity:
    """A permutation: position k is taken by axis ``perm[k]``."""

    perm: tuple[int, ...]
    kind: ClassVar[str] = "re"

    def apply(self, s: Schedule, op: Any, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder ``axes`` of ``s[op]``; the axes in their new order.

        Fewer axes than were declared are ordered as they would stand among all.
        """
        order = self.order(axes)
        s[op].reorder(*order)
        return order

    def order(self, axes: Sequence[IterVar]) -> list[IterVar]:
        """``axes`` in their new order, with nothing done to a schedule."""
        return [axes[k] for k in self.perm if k < len(axes)]

    def to_json(self) -> Any:
        return list(self.perm)

    def __repr__(self) -> str:
        return str(list(self.perm))


@dataclass(frozen=True)
class AnnotateEntity:
    """What is done to each of some axes: "none", "unroll" or "vec"."""

    anns: tuple[str, ...]
    kind: ClassVar[str] = "an"

    def apply(
        self,
        s: Schedule,
        op: Any,
        axes: Sequence[IterVar],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        **_: Any,
    ) -> list[IterVar]:
        """Mark ``axes`` of ``s[op]``; they are returned.

        ``axis_lens``, where given, are their extents: an axis longer than ``max_unroll`` is not
        unrolled, and one whose extent is not among ``vec_size`` is not vectorized.
        """
        for k, (axis, mark) in enumerate(zip(axes, self.anns, strict=True)):
            extent = axis_lens[k] if axis_lens is not None else None
            if mark == "unroll" and (max_unroll is None or extent is None or extent <= max_unroll):
                s[op].unroll(axis)
            elif mark == "vec" and (vec_size is None or extent is None or extent in vec_size):
                s[op].vectorize(axis)
        return list(axes)

    def to_json(self) -> Any:
        return list(self.anns)

    def __repr__(self) -> str:
        return str(list(self.anns))


@dataclass(frozen=True)
class OtherOptionEntity:
    """The value of a knob that the template reads itself, as ``cfg["name"].val``."""

    val: Any
    kind: ClassVar[str] = "ot"

    def to_json(self) -> Any:
        return self.val

    def __repr__(self) -> str:
        return str(self.val)


Entity: TypeAlias = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity


def entity_from_json(kind: str, value: Any) -> Entity:
    """The choice that ``to_json`` of a ``kind`` gave; raises :class:`TuningError` for others."""
    try:
        match kind:
            case "sp":
                return SplitEntity(tuple(int(v) for v in value))
            case "re":
                return ReorderEntity(tuple(int(v) for v in value))
            case "an":
                return AnnotateEntity(tuple(str(v) for v in value))
            case "ot":
                return OtherOptionEntity(_hashable(value))
    except (OverflowError, TypeError, ValueError):
        pass
    raise TuningError(
        f"{str(value)[:80]} is no choice of kind {kind!r}: the kinds are sp, re, an and ot"
    )


def _hashable(value: Any) -> Any:
    """JSON's lists as tuples; raises :class:`TypeError` for objects, which no knob is set to."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    hash(value)
    return value
