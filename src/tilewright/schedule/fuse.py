"""fuse: adjacent loops become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import user_location
from tilewright.ir.expr import Var
from tilewright.ir.itervar import IterVar
from tilewright.schedule.relations import Fuse, Single
from tilewright.schedule.stage import Stage


def fuse(stage: Stage, axes: Sequence[Any]) -> IterVar:
    """Fuse adjacent loops, given from the outermost in, into one.

    ``for i in m: for j in n`` becomes ``for f in m * n`` with ``i = f // n`` and ``j = f % n``. Of
    a pair the inner one may also be given first, as in TVM: the loops stay in their order.
    Without axes, a loop of one iteration is put outside of all others.

    Raises :class:`ScheduleError` where the loops are not adjacent in that order, or where data
    and reduction axes would mix, and where one is bound, vectorized or the like.
    """
    listed = len(axes) == 1 and isinstance(axes[0], (list, tuple))
    wanted: list[IterVar] = list(axes[0]) if listed else list(axes)
    if not wanted:
        single = IterVar(None, Var.make("singleton"), "data")
        stage.relations.append(Single(single, user_location()))
        stage.leaf_iter_vars.insert(0, single)
        return single
    fused = wanted[0]
    stage.leaf(fused, "fuse")
    for axis in wanted[1:]:
        fused = _fuse_pair(stage, fused, axis)
    return fused


def _fuse_pair(stage: Stage, outer: IterVar, inner: IterVar) -> IterVar:
    first, second = stage.leaf(outer, "fuse"), stage.leaf(inner, "fuse")
    if outer.kind != inner.kind:
        raise stage.error(
            f"fuse: {outer.name} is a {outer.kind} axis and {inner.name} a {inner.kind} axis",
            inner,
            "Fuse data axes with data axes, and reduction axes with reduction axes",
        )
    if first == second + 1:
        outer, inner, first, second = inner, outer, second, first
    if second != first + 1:
        order = ", ".join(a.name for a in stage.leaf_iter_vars)
        raise stage.error(
            f"fuse: {outer.name} does not stand directly outside of {inner.name}",
            inner,
            f"The loops are {order}; reorder them first",
        )
    for axis in (outer, inner):
        stage.unmarked(axis, "fuse")
    name = f"{outer.name}.{inner.name}.fused"
    fused = IterVar(None, Var.make(name, outer.var.dtype), outer.kind)
    stage.relations.append(Fuse(outer, inner, fused, user_location()))
    stage.leaf_iter_vars[first : first + 2] = [fused]
    return fused
