"""The gradients on tensors: by the input (the transposed convolution) and by the weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.ir.errors import ProblemError
from tilewright.torch.calls import (
    Run,
    cached,
    find,
    is_last,
    laid,
    memory_format,
    observe,
    problem_of,
    signature,
    why_not,
)
from tilewright.torch.forward import symmetric
from tilewright.torch.kernels import Found


def dgrad(
    grad: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    input_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    channels_last: bool,
) -> torch.Tensor:
    """The gradient by the input, of ``input_size``, in the layout that is asked for.

    ``bias``, (C,) or None, is what a transposed convolution adds to it.
    """
    form = memory_format(channels_last)
    grad = grad.contiguous(memory_format=form)
    weight = weight.contiguous()
    operands = (grad, weight) if bias is None else (grad, weight, bias.contiguous())
    run = dgrad_run(operands, input_size, stride, padding, dilation, channels_last)
    out: torch.Tensor = run(*operands)
    return out


def dgrad_run(
    operands: tuple[torch.Tensor, ...],
    input_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    channels_last: bool,
) -> Run:
    """What :func:`dgrad` calls with its operands, laid out as it does; or with others like them."""
    form = memory_format(channels_last)
    grad, weight, bias = (*operands, None)[:3]
    key = (
        "dgrad", *signature(grad, weight, bias), channels_last, *input_size, *stride, *padding,
        *dilation,
    )  # fmt: skip

    def make() -> Run:
        size = tuple(input_size)
        found = _find(
            "dgrad", operands, size, grad.shape[1], weight.shape[2:], stride, padding,
            dilation, channels_last,
        )  # fmt: skip
        launch, dtype, device = found.launch, grad.dtype, grad.device
        if launch is None:
            steps, pads, spread = tuple(stride), tuple(padding), tuple(dilation)
            return lambda *given: _conv2d_input(given, size, steps, pads, spread, form)
        empty = torch.empty_strided
        strides = torch.empty(size, device="meta", memory_format=form).stride()

        def run(dy: Any, w: Any, *b: Any) -> Any:
            dx = empty(size, strides, dtype=dtype, device=device)
            if b:
                launch((dy.data_ptr(), w.data_ptr(), b[0].data_ptr(), dx.data_ptr()))
            else:
                launch((dy.data_ptr(), w.data_ptr(), dx.data_ptr()))
            return dx

        return run

    return cached(key, make)


def wgrad(
    input: torch.Tensor,
    grad: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """The gradient by the weight, (C * multiplier, 1, KH, KW)."""
    last = is_last(input)
    if last is None:
        input = input.contiguous()
    grad = grad.contiguous(memory_format=memory_format(last))
    out: torch.Tensor = wgrad_run(input, grad, kernel, stride, padding, dilation)(input, grad)
    return out


def wgrad_run(
    input: torch.Tensor,
    grad: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Run:
    """What :func:`wgrad` calls with operands that are dense in one layout."""
    last = bool(is_last(input))
    key = ("wgrad", *signature(input, grad, None), *kernel, *stride, *padding, *dilation)

    def make() -> Run:
        shape = (grad.shape[1], 1, *kernel)
        found = _find(
            "wgrad", (input, grad), input.shape, grad.shape[1], kernel, stride, padding, dilation,
            last,
        )  # fmt: skip
        launch, dtype, device = found.launch, grad.dtype, grad.device
        if launch is None:
            steps, pads, spread = tuple(stride), tuple(padding), tuple(dilation)
            return lambda x, g: _conv2d_weight(x, g, shape, steps, pads, spread)

        empty, strides = torch.empty_strided, torch.empty(shape, device="meta").stride()

        def run(x: Any, g: Any) -> Any:
            dw = empty(shape, strides, dtype=dtype, device=device)
            launch((x.data_ptr(), g.data_ptr(), dw.data_ptr()))
            return dw

        return run

    return cached(key, make)


def _find(
    pass_: str,
    tensors: tuple[torch.Tensor, ...],
    input_size: Sequence[int],
    out_channels: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    last: bool,
) -> Found:
    problem, found = None, Found(None)
    if 0 not in input_size and all(t.numel() for t in tensors):
        found = Found(None, reason=why_not(*tensors))
        if not found.reason:
            dtype, device = tensors[0].dtype, tensors[0].device
            try:
                problem = problem_of(
                    pass_, input_size, out_channels, kernel, stride, padding, dilation, dtype,
                    last, len(tensors) == 3,
                )  # fmt: skip
                found = find(problem, device)
            except ProblemError:  # PyTorch says what is wrong
                found = Found(None)
    observe(problem, found)
    return found


def _conv2d_input(
    given: Any, size: Any, stride: Any, padding: Any, dilation: Any, form: Any
) -> Any:
    """PyTorch's gradient by the input, for any padding, and the bias added to it."""
    grad, weight, *bias = given
    n, c, h, w = size
    top, left, bottom, right = padding
    both = min(top, bottom), min(left, right)
    wide = (n, c, h + top + bottom - 2 * both[0], w + left + right - 2 * both[1])
    dx = torch.nn.grad.conv2d_input(wide, weight, grad, stride, both, dilation, c)
    dx = dx[:, :, top - both[0] : top - both[0] + h, left - both[1] : left - both[1] + w]
    for b in bias:
        dx = dx + b[:, None, None]
    return laid(dx, form)


def _conv2d_weight(
    input: Any, grad: Any, shape: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    """PyTorch's gradient by the weight, for any padding."""
    x, both = symmetric(input, padding)
    dw = torch.nn.grad.conv2d_weight(x, shape, grad, stride, both, dilation, x.shape[1])
    return laid(dw, torch.contiguous_format)
