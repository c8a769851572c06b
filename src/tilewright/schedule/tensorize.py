"""tensorize: loops become one declared instruction."""

from __future__ import annotations

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Stage
from tilewright.target.instruction import Instruction


def tensorize(stage: Stage, axis: IterVar, instruction: Instruction) -> None:
    """Carry out the loop ``axis`` and all inside it by ``instruction``.

    That the loops compute what the instruction declares is checked when the schedule is lowered.

    Raises :class:`ScheduleError` where ``instruction`` is not one, or the axis is bound.
    """
    stage.leaf(axis, "tensorize")
    if not isinstance(instruction, Instruction):
        raise stage.error(
            f"tensorize takes an instruction declared in tilewright.target, got {instruction!r}",
            axis,
        )
    mark = stage.mark(axis)
    if mark.thread is not None:
        raise stage.error(f"tensorize: the axis is bound to {mark.thread.tag}", axis)
    mark.instruction, mark.where = instruction, user_location()
