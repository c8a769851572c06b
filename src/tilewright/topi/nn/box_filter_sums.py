"""Gradients by the filter as products of boxes of dy with boxes of x, summed over pixels."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from tilewright import te
from tilewright.topi.nn.box_factors import WHOLE, up, window_of  # fmt: skip
from tilewright.topi.nn.box_image_sums import pixel_of, single_pixels, spatial_axes
from tilewright.topi.nn.box_problems import MOST_COLUMNS, widths
from tilewright.topi.nn.box_sums import BoxSums
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution

#: Pixels that tensor cores read from rows one behind the other.
LINE = 8


def filter_sums(
    p: Convolution, image: Any, grad: Any, batch: Any, whole: bool, windows: bool = False
) -> BoxSums:
    """Those of a problem of ``batch`` images, of boxes or, where they are ``whole``, of parts of
    them; or of ``windows``, of any pixels of dy that follow one another, of which ``grad`` has
    images of one each."""
    w = Convolved(p)
    channels, filters = p.channels // p.groups, p.out_channels
    extents = single_pixels(batch, w.kernel) if windows else (batch, *w.kernel)
    wide = widths(p.dtype).row
    box = (wide, *(1 for _ in w.kernel)) if windows else pixels(p, LINE if whole else 1)
    sizes = [up(e, n) for e, n in zip(extents, box, strict=True)]
    images = Images(p.layout)
    window = window_of(p, image, batch, p.channels, w.image, (w.stride, w.dilation, w.before))

    gone, space = len(p.image) - p.rank, len(p.image)

    def step(part: Any, n: Any, *at: Any) -> Any:
        *place, m = at
        m = part * wide + m
        inside = [i < e for i, e in zip((n, *place), extents, strict=True)] + [m < filters]
        read = grad[images.order(n, m, place[gone:])]
        return or_zero(inside, read)

    left = te.compute((up(filters, WHOLE) // wide, *sizes, wide), step, name="Steps")
    groups = [p.groups] if p.groups > 1 else []

    row = of_row(p) if whole else wide
    steps = (w.stride, w.dilation)

    def seen(*at: Any) -> Any:
        group, place, c = at[: len(groups)], list(at[len(groups) : -1]), at[-1]
        c = place.pop(0 if whole else space) * row + c
        c = c + group[0] * channels if group else c
        if whole:
            n, *further = place
            return window(n, [0] * space, [0] * space, c, further)
        n, pixel = place[space], place[space + 1 :]
        if windows:
            n, pixel = pixel_of(n, w.kernel)
        return window(n, place[:space], pixel, c)

    # Boxes have several rows of channels, of a tap.
    shape = [*w.result, up(channels, WHOLE) // row, *sizes]
    if whole:
        each = zip(w.result, sizes[1:], *steps, strict=True)
        seen_extents = ((t - 1) * s + (e - 1) * d + 1 for t, e, s, d in each)
        shape = [up(channels, WHOLE) // row, sizes[0], *seen_extents]
    right = te.compute((*groups, *shape, row), seen, name="Seen")
    pixel = [te.reduce_axis((0, sizes[0]), "rn"), *spatial_axes(sizes[1:])]

    def element(m: Any, *at: Any) -> Any:
        *taps, c = at
        value = left[(m // wide, *pixel, m % wide)].astype(p.accumulate)
        group = (m // p.multiplier,) if groups else ()
        place = [*taps, c // row, *pixel]
        if whole:
            each = zip(taps, pixel[1:], *steps, strict=True)
            place = [c // row, pixel[0], *(t * s + e * d for t, e, s, d in each)]
        other = right[(*group, *place, c % row)].astype(p.accumulate)
        return te.sum(value * other, axis=pixel)

    total = te.compute((filters, *w.result, channels), element, name="Sums")
    return BoxSums(total, left, right, True, whole=whole, pixels=box, windows=windows)


def of_row(p: Convolution) -> int:
    """Channels of a row of shared memory, where a gradient by the filter reads whole boxes: as many
    as an instruction has columns for, of each tap of a row."""
    w, wide = widths(p.dtype), p.kernel[-1]
    row = w.step(w.filled(p.channels // p.groups))
    if row == w.row and row * wide > MOST_COLUMNS:
        row //= 2
    return row


def pixels(p: Convolution, line: int = 1) -> tuple[int, ...]:
    """Images, and extents in them, of the boxes of pixels whose products a step adds, as many as a
    row of shared memory has channels, that cover the results with the least beyond; of equals,
    those of neighbours. None has twice the extents that there are, but for lines of at least
    ``line`` pixels."""
    extents, count = (p.batch, *p.out_image), widths(p.dtype).row

    def beyond(box: tuple[int, ...]) -> tuple[float, int, int]:
        whole = math.prod(up(e, n) for e, n in zip(extents, box, strict=True))
        return whole / math.prod(extents), box[0], max(box[1:]) - min(box[1:])

    *outer, last = (
        [1 << k for k in range(e.bit_length() + 1) if 1 << k < 2 * e] for e in p.out_image
    )
    sizes = (*outer, [n for n in last if n >= line] or [line])
    return min(
        (
            (count // math.prod(box), *box)
            for box in product(*sizes) if math.prod(box) <= count
        ),
        key=beyond,
    )  # fmt: skip
