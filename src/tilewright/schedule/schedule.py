"""Schedules: how the stages of a program are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.schedule.absent import absent
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import Operation, PlaceholderOp
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.ir.itervar import IterVar
    from tilewright.schedule.group import Group


def as_schedule(given: Any, function: str) -> Schedule:
    """A schedule as it is; raises :class:`ScheduleError` for anything else, as for a tensor."""
    if isinstance(given, Schedule):
        return given
    name = getattr(given, "name", "tensor") if isinstance(given, Tensor) else "tensor"
    raise ScheduleError(
        f"{function} takes a schedule, got a {type(given).__name__}",
        mend=f"Write s = te.create_schedule({name}.op), and pass s",
    )


class Schedule:
    """How to compute ``outputs``; ``s[tensor]`` is the stage that makes a tensor.

    ``stages`` stand in an order in which producers precede their consumers.
    """

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs: list[Operation] = list(outputs)
        self.stages: list[Stage] = []
        self._by_buffer: dict[Buffer, Stage] = {}
        self.moved: dict[Buffer, Buffer] = {}  # what transform_layout keeps a tensor in
        self.separators: dict[Buffer, tuple[int, ...]] = {}  # positions of AXIS_SEPARATOR
        self._readers: tuple[list[Operation], dict[Buffer, list[Stage]]] = ([], {})
        for op in _topological(self.outputs):
            self.add(Stage(self, op))
        for stage in self.stages:
            if isinstance(stage.op, ScanOp):
                for op in stage.op.steps():
                    self[op].attachment = Attachment("at", stage, stage.op.scan_axis)

    def add(self, stage: Stage, before: Stage | None = None) -> None:
        """Take in a stage, in front of another where one is named."""
        at = len(self.stages) if before is None else self.stages.index(before)
        self.stages.insert(at, stage)
        for tensor in stage.op.outputs:
            self._by_buffer[tensor.buffer] = stage

    def know(self, stage: Stage, buffer: Buffer) -> None:
        """Let ``buffer`` name a stage too."""
        self._by_buffer[buffer] = stage

    def resolved(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments as they are passed: in the layout that the schedule gives them."""
        found = []
        for arg in args:
            buffer = arg.buffer if isinstance(arg, Tensor) else arg
            while isinstance(buffer, Buffer) and buffer in self.moved:
                buffer = self.moved[buffer]
            found.append(arg if isinstance(arg, Tensor) and buffer is arg.buffer else buffer)
        return tuple(found)

    def __getitem__(self, key: Any) -> Stage:
        buffer = self._buffer(key)
        stage = self._by_buffer.get(buffer) if buffer is not None else None
        if stage is None:
            names = ", ".join(s.name for s in self.stages)
            raise ScheduleError(
                f"{key!r} is not part of this schedule", mend=f"Its stages are {names}"
            )
        return stage

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Stage, name):
            raise AttributeError(
                f"{name} belongs to a stage of a schedule, not to the schedule: write "
                f"s[tensor].{name}(...)"
            )
        raise absent(self, "a schedule", name)

    def _buffer(self, key: Any) -> Buffer | None:
        if isinstance(key, Tensor):
            return key.buffer
        if isinstance(key, Operation):
            return key.outputs[0].buffer
        return key if isinstance(key, Buffer) else None

    def stage_of(self, buffer: Buffer) -> Stage | None:
        """The stage that makes ``buffer``, None where it is not of this schedule."""
        return self._by_buffer.get(buffer)

    def consumers(self, stage: Stage) -> list[Stage]:
        """The stages that read an output of ``stage``."""
        ops = [s.op for s in self.stages]
        if ops != self._readers[0]:
            found: dict[Buffer, list[Stage]] = {}
            for s in self.stages:
                for buffer in dict.fromkeys(tensor.buffer for tensor in s.op.inputs):
                    found.setdefault(buffer, []).append(s)
            self._readers = ops, found
        readers = self._readers[1]
        lists = [readers[t.buffer] for t in stage.op.outputs if t.buffer in readers]
        if len(lists) > 1:
            among = {s for several in lists for s in several}
            lists = [[s for s in self.stages if s in among]]
        return [s for several in lists for s in several if s is not stage]

    def cache_read(
        self, tensor: Tensor, scope: str, readers: Any, dtype: str | None = None,
        before: Any = None,
    ) -> Tensor:  # fmt: skip
        """See :func:`tilewright.schedule.cache.cache_read`."""
        from tilewright.schedule.cache import cache_read

        return cache_read(self, tensor, scope, readers, dtype, before)

    def reindex(self, tensor: Tensor, reader: Any, axes: Any, scope: str = "") -> Tensor:
        """See :func:`tilewright.schedule.reindex.reindex`."""
        from tilewright.schedule.reindex import reindex

        return reindex(self, tensor, reader, axes, scope)

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """See :func:`tilewright.schedule.cache.cache_write`."""
        from tilewright.schedule.cache import cache_write

        return cache_write(self, tensor, scope)

    def as_matmul(self, tensor: Tensor, whole: tuple[int, int, int] = (1, 1, 1)) -> Any:
        """See :func:`tilewright.schedule.matmul.as_matmul`."""
        from tilewright.schedule.matmul import as_matmul

        return as_matmul(self, tensor, whole)

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """See :func:`tilewright.schedule.group.create_group`."""
        from tilewright.schedule.group import create_group

        return create_group(self, outputs, inputs, include_inputs)

    @property
    def groups(self) -> list[Group]:
        """The groups of :meth:`create_group`."""
        found: dict[Group, None] = {}
        for stage in self.stages:
            group = stage.group
            while group is not None:
                found[group] = None
                group = group.group
        return list(found)

    @property
    def stage_map(self) -> dict[Operation, Stage]:
        """The stages by their operations, under TVM's name."""
        return {stage.op: stage for stage in self.stages}

    def rfactor(self, tensor: Tensor, axis: Any, factor_axis: int = 0) -> Any:
        """See :func:`tilewright.schedule.rfactor.rfactor`."""
        from tilewright.schedule.rfactor import rfactor

        return rfactor(self, tensor, axis, factor_axis)

    def partition(self, tensor: Tensor, axis: IterVar, points: Sequence[int]) -> list[Tensor]:
        """See :func:`tilewright.schedule.partition.partition`."""
        from tilewright.schedule.partition import partition

        return partition(self, tensor, axis, points)

    def in_tf32(self, tensor: Tensor, terms: int) -> tuple[Tensor, Tensor]:
        """See :func:`tilewright.schedule.in_tf32.in_tf32`."""
        from tilewright.schedule.in_tf32 import in_tf32

        return in_tf32(self, tensor, terms)

    def normalize(self) -> Schedule:
        """The schedule with every inlined stage put into its consumers; a copy."""
        from tilewright.schedule.normalize import normalize

        return normalize(self)


