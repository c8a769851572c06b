"""Tasks: a template with its arguments on a target, and the space that it declares."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tilewright.ir.expr import IntImm, Reduce
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import current_target
from tilewright.te import ComputeOp
from tilewright.tune.arguments import deserialize, problem_key, serialize
from tilewright.tune.config import ConfigSpace, Definitions
from tilewright.tune.dispatch import ApplyConfig, Workload
from tilewright.tune.entity import TuningError
from tilewright.tune.template import find_template


class Task:
    """What is tuned.

    Attributes
    ----------
    name, args : the template and what it is called with.
    target : where the kernels run.
    config_space : what it may be set to; made by calling the template once.
    """

    def __init__(self, name: str, args: tuple[Any, ...], target: Target) -> None:
        self.name, self.args, self.target = name, args, target

    @property
    def workload(self) -> Workload:
        """The name and the arguments, in JSON's types."""
        return (self.name, *serialize(self.args))

    @property
    def key(self) -> str:
        """What names the work in records."""
        return problem_key(self.name, self.args)

    @cached_property
    def config_space(self) -> ConfigSpace:
        space = ConfigSpace()
        self._call(space)
        if not space.space_map:
            raise TuningError(
                f"template {self.name!r} defines no knob: call get_config() and define_split, "
                "define_knob and the like on it"
            )
        return space

    def instantiate(self, config: Definitions) -> tuple[Schedule, list[Any]]:
        """The schedule and its tensors for a configuration.

        Raises whatever the template raises; most often :class:`ScheduleError`.
        """
        return self._call(config)

    def _call(self, config: Definitions) -> tuple[Schedule, list[Any]]:
        with self.target, ApplyConfig(config):
            found = find_template(self.name).func(*self.args)
        if (
            not isinstance(found, tuple)
            or len(found) != 2
            or not isinstance(found[0], Schedule)
            or not isinstance(found[1], (list, tuple))
        ):
            raise TuningError(
                f"template {self.name!r} returned {found!r}: it returns (schedule, [tensors])"
            )
        return found[0], list(found[1])

    @cached_property
    def flop(self) -> float:
        """The arithmetic operations of one run: what the template counted, else what the
        declaration says."""
        if self.config_space.flop:
            return self.config_space.flop
        schedule, _ = self._call(self.config_space.get(next(self.config_space.indices())))
        return flop_of(schedule)

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        return {"name": self.name, "args": serialize(self.args), "target": str(self.target)}

    @staticmethod
    def from_json(given: dict[str, Any]) -> Task:
        """The inverse; the template is looked for when it is called."""
        args = deserialize(given["args"])
        return Task(given["name"], tuple(args), Target.parse(given["target"]))

    def __repr__(self) -> str:
        return f"Task({self.name}, {self.args}, {self.target})"


def create(
    task_name: Any,
    args: Any,
    target: str | Target | None = None,
    target_host: Any = None,
    template_key: Any = None,
) -> Task:
    """A task for a registered template.

    Parameters
    ----------
    task_name : the template's, or the template itself, as AutoTVM took it in 2019.
    args : what the template is called with: numbers, strings, lists, placeholders.
    target : by default that of the enclosing ``with target:``, then "llvm".
    target_host, template_key : AutoTVM's, and not needed.

    Raises :class:`TuningError` where there is no such template, or it declares no space.
    """
    machine = Target.parse(target or current_target() or "llvm")
    task_name = getattr(task_name, "task_name", task_name)
    serialize(tuple(args))  # before anything is made of what could not be recorded
    task = Task(task_name, tuple(args), machine)
    _ = task.config_space
    return task


def flop_of(schedule: Schedule) -> float:
    """Additions, multiplications and the like on floats of all stages, by their declarations."""
    total = 0.0
    for stage in schedule.stages:
        if isinstance(stage.op, ComputeOp) and stage.attachment.kind != "inline":
            total += _flop(stage.op)
    return total


def _flop(op: ComputeOp) -> float:
    points = 1
    for axis in (*op.axis, *op.reduce_axis):
        extent = axis.dom.extent if axis.dom is not None else None
        if not isinstance(extent, IntImm):
            return 0.0
        points *= extent.value
    each = 0
    for body in op.body:
        root = body
        if isinstance(body, Reduce):
            each += 1
            root = body.source[0]
        for node in walk(root):
            binary = type(node).__name__ in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Call")
            if binary and str(getattr(node, "dtype", "")).startswith(("float", "bfloat")):
                each += 1
    return float(points * each) if each else 0.0
