"""prefetch: ask for memory before it is needed."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import as_index
from tilewright.schedule.stage import Stage
from tilewright.te.tensor import Tensor


def prefetch(stage: Stage, tensor: Tensor, axis: IterVar, offset: Any) -> None:
    """In every iteration of ``axis``, prefetch what iteration ``axis + offset`` reads of
    ``tensor``. A hint: targets without such an instruction leave it out.

    Raises :class:`ScheduleError` where the stage does not read ``tensor``, or ``offset`` is no
    integer.
    """
    stage.leaf(axis, "prefetch")
    if not isinstance(tensor, Tensor) or all(t is not tensor for t in stage.op.inputs):
        read = ", ".join(t.name for t in stage.op.inputs) or "nothing"
        raise stage.error(f"prefetch: the stage does not read {tensor!r}", axis, f"It reads {read}")
    try:
        ahead = as_index(offset)
    except LanguageError:
        raise stage.error(
            f"prefetch: {offset!r} is no number of iterations", axis, "Give an integer"
        ) from None
    stage.mark(axis).prefetches.append((tensor, ahead))
