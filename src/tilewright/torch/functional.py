"""Depthwise convolutions as functions, under the conventions of :mod:`torch.nn.functional`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tilewright.torch.eager import convolve, fast_call
from tilewright.torch.eager_fast_path import as_call, exports_onnx, shape_of
from tilewright.torch.geometry import Geometry, fits


def depthwise_conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: str | int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """``F.conv2d(input, weight, bias, stride, padding, dilation, groups=C)``.

    Parameters
    ----------
    input : (N, C, H, W) or (C, H, W), in either memory format; the output has the same one.
    weight : (C * multiplier, 1, KH, KW).
    bias : (C * multiplier,) or None.
    padding : integers, "same" (stride 1 only) or "valid".

    Under autocast, operands are cast as ``F.conv2d`` casts them. What Tilewright has no kernel for
    is left to PyTorch, with one warning that says why. Raises what ``F.conv2d`` raises.
    """
    given = ("conv2d", stride, padding, dilation)
    if not torch.compiler.is_compiling():
        known = fast_call(input, weight, bias, given)
        if known is None:
            known = as_call(depthwise_conv2d, input, weight, bias, stride, padding, dilation)
        if known is not None:
            return known
    if exports_onnx():
        groups = shape_of(input)[-3]
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    if not are_tensors(input, weight, bias) or input.dim() not in (3, 4):
        return F.conv2d(input, weight, bias, stride, padding, dilation)  # raises
    if input.dim() == 3:
        return depthwise_conv2d(input[None], weight, bias, stride, padding, dilation)[0]
    if input.dim() != 4 or weight.dim() != 4 or not fits(input, weight, bias):
        return F.conv2d(input, weight, bias, stride, padding, dilation, input.shape[-3])  # raises
    kernel = shape_of(weight)[2], shape_of(weight)[3]
    steps, spread = pair(stride), pair(dilation)
    sides = sides_of(padding, kernel, steps, spread)
    geometry = Geometry(steps, sides, spread)
    if not geometry.is_valid:
        return F.conv2d(input, weight, bias, stride, padding, dilation, input.shape[1])  # raises
    return convolve(input, weight, bias, geometry, given)


def depthwise_conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: str | int | tuple[int] = 0,
    dilation: int | tuple[int] = 1,
) -> torch.Tensor:
    """``F.conv1d(input, weight, bias, stride, padding, dilation, groups=C)``.

    ``input`` is (N, C, W) or (C, W), ``weight`` (C * multiplier, 1, KW); otherwise as
    :func:`depthwise_conv2d`.
    """
    given = ("conv1d", stride, padding, dilation)
    if not torch.compiler.is_compiling():
        known = fast_call(input, weight, bias, given)
        if known is None:
            known = as_call(depthwise_conv1d, input, weight, bias, stride, padding, dilation)
        if known is not None:
            return known
    if exports_onnx():
        groups = shape_of(input)[-2]
        return F.conv1d(input, weight, bias, stride, padding, dilation, groups)
    if not are_tensors(input, weight, bias) or input.dim() not in (2, 3):
        return F.conv1d(input, weight, bias, stride, padding, dilation)  # raises
    if input.dim() == 2:
        return depthwise_conv1d(input[None], weight, bias, stride, padding, dilation)[0]
    if input.dim() != 3 or weight.dim() != 3 or not fits(input, weight, bias):
        return F.conv1d(input, weight, bias, stride, padding, dilation, input.shape[-2])  # raises
    kernel = 1, shape_of(weight)[2]
    steps, spread = (1, _single(stride)), (1, _single(dilation))
    around: Any = padding if isinstance(padding, str) else (0, _single(padding))
    sides = sides_of(around, kernel, steps, spread)
    geometry = Geometry(steps, sides, spread)
    if not geometry.is_valid:
        return F.conv1d(input, weight, bias, stride, padding, dilation, input.shape[1])  # raises
    return convolve(input, weight, bias, geometry, given)


def are_tensors(input: Any, weight: Any, bias: Any) -> bool:
    """Whether operands are tensors; a bias may be None."""
    return all(isinstance(x, torch.Tensor) for x in (input, weight)) and (
        bias is None or isinstance(bias, torch.Tensor)
    )


def pair(value: Any) -> tuple[int, int]:
    """A parameter for each of the two dimensions."""
    if isinstance(value, int):
        return value, value
    return (value[0], value[1]) if len(value) == 2 else (value[0], value[0])


def _single(value: Any) -> int:
    return value if isinstance(value, int) else int(value[0])


def sides_of(
    padding: Any, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of PyTorch's padding; four numbers are these."""
    if not isinstance(padding, (str, int)) and len(padding) == 4:
        top, left, bottom, right = padding
        return top, left, bottom, right
    if not isinstance(padding, str):
        h, w = pair(padding)
        return h, w, h, w
    if padding == "valid":
        return 0, 0, 0, 0
    if padding != "same":
        raise ValueError(f"padding is an integer, a pair, 'same' or 'valid', got {padding!r}")
    if stride != (1, 1):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    (h, w) = ((k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    return h // 2, w // 2, h - h // 2, w - w // 2
