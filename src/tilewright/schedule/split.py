"""split: one loop becomes two."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import LanguageError, user_location
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import as_index
from tilewright.schedule.relations import Split
from tilewright.schedule.stage import Stage


def split(stage: Stage, parent: IterVar, factor: Any, nparts: Any) -> tuple[IterVar, IterVar]:
    """Split ``parent`` into an outer and an inner loop.

    ``for i in n`` becomes ``for i.outer in ceil(n / factor): for i.inner in factor`` with
    ``i = i.outer * factor + i.inner``; with ``nparts``, the outer loop has ``nparts`` iterations
    and the inner one ``ceil(n / nparts)``. Where that does not divide, the body is guarded by
    ``i < n``.

    Raises :class:`ScheduleError` unless exactly one of ``factor`` and ``nparts`` is given and is
    positive, and ``parent`` is a loop of the stage that is not yet bound, vectorized or the like.
    """
    position = stage.leaf(parent, "split")
    if (factor is None) == (nparts is None):
        given = "both are" if factor is not None else "neither is"
        raise stage.error(
            f"split takes either factor or nparts, and {given} given",
            parent,
            "Write split(axis, factor=n), or split(axis, nparts=n)",
        )
    stage.unmarked(parent, "split")
    count = _positive(stage, parent, factor if nparts is None else nparts)
    outer = IterVar(None, Var.make(f"{parent.name}.outer", parent.var.dtype), parent.kind)
    inner = IterVar(None, Var.make(f"{parent.name}.inner", parent.var.dtype), parent.kind)
    where = user_location()
    stage.relations.append(
        Split(
            parent,
            outer,
            inner,
            count if nparts is None else None,
            None if nparts is None else count,
            where,
        )
    )
    stage.leaf_iter_vars[position : position + 1] = [outer, inner]
    return outer, inner


def _positive(stage: Stage, axis: IterVar, value: Any) -> Expr:
    try:
        count = as_index(value)
    except LanguageError:
        raise stage.error(
            f"split needs an integer, got {value!r}", axis, "Split by a whole number of iterations"
        ) from None
    if isinstance(count, IntImm) and count.value <= 0:
        raise stage.error(
            f"split by {count.value}: there is no such loop", axis, "Split by a positive number"
        )
    return count
