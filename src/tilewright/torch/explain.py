"""What each convolution of a model runs on, for given inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tilewright.ir.errors import ArgumentError
from tilewright.topi.operators.conv import Conv
from tilewright.torch import calls
from tilewright.torch.fusible import Naming
from tilewright.torch.grouped import GroupedConv2d
from tilewright.torch.kernels import Selection
from tilewright.torch.modules import REPLACEMENTS
from tilewright.torch.table import text_table


@dataclass(frozen=True)
class Line:
    """One call: the module, the problem, and the kernel's name or why PyTorch did it."""

    name: str
    problem: Conv | None
    kernel: str
    reason: str


@dataclass(frozen=True)
class Explanation:
    """The calls of a forward pass in their order; printed, a table."""

    lines: list[Line]

    def __str__(self) -> str:
        cells = [
            (
                x.name,
                "" if x.problem is None else str(x.problem),
                x.kernel or f"PyTorch: {x.reason}",
            )
            for x in self.lines
        ]
        none = "no convolution of Tilewright's was called: optimize_(model) puts them in"
        return text_table(("module", "problem", "kernel"), cells) if cells else none

    __repr__ = __str__


def explain(model: nn.Module, inputs: Any) -> Explanation:
    """Run ``model`` once and say what every convolution of ours ran on.

    ``inputs`` is a tensor, a tuple of arguments or a dictionary of them by name. Kernels that are
    not there yet are compiled; gradients are not recorded. Not for compiled models: pass the one
    that was given to ``torch.compile``.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"explain takes a torch.nn.Module, got a {type(model).__name__}")
    lines: list[Line] = []
    current = [""]

    def observe(problem: Conv | None, found: Selection) -> None:
        kernel = "" if found.choice is None else str(found.choice)
        if found.strides is not None:
            kernel += f", input with strides {found.strides}"
        lines.append(Line(current[0], problem, kernel, found.reason or "nothing to compute"))

    handles = []
    ours: Any = (*REPLACEMENTS.values(), GroupedConv2d)
    for name, module in model.named_modules():
        if isinstance(module, ours):
            naming = Naming(name or "(model)", current)
            handles.append(module.register_forward_pre_hook(naming))
    calls.observers.append(observe)
    try:
        with torch.no_grad():
            if isinstance(inputs, Mapping):
                model(**inputs)
            elif isinstance(inputs, tuple):
                model(*inputs)
            else:
                model(inputs)
    finally:
        calls.observers.remove(observe)
        for handle in handles:
            handle.remove()
    return Explanation(lines)
