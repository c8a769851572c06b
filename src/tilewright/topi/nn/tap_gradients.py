"""Gradients by the filter as products of boxes that all taps read.

Tap (r, s) multiplies a box of dy with what it sees of x: the same rows and columns, as far apart as
the stride, shifted by the tap. So all taps of a box read one box of x, with a border; with strides
one for each phase of rows and of columns, whose pixels are a stride apart. Groups of few channels
are joined so that an instruction has them; of its products those of other groups are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import IMAGES, finished, placeholders
from tilewright.topi.nn.box_copies import by_pixels, widths
from tilewright.topi.nn.box_factors import WHOLE, up
from tilewright.topi.nn.box_windows import BoxDeclaration, BoxSums, _by_pixels
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.tap_tiles import TapGradientTile

#: Filters and channels that an instruction multiplies at least.
FILTERS, CHANNELS = 16, 16


def joined(p: Conv) -> int:
    """How many groups are joined, so that instructions have whole ones; 0 where none are."""
    own, filters = p.channels // p.groups, p.multiplier
    counts = (n for n in range(1, p.groups + 1) if p.groups % n == 0)
    return next((n for n in counts if own * n % CHANNELS == 0 and filters * n % FILTERS == 0), 0)


def taps_of(p: Conv) -> Conv | None:
    """The gradient that takes the place of a problem's; None where there is none."""
    p = by_pixels(p)
    if p.groups == 1:
        return p if is_thin(p) or p.channels % widths(p.dtype).chunk == 0 else None
    n = joined(p)
    return p.replace(groups=p.groups // n, multiplier=p.multiplier * n) if n else None


def is_thin(p: Conv) -> bool:
    """Whether a row of shared memory has columns of few channels, of which taps see a part."""
    w = widths(p.dtype)
    return p.groups == 1 and p.channels <= w.chunk and p.kernel_w > 1 and p.dilation[1] == 1


def filled(p: Conv) -> int:
    """Channels of a column of a row that :func:`is_thin`: as many as make what neighbouring results
    see begin at multiples of 16 bytes, where instructions load these."""
    w = widths(p.dtype)
    return next(n for n in (4, 8) if n >= p.channels and n * p.stride[1] % w.chunk == 0)


@dataclass(frozen=True)
class TapDeclaration(BoxDeclaration):
    """A gradient by the filter whose taps share boxes; ``seen`` is what the taps of a row of the
    filter see, where it is a part of a row of few channels."""

    seen: Tensor | None = None


def box_of_rows(p: Conv, tile: TapGradientTile) -> tuple[int, int, int]:
    """Images, rows and elements of what a box of dy sees of rows that :func:`is_thin`."""
    rows = (tile.rows - 1) * p.stride[0] + (p.kernel_h - 1) * p.dilation[0] + 1
    return tile.images, rows, (tile.columns - 1) * p.stride[1] * filled(p) + tile.channels


def rows_of(p: Conv, tile: TapGradientTile) -> tuple[int, int]:
    """Filters and channels of a row of shared memory: as many as fit, of those of a tile."""
    w = widths(p.dtype)
    return math.gcd(tile.filters, w.row), math.gcd(channels_of(p, tile), w.row)


def channels_of(p: Conv, tile: TapGradientTile) -> int:
    """Channels of x that a block reads: of whole groups, or of a part of one."""
    return tile.channels * (max(1, tile.filters // p.multiplier) if p.groups > 1 else 1)


def declare_tap_gradient(p: Conv, tile: TapGradientTile, given: Any = None) -> TapDeclaration:
    """The program of a problem whose boxes are those of ``tile``; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    made = taps_of(p)
    assert made is not None
    views = inputs
    if made.batch != p.batch:
        views = {
            name: _by_pixels(x, p.layout) if name in IMAGES else x for name, x in inputs.items()
        }
    x, dy = views["data"], views["grad"]
    thin, copies, seen = is_thin(made), tuple[Tensor, ...](), None
    if thin:
        copies = (_rows(made, x),)
        sums, seen = _thin_sums(made, tile, copies[0], dy, x.shape[0])
    else:
        sums = _sums(made, tile, x, dy, x.shape[0])
    total, own, n = sums.total, p.channels // p.groups, made.multiplier // p.multiplier
    result = total
    if thin or n > 1 or p.rank == 1:
        gone = [0] * (2 - p.rank)

        def placed(m: Any, *at: Any) -> Any:
            *tap, c = at
            if thin:
                tap, c = [*tap[:-1], 0], tap[-1] * filled(p) + c
            return total[(m, *gone, *tap, m // p.multiplier % n * own + c)]

        result = te.compute(p.filter_shape, placed, name="ConvWgrad")
    return TapDeclaration(
        p, inputs, finished(p, result, inputs), total, None, None, sums, (), copies,
        placed=result is not total, seen=seen,
    )  # fmt: skip


def _rows(p: Conv, image: Any) -> Tensor:
    """Rows of an image of few channels, from their padding on: (image, row, columns of its channels
    side by side)."""
    w, images, each = widths(p.dtype), Images(p.layout), filled(p)

    def element(n: Any, y: Any, e: Any) -> Any:
        x, c = e // each - p.padding[1], e % each
        inside = [x >= 0, x < p.width, c < p.channels]
        read = image[images.order(n, c, (y, x)[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    shape = (image.shape[0], p.height, up((p.padding[1] + p.width) * each, w.chunk))
    made: Tensor = te.compute(shape, element, name="Rows")
    return made


def _steps(p: Conv, tile: TapGradientTile, grad: Any, sizes: Sequence[Any], row: int) -> Tensor:
    """Boxes of dy, by rows of channels."""
    out, filters, images = p.out_image, p.out_channels, Images(p.layout)

    def pixel(part: Any, n: Any, y: Any, x: Any, m: Any) -> Any:
        m = part * row + m
        inside = [n < grad.shape[0], y < out[0], x < out[1], m < filters]
        read = grad[images.order(n, m, (y, x)[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    made: Tensor = te.compute((up(filters, WHOLE) // row, *sizes, row), pixel, name="Steps")
    return made


def _product(p: Conv, left: Any, right: Any) -> Any:
    if p.precision == "tf32":
        return te.truncate_tf32(left) * te.truncate_tf32(right)
    return left.astype(p.accumulate) * right.astype(p.accumulate)


def _thin_sums(
    p: Conv, tile: TapGradientTile, rows: Tensor, grad: Any, batch: Any
) -> tuple[BoxSums, Tensor]:
    """The sums of rows of taps, whose columns and channels are one axis, and what these see."""
    each, row = filled(p), math.gcd(tile.filters, widths(p.dtype).row)
    wide, apart = p.kernel_w * each, p.stride[1] * each
    sizes = [up(e, n) for e, n in zip((batch, *p.out_image), tile.box, strict=True)]
    left = _steps(p, tile, grad, sizes, row)
    dy, top = p.stride[0], p.padding[0]

    def element(n: Any, y: Any, e: Any) -> Any:
        at = y - top
        inside = [n < batch, at >= 0, at < p.height, e < rows.shape[2]]
        read = rows[n, at, e]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    high = (sizes[1] - 1) * dy + (p.kernel_h - 1) * p.dilation[0] + 1
    shape = (sizes[0], high, sizes[2] * apart + up(wide, WHOLE))
    right: Tensor = te.compute(shape, element, name="Seen")

    def window(r: Any, n: Any, y: Any, x: Any, j: Any) -> Any:
        return right[n, y * dy + r * p.dilation[0], x * apart + j]

    seen: Tensor = te.compute((p.kernel_h, *sizes, up(wide, WHOLE)), window, name="Windows")
    n, y, x = axes = [te.reduce_axis((0, e), f"r{d}") for e, d in zip(sizes, "nhw", strict=True)]

    def product(m: Any, r: Any, t: Any, j: Any) -> Any:
        return te.sum(_product(p, left[m // row, n, y, x, m % row], seen[r, n, y, x, j]), axis=axes)

    total: Tensor = te.compute((p.out_channels, p.kernel_h, 1, wide), product, name="Sums")
    return BoxSums(total, left, right, True, pixels=tile.box), seen


def reach(p: Conv, box: Sequence[Any]) -> tuple[Any, ...]:
    """Images, rows and columns of a phase of x that all taps of a box of dy see."""
    taps = zip(box[1:], p.kernel, p.dilation, p.stride, strict=True)
    return box[0], *(e + (k - 1) * d // s for e, k, d, s in taps)


def _sums(p: Conv, tile: TapGradientTile, image: Any, grad: Any, batch: Any) -> BoxSums:
    images, own, rows = Images(p.layout), p.channels // p.groups, rows_of(p, tile)
    sizes = [up(e, n) for e, n in zip((batch, *p.out_image), tile.box, strict=True)]
    left = _steps(p, tile, grad, sizes, rows[0])
    (down, across), (dy, dx), (top, before) = p.dilation, p.stride, p.padding[:2]

    def seen(part: Any, a: Any, b: Any, n: Any, y: Any, x: Any, c: Any) -> Any:
        c, at = part * rows[1] + c, [y * dy + a - top, x * dx + b - before]
        inside = [n < batch, c < p.channels]
        inside += [v for i, e in zip(at, p.image, strict=True) for v in (i >= 0, i < e)]
        read = image[images.order(n, c, at[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    shape = (up(p.channels, WHOLE) // rows[1], dy, dx, *reach(p, sizes), rows[1])
    right: Tensor = te.compute(shape, seen, name="Seen")
    axes = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(sizes, "nhw", strict=True)]
    n, y, x = axes

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        c = m // p.multiplier * own + c if p.groups > 1 else c
        value = left[m // rows[0], n, y, x, m % rows[0]]
        r, s = r * down, s * across
        at = (c // rows[1], r % dy, s % dx, n, y + r // dy, x + s // dx, c % rows[1])
        return te.sum(_product(p, value, right[at]), axis=axes)

    total: Tensor = te.compute((p.out_channels, *p.kernel, own), element, name="Sums")
    return BoxSums(total, left, right, True, pixels=tile.box)