def create_schedule(outputs: Any) -> Schedule:
    """A schedule that computes ``outputs``, operations or tensors, one loop nest a stage.

    Raises :class:`ScheduleError` where there is none, or one is a placeholder.
    """
    found = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    ops = [o.op if isinstance(o, Tensor) else o for o in found]
    for op in ops:
        if not isinstance(op, Operation):
            raise ScheduleError(
                f"create_schedule takes operations or tensors, got {op!r}",
                mend="Pass the output: te.create_schedule(out.op)",
            )
        if isinstance(op, PlaceholderOp):
            raise ScheduleError(
                f"create_schedule: {op.name!r} is a placeholder, which is not computed",
                stage=op.name,
                mend="Pass what te.compute made",
            )
    if not ops:
        raise ScheduleError(
            "create_schedule was given no output", mend="Pass the operations to compute"
        )
    return Schedule(list(dict.fromkeys(ops)))


def _topological(outputs: Sequence[Operation]) -> list[Operation]:
    """Producers before consumers, in the order in which bodies name them."""
    order: dict[Operation, None] = {}
    active: dict[Operation, list[Operation]] = {}
    for output in outputs:
        path = [output]
        while path:
            op = path[-1]
            if op in order:
                path.pop()
                continue
            if op not in active:
                active[op] = [tensor.op for tensor in reversed(op.inputs)]
            if active[op]:
                producer = active[op].pop()
                if producer in active and producer not in order:
                    circle = [*path[path.index(producer) :], producer]
                    raise ScheduleError(
                        "the declarations form a cycle: "
                        + " reads ".join(repr(p.name) for p in circle),
                        stage=op.name,
                        where=op.where,
                        mend="Let one of them read a placeholder instead",
                    )
                path.append(producer)
            else:
                order[path.pop()] = None
    return list(order)
