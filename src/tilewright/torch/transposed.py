"""The transposed depthwise convolution: the gradient by the input of one, and a bias."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tilewright.torch.autocast import autocast
from tilewright.torch.calls import is_channels_last, observe
from tilewright.torch.eager import fast_call, transpose
from tilewright.torch.eager_fast_path import as_call, exports_onnx, shape_of
from tilewright.torch.functional import are_tensors, pair
from tilewright.torch.geometry import Geometry
from tilewright.torch.kernels import Selection


def depthwise_conv_transpose2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    output_padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """``F.conv_transpose2d(input, weight, bias, stride, padding, output_padding, C, dilation)``.

    Parameters
    ----------
    input : (N, C, H, W) or (C, H, W), in either memory format; the output has the same one.
    weight : (C, multiplier, KH, KW).
    bias : (C * multiplier,) or None.

    The output has (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1 rows.
    Otherwise as :func:`~tilewright.torch.depthwise_conv2d`.
    """
    settings = (stride, padding, output_padding, dilation)
    given: tuple[Any, ...] = ("conv_transpose2d", *settings)
    if not torch.compiler.is_compiling():
        known = fast_call(input, weight, bias, given)
        if known is None:
            known = as_call(depthwise_conv_transpose2d, input, weight, bias, *settings)
        if known is not None:
            return known
    if exports_onnx():
        aten = (stride, padding, output_padding, shape_of(weight)[0], dilation)
        return F.conv_transpose2d(input, weight, bias, *aten)
    if not are_tensors(input, weight, bias) or input.dim() not in (3, 4) or weight.dim() != 4:
        aten = (stride, padding, output_padding, 1, dilation)
        return F.conv_transpose2d(input, weight, bias, *aten)  # raises
    if input.dim() == 3:
        return depthwise_conv_transpose2d(input[None], weight, bias, *settings)[0]
    channels, multiplier, *kernel = shape_of(weight)
    aten = (stride, padding, output_padding, channels, dilation)
    if not _fits(input, weight, bias):
        return F.conv_transpose2d(input, weight, bias, *aten)  # raises
    steps, sides, more, spread = map(pair, (stride, padding, output_padding, dilation))
    if min(*steps, *spread) < 1 or min(*sides, *more) < 0 or 0 in (channels, multiplier, *kernel):
        return F.conv_transpose2d(input, weight, bias, *aten)  # raises
    size, after, beyond = [], [], False
    for extent, known, k, s, p, o, d in zip(
        input.shape[2:], shape_of(input)[2:], kernel, steps, sides, more, spread, strict=True
    ):
        wider = d * (k - 1) + o + 1 - 2 * p
        size.append((extent - 1) * s + wider)
        # A convolution of that image has as many outputs as the input has pixels only if it is
        # padded by p - o to p - o + s - 1 at its end.
        after.append(p if o < s else max(0, p - o))
        beyond = beyond or o - p >= s
        if o >= max(s, d) or (known - 1) * s + wider < 1:
            return F.conv_transpose2d(input, weight, bias, *aten)  # raises
    if beyond:
        if not torch.compiler.is_compiling():
            observe(
                None, Selection(None, reason="an output_padding beyond the stride and the padding")
            )
        return F.conv_transpose2d(input, weight, bias, *aten)
    input, weight, _ = autocast(input, weight, None)
    x, channels = input, channels * multiplier
    if multiplier > 1:  # each output channel has an input channel of its own
        x = _repeated(x, multiplier)
        weight = weight.reshape(channels, 1, *weight.shape[2:])
        given = ()
    shape = (x.shape[0], channels, *size)
    geometry = Geometry(steps, (*sides, *after), spread)
    found = transpose(x, weight, bias, shape, geometry, given)
    if found is None:
        found = F.conv_transpose2d(
            x, weight, bias, stride, padding, output_padding, channels, dilation
        )
    return found


def _fits(input: Any, weight: Any, bias: Any) -> bool:
    """Whether the operands are those of a transposed depthwise convolution."""
    channels, (first, each, *_) = shape_of(input)[1], shape_of(weight)
    if channels == 0 or first != channels:
        return False
    return bias is None or (bias.dim() == 1 and shape_of(bias)[0] == channels * each)


def _repeated(x: Any, times: int) -> Any:
    """Each channel repeated, in the memory format of ``x``."""
    if is_channels_last(x):
        return x.permute(0, 2, 3, 1).repeat_interleave(times, 3).permute(0, 3, 1, 2)
    return x.repeat_interleave(times, 1)
