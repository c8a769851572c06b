"""The gradient of a depthwise convolution by its filter as products of rows of dy and rows of x.

For one channel, a row of dy and a row of x have a product, reduced over the images,
``P[i, j] = sum(dy[n, oh, i] * x[n, r, j] for n)``. Its diagonals are what both rows add to one row
of the filter's gradient, that with ``kh = r - oh + padding``: ``dw[kh, kw]`` is the sum of
``P[ow, ow + kw - padding]``. So products whose rows are as far apart add up first, and diagonals
are summed once in the end.

An instruction has room for ``taps`` rows of dy, one below the other. As oh goes down by one, the
rows of x that it meets stand ``taps`` apart, so that each pair of rows meets once: x row
``t + j * taps - padding`` and dy row ``t - (taps - 1) + b`` belong to filter row
``j * taps + taps - 1 - b``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.columns import number
from tilewright.topi.operators.conv import Conv

#: Outputs along dy that an instruction has, and images that it sums over.
ROWS, DEPTH = 64, 16


@dataclass(frozen=True)
class RowProducts:
    """How a gradient by the filter, of stride 1 down the image, is cut into products.

    Parameters
    ----------
    images : how many are staged at once, a multiple of :data:`DEPTH`.
    steps : at how many positions of the rows of dy, a multiple of ``taps``.
    together : rows of x that one instruction multiplies.
    groups : how many groups of threads have rows of x of their own, a block's.
    """

    problem: Conv
    images: int
    steps: int
    together: int
    groups: int

    @property
    def width(self) -> int:
        """Columns of a row of dy with what fills it up: a power of two."""
        return _power(self.problem.out_image[1])

    @property
    def columns(self) -> int:
        """Columns of a row of x with what fills it up: a power of two."""
        return _power(self.problem.image[1])

    @property
    def taps(self) -> int:
        """Rows of dy of one instruction."""
        return ROWS // self.width

    @property
    def positions(self) -> int:
        """Positions of the rows of dy that meet the image."""
        return self.problem.out_image[0] + self.taps - 1

    @property
    def turns(self) -> int:
        """How often rows are staged for all positions."""
        return -(-self.positions // self.steps)

    @property
    def rows(self) -> int:
        """Rows of x of a block, each ``taps`` below the last; the filter's rows are that number
        times ``taps``, or fewer."""
        return self.together * self.groups

    @property
    def blocks(self) -> int:
        """Blocks that have all rows of the filter between them."""
        return -(-self.problem.kernel[0] // (self.rows * self.taps))

    @property
    def above(self) -> int:
        """Rows of zeros above x and below it, so that the rows of an instruction may stand out."""
        return (self.together - 1) * self.taps

    @property
    def staged(self) -> Any:
        """Elements of x and dy, and of zeros around them, that are staged at once."""
        x = -(-(self.steps + self.rows * self.taps) // self.taps) * self.taps
        dy = self.steps + self.taps - 1
        limit = self.problem.image[0] + 2 * self.above + self.taps
        return number(self.images * (np.minimum(x, limit) * self.columns + dy * self.width))


@dataclass(frozen=True)
class RowProductStages:
    """The stages: x and dy as chunks of images, channels, rows, then blocks of 8 columns by 8
    images, columns first, rows of x by their number modulo ``taps``; the sums of products; and
    those of their diagonals."""

    x: Tensor
    dy: Tensor
    products: Tensor
    sums: Tensor


def depthwise_row_products(cut: RowProducts, data: Tensor, grad: Tensor) -> RowProductStages:
    """The stages of a gradient by the filter with stride 1 down the image, in NCHW."""
    p, taps, top = cut.problem, cut.taps, cut.problem.padding[0]
    (height, width), (down, across) = p.image, p.out_image
    batch, zero = data.shape[0], te.const(0, p.dtype)
    m, step, dilation, left = p.multiplier, p.stride[1], p.dilation[1], p.padding[1]
    high = -(-(height + 2 * cut.above) // taps)

    def x(i: Any, c: Any, low: Any, high: Any, wo: Any, no: Any, ni: Any, wi: Any) -> Any:
        n, h, w = i * cut.images + no * 8 + ni, high * taps + low - cut.above, wo * 8 + wi
        inside = te.all(n < batch, h >= 0, h < height, w < width)
        return te.if_then_else(inside, data[n, c, h, w], zero)

    def dy(i: Any, c: Any, row: Any, wo: Any, no: Any, ni: Any, wi: Any) -> Any:
        n, h, w = i * cut.images + no * 8 + ni, row - (taps - 1), wo * 8 + wi
        inside = te.all(n < batch, h >= 0, h < down, w < across)
        return te.if_then_else(inside, grad[n, c, h, w], zero)

    chunks = (batch + cut.images - 1) // cut.images
    staged_x = te.compute(
        (chunks, p.channels, taps, high, cut.columns // 8, cut.images // 8, 8, 8), x,
        name="RowsOfX",
        varargs_names=["i", "c", "low", "high", "wo", "no", "ni", "wi"],
    )  # fmt: skip
    staged_dy = te.compute(
        (chunks, p.out_channels, down + 2 * (taps - 1), cut.width // 8, cut.images // 8, 8, 8), dy,
        name="RowsOfDy",
        varargs_names=["i", "c", "row", "wo", "no", "ni", "wi"],
    )  # fmt: skip
    i, t = (
        te.reduce_axis((0, chunks), name="i"),
        te.reduce_axis((0, cut.turns * cut.steps), name="t"),
    )
    n = te.reduce_axis((0, cut.images), name="n")

    def product(c: Any, group: Any, j: Any, b: Any, ow: Any, w: Any) -> Any:
        from_top = t - top + cut.above  # of the row of x that j = 0 meets, among those staged
        first = from_top + group * cut.together * taps
        row = first + j * taps
        a = staged_dy[i, c, t + b, ow // 8, n // 8, n % 8, ow % 8]
        other = staged_x[
            i, c // m, te.floormod(row, taps), te.floordiv(row, taps), w // 8, n // 8, n % 8, w % 8
        ]
        return te.sum(
            a.astype(p.accumulate) * other.astype(p.accumulate),
            axis=[i, t, n],
            where=te.all(t < cut.positions, first >= 0, first < height + cut.above),
        )

    products = te.compute(
        (p.out_channels, cut.blocks * cut.groups, cut.together, taps, cut.width, cut.columns),
        product, name="RowProducts", varargs_names=["c", "group", "j", "b", "ow", "w"],
        tag="row_products",
    )  # fmt: skip
    o = te.reduce_axis((0, across), name="ow")

    def diagonal(c: Any, k: Any, kh: Any, kw: Any) -> Any:
        at = o * step + kw * dilation - left
        group, j = kh // (cut.together * taps), kh // taps % cut.together
        value = products[c * m + k, group, j, taps - 1 - kh % taps, o, at]
        return te.sum(value, axis=o, where=te.all(at >= 0, at < width))

    sums = te.compute(p.filter_shape, diagonal, name="Diagonals")
    return RowProductStages(staged_x, staged_dy, products, sums)


def _power(extent: int) -> int:
    """The power of two from 8 on that has room for ``extent``."""
    return max(8, 1 << (extent - 1).bit_length())
