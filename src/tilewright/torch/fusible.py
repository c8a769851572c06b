"""Which modules may be one kernel, and whether they may be it now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tilewright.torch.autocast import autocast
from tilewright.torch.calls import DTYPES
from tilewright.torch.eager_fast_path import hooks, pre_hooks
from tilewright.torch.functional import pair, sides_of
from tilewright.torch.geometry import Geometry, fits
from tilewright.torch.grouped import GroupedConv2d, takes
from tilewright.torch.modules import DepthwiseConv2d, DepthwiseConv2dSame
from tilewright.torch.normalized import conv_norm
from tilewright.torch.norms import activation_step


class Naming:
    """A hook that says which convolution is called; a chain calls it, and goes on."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told = name, told

    def __call__(self, module: Any, args: Any) -> None:
        self.told[0] = self.name


class _Nothing(nn.Identity):
    """Where there is no activation."""


NOTHING = _Nothing()


#: The classes of convolutions that take along what follows them.
CONVOLUTIONS = (DepthwiseConv2d, DepthwiseConv2dSame, GroupedConv2d)


def acts(norm: Any) -> bool:
    """Whether a normalisation ends with an activation: timm's ``BatchNormAct2d`` as it is, known by
    its name, since whoever has one has loaded timm."""
    kind = type(norm)
    return (
        kind.__name__ == "BatchNormAct2d"
        and kind.__module__.split(".")[0] == "timm"
        and kind.__base__ is nn.BatchNorm2d
    )


def is_norm(norm: Any) -> bool:
    """Whether a module may be part of a kernel as its normalisation."""
    return type(norm) is nn.BatchNorm2d or (acts(norm) and inner(norm) is not None)


def inner(norm: Any) -> Any:
    """The activation inside of a normalisation that :func:`acts`: :data:`NOTHING` where it is none,
    None where it, or the dropout before it, is more than a kernel does."""
    own = norm._modules
    drop, act = own.get("drop"), own.get("act")
    if type(drop) is not nn.Identity or drop._forward_hooks or drop._forward_pre_hooks:
        return None
    if type(act) is nn.Identity and not (act._forward_hooks or act._forward_pre_hooks):
        return NOTHING
    return act if activation_step(act) else None


def length(modules: Sequence[Any], k: int) -> int:
    """How many modules from the ``k``-th on may be one kernel: 2, 3 with an activation, or 1."""
    if k + 1 >= len(modules) or type(modules[k]) not in CONVOLUTIONS or not is_norm(modules[k + 1]):
        return 1
    if acts(modules[k + 1]):
        return 2
    return 3 if k + 2 < len(modules) and activation_step(modules[k + 2]) else 2


def is_fusible(x: Any, convolution: Any, norm: Any, activation: Any = NOTHING) -> bool:
    """Whether the three, as they are now, compute what one kernel can, and nobody looks between.

    What keeps them apart: training, gradients, hooks, forward passes of their own, odd shapes.
    """
    if type(convolution) not in CONVOLUTIONS or not is_norm(norm):
        return False
    activation = inner(norm) if acts(norm) else activation
    three = (convolution, norm, activation)
    if activation is not NOTHING and not activation_step(activation):
        return False
    if hooks or pre_hooks or any(m._forward_hooks or "forward" in m.__dict__ for m in three):
        return False
    if norm._forward_pre_hooks or activation._forward_pre_hooks:
        return False
    if "_conv_forward" in convolution.__dict__:
        return False
    if not all(isinstance(hook, Naming) for hook in convolution._forward_pre_hooks.values()):
        return False
    weight, bias = convolution.weight, convolution.bias
    mean, variance = norm.running_mean, norm.running_var
    if norm.training or mean is None or variance is None or convolution.padding_mode != "zeros":
        return False
    own = convolution.in_channels // convolution.groups
    if x.dim() != 4 or weight.dim() != 4 or not fits(x, weight, bias, own):
        return False
    if type(convolution) is GroupedConv2d and not takes(x):
        return False
    if x.dtype not in DTYPES or not (x.is_cpu or x.is_cuda):
        return False
    if x.shape[1] != convolution.in_channels:
        return False
    statistics = [t for t in (mean, variance, norm.weight, norm.bias) if t is not None]
    if any(t.shape != weight.shape[:1] or t.dtype != mean.dtype for t in statistics):
        return False
    return not (torch.is_grad_enabled() and asks(x, weight, bias, *statistics))


def asks(*operands: Any) -> bool:
    """Whether one of them asks for gradients."""
    return any(t is not None and t.requires_grad for t in operands)


def geometry_of(convolution: Any, x: Any) -> Geometry:
    """How the filter of a module goes over an image; raises for settings that it cannot have."""
    kernel = convolution.weight.shape[2], convolution.weight.shape[3]
    steps, spread = pair(convolution.stride), pair(convolution.dilation)
    if type(convolution) is DepthwiseConv2dSame:
        sides = tuple(convolution._sides(x))
    else:
        sides = sides_of(convolution.padding, kernel, steps, spread)
    geometry = Geometry(steps, sides, spread)
    if not geometry.is_valid:
        raise ValueError(f"stride {steps}, padding {sides} or dilation {spread} is negative, or 0")
    return geometry


def by_operator(x: Any, convolution: Any, norm: Any, activation: Any = NOTHING) -> Any:
    """The same by an operator, which compilers and profilers see."""
    activation = inner(norm) if acts(norm) else activation
    x, weight, bias = autocast(x, convolution.weight, convolution.bias)
    return conv_norm(
        x, weight, bias, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps,
        activation_step(activation), *geometry_of(convolution, x),
    )  # fmt: skip
