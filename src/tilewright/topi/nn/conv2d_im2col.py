"""Convolution as a product of matrices, with any number of groups (article 001).

The filter is a matrix ``Weights`` of one row an output channel, as long as the filter has taps over
all input channels; the image becomes ``Columns``, one a window. Stored, ``Columns`` is im2col and
what follows is any product of matrices; computed in tiles, where the product needs them, it makes
the product an implicit one. Either is a schedule of this declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.elementwise import elementwise
from tilewright.topi.nn.padding import pair, static, window_padding

#: What matrices may be filled up to multiples of: rows (output channels of a group), columns
#: (windows of all images), depth (taps of all input channels of a group).
Whole = tuple[int, int, int]
#: The stage that :func:`conv2d_im2col` ends its products with.
TAG = "conv2d_im2col"


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution of images (N, C, H, W) in ``groups`` groups.

    Attributes
    ----------
    channels, filters : of a group.
    """

    batch: Any
    groups: int
    channels: int
    filters: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]

    @property
    def depth(self) -> int:
        """Products of one sum."""
        return self.channels * self.kernel[0] * self.kernel[1]

    @property
    def pixels(self) -> int:
        """Results of an image and an output channel."""
        return self.out[0] * self.out[1]

    def tap(self, k: Any) -> tuple[Any, Any, Any]:
        """Channel, row and column of a filter, of a product's number in its sum."""
        kh, kw = self.kernel
        return k // (kh * kw), k // kw % kh, k % kw


@dataclass(frozen=True)
class ProductStages:
    """The matrices of :func:`products`: (groups, depth, windows), (groups, filters, depth) and
    (groups, filters, windows), all filled up."""

    columns: Tensor
    weights: Tensor
    product: Tensor


def products(
    w: Windows, image: Tensor, filter: Any, element: str, total: str, whole: Whole
) -> ProductStages:
    """The product of the matrices of a convolution.

    Parameters
    ----------
    image : (N, groups * channels, H, W).
    filter : reads the filter: of (group, filter in its group, channel in its group, row, column).
    element, total : the types of what is multiplied, and of sums.
    whole : as in :func:`conv2d_im2col`.
    """
    rows, across, deep = whole
    filters, depth = _up(w.filters, rows), _up(w.depth, deep)
    count = w.batch * w.pixels
    windows = (count + (across - 1)) // across * across if across > 1 else count
    (height, width), (sh, sw) = w.image, w.stride
    (top, left), (dh, dw) = w.padding, w.dilation

    def pixel(g: Any, k: Any, p: Any) -> Any:
        c, i, j = w.tap(k)
        y = p % w.pixels // w.out[1] * sh + i * dh - top
        x = p % w.out[1] * sw + j * dw - left
        inside = [y >= 0, y < height, x >= 0, x < width]
        inside += [k < w.depth] if depth > w.depth else []
        inside += [p < count] if across > 1 else []
        read = image[p // w.pixels, g * w.channels + c, y, x]
        return te.if_then_else(te.all(*inside), read.astype(element), te.const(0, element))

    columns = te.compute(
        (w.groups, depth, windows), pixel, name="Columns", tag="im2col",
        varargs_names=["g", "k", "p"],
    )  # fmt: skip

    def weight(g: Any, m: Any, k: Any) -> Any:
        read = filter(g, m, *w.tap(k)).astype(element)
        inside = [m < w.filters] if filters > w.filters else []
        inside += [k < w.depth] if depth > w.depth else []
        return te.if_then_else(te.all(*inside), read, te.const(0, element)) if inside else read

    weights = te.compute(
        (w.groups, filters, depth), weight, name="Weights", tag="filter",
        varargs_names=["g", "m", "k"],
    )  # fmt: skip
    k = te.reduce_axis((0, depth), "k")
    product = te.compute(
        (w.groups, filters, windows),
        lambda g, m, p: te.sum(
            weights[g, m, k].astype(total) * columns[g, k, p].astype(total), axis=k
        ),
        name="Product", tag="matmul", varargs_names=["g", "m", "p"],
    )  # fmt: skip
    return ProductStages(columns, weights, product)


def images_of(w: Windows, product: Tensor, name: str = "Conv2d") -> Tensor:
    """The product as images (N, groups * filters, OH, OW)."""
    (oh, ow), m = w.out, w.filters

    def pixel(b: Any, c: Any, i: Any, j: Any) -> Any:
        row = (0, c) if w.groups == 1 else (c // m, c % m)
        return product[(*row, b * w.pixels + i * ow + j)]

    made: Tensor = te.compute(
        (w.batch, w.groups * m, oh, ow), pixel,
        name=name, tag=TAG, varargs_names=["n", "c", "h", "w"],
    )  # fmt: skip
    return made


def conv2d_im2col(
    Input: Tensor,
    Filter: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
    whole: Whole = (1, 1, 1),
) -> Tensor:
    """Convolution in NCHW, dense or in groups, as the stages ``Columns``, ``Weights``, ``Product``
    and ``Conv2d``.

    Parameters
    ----------
    Input : (N, C, H, W); N may be symbolic.
    Filter : (OC, C / groups, KH, KW).
    stride, dilation : an integer or a pair (vertical, horizontal).
    padding : as in :func:`~tilewright.topi.nn.depthwise_conv2d_nchw`.
    groups : channels and filters in as many parts; as many as channels is a depthwise convolution.
    out_dtype : the type of the output, by default that of ``Input``. Sums of 16-bit floats are in
        float32, of 8-bit integers in int32.
    whole : the matrices are filled up with zeros to multiples of so many (output channels of a
        group, windows, taps), which are the tiles of a schedule.

    Returns (N, OC, OH, OW). Raises :class:`LanguageError` where shapes do not agree.
    Source: article 001, "im2col" and "implicit GEMM".
    """
    if Input.ndim != 4 or Filter.ndim != 4:
        raise LanguageError(
            f"conv2d_im2col takes (N, C, H, W) and (OC, C / groups, KH, KW), got {Input.ndim} and "
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
    if min(sh, sw, dh, dw, *whole) < 1:
        raise LanguageError("stride, dilation and whole are positive")
    top, left, bottom, right = window_padding(padding, (kh, kw), (dh, dw))
    out_h = (height + top + bottom - (kh - 1) * dh - 1) // sh + 1
    out_w = (width + left + right - (kw - 1) * dw - 1) // sw + 1
    if min(out_h, out_w) < 1:
        raise LanguageError(
            f"the window of {kh} x {kw}, dilated by {dh} x {dw}, is larger than the padded image"
        )
    m = filters // groups
    w = Windows(
        Input.shape[0], groups, each, m, (height, width), (kh, kw), (sh, sw), (top, left),
        (dh, dw), (out_h, out_w),
    )  # fmt: skip
    element = str(Input.dtype)
    made = products(
        w, Input, lambda g, f, c, i, j: Filter[g * m + f, c, i, j], element,
        sums_of(element), whole,
    )  # fmt: skip
    result = images_of(w, made.product)
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


def _up(extent: int, whole: int) -> int:
    return -(-extent // whole) * whole
