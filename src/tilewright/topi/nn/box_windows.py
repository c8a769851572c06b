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
from tilewright.topi.nn.box_copies import ROW, Boxed, boxed, is_phased, phases, widths
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import OPERANDS

#: Of what extents of factors are multiples: the largest extent of a box.
_WHOLE = 256
#: Pixels whose products a gradient by the filter adds at once.
PIXELS = 64


@dataclass(frozen=True)
class BoxSums:
    """The sums of a convolution as products of boxes.

    ``total`` is (batch, row, column, channel), or of a gradient by the filter (filter, row, column,
    channel); of a gradient by the input with strides (batch, row, column, phase, channel), of the
    results that are a stride apart. ``left`` and ``right`` are its factors; ``left`` has the group
    first where there are several. Where it is ``turned``, ``right`` is (part, ..., channel),
    channels of a row last, as the channels of the result lie side by side in it, which of a
    gradient by the filter is so of both. ``pixels`` are images, rows and columns of a box of that
    gradient.
    """

    total: Tensor
    left: Tensor
    right: Tensor
    turned: bool = False
    pixels: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class BoxDeclaration(Declaration):
    """A convolution as products of ``boxes``.

    ``numbers`` hold what the epilogue multiplies channels with and adds, ``copies`` are operands
    that are copied first. ``phased`` are the sums of a gradient with strides in the type of the
    result; ``alone`` says along which dimensions one phase of it is summed. A gradient by the
    filter is ``placed`` where its elements lie elsewhere in the sums.
    """

    boxes: BoxSums
    numbers: tuple[Tensor, ...] = ()
    copies: tuple[Tensor, ...] = ()
    phased: Tensor | None = None
    alone: tuple[bool, ...] = (False, False)
    placed: bool = False

    @property
    def left(self) -> Tensor:
        return self.boxes.left

    @property
    def right(self) -> Tensor:
        return self.boxes.right


def declare_boxes(p: Conv, given: Any = None) -> BoxDeclaration:
    """The program of a problem with channels last; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    b = boxed(p, first, second, first.shape[0])
    if is_phased(p):
        return _phases(p, inputs, b)
    sums = sums_of(b.problem, b.first, b.second, first.shape[0])
    total, rank = sums.total, p.rank
    if p.pass_ == "wgrad":
        result = total
        if b.place is not None or rank == 1:
            place = b.place or (lambda *at: at)
            result = te.compute(
                p.filter_shape, lambda m, *at: total[place(m, *([0] * (2 - rank)), *at)],
                name="ConvWgrad",
            )  # fmt: skip
        return declared(p, inputs, finished(p, result, inputs), sums, (), b)
    gone = [0] * (2 - rank)
    result = Images(p.layout).compute(
        first.shape[0], p.result_channels, p.result_image[2 - rank :],
        lambda n, c, at: total[(n, *gone, *at, c)], "Conv",
    )  # fmt: skip
    output, numbers = finished_by_channel(p, result, inputs)
    return declared(p, inputs, output, sums, numbers, b)


def declared(
    p: Any, inputs: dict[str, Tensor], output: Tensor, sums: BoxSums,
    numbers: tuple[Tensor, ...], b: Boxed,
) -> BoxDeclaration:  # fmt: skip
    """The declaration of a problem with these sums."""
    return BoxDeclaration(
        p, inputs, output, sums.total, None, None, sums, numbers, b.copies,
        placed=b.place is not None,
    )  # fmt: skip


def sums_of(p: Conv, first: Any, second: Any, batch: Any) -> BoxSums:
    """The sums of a problem of ``batch`` images; operands are anything that is read by the indices
    of the problem's."""
    return (_filter if p.pass_ == "wgrad" else _images)(p, first, second, batch)


def _images(p: Conv, image: Any, filter: Any, batch: Any) -> BoxSums:
    w = Convolved(p)
    turned = p.pass_ == "dgrad"
    deep, wide = _channels(p)[0], p.result_channels
    filled = widths(p.dtype).filled(deep)
    window = _window(p, image, batch, deep * p.groups, w.image, (w.stride, w.dilation, w.before))
    seen = _seen(p, window, (batch, *w.result), w.kernel, filled)
    taps = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(w.kernel, "hw", strict=True)]
    rc = te.reduce_axis((0, filled), "rc")

    def tap(f: Any, c: Any, at: Sequence[Any]) -> Any:
        kept = [k - 1 - t if turned else t for k, t in zip(w.kernel, at, strict=True)]
        read = filter[p.filter_place(*((c, f) if turned else (f, c)), kept[2 - p.rank :])]
        return te.if_then_else(te.all(f < wide, c < deep), read, te.const(0, read.dtype))

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
        value = seen[(*_group(p, f), n, y, x, *taps, rc)].astype(p.accumulate)
        return te.sum(value * other.astype(p.accumulate), axis=[*taps, rc])

    total = te.compute((batch, *w.result, wide), element, name="Sums")
    return BoxSums(total, seen, right, turned)


