"""Depthwise convolution: each channel convolved with its own filters."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.nn.images import or_zero
from tilewright.topi.nn.padding import pair, static, window_padding


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """Depthwise convolution in NCHW, as two stages: ``PaddedInput`` and ``DepthwiseConv2d``.

    Parameters
    ----------
    Input : (N, C, H, W); N may be symbolic.
    Filter : (C, M, KH, KW), M filters for each channel; output channel ``c * M + m``.
    stride, dilation : an integer or a pair (vertical, horizontal).
    padding : an integer, a pair, (top, left, bottom, right), "SAME" or "VALID"; see
        :func:`~tilewright.topi.nn.padding.window_padding`.
    out_dtype : the type of the sum and of the output, by default that of ``Input``.

    Returns (N, C * M, OH, OW). Raises :class:`LanguageError` where shapes do not agree.
    Source: article "Optimizing depthwise convolution with TVM", declarations.
    """
    if Input.ndim != 4 or Filter.ndim != 4:
        raise LanguageError(
            f"depthwise_conv2d_nchw takes (N, C, H, W) and (C, M, KH, KW), got {Input.ndim} and "
            f"{Filter.ndim} dimensions"
        )
    batch, channels, height, width = Input.shape
    multiplier, kh, kw = (static(e, "the shape of the filter") for e in Filter.shape[1:])
    if Filter.shape[0] is not channels:
        raise LanguageError(
            f"the input has {channels} channels, but the filter is for {Filter.shape[0]}"
        )
    (sh, sw), (dh, dw) = pair(stride, "stride"), pair(dilation, "dilation")
    if min(sh, sw, dh, dw) < 1:
        raise LanguageError("stride and dilation are positive")
    top, left, bottom, right = window_padding(padding, (kh, kw), (dh, dw))
    out_h = (height + (top + bottom - (kh - 1) * dh - 1)) // sh + 1
    out_w = (width + (left + right - (kw - 1) * dw - 1)) // sw + 1
    out = out_dtype or Input.dtype

    source = Input
    if top or left or bottom or right:
        source = te.compute(
            (batch, channels, height + (top + bottom), width + (left + right)),
            lambda b, c, i, j: or_zero(
                [i >= top, i - top < height, j >= left, j - left < width],
                Input[b, c, i - top, j - left],
            ),
            name="PaddedInput",
            tag="pad",
        )
    di, dj = te.reduce_axis((0, kh), name="di"), te.reduce_axis((0, kw), name="dj")
    made: Tensor = te.compute(
        (batch, channels * multiplier, out_h, out_w),
        lambda b, c, i, j: te.sum(
            source[b, c // multiplier, i * sh + di * dh, j * sw + dj * dw].astype(out)
            * Filter[c // multiplier, c % multiplier, di, dj].astype(out),
            axis=[di, dj],
        ),
        name="DepthwiseConv2d",
        tag="depthwise_conv2d_nchw",
    )
    return made


def depthwise_conv2d(
    Input: Tensor, Filter: Tensor, stride: Any = 1, padding: Any = "SAME", dilation: Any = 1
) -> Tensor:
    """:func:`depthwise_conv2d_nchw` under the short name that article 000 uses."""
    return depthwise_conv2d_nchw(Input, Filter, stride, padding, dilation)
