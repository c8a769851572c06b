"""create_group: stages that are attached together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule.attach import compute_at, compute_root
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import Operation, PlaceholderOp
from tilewright.te.tensor import Tensor


class Group:
    """Stages with one place: those of them that are not attached elsewhere are computed there."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages
        self.attach_stage: Stage | None = None
        self.attach_axis: IterVar | None = None
        self.group: Group | None = None

    @property
    def num_child_stages(self) -> int:
        return sum(stage.group is self for stage in self.stages) + len(
            {stage.group for stage in self.stages if stage.group is not self}
        )

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute the stages of the group at ``axis`` of ``parent``, as
        :func:`~tilewright.schedule.attach.compute_at` does one."""
        self.attach_stage, self.attach_axis = parent, axis
        for stage in self.stages:
            computed = not isinstance(stage.op, PlaceholderOp)
            if computed and stage.attachment.kind == "root" and stage is not parent:
                compute_at(stage, parent, axis)

    def compute_root(self) -> None:
        """Compute the stages that :meth:`compute_at` attached before their consumers again."""
        for stage in self.stages:
            at = stage.attachment
            if at.kind == "at" and at.stage is self.attach_stage and at.axis is self.attach_axis:
                compute_root(stage)
        self.attach_stage = self.attach_axis = None


def create_group(s: Schedule, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
    """The stages from which ``outputs`` are computed, as far as ``inputs``; these too with
    ``include_inputs``.

    Raises :class:`ScheduleError` where no stage is between.
    """
    ends, starts = _operations(outputs), set(_operations(inputs))
    members: dict[Operation, bool] = {}

    def between(op: Operation) -> bool:
        if op in starts:
            if include_inputs:
                members[op] = True
            return True
        if op not in members:
            members[op] = False
            reads = [between(t.op) for t in op.inputs]
            members[op] = any(reads) or (op in ends and not op.inputs)
        return members[op]

    for op in ends:
        between(op)
    known = {stage.op: stage for stage in s.stages}
    stages = [known[op] for op, inside in members.items() if inside and op in known]
    if not stages:
        raise s[ends[0]].error(
            "create_group: nothing is computed between the inputs and the outputs",
            mend="Name tensors that the outputs are computed from",
        )
    made = Group(stages)
    for stage in stages:
        outer = stage.group
        while outer is not None and outer.group is not None and outer is not made:
            outer = outer.group
        if outer is None:
            stage.group = made
        elif set(outer.stages) <= set(stages):
            outer.group = made
        else:
            made.group, stage.group = outer, made
    return made


def _operations(given: Any) -> list[Operation]:
    found: Sequence[Any] = given if isinstance(given, (list, tuple)) else [given]
    return [t.op if isinstance(t, Tensor) else t for t in found]