def _seen(
    p: Conv, window: Callable[..., Any], results: Sequence[Any], taps: Sequence[int], filled: int
) -> Tensor:
    """What each result sees: (batch, row, column, taps, channel), for each group, if there are
    several."""
    groups = [p.groups] if p.groups > 1 else []

    def element(*at: Any) -> Any:
        *group, n, y, x, r, s, c = at
        return window(n, (y, x), (r, s), c + group[0] * filled if group else c)

    shape = (*groups, *(_up(e, _WHOLE) for e in results), *taps, filled)
    made: Tensor = te.compute(shape, element, name="Seen")
    return made


def _group(p: Conv, f: Any) -> tuple[Any, ...]:
    """The group of a channel of the result, where there are several."""
    return (f // (p.result_channels // p.groups),) if p.groups > 1 else ()


def _phases(p: Conv, inputs: dict[str, Tensor], b: Boxed) -> BoxDeclaration:
    """A gradient by the input with strides: results that are a stride apart see the same taps, and
    those of each phase the same pixels of dy. So it is a convolution with stride 1 and the channels
    of all phases, some of whose taps lie outside of the filter. Along dimensions in which only one
    phase sees anything the others are zeros that nothing is summed for."""
    q, grad, packed = b.problem, b.first, b.second
    batch, wide = grad.shape[0], p.channels
    number, _, *taps, filled = (int(e) for e in packed.shape)
    down, across = p.stride
    cut = [phases(p, d) for d in range(2)]
    rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]

    before = [-c.first for c in cut]
    window = _window(q, grad, batch, p.out_channels, p.out_image, ((1, 1), (1, 1), before))
    seen = _seen(q, window, (batch, *rows), taps, filled)
    right = te.compute(
        (number, _up(wide, _WHOLE), *taps, filled),
        lambda phase, f, r, s, c: te.if_then_else(
            f < wide, packed[phase, f, r, s, c], te.const(0, p.dtype)
        ),
        name="Taps",
    )
    axes = [te.reduce_axis((0, n), f"r{name}") for n, name in zip(taps, "hw", strict=True)]
    rc = te.reduce_axis((0, filled), "rc")

    def element(n: Any, y: Any, x: Any, phase: Any, f: Any) -> Any:
        value = seen[(*_group(q, f), n, y, x, *axes, rc)].astype(p.accumulate)
        other = right[(phase, f, *axes, rc)].astype(p.accumulate)
        return te.sum(value * other, axis=[*axes, rc])

    total = te.compute((batch, *rows, number, wide), element, name="Sums")
    phased = te.compute(total.shape, lambda *index: total[index].astype(p.dtype), name="Rounded")

    def gathered(n: Any, c: Any, at: list[Any]) -> Any:
        y, x = [0] * (2 - len(at)) + at
        own, inside = [], []
        for found, i, step in zip(cut, (y, x), (down, across), strict=True):
            single = len(found.phases) < step
            own.append(0 if single else i % step)
            inside += [(i % step).equal(found.first_phase)] if single else []
        read = phased[n, y // down, x // across, own[0] * len(cut[1].phases) + own[1], c]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype)) if inside else read

    output = Images(p.layout).compute(
        batch, wide, p.image[2 - p.rank :], gathered, "ConvDgrad"
    )  # fmt: skip
    return BoxDeclaration(
        p, inputs, output, total, None, None, BoxSums(total, seen, right), (), b.copies, phased,
        tuple(len(c.phases) < s for c, s in zip(cut, p.stride, strict=True)),
    )  # fmt: skip


def _filter(p: Conv, image: Any, grad: Any, batch: Any) -> BoxSums:
    w = Convolved(p)
    channels, filters = p.channels // p.groups, p.out_channels
    box = pixels(p)
    sizes = [_up(e, n) for e, n in zip((batch, *w.kernel), box, strict=True)]
    images = Images(p.layout)
    window = _window(p, image, batch, p.channels, w.image, (w.stride, w.dilation, w.before))

    def step(part: Any, n: Any, y: Any, x: Any, m: Any) -> Any:
        m = part * ROW + m
        inside = [n < batch, *(i < e for i, e in zip((y, x), w.kernel, strict=True)), m < filters]
        read = grad[images.order(n, m, (y, x)[2 - p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    left = te.compute((_up(filters, _WHOLE) // ROW, *sizes, ROW), step, name="Steps")
    groups = [p.groups] if p.groups > 1 else []

    def seen(*at: Any) -> Any:
        *group, part, r, s, n, y, x, c = at
        c = part * ROW + c
        return window(n, (r, s), (y, x), c + group[0] * channels if group else c)

    shape = (*groups, _up(channels, _WHOLE) // ROW, *w.result, *sizes, ROW)
    right = te.compute(shape, seen, name="Seen")
    pixel = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(sizes, "nhw", strict=True)]

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        value = left[(m // ROW, *pixel, m % ROW)].astype(p.accumulate)
        group = (m // p.multiplier,) if groups else ()
        other = right[(*group, c // ROW, r, s, *pixel, c % ROW)].astype(p.accumulate)
        return te.sum(value * other, axis=pixel)

    total = te.compute((filters, *w.result, channels), element, name="Sums")
    return BoxSums(total, left, right, True, box)


def _channels(p: Conv) -> tuple[int, int]:
    """Channels of a group of what windows slide over, and of the result or of dy."""
    found = (p.channels // p.groups, p.multiplier)
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
