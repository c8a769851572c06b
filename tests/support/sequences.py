"""Depthwise convolutions with what follows them, as models have them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

#: By name, what makes each activation that a kernel takes along.
ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "ReLU": nn.ReLU, "ReLU6": nn.ReLU6, "SiLU": nn.SiLU, "GELU": nn.GELU,
    "Hardswish": nn.Hardswish, "Hardsigmoid": nn.Hardsigmoid,
    "LeakyReLU": lambda: nn.LeakyReLU(0.3), "Hardtanh": lambda: nn.Hardtanh(-0.5, 0.7),
    "none": nn.Identity,
}  # fmt: skip


class Unit(nn.Sequential):
    """Of the kind that torchvision's models are made of."""

    def __init__(self, channels: int, activation: Any = None, **settings: Any) -> None:
        settings = {"kernel_size": 3, "padding": 1, "groups": channels, "bias": False} | settings
        conv = nn.Conv2d(channels, settings.pop("out_channels", channels), **settings)
        layers = [conv, nn.BatchNorm2d(conv.out_channels)]
        super().__init__(*layers, *([] if activation is None else [activation]))


def sequence(activation: Any = None, channels: int = 8, **settings: Any) -> Unit:
    """A unit in evaluation mode whose statistics are those of no batch."""
    made = Unit(channels, activation, **settings)
    trained(made)
    return made.eval()


def trained(module: nn.Module) -> None:
    """Give normalisations statistics and parameters as after training."""
    with torch.no_grad():
        for norm in module.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
                if norm.affine:
                    norm.weight.uniform_(0.5, 2)
                    norm.bias.normal_()


def watched(monkeypatch: Any, module: nn.Module) -> Callable[[], int]:
    """Count the calls of the normalisations and activations of a module, whose classes are watched;
    what is returned tells how many there were since it was asked last."""
    calls = [0]
    for kind in {type(m) for m in module.modules() if not list(m.children())}:
        if issubclass(kind, nn.Conv2d):
            continue
        before = kind.forward

        def counted(self: Any, x: Any, before: Any = before) -> Any:
            calls[0] += 1
            return before(self, x)

        monkeypatch.setattr(kind, "forward", counted)

    def since() -> int:
        found, calls[0] = calls[0], 0
        return found

    return since


def in_float64(module: nn.Module, x: Any) -> Any:
    """What a module computes where rounding plays no part."""
    return copy.deepcopy(module).double()(x.double())
