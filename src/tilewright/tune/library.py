"""The library's schedules for a problem as one search space.

A configuration is a template of :mod:`tilewright.topi.templates` and its parameters; those that a
template does not have are -1. What is on record for a problem is thus one list, whatever the
schedules are, and the problem's key names it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import current_target
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, candidates
from tilewright.tune.config import ConfigEntity
from tilewright.tune.dispatch import get_config
from tilewright.tune.entity import TuningError
from tilewright.tune.machine import with_architecture
from tilewright.tune.task import Task, create
from tilewright.tune.template import template

NAME = "topi/depthwise"
#: What a parameter is that a template does not have.
ABSENT = -1


@template(NAME)
def schedule(problem: Problem) -> tuple[Schedule, list[Any]]:
    """The schedule that the configuration names, over the inputs and the result of ``problem``.

    Raises :class:`ScheduleError` where the library has none for the target.
    """
    target = current_target() or Target.parse("llvm")
    found = [(t.name, dataclasses.asdict(c)) for t, c in candidates(problem, target)]
    if not found:
        raise ScheduleError(f"there is no schedule for {problem} on {target}")
    names = sorted({field for _, values in found for field in values})
    cfg = get_config()
    cfg.define_table(
        ["template", *names],
        [[name, *(values.get(field, ABSENT) for field in names)] for name, values in found],
    )
    chosen, parameters = parameters_of({n: cfg[n].val for n in ["template", *names]})
    known = TEMPLATES[chosen]
    config = known.parse(parameters)
    cfg.add_flop(problem.flops)
    return known.scheduled(problem, config)


def parameters_of(chosen: Mapping[str, Any] | ConfigEntity) -> tuple[str, dict[str, int]]:
    """The name of the template, and the parameters that it has, of a configuration. Raises
    :class:`TuningError` for a template or parameters that the library does not have."""
    if isinstance(chosen, ConfigEntity):
        chosen = {name: e.to_json() for name, e in chosen.entities.items()}
    values = {k: v for k, v in chosen.items() if k != "template" and v != ABSENT}
    name = str(chosen.get("template"))
    if name not in TEMPLATES:
        raise TuningError(f"the library has no schedule {name!r}. Tune the problem again")
    try:
        TEMPLATES[name].parse(values)
    except ScheduleError as error:
        raise TuningError(str(error)) from None
    return name, values


def task(problem: Problem, target: str | Target) -> Task:
    """What tunes a problem; its key is the problem's.

    A target that names no architecture stands for the GPU at hand, which decides what schedules
    there are. Raises :class:`ScheduleError` where the library has none, and :class:`TargetError`
    where there is no such GPU.
    """
    return create(NAME, (problem,), with_architecture(target))
