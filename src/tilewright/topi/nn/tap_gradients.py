"""Gradients by the filter as products of boxes that all taps read.

Tap (r, s) multiplies a box of dy with what it sees of x: the same rows and columns, as far apart as
the stride, shifted by the tap. So all taps of a box read one box of x, with a border; with strides
one for each phase of rows and of columns, whose pixels are a stride apart. Groups of few channels
are joined so that an instruction has them; of its products those of other groups are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        return p if p.channels % widths(p.dtype).chunk == 0 else None
    n = joined(p)
    return p.replace(groups=p.groups // n, multiplier=p.multiplier * n) if n else None


def rows_of(p: Conv, tile: TapGradientTile) -> tuple[int, int]:
    """Filters and channels of a row of shared memory: as many as fit, of those of a tile."""
    w = widths(p.dtype)
    channels = tile.filters // p.multiplier * (p.channels // p.groups)
    return math.gcd(tile.filters, w.row), math.gcd(w.row, tile.channels if p.groups == 1 else channels)


def declare_tap_gradient(p: Conv, tile: TapGradientTile, given: Any = None) -> BoxDeclaration:
    """The program of a problem whose boxes are those of ``tile``; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    made = taps_of(p)
    assert made is not None
    views = inputs
    if made.batch != p.batch:
        views = {name: _by_pixels(x) if name in IMAGES else x for name, x in inputs.items()}
    x, dy = views["data"], views["grad"]
    sums = _sums(made, tile, x, dy, x.shape[0])
    total, own, n = sums.total, p.channels // p.groups, made.multiplier // p.multiplier
    result = total
    if n > 1 or p.rank == 1:
        gone = [0] * (2 - p.rank)

        def placed(m: Any, *at: Any) -> Any:
            *tap, c = at
            return total[(m, *gone, *tap, m // p.multiplier % n * own + c)]

        result = te.compute(p.filter_shape, placed, name="ConvWgrad")
    return BoxDeclaration(
        p, inputs, finished(p, result, inputs), total, None, None, sums, placed=result is not total
    )


def reach(p: Conv, box: Sequence[Any]) -> tuple[Any, ...]:
    """Images, rows and columns of a phase of x that all taps of a box of dy see."""
    taps = zip(box[1:], p.kernel, p.dilation, p.stride, strict=True)
    return box[0], *(e + (k - 1) * d // s for e, k, d, s in taps)


def _sums(p: Conv, tile: TapGradientTile, image: Any, grad: Any, batch: Any) -> BoxSums:
    out, images = p.out_image, Images(p.layout)
    own, filters = p.channels // p.groups, p.out_channels
    sizes = [up(e, n) for e, n in zip((batch, *out), tile.box, strict=True)]
    rows = rows_of(p, tile)

    def pixel(part: Any, n: Any, y: Any, x: Any, m: Any) -> Any:
        m = part * rows[0] + m
        inside = [n < batch, y < out[0], x < out[1], m < filters]
        read = grad[images.order(n, m, (y, x)[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    shape = (up(filters, WHOLE) // rows[0], *sizes, rows[0])
    left: Tensor = te.compute(shape, pixel, name="Steps")
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

    def read(value: Any) -> Any:
        return te.truncate_tf32(value) if p.precision == "tf32" else value.astype(p.accumulate)

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        c = m // p.multiplier * own + c if p.groups > 1 else c
        value = left[m // rows[0], n, y, x, m % rows[0]]
        r, s = r * down, s * across
        at = (c // rows[1], r % dy, s % dx, n, y + r // dy, x + s // dx, c % rows[1])
        return te.sum(read(value) * read(right[at]), axis=axes)

    total: Tensor = te.compute((filters, *p.kernel, own), element, name="Sums")
    return BoxSums(total, left, right, True, pixels=tile.box)
