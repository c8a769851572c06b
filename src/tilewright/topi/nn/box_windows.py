"""Convolution as products of boxes: what a tap sees of a tile of results is a box of the image.

Of images with channels last, tap (r, s) of a tile of results reads one box: as many images, rows
and columns, as far apart as the stride, shifted by the tap. So a convolution is a sum over taps and
channels of products of matrices that TMA brings as they are, without im2col: rows are pixels,
channels lie side by side. A gradient by the input is the same of dy and the filter turned, with
strides for each phase of the results by itself; one by the filter multiplies boxes of dy with boxes
of x, summed over pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import (
    IMAGES,
    Declaration,
    finished,
    finished_by_channel,
    placeholders,
    relaid,
)
from tilewright.topi.nn.box_copies import (
    MOST_COLUMNS,
    ROW,
    Boxed,
    as_brought,
    boxed,
    by_pixels,
    copies_filter,
    filter_last,
    half_step,
    in_boxes,
    is_in_halves,
    is_turned,
    laid,
    of_a_group,
    sliced,
    widths,
)
from tilewright.topi.nn.box_factors import (
    BESIDE,
    WHOLE,
    Added,
    Taps,
    Windows,
    in_eights,
    of_eights,
    reach,
    up,
    window_of,
)  # fmt: skip
from tilewright.topi.nn.box_phases import Phases, all_phases, is_phased, parted, tap_of_phase
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import OPERANDS, Convolution

#: Pixels whose products a gradient by the filter adds at once, and those that tensor cores read
#: from rows one behind the other.
PIXELS, LINE = 64, 8


@dataclass(frozen=True)
class BoxSums:
    """The sums of a convolution as products of boxes.

    ``total`` is (batch, place, channel), with a place in an image along each of its dimensions, or
    of a gradient by the filter (filter, place, channel); of a gradient by the input with strides
    (batch, place, phase, channel), of the results that are a stride apart. ``left`` and ``right``
    are its factors; ``left`` has the group first where there are several, but where a row holds the
    channels of ``slices`` groups, all of which a tile multiplies. Where boxes are ``whole``, taps
    read parts of them. Where ``right`` is ``turned``, channels of the result lie side by side in
    it, a row of them last, which of a gradient by the filter is so of both factors. Where channels
    of a factor lie in blocks, whose size ``blocks`` has, it has those of one last, and its number
    first. ``pixels`` are images, and extents in them, of a box of that gradient. Where boxes are of
    ``windows``, results are images of a pixel each. ``seen`` is what results see through each tap,
    where that is a stage. Where ``beside`` pixels of a row of blocks lie side by side in ``left``,
    the number among them is a further axis of ``total``, behind the place. ``halves`` is the
    number of channels of halves that are multiplied in a step; 0 where there are none. Of groups
    that are joined, sums are over channels that are in the same ``eights`` as the result's alone.
    """

    total: Tensor
    left: Tensor
    right: Tensor
    turned: bool = False
    slices: int = 1
    whole: bool = False
    pixels: tuple[int, ...] = (1, 1, 1)
    windows: bool = False
    blocks: tuple[int, int] = (0, 0)
    seen: Tensor | None = None
    beside: int = 1
    halves: int = 0
    eights: bool = False


@dataclass(frozen=True)
class BoxDeclaration(Declaration):
    """A convolution as products of ``boxes``.

    ``numbers`` hold what the epilogue multiplies channels with and adds, ``copies`` are operands
    that are copied first. ``phased`` are the sums of a gradient with strides in the type of the
    result; ``alone`` says along which dimensions one phase of it is summed. A gradient by the
    filter is ``placed`` where its elements lie elsewhere in the sums. ``added`` is what an epilogue
    reads for each result, as :class:`~tilewright.topi.nn.box_factors.Added`. Where results see the
    pixel in their place alone, or lie otherwise than with channels last, ``by_pixels`` are all of
    them with channels last, as images of one pixel each, or of one row.
    """

    boxes: BoxSums
    numbers: tuple[Tensor, ...] = ()
    copies: tuple[Tensor, ...] = ()
    phased: Tensor | None = None
    alone: tuple[bool, ...] = (False, False)
    placed: bool = False
    added: tuple[Tensor, ...] = ()
    by_pixels: Tensor | None = None

    @property
    def left(self) -> Tensor:
        return self.boxes.left

    @property
    def right(self) -> Tensor:
        return self.boxes.right

    @property
    def numbered(self) -> bool:
        """Whether a tile has results by their number among all, not a box of them."""
        if self.by_pixels is None:
            return self.boxes.windows
        return all(int(e) == 1 for e in self.by_pixels.shape[1:-1])

    @property
    def in_rows(self) -> bool:
        """Whether a tile has results by their number among those of an image."""
        if self.by_pixels is None or self.numbered:
            return False
        _, _, space = Images(self.problem.result_layout).extents(self.output.shape)
        return [int(e) for e in self.by_pixels.shape[1:-1]] != [int(e) for e in space]

    @property
    def space(self) -> int:
        """Dimensions of an image, also where the first has one row."""
        return len(self.sum.shape) - 2 - (self.phased is not None) - (self.boxes.beside > 1)

    def reach(self, box: tuple[int, ...], rows: int = 0) -> tuple[int, ...]:
        """Images, and extents in them, of what a box of results sees through all taps, or of dy
        through ``rows`` of them."""
        if not isinstance(self.problem, Convolution):
            return box
        p = in_boxes(self.problem)
        assert p is not None
        return reach(p, box, rows)


def declare_boxes(
    p: Convolution, given: Any = None, whole: bool = False, staged: bool = False, beside: int = 1
) -> BoxDeclaration:
    """The program of a problem; ``given`` as in :func:`~tilewright.topi.declare.declare`. Images
    are read ``whole``, or by taps; what results see of whole ones is a stage where it is
    ``staged``. Of blocks, ``beside`` pixels of a row are read side by side."""
    inputs, brought = placeholders(p, given), as_brought(p)
    pixels = by_pixels(brought)
    if pixels == p:
        return _declare(p, inputs, whole, staged, beside=beside)
    views = laid = _views(p, brought, inputs)
    if pixels != brought:
        views = views | {
            name: _by_pixels(
                x, brought.result_layout if name == "residual" else brought.layout,
                bool(brought.block),
            )
            for name, x in views.items() if name in IMAGES
        }  # fmt: skip
    layout = p.result_layout
    if p.is_relaid and pixels != brought and not brought.block:
        layout = "NCHW"  # pixels of several images are no box of what is added, either
    if p.layout == brought.layout and not whole and copies_filter(p):
        views = views | {"filter": filter_last(p, inputs["filter"])}
        laid = views
    d = _copied(p, brought, inputs, laid, _declare(pixels, views, whole, staged, layout, beside))
    return replace(d, problem=p, inputs=inputs) if p.pass_ == "wgrad" else _gathered(p, inputs, d)


def _copied(
    p: Convolution, brought: Convolution, inputs: dict[str, Tensor], laid: dict[str, Tensor],
    d: BoxDeclaration,
) -> BoxDeclaration:  # fmt: skip
    """A declaration whose operands are copied where they lie otherwise, but those that are copied
    again, as a filter is of groups that are joined."""
    made = in_boxes(p)
    if made is None or made.channels != brought.channels:
        return d
    names = [] if p.layout == brought.layout else ["data"]
    if not d.copies and laid.get("filter") is not inputs.get("filter"):
        names.append("filter")
    return replace(d, copies=(*(laid[name] for name in names), *d.copies))


def _views(p: Convolution, brought: Convolution, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a problem as they lie in that which is brought."""
    views, last = dict(inputs), Images(brought.result_layout)
    if "residual" in inputs and p.result_layout != brought.result_layout:
        views["residual"] = relaid(
            inputs["residual"], Images(p.result_layout), last, "residual.last"
        )
    if p.layout != brought.layout:
        image, filter = inputs["data"], inputs["filter"]
        views["data"], views["filter"] = laid(p, brought, image, filter, image.shape[0])
    return views


