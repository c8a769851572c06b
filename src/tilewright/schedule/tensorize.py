"""tensorize: loops become one declared instruction."""

from __future__ import annotations

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind
from tilewright.schedule.stage import Stage
from tilewright.target.instruction import Instruction


def tensorize(stage: Stage, axis: IterVar, instruction: Instruction) -> None:
    """Carry out the loop ``axis`` and all inside it by ``instruction``.

    That the loops compute what the instruction declares is checked when the schedule is lowered.

    Raises :class:`ScheduleError` where ``instruction`` is not one, or the axis is bound, vectorized
    or the like.
    """
    stage.leaf(axis, "tensorize")
    if not isinstance(instruction, Instruction):
        raise stage.error(
            f"tensorize takes an instruction declared in tilewright.target, got {instruction!r}",
            axis,
            "Import one from tilewright.target.instructions, or declare it with decl_instruction",
        )
    mark = stage.mark(axis)
    if mark.kind is not ForKind.SERIAL:
        raise stage.error(
            f"tensorize: the axis is already {mark.said}",
            axis,
            "Split the axis, and tensorize the inner part",
        )
    mark.instruction, mark.where = instruction, user_location()
