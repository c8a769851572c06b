"""Convolutions of images of few channels as products of boxes of rows that all taps read.

The columns of a row of the filter, with their channels, are one axis, of which a result sees a part
of a row, and neighbours see parts that overlap. Where rows are whole 16 bytes they are read as they
lie. Of others a copy has columns of 4 or 8 channels, as many as make what neighbouring results see
begin at multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.topi.declare import placeholders
from tilewright.topi.nn.box_copies import Boxed
from tilewright.topi.nn.box_factors import WHOLE, Taps, up
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration, BoxSums
from tilewright.topi.nn.box_windows import declared_with_epilogue
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.nn.tap_gradients import (
    begins_at_chunks,
    beyond,
    filled,
    is_thin,
    rows_of_columns,
)
from tilewright.topi.operators.conv import Conv


@dataclass(frozen=True)
class ThinDeclaration(BoxDeclaration):
    """A convolution of rows of columns of few channels, side by side."""

    def reach(self, box: tuple[int, ...], rows: int = 0) -> tuple[int, ...]:
        """Images, rows and elements of rows of what a box of results sees."""
        assert isinstance(self.problem, Conv)
        return reach(self.problem, box)

    @property
    def anywhere(self) -> bool:
        """Whether what neighbouring results see begins at no multiples of 16 bytes."""
        assert isinstance(self.problem, Conv)
        return not begins_at_chunks(self.problem)


def is_thin_forward(p: Any) -> bool:
    """Whether it is a forward pass of 16 bits whose rows are read so."""
    if not isinstance(p, Conv) or p.pass_ != "forward" or p.result_layout != "NHWC":
        return False
    return p.dtype in ("float16", "bfloat16") and p.accumulate == "float32" and is_thin(p)


def depth(p: Conv) -> int:
    """Elements of a row that a result sees, filled up to what an instruction multiplies."""
    return widths(p.dtype).filled(_odd(p) + p.kernel_w * filled(p))


def _odd(p: Conv) -> int:
    """Elements before what a result sees that are read with it, so that pairs are words."""
    return beyond(p) % 2 if p.stride[1] * filled(p) % 2 == 0 else 0


def reach(p: Conv, box: Sequence[int]) -> tuple[int, int, int]:
    """Images, rows and elements of rows of what a box of results sees."""
    images, rows, columns = box
    high = (rows - 1) * p.stride[0] + (p.kernel_h - 1) * p.dilation[0] + 1
    across = (columns - 1) * p.stride[1] * filled(p) + beyond(p) - _odd(p) + depth(p)
    return images, high, up(across, widths(p.dtype).chunk)


def declare_thin_boxes(p: Conv, given: Any = None) -> ThinDeclaration:
    """The program of a problem that :func:`is_thin_forward`; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    image, filter = inputs["data"], inputs["filter"]
    batch, (high, wide) = image.shape[0], p.out_image
    copies, element = rows_of_columns(p, image, batch)
    b = Boxed(p, image, filter, tuple(copies))
    sums = _sums(p, element, filter, batch)
    result = Images(p.result_layout).compute(
        batch, p.out_channels, (high, wide), lambda n, c, at: sums.total[(n, *at, c)], "Conv"
    )
    d = declared_with_epilogue(p, inputs, result, sums, b)
    return ThinDeclaration(**vars(d))


def _sums(p: Conv, row_element: Callable[..., Any], filter: Any, batch: Any) -> BoxSums:
    each, deep, (high, wide) = filled(p), depth(p), p.out_image
    down, apart, top = p.stride[0], p.stride[1] * each, p.padding[0]

    def element(n: Any, y: Any, e: Any) -> Any:
        return row_element(n, y - top, e)

    # Further than there is anything, so that any tile goes at an edge.
    sizes = [up(e, WHOLE) for e in (batch, high, wide)]
    left = te.compute(reach(p, sizes), element, name="Seen")

    def window(n: Any, y: Any, x: Any, t: Any, j: Any) -> Any:
        return left[n, y, x * apart + beyond(p) - _odd(p) + j]

    seen = te.compute((*left.shape[:2], sizes[-1], 1, deep), window, name="Windows")

    def tap(f: Any, j: Any, at: Sequence[Any]) -> Any:
        j = j - _odd(p)
        t, c = j // each, j % each
        read = filter[p.filter_place(f, c, (at[0], t))]
        inside = te.all(f < p.out_channels, j >= 0, t < p.kernel_w, c < p.channels)
        return or_zero([inside], read)

    right = Taps(tap, p.out_channels, deep, [p.kernel_h, 1], p.dtype, whole=True)
    extents = (("rh", p.kernel_h), ("rw", 1), ("rc", deep))
    r, t, k = axes = [te.reduce_axis((0, e), name) for name, e in extents]

    def total(n: Any, y: Any, x: Any, f: Any) -> Any:
        value = seen[n, y * down + r * p.dilation[0], x, t, k].astype(p.accumulate)
        return te.sum(value * right(f, (r, t), k).astype(p.accumulate), axis=axes)

    sums = te.compute((batch, high, wide, p.out_channels), total, name="Sums")
    return BoxSums(sums, left, right.tensor, whole=True, seen=seen)


#: The declaration of this module, by name.
FORMS = {"thin boxes": declare_thin_boxes}
