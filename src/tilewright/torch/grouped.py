"""Convolutions that are not depthwise as modules: in inference.

On a CPU, groups of several channels are what PyTorch's kernels are slow for in NCHW. With one
group, there and on GPUs, and with channels last, they are about as fast as ours alone, and what
follows takes passes of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Proxy
from torch.jit import is_scripting

from tilewright.torch import kernels
from tilewright.torch.calls import lies_as, target_of
from tilewright.torch.eager_fast_path import (
    as_leaf,
    is_overridden,
    named,
    needs_no_dispatch_but_watched,
)
from tilewright.torch.functional import sides_of
from tilewright.torch.geometry import Geometry, fits
from tilewright.torch.normalized import run_for


class GroupedConv2d(nn.Conv2d):
    """``nn.Conv2d``, in the same ``state_dict``, with kernels of Tilewright's where no gradient is
    recorded: for float32 images on a CPU, and with one group for images of 16 bits with channels
    last on a Hopper GPU. PyTorch does the rest. ``precision`` is what may be done to products
    (:class:`~tilewright.topi.Problem`)."""

    precision = "exact"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting() or torch.compiler.is_compiling():
            return self._conv_forward(input, self.weight, self.bias)
        elif isinstance(input, Proxy):
            return as_leaf(self, input)
        else:
            made = _convolve(self, input)
            return self._conv_forward(input, self.weight, self.bias) if made is None else made


def why_not(module: Any, dense: bool) -> str:
    """Why a convolution is left to PyTorch; empty where it need not be. Those that are as fast
    there are taken where they are asked for, or measured."""
    channels = f"{module.in_channels} channels in {module.groups} groups"
    if type(module) is not nn.Conv2d:
        return f"is not depthwise: {channels}"
    if not _has_kernels(module.weight):
        return (
            f"is not depthwise: {channels}, for which there are kernels in float32 on a CPU, and "
            "in 16 bits with channels last on a Hopper GPU"
        )
    if module.groups > 1 and module.weight.is_cuda:
        return f"is not depthwise: {channels}, for which there are kernels on a CPU"
    if module.padding_mode != "zeros":
        return f"is padded by {module.padding_mode!r}"
    if dense or kernels.policy(target_of(module.weight.device)) == "profile":
        return ""
    if module.groups == 1:
        return "is dense: left to PyTorch, unless dense=True"
    if not module.weight.is_contiguous():  # which is so of its images, too
        return "is channels last: left to PyTorch, unless dense=True"
    return ""


def _has_kernels(tensor: Any) -> bool:
    """Whether there are kernels for tensors of that type there."""
    if tensor.is_cuda:
        known = tensor.dtype in (torch.float16, torch.bfloat16)
        return known and target_of(tensor.device).arch == "sm_90a"
    return tensor.is_cpu and tensor.dtype is torch.float32


def takes(input: Any) -> bool:
    """Whether there are kernels for images like this one, now."""
    return (
        input.dim() == 4
        and _has_kernels(input)
        and not torch.is_autocast_enabled(input.device.type)
        and not torch.compiler.is_compiling()
    )


def _convolve(module: nn.Conv2d, input: Any) -> torch.Tensor | None:
    """The convolution by a kernel of ours; None where there is none."""
    weight, bias = module.weight, module.bias
    operands = [input, weight] if bias is None else [input, weight, bias]
    if torch.is_grad_enabled() and any(t.requires_grad for t in operands):
        return None
    if not takes(input) or not needs_no_dispatch_but_watched(*operands) or is_overridden():
        return None
    own = module.in_channels // module.groups
    if input.shape[1] != module.in_channels or weight.dim() != 4:
        return None
    if not fits(input, weight, bias, own) or not lies_as(weight, input):
        return None
    kernel: Any = weight.shape[2:]
    steps: Any = module.stride
    spread: Any = module.dilation
    geometry = Geometry(steps, sides_of(module.padding, kernel, steps, spread), spread)
    precision = getattr(module, "precision", "exact")
    run = run_for(input, weight, bias, (), 0.0, "", geometry, precision=precision)
    return None if run is None else named("tilewright::conv2d", run)
