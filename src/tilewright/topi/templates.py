"""The schedules that the library has for a problem, with the parameters worth trying for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target.target import Target
from tilewright.topi.cpu.templates import CPU
from tilewright.topi.declared import Declared
from tilewright.topi.gpu.templates import GPU
from tilewright.topi.opencl.templates import OPENCL
from tilewright.topi.problem import Problem
from tilewright.topi.sketch_templates import SKETCHES
from tilewright.topi.template import Template

#: Every template, by name.
TEMPLATES = {t.name: t for t in (*CPU, *GPU, *OPENCL, *SKETCHES)}


def templates(p: Problem, target: str | Target) -> list[Template]:
    """The templates for a problem on a target, in the order of preference."""
    machine = Target.parse(target)
    return cheapest_first([t for t in TEMPLATES.values() if t.fits(p, machine)], p, machine)


def cheapest_first(found: Sequence[Template], p: Problem, target: Target) -> list[Template]:
    """Templates for a problem, of which those with a price change places, so that the one that is
    cheapest by its best guess comes first."""
    places = [k for k, t in enumerate(found) if t.priced]
    if len(places) < 2:
        return list(found)
    taken = dict(zip(places, sorted(places, key=lambda k: found[k].price(p, target)), strict=True))
    return [found[taken.get(k, k)] for k in range(len(found))]


def candidates(p: Problem, target: str | Target) -> Iterator[tuple[Template, Any]]:
    """Templates with parameters; those that are likely to be fast come early."""
    machine = Target.parse(target)
    found = [(t, t.candidates(p, machine)) for t in templates(p, machine)]
    for rank in range(max((len(configs) for _, configs in found), default=0)):
        for template, configs in found:
            if rank < len(configs):
                yield template, configs[rank]


def default_schedule(p: Problem, target: str | Target) -> tuple[Declared, Schedule]:
    """A declaration of ``p``, and the schedule that is guessed to be best for it.

    Raises :class:`ScheduleError` where the library has none.
    """
    for template, config in candidates(p, target):
        declaration = template.declare(p, config)
        return declaration, template.schedule(declaration, config)
    raise ScheduleError(f"there is no schedule for {p} on {target}", mend="Write one in te")
