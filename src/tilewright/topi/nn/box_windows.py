"""Convolution as products of boxes: what a tap sees of a tile of results is a box of the image.

Of images with channels last, tap (r, s) of a tile of results reads one box: as many images, rows
and columns, as far apart as the stride, shifted by the tap. So a convolution is a sum over taps and
channels of products of matrices that TMA brings as they are, without im2col: rows are pixels,
channels lie side by side. A gradient by the input is the same of dy and the filter turned, with
strides for each phase of the results by itself; one by the filter multiplies boxes of dy with boxes
of x, summed over pixels.

Factors are declared further than the result, up to multiples of 256: so far any tile goes at an
edge. They are never stored whole, and nobody reads what lies beyond a tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, finished_by_channel, placeholders
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import OPERANDS

#: Of what extents of factors are multiples: the largest extent of a box.
_WHOLE = 256
#: Channels of a tap are filled up to a multiple of those that an instruction multiplies.
DEEP = 16
#: Channels of a row of 128 bytes in shared memory, where a factor's own channels lie side by side.
ROW = 64
#: Pixels whose products a gradient by the filter adds at once.
PIXELS = 64


@dataclass(frozen=True)
class BoxDeclaration(Declaration):
    """A convolution as products of boxes.

    ``sum`` is (batch, row, column, channel), or of a gradient by the filter (filter, row, column,
    channel); of a gradient by the input with strides (batch, row, column, phase, channel), of the
    results that are a stride apart, and ``phased`` is it in the type of the result. ``left``
    and ``right`` are its factors; ``right`` is (part, ..., channel), channels of a row last, where
    the channels of the result lie side by side in it, which of a gradient by the filter is so of
    both. ``pixels`` are images, rows and columns of a box of that gradient.
    ``numbers`` hold what the epilogue multiplies channels with and adds.
    """

    left: Tensor
    right: Tensor
    pixels: tuple[int, int, int] = (1, 1, 1)
    numbers: tuple[Tensor, ...] = ()
    phased: Tensor | None = None


@dataclass(frozen=True)
class BoxSums:
    """The sums of a convolution as products of boxes, and their factors."""

    total: Tensor
    left: Tensor
    right: Tensor
    pixels: tuple[int, int, int] = (1, 1, 1)


def declare_boxes(p: Conv, given: Any = None) -> BoxDeclaration:
    """The program of a problem with channels last and one group; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    if is_phased(p):
        return _phases(p, inputs)
    sums = sums_of(p, first, second, first.shape[0])
    total, gone = sums.total, [0] * (2 - p.rank)
    if p.pass_ == "wgrad":
        result = total
        if p.rank == 1:
            result = te.compute(p.filter_shape, lambda m, x, c: total[m, 0, x, c], name="ConvWgrad")
        return declared(p, inputs, finished(p, result, inputs), sums, ())
    result = Images(p.layout).compute(
        first.shape[0], p.result_channels, p.result_image[2 - p.rank :],
        lambda n, c, at: total[(n, *gone, *at, c)], "Conv",
    )  # fmt: skip
    output, numbers = finished_by_channel(p, result, inputs)
    return declared(p, inputs, output, sums, numbers)


def declared(
    p: Any, inputs: dict[str, Tensor], output: Tensor, sums: BoxSums, numbers: tuple[Tensor, ...]
) -> BoxDeclaration:
    """The declaration of a problem with these sums."""
    return BoxDeclaration(
        p, inputs, output, sums.total, None, None, sums.left, sums.right, sums.pixels, numbers
    )


def sums_of(p: Conv, first: Any, second: Any, batch: Any) -> BoxSums:
    """The sums of a problem of ``batch`` images; operands are anything that is read by the indices
    of the problem's."""
    return (_filter if p.pass_ == "wgrad" else _images)(p, first, second, batch)


