"""Gradients by the filter as products of boxes that all taps read.

Tap (r, s) multiplies a box of dy with what it sees of x: the same rows and columns, as far apart as
the stride, shifted by the tap. So all taps of a box read one box of x, with a border; with strides
one for each phase of rows and of columns, whose pixels are a stride apart. Groups of few channels
are joined so that an instruction has them; of its products those of other groups are left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright import te
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.nn.box_factors import WHOLE, up
from tilewright.topi.nn.box_problems import ROW, by_pixels, is_in_halves, joined_by, widths
from tilewright.topi.nn.box_sums import BoxDeclaration, BoxSums
from tilewright.topi.nn.box_views import as_pixels
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import IMAGES

#: Filters and channels that an instruction multiplies at least.
FILTERS, CHANNELS = 16, 16
#: Pixels of a box of dy that several taps see; of one tap half as many, of few channels twice.
_PIXELS = 128
#: Pixels that an instruction multiplies at once, at most.
_DEEP = 16
#: Columns of a box of 3xTF32 at most: the parts of more take registers.
_PARTED = 16


def joined(p: Conv) -> int:
    """How many groups are joined, so that instructions have whole ones, the last of which may have
    fewer; 0 where none are."""
    own, filters = p.channels // p.groups, p.multiplier
    counts = range(1, p.groups + 1)
    return next((n for n in counts if own * n % CHANNELS == 0 and filters * n % FILTERS == 0), 0)


def taps_of(p: Conv) -> Conv | None:
    """The gradient that takes the place of a problem's; None where there is none."""
    p = by_pixels(p)
    if p.groups == 1:
        return p
    n = joined(p)
    return joined_by(p, n) if n else None


def is_thin(p: Conv) -> bool:
    """Whether a row of shared memory has columns of few channels, of which taps see a part."""
    w = widths(p.dtype)
    return p.groups == 1 and p.channels <= w.chunk and p.kernel_w > 1 and p.dilation[1] == 1


def is_flat(p: Conv) -> bool:
    """Whether rows of an image that :func:`is_thin` are read as they lie, all elements of a row one
    behind the other: TMA steps over rows of whole 16 bytes. Others are copied, as are those of one
    channel, of which no dimension has several elements side by side."""
    whole = p.width * p.channels % widths(p.dtype).chunk == 0
    return bool(p.channels_last) and p.channels > 1 and whole


def beyond(p: Conv) -> int:
    """Elements between where rows that :func:`is_flat` begin, at a multiple of 16 bytes as boxes
    do, and the padding before an image."""
    before = p.padding[1] * p.channels
    return up(before, widths(p.dtype).chunk) - before if is_flat(p) else 0


def begins_at_chunks(p: Conv) -> bool:
    """Whether what each result sees of rows that :func:`is_thin` begins at a multiple of 16 bytes,
    as instructions load it."""
    chunk = widths(p.dtype).chunk
    return p.stride[1] * filled(p) % chunk == 0 and beyond(p) == 0


def filled(p: Conv) -> int:
    """Channels of a column of a row that :func:`is_thin`. In a copy as many as make what
    neighbouring results see begin at multiples of 16 bytes, where instructions load these."""
    if is_flat(p):
        return p.channels
    w = widths(p.dtype)
    return next(n for n in (4, 8) if n >= p.channels and n * p.stride[1] % w.chunk == 0)


