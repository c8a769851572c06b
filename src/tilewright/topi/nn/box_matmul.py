"""Products of matrices as products of boxes: those of a convolution of one tap.

Where the left factor lies along the sum, its rows are images of one pixel, and the right factor is
the filter, or that of a gradient by the input, as it lies. Where both factors lie across the
sum, it is a gradient by the filter. Of several products each is an image of one row, which has a
filter of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright import te
from tilewright.topi.declare import placeholders
from tilewright.topi.nn.box_copies import boxed
from tilewright.topi.nn.box_problems import in_boxes
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.box_windows import declared_with_epilogue, sums_of
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.gemm import Gemm


def as_convolution(p: Gemm) -> Conv | None:
    """The convolution of which a product is one; None where there is none, and for batches."""
    if p.batch > 1:
        return None
    found, (left, right) = p.factors({}), p.sides
    rows, columns, depth = found.rows, found.columns, found.depth
    if left[1]:
        pass_ = "forward" if right[1] else "dgrad"
        if p.is_8bit and not right[1]:
            return None
        sizes = (rows, depth, columns) if right[1] else (rows, columns, depth)
    elif right[1] or p.epilogue or p.is_8bit:
        return None
    else:
        pass_, sizes = "wgrad", (depth, columns, rows)
    pixels, channels, filters = sizes
    return Conv(
        operator="conv1d", pass_=pass_, batch=pixels, channels=channels, width=1, kernel_w=1,
        groups=1, multiplier=filters, dtype=p.dtype, accumulate=p.accumulate, precision=p.precision,
        layout="NWC",
    )  # fmt: skip


def as_convolutions(p: Gemm) -> Conv | None:
    """The convolution of images, each of which has a filter of its own, that several products are;
    None where TMA cannot bring their factors as they lie."""
    one = as_convolution(p.replace(batch=1)) if p.batch > 1 else None
    if one is None or one.pass_ == "wgrad" or in_boxes(one) != one:
        return None
    return one.replace(batch=p.batch, width=one.batch)


class _Matrix:
    """A matrix, read as images of one pixel or as a filter of one tap; or a filter for each
    image."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        *image, row, _, column = index
        return self.matrix[(*image, row, column)]


def declare_box_matmul(
    p: Gemm, given: Any = None, whole: bool = False, held: bool = False
) -> BoxDeclaration:
    """The program of a product of two matrices that :func:`as_convolution` knows, for ``whole``
    boxes or not; or of several that :func:`as_convolutions` does. A right factor that threads have
    ``held`` is read as it lies."""
    if p.batch > 1:
        return _declare_several(p, given)
    conv = as_convolution(p)
    assert conv is not None
    inputs = placeholders(p, given)
    left, right = (inputs[name] for name, _ in p.sides)
    pixels = left.shape[0]
    if conv.pass_ == "wgrad":
        left, right = right, left
    b = boxed(conv, _Matrix(left), _Matrix(right), pixels, held)
    sums = sums_of(b.problem, b.first, b.second, pixels, whole)
    total, place = sums.total, b.place or (lambda *at: at)
    if conv.pass_ == "wgrad":
        result = te.compute(p.result.shape, lambda i, j: total[place(i, 0, 0, j)], name="Product")
    else:
        shape: tuple[Any, ...] = (pixels, *p.result.shape[1:])
        result = te.compute(shape, lambda i, j: total[i, 0, 0, j], name="Product")
    return declared_with_epilogue(p, inputs, result, sums, b)


def _declare_several(p: Gemm, given: Any) -> BoxDeclaration:
    conv = as_convolutions(p)
    assert conv is not None
    inputs = placeholders(p, given)
    left, right = (inputs[name] for name, _ in p.sides)
    b = boxed(conv, left, _Matrix(right), left.shape[0])
    sums = sums_of(conv, left, _Matrix(right), left.shape[0], each=True)
    shape: tuple[Any, ...] = (left.shape[0], *p.result.shape[1:])
    result = te.compute(shape, lambda g, i, j: sums.total[g, 0, i, j], name="Product")
    return declared_with_epilogue(p, inputs, result, sums, b)


def declare_whole_matmul(p: Gemm, given: Any = None) -> BoxDeclaration:
    """The same, for boxes that hold all that is summed."""
    return declare_box_matmul(p, given, whole=True)


#: The declarations of this module, by name.
FORMS = {
    "boxes": declare_box_matmul, "whole boxes": declare_whole_matmul,
    "held boxes": partial(declare_box_matmul, held=True),
}  # fmt: skip