def declare_pixels(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same of a forward pass, or of a gradient by the input, where a tile has any results that
    follow one another, also from one row or image to the next; of a phase if there are some."""
    inputs, brought = placeholders(p, given), as_brought(p)
    if by_pixels(brought) != brought and not brought.block:
        return declare_boxes(p, given)  # whose images have a pixel each
    views = laid = _views(p, brought, inputs)
    first, second = (views[name] for name in OPERANDS[p.pass_])
    batch = first.shape[0]
    if "residual" in inputs:
        residual = _by_pixels(views["residual"], brought.result_layout)
        views = views | {"residual": residual}
    b = boxed(brought, first, second, batch)
    if is_phased(p):
        return _phases(p, inputs, b, whole=False, pixels=True)
    sums = _images(b.problem, b.first, b.second, batch, whole=False, pixels=True)
    total, gone = sums.total, [0] * (len(p.image) - p.rank)
    result = Images(brought.result_layout).compute(
        total.shape[0], p.result_channels, [1] * p.rank,
        lambda n, c, at: total[(n, *gone, *at, c)], "Conv",
    )  # fmt: skip
    d = declared_with_epilogue(brought, views, result, sums, b, p.result_layout)
    return _gathered(p, inputs, _copied(p, brought, inputs, laid, d))


def _gathered(p: Convolution, inputs: dict[str, Tensor], d: BoxDeclaration) -> BoxDeclaration:
    """The declaration of a problem from that of its results with channels last: as they are, or in
    images of a row or of a pixel each."""
    images, batch = Images(p.result_layout), next(iter(inputs.values())).shape[0]
    space = [int(e) for e in images.extents(p.result.shape)[2]]
    made = [int(e) for e in d.output.shape[1:-1]]

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        if made == space:
            return d.output[(n, *at, c)]
        pixel = 0 if made[-1] > 1 else n
        for i, extent in zip(at, space, strict=True):
            pixel = pixel * extent + i
        if made[-1] > 1:
            return d.output[(n, *([0] * (len(made) - 1)), pixel, c)]
        return d.output[(pixel, *([0] * len(made)), c)]

    output = images.compute(batch, p.result_channels, space, element, "ByPixels")
    return replace(d, problem=p, inputs=inputs, output=output, by_pixels=d.output)


def _by_pixels(x: Tensor, layout: str, rows: bool = False) -> Tensor:
    """Images as ones of a pixel each, or of a row."""
    images = Images(layout)
    batch, channels, space = images.extents(x.shape)
    count = math.prod(space)

    def pixel(n: Any, c: Any, at: list[Any]) -> Any:
        found, i = list[Any](), at[-1] if rows else n
        for extent in reversed(space[1:] if rows else space):
            found.append(i % extent)
            i = i // extent
        if rows:
            return x[images.order(n, c, [i, *reversed(found)])]
        return x[images.order(i, c, found[::-1])]

    one = [1] * (len(space) - 1)
    if rows:
        return images.compute(batch, channels, [*one, count], pixel, f"{x.name}.pixels")
    return images.compute(batch * count, channels, [*one, 1], pixel, f"{x.name}.pixels")


def _declare(
    p: Convolution, inputs: dict[str, Tensor], whole: bool, staged: bool, layout: str = "",
    beside: int = 1,
) -> BoxDeclaration:  # fmt: skip
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    b = boxed(p, first, second, first.shape[0])
    if is_phased(p):
        return _phases(p, inputs, b, whole, staged=staged)
    eights = staged and in_eights(p)
    sums = sums_of(
        b.problem, b.first, b.second, first.shape[0], whole, staged, beside=beside, eights=eights
    )
    total, gone = sums.total, [0] * (len(p.image) - p.rank)
    if p.pass_ == "wgrad":
        result = total
        if b.place is not None or gone:
            place = b.place or (lambda *at: at)
            result = te.compute(
                p.filter_shape, lambda m, *at: total[place(m, *gone, *at)], name="ConvWgrad"
            )
        return declared(p, inputs, finished(p, result, inputs), sums, (), b)

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        if beside > 1:
            at = [*at[:-1], at[-1] // beside, at[-1] % beside]
        return total[(n, *gone, *at, c)]

    extents = Convolved(p).result[len(gone) :]
    result = Images(p.result_layout).compute(
        first.shape[0], p.result_channels, extents, element, "Conv"
    )
    return declared_with_epilogue(p, inputs, result, sums, b, layout)


def declare_whole_boxes(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same, where taps read parts of one box."""
    return declare_boxes(p, given, whole=True)


def declare_rows(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same of images in blocks, of which a row of shared memory has several pixels."""
    return declare_boxes(p, given, beside=BESIDE)


def declare_seen_boxes(p: Convolution, given: Any = None) -> BoxDeclaration:
    """The same, where what results see through each tap is a stage."""
    return declare_boxes(p, given, whole=True, staged=True)


def declared(
    p: Any, inputs: dict[str, Tensor], output: Tensor, sums: BoxSums,
    numbers: tuple[Tensor, ...], b: Boxed,
) -> BoxDeclaration:  # fmt: skip
    """The declaration of a problem with these sums."""
    return BoxDeclaration(
        p, inputs, output, sums.total, None, None, sums, numbers, b.copies,
        placed=b.place is not None,
    )  # fmt: skip


def declared_with_epilogue(
    p: Any, inputs: dict[str, Tensor], result: Tensor, sums: BoxSums, b: Boxed, layout: str = ""
) -> BoxDeclaration:
    """The same, of results with channels last, whose epilogue is not computed yet; what is added to
    them lies in that ``layout``, if not so."""
    added = Added.of(p, inputs, layout)
    output, numbers = finished_by_channel(p, result, {**inputs, **added})
    found = declared(p, inputs, output, sums, numbers, b)
    return replace(found, added=tuple(x.tensor for x in added.values()))


def sums_of(
    p: Convolution, first: Any, second: Any, batch: Any, whole: bool = False, staged: bool = False,
    each: bool = False, beside: int = 1, eights: bool = False,
) -> BoxSums:  # fmt: skip
    """The sums of a problem of ``batch`` images; operands are anything that is read by the indices
    of the problem's, behind that of the image where there is a filter for ``each``."""
    if p.pass_ == "wgrad":
        return _filter(p, first, second, batch, whole)
    return _images(p, first, second, batch, whole, False, staged, each, beside, eights)


def _images(
    p: Convolution, image: Any, filter: Any, batch: Any, whole: bool, pixels: bool = False,
    staged: bool = False, each: bool = False, beside: int = 1, eights: bool = False,
) -> BoxSums:  # fmt: skip
    w = Convolved(p)
    turned = p.pass_ == "dgrad"
    deep, wide = of_a_group(p)[0], p.result_channels
    # Halves are filled up, each by itself.
    filled = deep if is_in_halves(p) else widths(p.dtype).filled(deep)
    steps = (w.stride, w.dilation)
    window = window_of(p, image, batch, _slid_over(p, image), w.image, (*steps, w.before))
    results = (batch, *w.result)
    if pixels:
        window, results = _of_pixels(window, w.result), _single(batch, w.result)
    seen = Windows(p, window, results, w.kernel, filled, steps if whole else None, staged, beside)
    if beside > 1:
        results = (*results[:-1], up(results[-1], beside) // beside, beside)
    taps = _axes(w.kernel)
    rc, left_c, right_c = _channels(p, filled)

    # A filter may be copied with channels last, whatever the image.
    block = p.block if p.block and len(filter.shape) == p.rank + 3 else 0
    number = batch if each else None
    place = p.filter_place if block == p.block else p.replace(layout="NHWC").filter_place

    def tap(f: Any, c: Any, at: Sequence[Any], *own: Any) -> Any:
        kept = [k - 1 - t if turned else t for k, t in zip(w.kernel, at, strict=True)]
        found = place(*((c, f) if turned else (f, c)), kept[len(kept) - p.rank :])
        read = filter[(*own, *found)]
        return te.if_then_else(te.all(f < wide, c < deep), read, te.const(0, read.dtype))

    right = Taps(
        tap, wide, filled, w.kernel, p.dtype, turned=turned, whole=whole, number=number,
        block=block,
    )  # fmt: skip

    def element(*at: Any) -> Any:
        *result, f = at
        value = seen(f, result, taps, left_c).astype(p.accumulate)
        other = right(f, taps, right_c, *result[: int(each)]).astype(p.accumulate)
        where = te.all(*of_eights(rc, f, deep, eights)) if eights else None
        return te.sum(value * other, axis=[*taps, rc], where=where)

    total = te.compute((*results, wide), element, name="Sums")
    return BoxSums(
        total, seen.tensor, right.tensor, turned, sliced(p), whole, windows=pixels,
        blocks=(p.block, block), seen=seen.staged, beside=beside, halves=_halves(p, filled),
        eights=eights,
    )  # fmt: skip


def _slid_over(p: Convolution, image: Any) -> int:
    """Channels of an image, of which the last group may have fewer."""
    count = of_a_group(p)[0] * p.groups
    return count if p.groups == 1 else min(count, int(Images(p.layout).extents(image.shape)[1]))


def _of_pixels(window: Callable[..., Any], image: Sequence[int]) -> Callable[..., Any]:
    """What results see by their number among those of all images."""

    def seen(n: Any, result: Any, *more: Any) -> Any:
        place, inner = list[Any](), 1
        for extent in reversed(image):
            place.insert(0, (n if inner == 1 else n // inner) % extent)
            inner *= extent
        return window(n // inner, place, *more)

    return seen


def _single(batch: Any, image: Sequence[int]) -> tuple[Any, ...]:
    """The results of images as those of images of a pixel each."""
    return batch * math.prod(image), *[1] * len(image)


def _axes(extents: Sequence[int]) -> list[Any]:
    """What is summed over, along each dimension of an image."""
    names = "dhw"[3 - len(extents) :]
    return [te.reduce_axis((0, e), f"r{name}") for e, name in zip(extents, names, strict=True)]


def _channels(p: Convolution, filled: int) -> tuple[Any, Any, Any]:
    """What is summed but taps, and which channel of either factor is multiplied. Of halves these
    are three products of each channel, those of :func:`~tilewright.topi.nn.box_copies.half_step`
    channels one after the other: small by large, large by small, then large by large."""
    if not is_in_halves(p):
        rc = te.reduce_axis((0, filled), "rc")
        return rc, rc, rc
    own = half_step(filled)
    rc = te.reduce_axis((0, filled // 2 * 3), "rc")
    first, part = rc // (3 * own) * (2 * own), rc % (3 * own) // own
    return rc, first + (part + 1) // 2 * own + rc % own, first + part % 2 * own + rc % own


def _halves(p: Convolution, filled: int) -> int:
    """:attr:`BoxSums.halves`."""
    return half_step(filled) if is_in_halves(p) else 0


def _phases(
    p: Convolution, inputs: dict[str, Tensor], b: Boxed, whole: bool, pixels: bool = False,
    staged: bool = False,
) -> BoxDeclaration:  # fmt: skip
    """A gradient by the input with strides: results that are a stride apart see the same taps, and
    those of each phase the same pixels of dy. So it is a convolution with stride 1 and the channels
    of all phases, some of whose taps lie outside of the filter. Along dimensions in which only one
    phase sees anything the others are zeros that nothing is summed for."""
    q, grad, filter = b.problem, b.first, b.second
    batch, wide, (deep, _) = grad.shape[0], p.channels, of_a_group(q)
    turned, cut = is_turned(p), all_phases(p)
    number, taps = math.prod(len(c.phases) for c in cut), [c.taps for c in cut]
    filled = deep if is_in_halves(p) else widths(p.dtype).filled(deep)
    rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]

    before = [-c.first for c in cut]
    steps = ([1] * len(cut), [1] * len(cut))
    window = window_of(q, grad, batch, _slid_over(q, grad), p.out_image, (*steps, before))
    results = (batch, *rows)
    if pixels:
        window, results = _of_pixels(window, rows), _single(batch, rows)
    seen = Windows(q, window, results, taps, filled, steps if whole else None, staged)

    def tap(f: Any, c: Any, at: Sequence[Any], phase: Any) -> Any:
        if not turned:  # beyond those of a phase nothing is multiplied
            at = [te.min(t, n - 1) for t, n in zip(at, taps, strict=True)]
            *rows, last = at
            row = 0
            for k, n in zip(rows, taps, strict=False):
                row = row * n + k
            there = te.all(phase < number, f < wide)
            return te.if_then_else(there, filter[(phase, row, last, f, c)], te.const(0, p.dtype))
        kept, inside = tap_of_phase(p, phase, at)
        read = filter[p.filter_place(c, f, kept[len(kept) - p.rank :])]
        return te.if_then_else(te.all(f < wide, c < deep, *inside), read, te.const(0, p.dtype))

    right = Taps(tap, wide, filled, taps, p.dtype, turned=turned, whole=whole, number=number)
    axes, place = _taps_of_phases(cut, whole)
    rc, left_c, right_c = _channels(p, filled)
    eights = staged and in_eights(p)

    def element(*index: Any) -> Any:
        *result, phase, f = index
        at, inside = place(phase)
        value = seen(f, result, at, left_c).astype(p.accumulate)
        other = right(f, at, right_c, phase).astype(p.accumulate)
        if staged:  # where all phases are together, each has taps of its own
            found = [*tap_of_phase(p, phase, at)[1], *of_eights(rc, f, deep, eights)]
            inside = te.all(*found)
        return te.sum(value * other, axis=[*axes, rc], where=inside)

    total = te.compute((*results, number, wide), element, name="Sums")
    phased = te.compute(total.shape, lambda *index: total[index].astype(p.dtype), name="Rounded")

    def gathered(n: Any, c: Any, at: list[Any]) -> Any:
        phase, inside, place = 0, [], [n]
        for found, i, step in zip(cut, [0] * (len(cut) - len(at)) + at, p.stride, strict=True):
            single = len(found.phases) < step
            phase = phase * len(found.phases) + (0 if single else i % step)
            inside += [(i % step).equal(found.first_phase)] if single else []
            place.append(i // step)
        if pixels:
            for extent, i in zip(rows, place[1:], strict=True):
                n = n * extent + i
            place = [n, *[0] * len(rows)]
        read = phased[(*place, phase, c)]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype)) if inside else read

    output = Images(p.layout).compute(
        batch, wide, p.image_extents, gathered, "ConvDgrad"
    )  # fmt: skip
    sums = BoxSums(
        total, seen.tensor, right.tensor, turned=turned, slices=sliced(q), whole=whole,
        windows=pixels, seen=seen.staged, halves=_halves(p, filled), eights=eights,
    )  # fmt: skip
    return BoxDeclaration(
        p, inputs, output, total, None, None, sums, (), b.copies, phased,
        tuple(len(c.phases) < s for c, s in zip(cut, p.stride, strict=True)),
    )  # fmt: skip


def _taps_of_phases(
    cut: Sequence[Phases], whole: bool
) -> tuple[list[Any], Callable[[Any], tuple[list[Any], Any]]]:
    """What is summed over taps, and which tap that is in a phase, and when it is one of it. Where
    boxes are ``whole``, all taps of all phases are; else each phase has its own, one behind
    another."""
    if whole:
        axes = _axes([c.taps for c in cut])
        return axes, lambda phase: (axes, None)
    most = math.prod(max(n for _, n in c.seen) for c in cut)
    t = te.reduce_axis((0, most), "rt")

    def place(phase: Any) -> tuple[list[Any], Any]:
        at, number, total = list[Any](), t, 1
        for c, k in reversed(list(zip(cut, parted(phase, cut), strict=True))):
            first, count = (_chosen(k, [pair[j] for pair in c.seen]) for j in range(2))
            count_or_one = te.max(count, 1) if min(n for _, n in c.seen) < 1 else count
            last = len(at) == len(cut) - 1
            at.insert(0, first + (number if last else number % count_or_one))
            number, total = number // count_or_one, count * total
        counts = {math.prod(each) for each in product(*([n for _, n in c.seen] for c in cut))}
        return at, t < total if counts != {most} else None

    return [t], place


def _chosen(k: Any, values: Sequence[int]) -> Any:
    """The ``k``-th of some numbers."""
    found: Any = values[-1]
    for n, value in reversed(list(enumerate(values[:-1]))):
        found = found if value == found else te.if_then_else(k.equal(n), value, found)
    return found


def _filter(p: Convolution, image: Any, grad: Any, batch: Any, whole: bool) -> BoxSums:
    w = Convolved(p)
    channels, filters = p.channels // p.groups, p.out_channels
    box = pixels(p, LINE if whole else 1)
    sizes = [up(e, n) for e, n in zip((batch, *w.kernel), box, strict=True)]
    images = Images(p.layout)
    window = window_of(p, image, batch, p.channels, w.image, (w.stride, w.dilation, w.before))

    gone, space = len(p.image) - p.rank, len(p.image)

    def step(part: Any, n: Any, *at: Any) -> Any:
        *place, m = at
        m = part * ROW + m
        inside = [n < batch, *(i < e for i, e in zip(place, w.kernel, strict=True)), m < filters]
        read = grad[images.order(n, m, place[gone:])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype))

    left = te.compute((up(filters, WHOLE) // ROW, *sizes, ROW), step, name="Steps")
    groups = [p.groups] if p.groups > 1 else []

    row = of_row(p) if whole else ROW
    steps = (w.stride, w.dilation)

    def seen(*at: Any) -> Any:
        group, (part, *place, c) = at[: len(groups)], at[len(groups) :]
        c = part * row + c
        c = c + group[0] * channels if group else c
        if whole:
            n, *further = place
            return window(n, [0] * space, [0] * space, c, further)
        return window(place[space], place[:space], place[space + 1 :], c)

    extents = [*w.result, *sizes]
    if whole:
        each = zip(w.result, sizes[1:], *steps, strict=True)
        extents = [sizes[0], *((t - 1) * s + (e - 1) * d + 1 for t, e, s, d in each)]
    shape = (*groups, up(channels, WHOLE) // row, *extents, row)
    right = te.compute(shape, seen, name="Seen")
    pixel = [te.reduce_axis((0, sizes[0]), "rn"), *_axes(sizes[1:])]

    def element(m: Any, *at: Any) -> Any:
        *taps, c = at
        value = left[(m // ROW, *pixel, m % ROW)].astype(p.accumulate)
        group = (m // p.multiplier,) if groups else ()
        place = [*taps, *pixel]
        if whole:
            each = zip(taps, pixel[1:], *steps, strict=True)
            place = [pixel[0], *(t * s + e * d for t, e, s, d in each)]
        other = right[(*group, c // row, *place, c % row)].astype(p.accumulate)
        return te.sum(value * other, axis=pixel)

    total = te.compute((filters, *w.result, channels), element, name="Sums")
    return BoxSums(total, left, right, True, whole=whole, pixels=box)


def of_row(p: Convolution) -> int:
    """Channels of a row of shared memory, where a gradient by the filter reads whole boxes: as many
    as an instruction has columns for, of each tap of a row."""
    w, wide = widths(p.dtype), p.kernel[-1]
    row = w.step(w.filled(p.channels // p.groups))
    if row == w.row and row * wide > MOST_COLUMNS:
        row //= 2
    return row


def pixels(p: Convolution, line: int = 1) -> tuple[int, ...]:
    """Images, and extents in them, of the boxes of :data:`PIXELS` that cover the results with the
    least beyond; of equals, those of neighbours. None has twice the extents that there are,
    but for lines of at least ``line`` pixels."""
    extents = (p.batch, *p.out_image)

    def beyond(box: tuple[int, ...]) -> tuple[float, int, int]:
        whole = math.prod(up(e, n) for e, n in zip(extents, box, strict=True))
        return whole / math.prod(extents), box[0], max(box[1:]) - min(box[1:])

    *outer, last = (
        [1 << k for k in range(e.bit_length() + 1) if 1 << k < 2 * e] for e in p.out_image
    )
    sizes = (*outer, [n for n in last if n >= line] or [line])
    return min(
        (
            (PIXELS // math.prod(box), *box)
            for box in product(*sizes) if math.prod(box) <= PIXELS
        ),
        key=beyond,
    )  # fmt: skip


#: The declaration of this module, by name.
FORMS = {
    "boxes": declare_boxes, "whole boxes": declare_whole_boxes, "seen boxes": declare_seen_boxes,
    "pixels": declare_pixels, "block rows": declare_rows,
}  # fmt: skip