def _images(p: Conv, image: Any, filter: Any, batch: Any) -> BoxSums:
    w = Convolved(p)
    turned = p.pass_ == "dgrad"
    deep, wide = _channels(p)[0], p.result_channels
    filled = _up(deep, DEEP)
    window = _window(p, image, batch, deep, w.image, (w.stride, w.dilation, w.before))
    seen = te.compute(
        (*(_up(e, _WHOLE) for e in (batch, *w.result)), *w.kernel, filled),
        lambda n, y, x, r, s, c: window(n, (y, x), (r, s), c), name="Seen",
    )  # fmt: skip
    taps = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(w.kernel, "hw", strict=True)]
    rc = te.reduce_axis((0, filled), "rc")

    def tap(f: Any, c: Any, at: Sequence[Any]) -> Any:
        kept = [k - 1 - t if turned else t for k, t in zip(w.kernel, at, strict=True)]
        read = filter[p.filter_place(*((c, f) if turned else (f, c)), kept[2 - p.rank :])]
        return te.if_then_else(te.all(f < wide, c < deep), read, te.const(0, p.dtype))

    if turned:
        right = te.compute(
            (_up(wide, _WHOLE) // ROW, filled, *w.kernel, ROW),
            lambda part, c, r, s, f: tap(part * ROW + f, c, (r, s)), name="Taps",
        )  # fmt: skip
    else:
        right = te.compute(
            (_up(wide, _WHOLE), *w.kernel, filled), lambda f, r, s, c: tap(f, c, (r, s)),
            name="Taps",
        )  # fmt: skip

    def element(n: Any, y: Any, x: Any, f: Any) -> Any:
        other = right[(f // ROW, rc, *taps, f % ROW) if turned else (f, *taps, rc)]
        value = seen[(n, y, x, *taps, rc)].astype(p.accumulate)
        return te.sum(value * other.astype(p.accumulate), axis=[*taps, rc])

    total = te.compute((batch, *w.result, wide), element, name="Sums")
    return BoxSums(total, seen, right)


def is_phased(p: Conv) -> bool:
    """Whether it is a gradient by the input with strides."""
    return p.pass_ == "dgrad" and max(p.stride) > 1


def _phases(p: Conv, inputs: dict[str, Tensor]) -> BoxDeclaration:
    """A gradient by the input with strides: results that are a stride apart see the same taps, and
    those of each phase the same pixels of dy. So it is a convolution with stride 1 and the channels
    of all phases, some of whose taps lie outside of the filter."""
    grad, filter = (inputs[name] for name in OPERANDS[p.pass_])
    batch, deep, wide = grad.shape[0], p.out_channels, p.channels
    filled, (down, across) = _up(deep, DEEP), p.stride
    cut = [taps_of_phases(p, d) for d in range(2)]
    rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]
    images = Images(p.layout)

    before = [-low for low, _ in cut]
    window = _window(p, grad, batch, deep, p.out_image, ((1, 1), (1, 1), before))
    seen = te.compute(
        (*(_up(e, _WHOLE) for e in (batch, *rows)), *(n for _, n in cut), filled),
        lambda n, y, x, r, s, c: window(n, (y, x), (r, s), c), name="Seen",
    )  # fmt: skip

    def tap(phase: Any, part: Any, c: Any, r: Any, s: Any, f: Any) -> Any:
        at = [
            k + before - t * step
            for k, before, t, step in zip(
                (phase // across, phase % across), p.padding[:2],
                (r + cut[0][0], s + cut[1][0]), p.stride, strict=True,
            )
        ]  # fmt: skip
        f = part * ROW + f
        inside = [f < wide, c < deep]
        inside += [v for i, e in zip(at, p.kernel, strict=True) for v in (i >= 0, i < e)]
        read = filter[p.filter_place(c, f, at[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    right = te.compute(
        (down * across, _up(wide, _WHOLE) // ROW, filled, *(n for _, n in cut), ROW), tap,
        name="Taps",
    )  # fmt: skip
    taps = [te.reduce_axis((0, n), f"r{name}") for (_, n), name in zip(cut, "hw", strict=True)]
    rc = te.reduce_axis((0, filled), "rc")

    def element(n: Any, y: Any, x: Any, phase: Any, f: Any) -> Any:
        value = seen[(n, y, x, *taps, rc)].astype(p.accumulate)
        other = right[(phase, f // ROW, rc, *taps, f % ROW)].astype(p.accumulate)
        return te.sum(value * other, axis=[*taps, rc])

    total = te.compute((batch, *rows, down * across, wide), element, name="Sums")
    phased = te.compute(
        total.shape, lambda *index: total[index].astype(p.dtype), name="Rounded"
    )  # fmt: skip

    def gathered(n: Any, c: Any, at: list[Any]) -> Any:
        y, x = [0] * (2 - len(at)) + at
        return phased[n, y // down, x // across, y % down * across + x % across, c]

    output = images.compute(batch, wide, p.image[2 - p.rank :], gathered, "ConvDgrad")
    return BoxDeclaration(
        p, inputs, output, total, None, None, seen, right, phased=phased
    )  # fmt: skip


def taps_of_phases(p: Conv, d: int) -> tuple[int, int]:
    """Of a gradient by the input, along rows (``d`` is 0) or columns: from which pixel of dy on a
    phase sees some, counted from that of the result, and how many."""
    stride, before = p.stride[d], p.padding[d]
    seen = [
        (phase + before - tap) // stride
        for phase in range(stride)
        for tap in range(p.kernel[d])
        if (phase + before - tap) % stride == 0
    ]
    return min(seen), max(seen) - min(seen) + 1


def _filter(p: Conv, image: Any, grad: Any, batch: Any) -> BoxSums:
    w = Convolved(p)
    channels, filters = p.channels, p.out_channels
    box = pixels(p)
    sizes = [_up(e, n) for e, n in zip((batch, *w.kernel), box, strict=True)]
    images = Images(p.layout)
    window = _window(p, image, batch, channels, w.image, (w.stride, w.dilation, w.before))

    def step(part: Any, n: Any, y: Any, x: Any, m: Any) -> Any:
        m = part * ROW + m
        inside = [n < batch, *(i < e for i, e in zip((y, x), w.kernel, strict=True)), m < filters]
        read = grad[images.order(n, m, (y, x)[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    left = te.compute((_up(filters, _WHOLE) // ROW, *sizes, ROW), step, name="Steps")
    right = te.compute(
        (_up(channels, _WHOLE) // ROW, *w.result, *sizes, ROW),
        lambda part, r, s, n, y, x, c: window(n, (r, s), (y, x), part * ROW + c), name="Seen",
    )  # fmt: skip
    pixel = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(sizes, "nhw", strict=True)]

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        value = left[(m // ROW, *pixel, m % ROW)].astype(p.accumulate)
        other = right[(c // ROW, r, s, *pixel, c % ROW)].astype(p.accumulate)
        return te.sum(value * other, axis=pixel)

    return BoxSums(te.compute((filters, *w.result, channels), element, name="Sums"), left, right,
                   box)  # fmt: skip


def _channels(p: Conv) -> tuple[int, int]:
    """Channels of what windows slide over, and of the result or of dy."""
    found = (p.channels, p.out_channels)
    return found[::-1] if p.pass_ == "dgrad" else found


def _window(
    p: Conv, image: Any, batch: Any, channels: int, extents: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> Callable[..., Any]:  # fmt: skip
    """What is seen of a channel by a result through a tap; zero outside of the image. ``steps`` are
    the distances of results and of taps, and what lies before the image."""
    images = Images(p.layout)

    def seen(n: Any, result: Sequence[Any], tap: Sequence[Any], c: Any) -> Any:
        places = [o * s + t * d - low for o, t, s, d, low in zip(result, tap, *steps, strict=True)]
        inside = [n < batch, c < channels]
        inside += [x for i, e in zip(places, extents, strict=True) for x in (i >= 0, i < e)]
        read = image[images.order(n, c, places[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    return seen


def pixels(p: Conv) -> tuple[int, int, int]:
    """Images, rows and columns of the boxes of :data:`PIXELS` that cover the results with the least
    beyond; of equals, those of neighbours. None has twice the rows or columns that there are."""
    extents = (p.batch, *p.out_image)

    def beyond(box: tuple[int, int, int]) -> tuple[float, int, int]:
        whole = math.prod(_up(e, n) for e, n in zip(extents, box, strict=True))
        return whole / math.prod(extents), box[0], abs(box[1] - box[2])

    high, wide = ([1 << k for k in range(e.bit_length() + 1)] for e in p.out_image)
    return min(
        (
            (PIXELS // rows // columns, rows, columns)
            for rows, columns in product(high, wide)
            if rows * columns <= PIXELS and rows < 2 * extents[1] and columns < 2 * extents[2]
        ),
        key=beyond,
    )


def _up(extent: Any, whole: int) -> Any:
    return (extent + (whole - 1)) // whole * whole


#: The declaration of this module, by name.
FORMS = {"boxes": declare_boxes}
