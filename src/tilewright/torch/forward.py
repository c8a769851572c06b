"""The forward pass on tensors, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

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
from tilewright.torch.kernels import Found


def out_size(extent: int, kernel: int, stride: int, before: int, after: int, dilation: int) -> int:
    """Outputs along one dimension."""
    return (extent + before + after - (kernel - 1) * dilation - 1) // stride + 1


def out_shape(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, int, int, int]:
    """The shape of the output; extents may be symbolic."""
    n, _, h, w = input.shape
    c, _, kh, kw = weight.shape
    top, left, bottom, right = padding
    return (
        n,
        c,
        out_size(h, kh, stride[0], top, bottom, dilation[0]),
        out_size(w, kw, stride[1], left, right, dilation[1]),
    )


def forward(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """(N, C, H, W) with (C * multiplier, 1, KH, KW); ``padding`` is (top, left, bottom, right)."""
    out: torch.Tensor = runner(input, weight, bias, stride, padding, dilation)(input, weight, bias)
    return out


def runner(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Run:
    """What :func:`forward` calls with the operands, and may for others that are like them."""
    key = (*signature(input, weight, bias), *stride, *padding, *dilation)
    return cached(key, lambda: _make(input, weight, bias, stride, padding, dilation))


def _make(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Run:
    last = is_last(input)
    form = memory_format(last)
    others = (weight,) if bias is None else (weight, bias)
    shape = out_shape(input, weight, stride, padding, dilation)
    problem, found = None, Found(None)
    if 0 not in shape and input.numel():
        found = Found(None, reason=why_not(input, *others))
        if last is None:
            found = Found(None, reason="the input is dense in neither NCHW nor NHWC")
        elif not found.reason:
            try:
                problem = problem_of(
                    "forward", input.shape, shape[1], weight.shape[2:], stride, padding, dilation,
                    input.dtype, last, bias is not None,
                )  # fmt: skip
                found = find(problem, input.device)
            except ProblemError:  # PyTorch says what is wrong
                found = Found(None)
    observe(problem, found)
    launch = found.launch
    if launch is None:
        stride, padding, dilation = tuple(stride), tuple(padding), tuple(dilation)

        def fallback(x: Any, w: Any, b: Any) -> Any:
            x, pads = symmetric(x, padding)
            y = F.conv2d(x, w, b, stride, pads, dilation, x.shape[1])
            return laid(y, form)

        return fallback
    empty, dtype, device = torch.empty_strided, input.dtype, input.device
    strides = torch.empty(shape, device="meta", memory_format=form).stride()
    whole = weight.is_contiguous() and (bias is None or bias.is_contiguous())

    def run(x: Any, w: Any, b: Any) -> Any:
        y = empty(shape, strides, dtype=dtype, device=device)
        if not whole:
            w = w.contiguous()
        if b is None:
            launch((x.data_ptr(), w.data_ptr(), y.data_ptr()))
        else:
            b = b.contiguous()
            launch((x.data_ptr(), w.data_ptr(), b.data_ptr(), y.data_ptr()))
        return y

    return run


def symmetric(x: Any, padding: Sequence[int]) -> tuple[Any, tuple[int, int]]:
    """``x`` padded as far as the two sides differ, and the rest that both have."""
    top, left, bottom, right = padding
    h, w = min(top, bottom), min(left, right)
    if (top, left) != (bottom, right):
        x = F.pad(x, (left - w, right - w, top - h, bottom - h))
    return x, (h, w)
