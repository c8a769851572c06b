"""Gradients by the input with strides, as products of boxes for each phase of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.box_copies import Boxed
from tilewright.topi.nn.box_factors import (
    Taps,
    Windows,
    in_eights,
    of_eights,
    window_of,
)  # fmt: skip
from tilewright.topi.nn.box_image_sums import (
    halves_of,
    of_pixels,
    single_pixels,
    slid_over,
    spatial_axes,
    summed_channels,
)
from tilewright.topi.nn.box_phases import Phases, all_phases, most_taps, parted, tap_of_phase
from tilewright.topi.nn.box_problems import filled_up, is_in_halves, of_a_group, sliced
from tilewright.topi.nn.box_sums import BoxDeclaration, BoxSums
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution


def declare_phases(
    p: Convolution, inputs: dict[str, Tensor], b: Boxed, whole: bool, pixels: bool = False,
    staged: bool = False,
) -> BoxDeclaration:  # fmt: skip
    """A gradient by the input with strides: results that are a stride apart see the same taps, and
    those of each phase the same pixels of dy. So it is a convolution with stride 1 and the channels
    of all phases, some of whose taps lie outside of the filter. Along dimensions in which only one
    phase sees anything the others are zeros that nothing is summed for."""
    q, grad, filter = b.problem, b.first, b.second
    batch, wide, (deep, _) = grad.shape[0], p.channels, of_a_group(q)
    turned, cut = b.turned, all_phases(p)
    number, taps = math.prod(len(c.phases) for c in cut), [c.taps for c in cut]
    filled = deep if is_in_halves(p) else filled_up(q, whole)
    rows = [-(-e // s) for e, s in zip(p.image, p.stride, strict=True)]

    before = [-c.first for c in cut]
    steps = ([1] * len(cut), [1] * len(cut))
    window = window_of(q, grad, batch, slid_over(q, grad), p.out_image, (*steps, before))
    results = (batch, *rows)
    if pixels:
        window, results = of_pixels(window, rows), single_pixels(batch, rows)
    seen = Windows(q, window, results, taps, filled, steps if whole else None, staged)

    def tap(f: Any, c: Any, at: Sequence[Any], phase: Any) -> Any:
        if not turned:  # beyond those of a phase nothing is multiplied
            at = [te.min(t, n - 1) for t, n in zip(at, taps, strict=True)]
            *rows, last = at
            row = 0
            for k, n in zip(rows, taps, strict=False):
                row = row * n + k
            there = te.all(phase < number, f < wide)
            return or_zero([there], filter[(phase, row, last, f, c)])
        kept, inside = tap_of_phase(p, phase, at)
        read = filter[p.filter_place(c, f, kept[len(kept) - p.rank :])]
        return or_zero([f < wide, c < deep, *inside], read)

    right = Taps(tap, wide, filled, taps, p.dtype, turned=turned, whole=whole, number=number)
    axes, place = _taps_of_phases(cut, whole)
    rc, left_c, right_c = summed_channels(p, filled)
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
        return or_zero(inside, read)

    output = Images(p.layout).compute(
        batch, wide, p.image_extents, gathered, "ConvDgrad"
    )  # fmt: skip
    sums = BoxSums(
        total, seen.tensor, right.tensor, turned=turned, slices=sliced(q), whole=whole,
        windows=pixels, seen=seen.staged, halves=halves_of(p, filled), eights=eights,
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
        axes = spatial_axes([c.taps for c in cut])
        return axes, lambda phase: (axes, None)
    most = most_taps(cut)
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
