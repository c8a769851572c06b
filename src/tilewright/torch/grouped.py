"""Convolutions that are not depthwise as modules: in inference on a CPU, of images in NCHW.

Groups of several channels are what PyTorch's kernels are slow for. With one group they are as fast
as ours, but where images are small and its filters are brought into their order in every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Proxy
from torch.jit import is_scripting

from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv import Conv
from tilewright.torch import kernels
from tilewright.torch.calls import cached, observe, target_of
from tilewright.torch.eager_fast_path import as_leaf, needs_no_dispatch
from tilewright.torch.functional import sides_of


class GroupedConv2d(nn.Conv2d):
    """``nn.Conv2d``, in the same ``state_dict``, with kernels of Tilewright's where no gradient is
    recorded, for float32 images in NCHW on a CPU. PyTorch does the rest."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if is_scripting() or torch.compiler.is_compiling():
            return self._conv_forward(input, self.weight, self.bias)
        elif isinstance(input, Proxy):
            return as_leaf(self, input)
        else:
            made = _convolve(self, input)
            return self._conv_forward(input, self.weight, self.bias) if made is None else made


def why_not(module: Any) -> str:
    """Why a convolution is left to PyTorch; empty where it need not be."""
    channels = f"{module.in_channels} channels in {module.groups} groups"
    if type(module) is not nn.Conv2d:
        return f"is not depthwise: {channels}"
    if module.weight.device.type != "cpu" or module.weight.dtype != torch.float32:
        return f"is not depthwise: {channels}, for which there are kernels in float32 on a CPU"
    if module.padding_mode != "zeros":
        return f"is padded by {module.padding_mode!r}"
    if module.groups == 1 and kernels.policy(target_of(module.weight.device)) != "profile":
        return f"is not depthwise: {channels}"  # PyTorch is as fast, unless it is measured
    return ""


def _convolve(module: nn.Conv2d, input: torch.Tensor) -> torch.Tensor | None:
    """The convolution by a kernel of ours; None where there is none."""
    weight, bias = module.weight, module.bias
    if not _takes(input, weight, bias) or input.shape[1] != module.in_channels:
        return None
    shape: Any = input.shape
    key = (GroupedConv2d, shape, weight.shape, bias is None, module.stride, module.padding,
           module.dilation)  # fmt: skip
    run = cached(key, lambda: _run(module, shape))
    found: torch.Tensor | None = run(input, weight, bias)
    return found


def _takes(input: Any, weight: Any, bias: Any) -> bool:
    operands = [input, weight] if bias is None else [input, weight, bias]
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in operands)
    return (
        input.dim() == 4
        and input.is_cpu
        and not recorded
        and all(t.dtype == torch.float32 and t.is_contiguous() and t.is_cpu for t in operands)
        and needs_no_dispatch(input, weight, bias)
        and not torch.is_autocast_enabled("cpu")
        and input.numel() > 0
    )


def _run(module: nn.Conv2d, shape: tuple[int, ...]) -> Any:
    """What computes images of a shape, or gives None."""
    kernel, stride, dilation = (
        (int(a), int(b)) for a, b in (module.kernel_size, module.stride, module.dilation)
    )
    sides = sides_of(module.padding, kernel, stride, dilation)
    seen = [shape[k + 2] + sides[k] + sides[k + 2] - (kernel[k] - 1) * dilation[k] for k in (0, 1)]
    if min(seen) < 1:
        return lambda *_: None  # PyTorch says what is wrong
    problem = Conv(
        operator="conv2d", batch=shape[0], channels=shape[1], height=shape[2], width=shape[3],
        groups=module.groups, multiplier=module.out_channels // module.groups,
        kernel_h=kernel[0], kernel_w=kernel[1], stride=stride, padding=sides, dilation=dilation,
        epilogue=() if module.bias is None else (Step("bias"),),
    )  # fmt: skip
    found = kernels.find(problem, target_of(module.weight.device))
    observe(problem, found)
    launch, size = found.launch, problem.result.shape
    if launch is None:
        return lambda *_: None

    def run(*operands: Any) -> torch.Tensor:
        made: torch.Tensor = operands[0].new_empty(size)
        launch(tuple(t.data_ptr() for t in (*operands, made) if t is not None))
        return made

    return run
