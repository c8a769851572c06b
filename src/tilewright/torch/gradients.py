"""Autograd's record of eager calls, past the dispatcher.

Where derivatives of a gradient are wanted too, or a mode watches, the operators make it.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.torch.calls import CallPlan, is_channels_last, memory_format_of, observers
from tilewright.torch.eager_fast_path import needs_no_dispatch
from tilewright.torch.layouts import ByNCHW
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad
from tilewright.torch.passes import dgrad, dgrad_run, forward, wgrad, wgrad_run


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, plan: CallPlan) -> Any:
        needs = ctx.needs_input_grad
        ctx.plan, ctx.size, ctx.kernel = plan, input.shape, weight.shape[2:]
        ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
        if bias is not None:  # as autocast left it; summed in its own type, gradients fit that
            ctx.bias_dtype, bias = bias.dtype, bias.to(input.dtype)
        return plan.run(input, weight, bias)


def _is_short(*tensors: Any) -> bool:
    """Whether kernels may make the gradients, past the dispatcher."""
    return not torch.is_grad_enabled() and needs_no_dispatch(*tensors)


class _Convolution(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (dy,), (input, weight), needs = grads, ctx.saved_tensors, ctx.needs_input_grad
        geometry, size, kernel, last = ctx.plan.geometry, ctx.size, ctx.kernel, ctx.plan.last
        short = _is_short(dy, input, weight)
        is_flat = len(size) == 3
        if is_flat:
            dy, input, weight = (t if t is None else t.unsqueeze(2) for t in (dy, input, weight))
            size, kernel = (*size[:2], 1, size[2]), (1, *kernel)
        dy = dy.contiguous(memory_format=memory_format_of(last))  # once for both
        dx = dw = None
        both = short and needs[0] and needs[1] and not observers and is_channels_last(input) is last
        if both and weight.is_contiguous():
            dx, dw = _both(dy, weight, input, size, kernel, ctx.plan)
        else:
            if needs[0]:
                by_input: Any = dgrad if short else conv_dgrad
                dx = by_input(dy, weight, None, size, *geometry, last)
            if needs[1]:
                by_weight: Any = wgrad if short else conv_wgrad
                dw = by_weight(input, dy, kernel, *geometry)
        db = dy.sum((0, 2, 3), dtype=ctx.bias_dtype) if needs[2] else None
        if is_flat:
            dx, dw = (t if t is None else t.squeeze(2) for t in (dx, dw))
        return dx, dw, db, None


def _both(
    dy: Any, weight: Any, input: Any, size: Any, kernel: Any, plan: CallPlan
) -> tuple[Any, Any]:
    """Both gradients; where both are computed in NCHW, of one copy of ``dy``."""
    by_input = dgrad_run(dy, weight, None, size, plan.geometry, plan.last)
    by_weight = wgrad_run(input, dy, kernel, plan.geometry)
    if isinstance(by_input, ByNCHW) and isinstance(by_weight, ByNCHW):
        dy = dy.contiguous()
    return by_input(dy, weight), by_weight(input, dy)


class _Transposed(_Recorded):
    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (dy,), (input, weight), needs = grads, ctx.saved_tensors, ctx.needs_input_grad
        short = _is_short(dy, input, weight)
        by_input: Any = forward if short else conv
        by_weight: Any = wgrad if short else conv_wgrad
        dy = dy.contiguous(memory_format=memory_format_of(ctx.plan.last))
        dx = by_input(dy, weight, None, *ctx.plan.geometry) if needs[0] else None
        dw = by_weight(dy, input, ctx.kernel, *ctx.plan.geometry) if needs[1] else None
        db = dy.sum((0, 2, 3), dtype=ctx.bias_dtype) if needs[2] else None
        return dx, dw, db, None


def recorded(input: Any, weight: Any, bias: Any, plan: CallPlan) -> Any:
    """The run of a convolution, with autograd's record of it."""
    return _Convolution.apply(input, weight, bias, plan)


def recorded_transpose(input: Any, weight: Any, bias: Any, plan: CallPlan) -> Any:
    """The same of a transposed convolution."""
    return _Transposed.apply(input, weight, bias, plan)
