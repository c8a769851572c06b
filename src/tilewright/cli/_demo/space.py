"""What the demo searches: the library's schedules for a layer, the best guess first.

The loop over all of them is that of the article "Optimizing depthwise convolution with TVM".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from tilewright.cli._demo.layers import Layer
from tilewright.cli._measure.machine import Machine
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi import templates
from tilewright.topi.template import Template

#: A schedule, and the tensors of its kernel: input, filter, output.
Program = tuple[Schedule, list[Tensor]]


@dataclass(frozen=True)
class Candidate:
    """A schedule of a layer; ``label`` says its parameters in a few words."""

    label: str
    program: Callable[[Layer], Program]


def candidates(layer: Layer, machine: Machine, most: int) -> list[Candidate]:
    """At most ``most`` candidates, those that are predicted to be fast."""
    found = islice(templates.candidates(layer.problem, machine.target), most)
    return [
        Candidate(
            f"{template.name}: {', '.join(f'{k} {v}' for k, v in vars(config).items())}",
            partial(_program, template, config),
        )
        for template, config in found
    ]


def _program(template: Template, config: Any, layer: Layer) -> Program:
    return template.scheduled(layer.problem, config)
