"""skew: an axis is traded for a window's position."""

from __future__ import annotations

from typing import Any

from tilewright.ir.dtype import int_range
from tilewright.ir.errors import user_location
from tilewright.ir.expr import IntImm, Var
from tilewright.ir.itervar import IterVar
from tilewright.schedule.relations import Skew, pass_extents
from tilewright.schedule.stage import Stage


def skew(stage: Stage, axis: IterVar, by: IterVar, scale: int, step: int, offset: int) -> IterVar:
    """Go through ``j = scale * by + step * axis + offset`` in place of ``axis``, which is returned.

    ``for i in T: for r in R`` becomes ``for i in T: for j in H`` with ``H = scale * (T - 1) + step
    * (R - 1) + 1 + offset``; the body, with ``r = (j - scale * i - offset) / step``, is guarded by
    what makes that one of the values of ``r``. What reads a window, ``x[scale * i + step * r]``,
    then reads ``x[j - offset]``: all of its rows ``i`` read the same. Elements are summed in the
    order in which they were, and by all orders of the loops.

    ``axis`` is a loop of a reduction or, as of what ``rfactor`` makes, another one over data, and
    ``by`` one over data, which stays, and which may be the inner part of a split: ``H`` then goes
    by the tile. After a skew of data :func:`~tilewright.schedule.cache.cache_write` has to follow,
    of whose result a dimension then has positions that are no element of the tensor; nobody reads
    them.

    Raises :class:`ScheduleError` where they are not, or are bound, vectorized or the like, for a
    scale or a step below one and an offset below zero, and where ``H`` exceeds the type of axes.
    """
    position = stage.leaf(axis, "skew")
    stage.leaf(by, "skew")
    if by.kind != "data":
        data = ", ".join(a.name for a in stage.leaf_iter_vars if a.kind == "data") or "none"
        raise stage.error(
            f"skew: it goes by a data axis, and {by.name!r} is one of the reduction",
            axis,
            f"The data axes are {data}",
        )
    if axis is by:
        raise stage.error("skew: an axis does not go by itself", axis, "Name another data axis")
    for value, name, least in ((scale, "scale", 1), (step, "step", 1), (offset, "offset", 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise stage.error(
                f"skew: {name}={value!r}, which is an integer of {least} or more",
                axis,
                "Give the factors with which both axes stand in the index of the window, and how "
                "far before the first of its elements to begin",
            )
    stage.unmarked(axis, "skew")
    child = IterVar(None, Var.make(f"{axis.name}.skewed", axis.var.dtype), axis.kind)
    relation = Skew(axis, by, child, scale, step, offset, user_location())
    _check_extent(stage, relation)
    stage.relations.append(relation)
    stage.leaf_iter_vars[position] = child
    return child


def _check_extent(stage: Stage, relation: Skew) -> None:
    extents: dict[IterVar, Any] = {a: a.dom.extent for a in stage.roots if a.dom is not None}
    pass_extents([*stage.relations, relation], extents, lambda e: e)
    found = extents[relation.child]
    type = relation.child.var.dtype
    if isinstance(found, IntImm) and found.value > int_range(type)[1]:
        raise stage.error(
            f"skew: the axis would have {found.value} iterations, more than {type} counts",
            relation.parent,
            "Split the data axis first, and skew by the inner part",
        )
