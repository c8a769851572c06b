"""Convolutions in place of others: what boxes cannot bring as it lies is copied, and then they can.

Groups of few channels are joined: a filter that has zeros where a channel is of another group makes
one group of several. Images of few channels are copied so that the columns that a row of a filter
sees lie side by side, as channels of one column; or, with strides, so that squares as large as
these are pixels, which windows see one by one. Where the channels of the result are few, or do not
lie by eights in the filter, or in groups, a gradient by the input is the convolution of dy with a
copy of the filter that is turned.

The copies of filters are small. Each copy is a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.box_phases import all_phases, is_phased, tap_of_phase
from tilewright.topi.nn.box_problems import (
    ROW,
    by_pixels,
    filled_up,
    fills_up,
    fold_of,
    folds_columns,
    half_step,
    in_boxes,
    is_in_halves,
    is_turned,
    joined_by,
    joined_groups,
    of_a_group,
)
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution

#: An element of a filter: of a channel of the result, of a tap's place and of what is summed.
Tap = Callable[..., Any]


def laid(
    p: Convolution, made: Convolution, image: Any, filter: Any, batch: Any
) -> tuple[Tensor, Tensor]:
    """The operands of a problem as they lie in that which is :func:`as_brought`, the filter with
    channels last, zero where its channels are filled up; ``image`` and ``filter`` are those of the
    problem."""
    images = Images(p.layout)

    def filled(c: Any, read: Any) -> Any:
        return or_zero([c < p.channels] if made.channels > p.channels else [], read)

    def element(m: Any, r: Any, s: Any, c: Any) -> Any:
        return filled(c, filter[p.filter_place(m, c, (r, s))])

    pixels = Images(made.layout).compute(
        batch, made.channels, p.image_extents,
        lambda n, c, at: filled(c, image[images.order(n, c, at)]), "Laid",
    )  # fmt: skip
    shape = (p.out_channels, *p.kernel, made.channels // made.groups)
    return pixels, te.compute(shape, element, name="FilterLaid")


def filter_last(p: Convolution, filter: Any) -> Tensor:
    """A filter in blocks, with channels last."""
    shape = (p.out_channels, *p.kernel, p.channels // p.groups)
    made: Tensor = te.compute(
        shape, lambda m, r, s, c: filter[p.filter_place(m, c, (r, s))], name="FilterLast"
    )
    return made


@dataclass(frozen=True)
class Boxed:
    """The operands of :func:`in_boxes`: what is read by the indices of that ``problem``'s, and the
    ``copies`` among it; ``place`` says where an element of a gradient by the filter is in its; a
    filter is ``turned`` whose channels of the result lie side by side."""

    problem: Convolution
    first: Any
    second: Any
    copies: tuple[Tensor, ...] = ()
    place: Tap | None = None
    turned: bool = False


def boxed(p: Convolution, first: Any, second: Any, batch: Any, held: bool = False) -> Boxed:
    """The operands of a problem of ``batch`` images, :func:`as_brought`, as boxes bring them;
    ``first`` and ``second`` are anything that is read by the indices of the problem's. Where
    threads have ``held`` a filter in registers, it is read as it lies."""
    if held:
        return Boxed(p, first, second, turned=True)
    made = in_boxes(p)
    assert made is not None
    if is_in_halves(p):
        return _in_halves(made, boxed(p.replace(precision="tf32"), first, second, batch), batch)
    own, joined, gone = p.channels // p.groups, joined_groups(p), len(p.image) - p.rank
    if made == by_pixels(p) and (not is_phased(p) or is_turned(p)):
        return Boxed(p, first, second, turned=is_turned(p))
    folds = folds_columns(joined_by(p, joined))

    def offset(m: Any) -> Any:
        """Where the channels of a filter begin among those of the joined groups."""
        return m // p.multiplier % joined * own

    def place(m: Any, *at: Any) -> Any:
        *above, s, c = at
        c = offset(m) + c
        return (m, *above, 0, s * p.channels + c) if folds else (m, *above, s, c)

    copies = []
    if folds:
        copies.append(_columns(p, made, first, batch))
    elif fills_up(p):
        copies.append(_whole_lines(p, made, first, batch))
    image = copies[0] if copies else first
    if p.pass_ == "wgrad":
        return Boxed(made, image, second, tuple(copies), place)
    if copies and is_turned(p):
        return Boxed(made, image, _FewerFilters(second, p.out_channels), tuple(copies), turned=True)

    def joint(m: Any, *place: Any) -> Any:
        """An element of the filter of joined groups."""
        *taps, c = place
        at = c - offset(m)
        read = second[p.filter_place(m, at, taps[gone:])]
        inside = [at >= 0, at < own] if joined > 1 else []
        if p.groups % joined:
            inside.append(m < p.out_channels)
        if fills_up(p):  # of which there are fewer
            inside = [at < own] if p.pass_ == "forward" else [m < p.out_channels]
        return or_zero(inside, read)

    return Boxed(made, image, _filter(p, made, joined, joint, copies), tuple(copies))


@dataclass(frozen=True)
class _FewerFilters:
    """A filter that is read as if it had more of them, which are zero."""

    filter: Any
    count: int

    def __getitem__(self, place: tuple[Any, ...]) -> Any:
        return or_zero([place[0] < self.count], self.filter[place])


def _whole_lines(p: Convolution, made: Convolution, image: Any, batch: Any) -> Tensor:
    """The image, or dy, with channels that are filled up."""
    images, extents, (read, _) = Images(p.layout), list(p.image_extents), of_a_group(p)
    if p.pass_ == "dgrad":
        extents = list(p.out_image[len(p.image) - p.rank :])

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        return or_zero([c < read], image[images.order(n, c, at)])

    return images.compute(batch, -(-read // ROW) * ROW, extents, element, "Filled")


def _in_halves(made: Convolution, b: Boxed, batch: Any) -> Boxed:
    """The halves of operands as channels of a group, step by step: of the image the smaller ones
    of a step first, of the filter last."""
    own, half = of_a_group(b.problem)[0], of_a_group(made)[0] // 2
    step = half_step(2 * half)

    def halved(c: Any, read: Callable[[Any], Any], second: bool) -> Any:
        k = c // (2 * step) * step + c % step
        value = or_zero([k < own], read(k))
        large = te.round_tf32(value)
        small = te.round_tf32(value - large)
        first, last = (large, small) if second else (small, large)
        return te.if_then_else(c % (2 * step) < step, first, last)

    images, w = Images(made.layout), Convolved(made)

    def pixel(n: Any, c: Any, at: list[Any]) -> Any:
        first = c // (2 * half) * own
        return halved(c % (2 * half), lambda k: b.first[images.order(n, first + k, at)], False)

    image = images.compute(
        batch, 2 * half * made.groups, w.image[len(w.image) - made.rank :], pixel, "Halves"
    )  # fmt: skip
    taps: Tensor = te.compute(
        (*(b.second.shape if is_phased(made) else made.filter_shape)[:-1], 2 * half),
        lambda *at: halved(at[-1], lambda k: b.second[(*at[:-1], k)], True),
        name="FilterHalves",
    )
    return Boxed(made, image, taps, (image, taps))


def _columns(p: Convolution, made: Convolution, image: Any, batch: Any) -> Tensor:
    """What a row of the filter sees, for each column of the result; or squares of pixels."""
    images, fold = Images(p.layout), fold_of(p)
    stride, wide = p.stride[-1], p.image[-1]
    row, last = fold.columns * p.channels, len(p.image) - 1
    before = p.padding[0] if fold.step > 1 else 0

    def element(n: Any, j: Any, at: list[Any]) -> Any:
        x = at[-1] * stride + j % row // p.channels * p.dilation[-1] - p.padding[last]
        inside, above = [x >= 0, x < wide, j < fold.rows * row], list(at[:-1])
        if fold.step > 1:
            y = at[0] * fold.step + j // row - before
            inside, above = [*inside, y >= 0, y < p.image[0]], [y]
        read = image[images.order(n, j % p.channels, [*above, x])]
        return or_zero(inside, read)

    return images.compute(batch, made.channels, made.image_extents, element, "Columns")


def _filter(
    p: Convolution, made: Convolution, joined: int, joint: Tap, copies: list[Tensor]
) -> Tensor:
    """The copy of a filter as ``made`` reads it, channels of what is summed last, of groups of
    which some are ``joined``; appended to ``copies``."""
    element: Tap = joint
    name, own, filters = "Joined", p.channels // p.groups * joined, p.multiplier * joined
    if is_phased(p):
        copies.append(_phased(p, joint, own, filters, filled_up(made)))
        return copies[-1]
    if p.pass_ == "dgrad":  # a channel of x is the result, and taps are turned

        def turned(c: Any, *place: Any) -> Any:
            *taps, m = place
            at = [k - 1 - t for k, t in zip(p.kernel, taps, strict=True)]
            return joint(c // own * filters + m, *at, c % own)

        element, name = turned, "Turned"
    elif folds_columns(joined_by(p, joined)):
        fold = fold_of(p)
        row_of = fold.columns * p.channels

        def folded(m: Any, *place: Any) -> Any:
            *above, s, j = place
            x, inside = j // p.channels, [j < row_of]
            if fold.step > 1:
                y = above[0] * fold.rows + j // row_of
                x, above = s * fold.columns + j % row_of // p.channels, [y]
                inside = [j < fold.rows * row_of, y < p.kernel[0], x < p.kernel[1]]
            return or_zero(inside, joint(m, *above, x, j % p.channels))

        element, name = folded, "Folded"
    row = [0] * (len(p.image) - p.rank)  # of images without height
    found: Tensor = te.compute(made.filter_shape, lambda m, *at: element(m, *row, *at), name=name)
    copies.append(found)
    return found


def _phased(p: Convolution, joint: Tap, own: int, filters: int, filled: int) -> Tensor:
    """The filter of every phase of a gradient by the input: (phase, row of taps, tap, channel,
    filter), since a tensor map has five dimensions, of which the first ones may be one."""
    cut = all_phases(p)

    def element(phase: Any, row: Any, s: Any, c: Any, m: Any) -> Any:
        taps = [s]
        for found in reversed(cut[1:-1]):
            taps.insert(0, row % found.taps)
            row = row // found.taps
        at, inside = tap_of_phase(p, phase, [row, *taps])
        read = joint(c // own * filters + m, *at, c % own)
        return or_zero([m < filters, *inside], read)

    *outer, last = (c.taps for c in cut)
    shape = (math.prod(len(c.phases) for c in cut), math.prod(outer), last, p.channels, filled)
    made: Tensor = te.compute(shape, element, name="Phases")
    return made
