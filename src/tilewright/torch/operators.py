"""The operators ``torch.ops.tilewright.*``: what autograd, torch.compile and export know of them.

The three passes are each other's gradients: that by the input of a convolution is linear in dy and
the weight, that by the weight is linear in x and dy. So every derivative of any order is one of
them. That by the input, with a bias, is the transposed convolution as well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewright.torch import flops, passes
from tilewright.torch.autocast import register_autocast
from tilewright.torch.calls import is_channels_last, lying, memory_format_of
from tilewright.torch.geometry import Geometry
from tilewright.torch.lowerings import register_fake

_library = torch.library.Library("tilewright", "DEF")
_GEOMETRY = "SymInt[2] stride, SymInt[4] padding, SymInt[2] dilation"
# Compilers may call them with the images in another layout than eager code would, as ones whose
# neighbours they compute with channels last: they take them as they come, and so are their results.
_SCHEMAS = (
    f"depthwise_conv2d(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}) -> Tensor",
    "depthwise_conv2d_dgrad(Tensor grad, Tensor weight, Tensor? bias, SymInt[4] input_size, "
    f"{_GEOMETRY}, bool channels_last) -> Tensor",
    f"depthwise_conv2d_wgrad(Tensor input, Tensor grad, SymInt[2] kernel, {_GEOMETRY}) -> Tensor",
)
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.flexible_layout,))
for _device in ("CPU", "CUDA"):
    _library.impl("depthwise_conv2d", passes.forward, _device)
    _library.impl("depthwise_conv2d_dgrad", passes.dgrad, _device)
    _library.impl("depthwise_conv2d_wgrad", passes.wgrad, _device)

conv = torch.ops.tilewright.depthwise_conv2d.default
conv_dgrad = torch.ops.tilewright.depthwise_conv2d_dgrad.default
conv_wgrad = torch.ops.tilewright.depthwise_conv2d_wgrad.default


def _fake_forward(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    shape = Geometry(stride, padding, dilation).out_shape(input, weight)
    memory_format = memory_format_of(lying(input)[0])
    return torch.empty(shape, dtype=input.dtype, device=input.device, memory_format=memory_format)


def _fake_dgrad(
    grad: Any, weight: Any, bias: Any, input_size: Any, stride: Any, padding: Any, dilation: Any,
    last: bool,
) -> Any:  # fmt: skip
    memory_format = memory_format_of(passes.dense(grad, last)[1])
    return torch.empty(
        input_size, dtype=grad.dtype, device=grad.device, memory_format=memory_format
    )


def _fake_wgrad(
    input: Any, grad: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    return grad.new_empty((grad.shape[1], 1, *kernel))


def _save_forward(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, _, *ctx.geometry = inputs
    needs = ctx.needs_input_grad
    ctx.save_for_backward(input if needs[1] else None, weight if needs[0] else None)
    ctx.input_size, ctx.kernel = input.shape, weight.shape[2:]
    ctx.last = bool(lying(input)[0])


def _backward_forward(ctx: Any, dy: Any) -> Any:
    input, weight = ctx.saved_tensors
    dy = dy.contiguous(memory_format=memory_format_of(ctx.last))  # once for both
    dx = dw = db = None
    if ctx.needs_input_grad[0]:
        dx = conv_dgrad(dy, weight, None, ctx.input_size, *ctx.geometry, ctx.last)
    if ctx.needs_input_grad[1]:
        dw = conv_wgrad(input, dy, ctx.kernel, *ctx.geometry)
    if ctx.needs_input_grad[2]:
        db = dy.sum((0, 2, 3))
    return dx, dw, db, None, None, None


def _save_dgrad(ctx: Any, inputs: Any, output: Any) -> None:
    grad, weight, _, _, *ctx.geometry, ctx.last = inputs
    needs = ctx.needs_input_grad
    ctx.save_for_backward(grad if needs[1] else None, weight if needs[0] else None)
    ctx.kernel = weight.shape[2:]


def _backward_dgrad(ctx: Any, ddx: Any) -> Any:
    grad, weight = ctx.saved_tensors
    ddx = ddx.contiguous(memory_format=memory_format_of(ctx.last))
    dgrad = dweight = None
    if ctx.needs_input_grad[0]:
        dgrad = conv(ddx, weight, None, *ctx.geometry)
    if ctx.needs_input_grad[1]:
        dweight = conv_wgrad(ddx, grad, ctx.kernel, *ctx.geometry)
    dbias = ddx.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
    return dgrad, dweight, dbias, None, None, None, None, None


def _save_wgrad(ctx: Any, inputs: Any, output: Any) -> None:
    input, grad, _, *ctx.geometry = inputs
    ctx.save_for_backward(input, grad)


def _backward_wgrad(ctx: Any, ddw: Any) -> Any:
    input, grad = ctx.saved_tensors
    dx = None
    if ctx.needs_input_grad[0]:
        last = bool(is_channels_last(input))
        dy = grad.contiguous(memory_format=memory_format_of(last))
        dx = conv_dgrad(dy, ddw, None, input.shape, *ctx.geometry, last)
    dgrad = conv(input, ddw, None, *ctx.geometry) if ctx.needs_input_grad[1] else None
    return dx, dgrad, None, None, None, None


for _name, _fake, _save, _backward, _flops in (
    ("depthwise_conv2d", _fake_forward, _save_forward, _backward_forward, flops.by_output),
    ("depthwise_conv2d_dgrad", _fake_dgrad, _save_dgrad, _backward_dgrad, flops.by_gradient),
    ("depthwise_conv2d_wgrad", _fake_wgrad, _save_wgrad, _backward_wgrad, flops.by_kernel),
):
    register_fake(_library, _name, _fake)
    torch.library.register_autograd(
        f"tilewright::{_name}", _backward, setup_context=_save, lib=_library
    )
    register_flop_formula(getattr(torch.ops.tilewright, _name))(_flops)
register_autocast(_library, "depthwise_conv2d")
