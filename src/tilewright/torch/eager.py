"""The short way of an eager call: past the dispatcher, where nobody there wants to know of it.

The dispatcher costs a call some ten microseconds when the operator is Python's. What it is for
(tracing, modes, subclasses, transformations, profiles) is looked for here, and leaves the call to
it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch._C import _functorch

from tilewright.torch.backward import dgrad, wgrad
from tilewright.torch.calls import DTYPES, is_last, memory_format, observe, why_not
from tilewright.torch.forward import forward, symmetric
from tilewright.torch.kernels import Found
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_modes = torch._C._len_torch_dispatch_stack
_functions = torch._C._len_torch_function_stack
_tracing = torch._C._get_tracing_state
_transforms = _functorch.peek_interpreter_stack
_profiled = torch.autograd._profiler_enabled
_grad = torch.is_grad_enabled


def _is_plain(input: Any, weight: Any, bias: Any) -> bool:
    return (
        type(input) in _PLAIN
        and type(weight) in _PLAIN
        and (bias is None or type(bias) in _PLAIN)
        and _modes() == 0
        and _functions() == 0
        and _tracing() is None
        and not _profiled()
        and not (input.is_neg() or weight.is_neg() or input.device.type == "meta")
    )


def _way(input: Any, weight: Any, bias: Any) -> str:
    """Who does a call: "operator", "autograd", "kernel", or nobody here: "theirs"."""
    ours = input.dtype in DTYPES and (input.is_cpu or input.is_cuda or input.is_meta)
    if torch.compiler.is_compiling():
        return "operator" if ours else "theirs"
    why = ""
    if not ours:
        why = why_not(input)
    elif _transforms() is not None or torch.autograd.forward_ad._current_level >= 0:
        # Rules for these are not to be had for an operator of a library.
        why = "torch.func's transformations and forward-mode gradients"
    if why:
        observe(None, Found(None, reason=why))
        return "theirs"
    if not _is_plain(input, weight, bias):
        return "operator"
    if _grad() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return "autograd"
    return "kernel"


def convolve(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor:
    """The convolution, with its gradients."""
    made: torch.Tensor
    match _way(input, weight, bias):
        case "kernel":
            made = forward(input, weight, bias, stride, padding, dilation)
        case "autograd":
            made = _Convolution.apply(input, weight, bias, stride, padding, dilation)
        case "operator":
            made = conv(input, weight, bias, stride, padding, dilation)
        case _:
            x, pads = symmetric(input, padding)
            made = F.conv2d(x, weight, bias, stride, pads, dilation, input.shape[1])
    return made


def transpose(
    input: Any, weight: Any, bias: Any, size: Any, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor | None:
    """The transposed convolution to an image of ``size``, with its gradients; else None."""
    made: torch.Tensor | None
    match _way(input, weight, bias):
        case "kernel":
            last = bool(is_last(input))
            made = dgrad(input, weight, bias, size, stride, padding, dilation, last)
        case "autograd":
            made = _Transposed.apply(input, weight, bias, size, stride, padding, dilation)
        case "operator":
            last = bool(is_last(input))
            made = conv_dgrad(input, weight, bias, size, stride, padding, dilation, last)
        case _:
            made = None
    return made


class _Convolution(torch.autograd.Function):
    """What autograd knows of the operator, said in less time."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
    ) -> Any:
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        ctx.size, ctx.kernel, ctx.last = input.shape, weight.shape[2:], is_last(input)
        ctx.geometry = stride, padding, dilation
        return forward(input, weight, bias, stride, padding, dilation)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (dy,) = grads
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        short = not _grad() and _is_plain(dy, dy, None)
        by_input: Any = dgrad if short else conv_dgrad
        by_weight: Any = wgrad if short else conv_wgrad
        dx = dw = None
        if needs[0]:
            dx = by_input(dy, weight, None, ctx.size, *ctx.geometry, bool(ctx.last))
        if needs[1]:
            dw = by_weight(input, dy, ctx.kernel, *ctx.geometry)
        db = dy.sum((0, 2, 3)) if needs[2] else None
        return dx, dw, db, None, None, None


class _Transposed(torch.autograd.Function):
    """The same of the transposed convolution."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, size: Any, stride: Any, padding: Any,
        dilation: Any,
    ) -> Any:  # fmt: skip
        needs = ctx.needs_input_grad
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        ctx.kernel, ctx.last = weight.shape[2:], bool(is_last(input))
        ctx.geometry = stride, padding, dilation
        return dgrad(input, weight, bias, size, stride, padding, dilation, ctx.last)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        dy = grads[0].contiguous(memory_format=memory_format(ctx.last))
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        short = not _grad() and _is_plain(dy, dy, None)
        by_input: Any = forward if short else conv
        by_weight: Any = wgrad if short else conv_wgrad
        dx = by_input(dy, weight, None, *ctx.geometry) if needs[0] else None
        dw = by_weight(dy, input, ctx.kernel, *ctx.geometry) if needs[1] else None
        db = dy.sum((0, 2, 3)) if needs[2] else None
        return dx, dw, db, None, None, None, None
