"""The three passes on tensors, without gradients: a kernel's where there is one, else PyTorch's.

Each has a function that takes any operands, and one whose result may be kept for operands of the
same shapes, strides, types and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.ir.errors import ProblemError
from tilewright.runtime.torch_memory import allocator
from tilewright.torch import aten_fallback
from tilewright.torch.calls import (
    Run,
    cached,
    find,
    is_by_nchw,
    is_channels_last,
    lying,
    memory_format_of,
    signature,
)
from tilewright.torch.geometry import Geometry, fits
from tilewright.torch.kernels import Launch
from tilewright.torch.layouts import ByNCHW


def forward(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Sequence[int]
) -> torch.Tensor:
    """The convolution of (N, C, H, W) with (C * multiplier, 1, KH, KW) and a bias, (C,) or None."""
    run = forward_run(input, weight, bias, Geometry(*geometry))
    out: torch.Tensor = run(input, weight, bias)
    return out


def forward_run(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry
) -> Run:
    """What :func:`forward` calls with its three operands.

    Image and weight may lack a height, which is 1, and so does the result then.
    """

    def make() -> Run:
        is_flat = input.dim() == 3
        x, w = (input.unsqueeze(2), weight.unsqueeze(2)) if is_flat else (input, weight)
        last, strides = lying(x)
        memory_format = memory_format_of(last)
        if x.dim() != 4 or w.dim() != 4 or not (geometry.is_valid and fits(x, w, bias)):
            return lambda x, w, b: aten_fallback.conv2d(x, w, b, geometry, memory_format)  # raises
        sizes, shape = (x.shape, w.shape[0], w.shape[2:]), geometry.out_shape(x, w)
        operands = (x, w) if bias is None else (x, w, bias)
        launch, turned = _find("forward", operands, sizes, geometry, last, strides)
        if launch is None and is_flat:
            return lambda x, w, b: aten_fallback.conv2d(
                x.unsqueeze(2), w.unsqueeze(2), b, geometry, memory_format
            ).squeeze(2)
        if launch is None:
            return lambda x, w, b: aten_fallback.conv2d(x, w, b, geometry, memory_format)
        run = _launching(launch, shape, memory_format, x, 1 if turned else 0, is_flat)
        if all(t.is_contiguous() for t in operands[1:]):
            return run
        return lambda x, w, b: run(x, w.contiguous(), None if b is None else b.contiguous())

    return cached((*signature(input, weight, bias), *geometry.numbers), make)


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
    """The gradient by the input, of ``input_size``, in the layout of ``grad``; where that is dense
    in none, or in both, in the layout that is asked for.

    ``bias``, (C,) or None, is what a transposed convolution adds to it.
    """
    grad, channels_last = dense(grad, channels_last)
    weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
    geometry = Geometry(stride, padding, dilation)
    run = dgrad_run(grad, weight, bias, input_size, geometry, channels_last)
    out: torch.Tensor = run(grad, weight, bias)
    return out


def dense(grad: torch.Tensor, last: bool) -> tuple[torch.Tensor, bool]:
    """What lies as it does where it is dense, else in the layout that is asked for, and whether
    that is channels last."""
    memory_format = memory_format_of(last)
    if grad.is_contiguous(memory_format=memory_format):
        return grad, last
    own = is_channels_last(grad)
    return (grad.contiguous(memory_format=memory_format), last) if own is None else (grad, own)


def dgrad_run(
    grad: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    input_size: Sequence[int],
    geometry: Geometry,
    last: bool,
) -> Run:
    """What :func:`dgrad` calls with its operands, dense and in the layout that is asked for."""

    def make() -> Run:
        memory_format, size = memory_format_of(last), tuple(input_size)
        _check(geometry, grad, size, weight.shape[2:])
        filters, extents = (grad.shape[1], 1, *weight.shape[2:]), (size[1],)
        if tuple(weight.shape) != filters or (bias is not None and tuple(bias.shape) != extents):
            raise ProblemError(
                f"a weight of {tuple(weight.shape)} and a bias of "
                f"{None if bias is None else tuple(bias.shape)} for {size[1]} channels and a "
                f"gradient of {grad.shape[1]}: they are {filters} and {extents} or None"
            )
        operands = (grad, weight) if bias is None else (grad, weight, bias)
        sizes = (size, grad.shape[1], weight.shape[2:])
        launch, turned = _find("dgrad", operands, sizes, geometry, last)
        if launch is None:
            return lambda dy, w, b=None: aten_fallback.conv2d_input(
                dy, w, b, size, geometry, memory_format
            )
        return _launching(launch, size, memory_format, grad, 1 if turned else 0)

    key = ("dgrad", *signature(grad, weight, bias), last, *input_size, *geometry.numbers)
    return cached(key, make)


def wgrad(
    input: torch.Tensor, grad: torch.Tensor, kernel: Sequence[int], *geometry: Sequence[int]
) -> torch.Tensor:
    """The gradient by the weight, (C * multiplier, 1, KH, KW)."""
    last, strides = lying(input)
    if last is None or strides is not None:
        input = input.contiguous(memory_format=memory_format_of(last))
    grad = grad.contiguous(memory_format=memory_format_of(last))
    out: torch.Tensor = wgrad_run(input, grad, kernel, Geometry(*geometry))(input, grad)
    return out


def wgrad_run(
    input: torch.Tensor, grad: torch.Tensor, kernel: Sequence[int], geometry: Geometry
) -> Run:
    """What :func:`wgrad` calls with operands that are dense in one layout."""

    def make() -> Run:
        shape = (grad.shape[1], 1, *kernel)
        _check(geometry, grad, input.shape, kernel)
        sizes = (input.shape, grad.shape[1], kernel)
        last = bool(is_channels_last(input))
        launch, turned = _find("wgrad", (input, grad), sizes, geometry, last)
        if launch is None:
            return lambda x, dy: aten_fallback.conv2d_weight(x, dy, shape, geometry)
        return _launching(launch, shape, torch.contiguous_format, grad, 2 if turned else 0)

    return cached(("wgrad", *signature(input, grad, None), *kernel, *geometry.numbers), make)


def _check(geometry: Geometry, grad: Any, input_size: Sequence[int], kernel: Sequence[int]) -> None:
    """Raise :class:`ProblemError` unless ``grad`` is of a convolution of such images."""
    sizes = len(input_size), grad.dim(), len(kernel)
    if sizes != (4, 4, 2) or not geometry.is_valid or not geometry.is_of(grad, input_size, kernel):
        raise ProblemError(
            f"a gradient of {tuple(grad.shape)} is of no depthwise convolution of "
            f"{tuple(input_size)} with a filter of {tuple(kernel)} and {geometry}"
        )


def _find(
    pass_: str,
    operands: tuple[torch.Tensor, ...],
    sizes: tuple[Any, Any, Any],
    geometry: Geometry,
    last: bool | None,
    strides: tuple[int, ...] | None = None,
) -> tuple[Launch | None, bool]:
    """A kernel, if there is one, and whether it is one for NCHW where tensors are channels last."""
    if is_by_nchw(pass_, operands[0], *sizes, geometry, last):
        launch = find(pass_, operands, *sizes, geometry, False)
        if launch is not None:
            return launch, True
    return find(pass_, operands, *sizes, geometry, last, strides), False


def _launching(
    launch: Launch,
    shape: Sequence[int],
    memory_format: Any,
    like: torch.Tensor,
    by_nchw: int = 0,
    is_flat: bool = False,
) -> Run:
    """A launch on two operands or three, the last of them may be None, that makes a tensor.

    ``by_nchw`` of them are images in another layout than the kernel's, NCHW; so is the tensor where
    its ``memory_format`` is. With ``is_flat`` neither images nor the tensor have a height.
    """
    made_as = torch.contiguous_format if by_nchw else memory_format
    strides = torch.empty(shape, device="meta", memory_format=made_as).stride()
    if is_flat:
        shape, strides = (*shape[:2], shape[3]), (*strides[:2], strides[3])
    empty = allocator(torch, shape, strides, like.dtype, like.device)

    def run(a: Any, b: Any, c: Any = None) -> Any:
        made = empty()
        if c is None:
            launch((a.data_ptr(), b.data_ptr(), made.data_ptr()))
        else:
            launch((a.data_ptr(), b.data_ptr(), c.data_ptr(), made.data_ptr()))
        return made

    return ByNCHW(run, by_nchw, memory_format) if by_nchw else run
