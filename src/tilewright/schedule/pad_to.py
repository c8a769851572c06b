"""pad_to: a loop is filled up to whole tiles."""

from __future__ import annotations

from tilewright.ir.errors import user_location
from tilewright.ir.expr import Var
from tilewright.ir.itervar import IterVar
from tilewright.schedule.relations import Pad
from tilewright.schedule.stage import Stage


def pad_to(stage: Stage, axis: IterVar, whole: int) -> IterVar:
    """Go on with ``axis`` up to a multiple of ``whole``; the longer loop is returned.

    ``for i in n`` becomes ``for i.padded in ceil(n / whole) * whole``, whose body is guarded by
    ``i.padded < n``: splits of it by what divides ``whole`` divide. Nothing is copied, and no
    element is added to a sum. After :func:`~tilewright.schedule.cache.cache_write` the dimension of
    the copy is of whole tiles.

    Raises :class:`ScheduleError` where ``axis`` is no loop of the stage, or is bound, vectorized or
    the like, and where ``whole`` is not positive.
    """
    position = stage.leaf(axis, "pad_to")
    if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        raise stage.error(
            f"pad_to: there are no tiles of {whole!r} iterations", axis, "Give a positive integer"
        )
    stage.unmarked(axis, "pad_to")
    child = IterVar(None, Var.make(f"{axis.name}.padded", axis.var.dtype), axis.kind)
    stage.relations.append(Pad(axis, child, whole, user_location()))
    stage.leaf_iter_vars[position] = child
    return child