@dataclass(frozen=True)
class TapDeclaration(BoxDeclaration):
    """A gradient by the filter whose taps share boxes; ``seen`` is what the taps of a row of the
    filter see, where it is a part of a row of few channels."""

    seen: Tensor | None = None

    @property
    def anywhere(self) -> bool:
        """Whether what neighbouring results see begins at no multiples of 16 bytes."""
        assert isinstance(self.problem, Conv)
        return self.seen is not None and not begins_at_chunks(self.problem)

    def boxes_of(
        self, filters: int, channels: int, above: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The boxes of dy and of x of a step, channels last, of a block of some ``filters`` and
        ``channels``, and of as many rows of taps, if not of all. Where channels are whole rows of
        shared memory, a box has all rows of a block."""
        assert isinstance(self.problem, Conv)
        p = taps_of(self.problem)
        assert p is not None
        rows, every = rows_of(p), (p.out_channels, p.channels)
        high = [
            (own // row,) if p.groups == 1 and own > row and n % row == 0 else ()
            for own, row, n in zip((filters, channels), rows, every, strict=True)
        ]
        dy = (*high[0], *self.boxes.pixels, rows[0])
        if self.seen is not None:
            return dy, box_of_rows(p, channels)
        return dy, (*high[1], *reach(p, self.boxes.pixels, above), rows[1])


def pixel_box(p: Conv) -> tuple[int, int, int]:
    """Images, rows and columns of the boxes of dy, of a gradient that :func:`taps_of` makes: eight
    columns or more, unless images are of a pixel each, of as many pixels as a step should have, so
    that barriers are few and shared memory has room; of these those that bring the least."""
    if max(p.out_image) == 1:
        return (_PIXELS if min(p.channels, p.out_channels) <= ROW else _PIXELS // 2), 1, 1
    return min(_pixel_boxes(p))[-1]


def has_boxes(p: Conv) -> bool:
    """Whether there is such a box: taps may be too far apart for one copy to have all they see."""
    return max(p.out_image) == 1 or bool(_pixel_boxes(p))


@functools.lru_cache(maxsize=256)
def _pixel_boxes(p: Conv) -> tuple[tuple[float, float, tuple[int, int, int]], ...]:
    """Boxes, each behind how far it is from what a step should have, and what all bring."""
    extents, found = (p.batch, *p.out_image), []
    wanted = 2 * _PIXELS if is_thin(p) else _PIXELS
    apart = p.groups > 1 and max(p.stride) > 1  # a box of x is four times as large
    wanted = _PIXELS // 2 if max(p.kernel) == 1 or apart else wanted
    phases = math.prod(min(s, k) for s, k in zip(p.stride, p.kernel, strict=True))
    for images, rows, columns in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (8, 16, 32, 64)):
        box = (images, rows, columns)
        least = zip(box, extents, (1, 1, _DEEP), strict=True)
        if math.prod(box) < _DEEP or (columns > _PARTED and is_in_halves(p)):
            continue
        if any(n >= 2 * max(e, few) for n, e, few in least) or max(reach(p, box)) > LARGEST:
            continue
        whole = math.prod(up(e, n) for e, n in zip(extents, box, strict=True))
        brought = whole * (2 + phases * math.prod(reach(p, box)) / math.prod(box))
        found.append((abs(math.log2(wanted / math.prod(box))), brought, box))
    return tuple(found)


def box_of_rows(p: Conv, channels: int) -> tuple[int, int, int]:
    """Images, rows and elements of what a box of dy sees of rows that :func:`is_thin`, up to as
    many ``channels`` of the last pixel."""
    images, rows, columns = pixel_box(p)
    rows = (rows - 1) * p.stride[0] + (p.kernel_h - 1) * p.dilation[0] + 1
    across = (columns - 1) * p.stride[1] * filled(p) + beyond(p) + channels
    return images, rows, up(across, widths(p.dtype).chunk)


def rows_of(p: Conv) -> tuple[int, int]:
    """Filters and channels of a row of shared memory; those of a block are whole rows."""
    w, own = widths(p.dtype), p.channels // p.groups
    filters, channels = (
        min(w.row, 1 << max(least, n - 1).bit_length())
        for n, least in ((p.out_channels, FILTERS - 1), (p.channels, w.deep - 1))
    )
    if p.groups > 1 and channels % own:  # rows have whole groups, or a part of one
        channels = math.gcd(own, w.row)
    return filters, channels


def channels_of(p: Conv, filters: int, channels: int) -> int:
    """Channels of x that a block of some filters reads: of whole groups, or of a part of one."""
    return channels * (max(1, filters // p.multiplier) if p.groups > 1 else 1)


def declare_tap_gradient(p: Conv, given: Any = None) -> TapDeclaration:
    """The program of a problem; ``given`` as in :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    made = taps_of(p)
    assert made is not None
    views, n = inputs, max(1, made.multiplier // p.multiplier)
    if made.batch != p.batch:
        views = {
            name: as_pixels(x, p.layout) if name in IMAGES else x for name, x in inputs.items()
        }
    x, dy = views["data"], views["grad"]
    thin, copies, seen = is_thin(made), list[Tensor](), None
    if are_copied(p)[1]:
        dy = in_chunks(made, dy)
        copies.append(dy)
    if thin:
        rows, element = rows_of_columns(made, x, x.shape[0])
        copies += rows
        sums, seen = _thin_sums(made, element, dy, x.shape[0])
    else:
        if are_copied(p)[0]:
            x = in_chunks(made, x)
            copies.append(x)
        sums = _sums(made, x, dy, x.shape[0])
    total, own = sums.total, p.channels // p.groups
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
        p, inputs, finished(p, result, inputs), total, None, None, sums, (), tuple(copies),
        placed=result is not total, seen=seen,
    )  # fmt: skip


def are_copied(p: Conv) -> tuple[bool, bool]:
    """Whether pixels of x, and of dy, are copied with their channels filled up to 16 bytes."""
    chunk = widths(p.dtype).chunk
    return p.channels % chunk > 0 and not is_thin(p), p.out_channels % chunk > 0


def in_chunks(p: Conv, image: Tensor) -> Tensor:
    """Pixels of an image, or of dy, whose channels are filled up to 16 bytes with zeros."""
    images = Images(p.layout)
    batch, channels, space = images.extents(image.shape)

    def element(n: Any, c: Any, at: Sequence[Any]) -> Any:
        read = image[images.order(n, c, at)]
        return or_zero([c < channels], read)

    filled_up = up(channels, widths(p.dtype).chunk)
    return images.compute(batch, filled_up, space, element, f"{image.name}.chunks")


def rows_of_columns(p: Conv, image: Any, batch: Any) -> tuple[list[Tensor], Callable[..., Any]]:
    """Elements of rows of ``batch`` images of few channels, from their padding on, or before that
    where boxes begin, by image, row and element, zero outside; and the copy from which they are
    read, if there is one."""
    images, before = Images(p.layout), p.padding[1] * p.channels + beyond(p)
    if not is_flat(p):
        rows = _rows(p, image)

    def element(n: Any, y: Any, e: Any) -> Any:
        inside = [n < batch, y >= 0, y < p.height]
        if not is_flat(p):
            return or_zero([*inside, e < rows.shape[2]], rows[n, y, e])
        e = e - before
        at = (y, e // p.channels)[2 - p.rank :]
        inside += [e >= 0, e < p.width * p.channels]
        return or_zero(inside, image[images.order(n, e % p.channels, at)])

    return [] if is_flat(p) else [rows], element


def _rows(p: Conv, image: Any) -> Tensor:
    """A copy of rows of an image of few channels, from their padding on: (image, row, columns of
    its channels side by side)."""
    w, images, each = widths(p.dtype), Images(p.layout), filled(p)

    def element(n: Any, y: Any, e: Any) -> Any:
        x, c = e // each - p.padding[1], e % each
        inside = [x >= 0, x < p.width, c < p.channels]
        read = image[images.order(n, c, (y, x)[2 - p.rank :])]
        return or_zero(inside, read)

    shape = (image.shape[0], p.height, up((p.padding[1] + p.width) * each, w.chunk))
    made: Tensor = te.compute(shape, element, name="Rows")
    return made


def _steps(p: Conv, grad: Any, sizes: Sequence[Any], row: int) -> Tensor:
    """Boxes of dy, by rows of channels."""
    out, images = p.out_image, Images(p.layout)
    filters = int(images.extents(grad.shape)[1])

    def pixel(part: Any, n: Any, y: Any, x: Any, m: Any) -> Any:
        m = part * row + m
        inside = [n < grad.shape[0], y < out[0], x < out[1], m < filters]
        read = grad[images.order(n, m, (y, x)[2 - p.rank :])]
        return or_zero(inside, read)

    made: Tensor = te.compute((up(filters, WHOLE) // row, *sizes, row), pixel, name="Steps")
    return made


def _product(p: Conv, left: Any, right: Any) -> Any:
    if p.precision == "tf32":
        return te.truncate_tf32(left) * te.truncate_tf32(right)
    return left.astype(p.accumulate) * right.astype(p.accumulate)


def _thin_sums(
    p: Conv, row_element: Callable[..., Any], grad: Any, batch: Any
) -> tuple[BoxSums, Tensor]:
    """The sums of rows of taps, whose columns and channels are one axis, and what these see."""
    (each, row), box = (filled(p), rows_of(p)[0]), pixel_box(p)
    wide, apart = p.kernel_w * each, p.stride[1] * each
    sizes = [up(e, n) for e, n in zip((batch, *p.out_image), box, strict=True)]
    left = _steps(p, grad, sizes, row)
    dy, top = p.stride[0], p.padding[0]

    def element(n: Any, y: Any, e: Any) -> Any:
        return row_element(n, y - top, e)

    high = (sizes[1] - 1) * dy + (p.kernel_h - 1) * p.dilation[0] + 1
    shape = (sizes[0], high, sizes[2] * apart + up(wide + beyond(p), WHOLE))
    right: Tensor = te.compute(shape, element, name="Seen")

    def window(r: Any, n: Any, y: Any, x: Any, j: Any) -> Any:
        return right[n, y * dy + r * p.dilation[0], x * apart + beyond(p) + j]

    seen: Tensor = te.compute((p.kernel_h, *sizes, up(wide, WHOLE)), window, name="Windows")
    n, y, x = axes = [te.reduce_axis((0, e), f"r{d}") for e, d in zip(sizes, "nhw", strict=True)]

    def taken(m: Any, r: Any, t: Any, j: Any) -> Any:
        return te.sum(_product(p, left[m // row, n, y, x, m % row], seen[r, n, y, x, j]), axis=axes)

    total: Tensor = te.compute((p.out_channels, p.kernel_h, 1, wide), taken, name="Sums")
    return BoxSums(total, left, right, True, pixels=box), seen


def reach(p: Conv, box: Sequence[Any], rows: int = 0) -> tuple[Any, ...]:
    """Images, rows and columns of a phase of x that all taps of a box of dy see, or those of so
    many ``rows`` of them: of one, where there are strides."""
    kernel = (rows or p.kernel_h, p.kernel_w)
    taps = zip(box[1:], kernel, p.dilation, p.stride, strict=True)
    return box[0], *(e + (k - 1) * d // s for e, k, d, s in taps)


def _sums(p: Conv, image: Any, grad: Any, batch: Any) -> BoxSums:
    images, own, rows = Images(p.layout), p.channels // p.groups, rows_of(p)
    box, channels = pixel_box(p), int(images.extents(image.shape)[1])
    sizes = [up(e, n) for e, n in zip((batch, *p.out_image), box, strict=True)]
    left = _steps(p, grad, sizes, rows[0])
    (down, across), (dy, dx), (top, before) = p.dilation, p.stride, p.padding[:2]

    def seen(a: Any, b: Any, part: Any, n: Any, y: Any, x: Any, c: Any) -> Any:
        c, at = part * rows[1] + c, [y * dy + a - top, x * dx + b - before]
        inside = [n < batch, c < channels]
        inside += within(at, p.image)
        read = image[images.order(n, c, at[2 - p.rank :])]
        return or_zero(inside, read)

    shape = (dy, dx, up(p.channels, WHOLE) // rows[1], *reach(p, sizes), rows[1])
    right: Tensor = te.compute(shape, seen, name="Seen")
    axes = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(sizes, "nhw", strict=True)]
    n, y, x = axes

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        c = m // p.multiplier * own + c if p.groups > 1 else c
        value = left[m // rows[0], n, y, x, m % rows[0]]
        r, s = r * down, s * across
        at = (r % dy, s % dx, c // rows[1], n, y + r // dy, x + s // dx, c % rows[1])
        return te.sum(_product(p, value, right[at]), axis=axes)

    total: Tensor = te.compute((p.out_channels, *p.kernel, own), element, name="Sums")
    return BoxSums(total, left, right, True, pixels=box)


#: The declaration of this module, by name.
FORMS = {"shared taps": declare_tap_gradient}
