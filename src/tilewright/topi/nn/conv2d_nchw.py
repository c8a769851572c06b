"""Convolution in NCHW, dense or in groups."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.elementwise import elementwise
from tilewright.topi.nn.images import or_zero
from tilewright.topi.nn.padding import pair, static, window_padding


def conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The stage ``Conv2d``, which schedules compute as a product of matrices
    (:meth:`~tilewright.schedule.Schedule.as_matmul`).

    Parameters
    ----------
    Input : (N, C, H, W); N may be symbolic.
    Filter : (OC, C / groups, KH, KW).
    stride, dilation : an integer or a pair (vertical, horizontal).
    padding : as in :func:`~tilewright.topi.nn.depthwise_conv2d_nchw`.
    groups : channels and filters in as many parts; as many as channels is a depthwise convolution.
    out_dtype : the type of the output, by default that of ``Input``. Sums of 16-bit floats are in
        float32, of 8-bit integers in int32.

    Returns (N, OC, OH, OW). Raises :class:`LanguageError` where shapes do not agree.
    """
    if Input.ndim != 4 or Filter.ndim != 4:
        raise LanguageError(
            f"conv2d_nchw takes (N, C, H, W) and (OC, C / groups, KH, KW), got {Input.ndim} and "
            f"{Filter.ndim} dimensions"
        )
    channels, height, width = (static(e, "the shape of the image") for e in Input.shape[1:])
    filters, each, kh, kw = (static(e, "the shape of the filter") for e in Filter.shape)
    if groups < 1 or channels != each * groups or filters % groups:
        raise LanguageError(
            f"{channels} channels in {groups} groups need a filter (OC, {channels} / {groups}, KH, "
            f"KW), OC a multiple of {groups}; got {(filters, each, kh, kw)}"
        )
    (sh, sw), (dh, dw) = pair(stride, "stride"), pair(dilation, "dilation")
    if min(sh, sw, dh, dw) < 1:
        raise LanguageError("stride and dilation are positive")
    top, left, bottom, right = window_padding(padding, (kh, kw), (dh, dw))
    out_h = (height + top + bottom - (kh - 1) * dh - 1) // sh + 1
    out_w = (width + left + right - (kw - 1) * dw - 1) // sw + 1
    if min(out_h, out_w) < 1:
        raise LanguageError(
            f"the window of {kh} x {kw}, dilated by {dh} x {dw}, is larger than the padded image"
        )
    element = str(Input.dtype)
    total, m = sums_of(element), filters // groups
    c, i, j = (te.reduce_axis((0, e), n) for e, n in ((each, "rc"), (kh, "kh"), (kw, "kw")))

    def sum_of(n: Any, f: Any, h: Any, w: Any) -> Any:
        y, x = h * sh + i * dh - top, w * sw + j * dw - left
        read = Input[n, f // m * each + c, y, x]
        if (kh, kw, top, left, bottom, right) != (1, 1, 0, 0, 0, 0):
            inside = te.all(y >= 0, y < height, x >= 0, x < width)
            read = or_zero([inside], read)
        return te.sum(read.astype(total) * Filter[f, c, i, j].astype(total), axis=[c, i, j])

    result: Tensor = te.compute(
        (Input.shape[0], filters, out_h, out_w), sum_of, name="Conv2d", tag="conv2d_nchw",
        varargs_names=["n", "c", "h", "w"],
    )  # fmt: skip
    kind = out_dtype or element
    if str(result.dtype) != kind:
        result = elementwise(result, lambda v: v.astype(kind), "Rounded")
    return result


def sums_of(element: str) -> str:
    """The type of sums of products of a type."""
    known = dtype(element)
    if known.is_int:
        return "int32"
    return "float32" if known.bytes < 4 else element
