"""Sums of products of boxes of images, by taps: of a forward pass or a gradient by the input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.topi.nn.box_factors import Taps, Windows, of_eights, up, window_of  # fmt: skip
from tilewright.topi.nn.box_problems import (
    filled_up,
    half_step,
    in_short_rows,
    is_in_halves,
    of_a_group,
    sliced,
)
from tilewright.topi.nn.box_sums import BoxSums
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution


def image_sums(
    p: Convolution, image: Any, filter: Any, batch: Any, whole: bool, pixels: bool = False,
    staged: bool = False, each: bool = False, beside: int = 1, eights: bool = False,
) -> BoxSums:  # fmt: skip
    """Those of a problem of ``batch`` images; see :func:`.box_windows.sums_of`."""
    w = Convolved(p)
    turned = p.pass_ == "dgrad"
    deep, wide = of_a_group(p)[0], p.result_channels
    # Halves are filled up, each by itself.
    filled = deep if is_in_halves(p) else filled_up(p, whole)
    steps = (w.stride, w.dilation)
    window = window_of(p, image, batch, slid_over(p, image), w.image, (*steps, w.before))
    results = (batch, *w.result)
    if pixels:
        window, results = of_pixels(window, w.result), single_pixels(batch, w.result)
    seen = Windows(p, window, results, w.kernel, filled, steps if whole else None, staged, beside)
    if beside > 1:
        results = (*results[:-1], up(results[-1], beside) // beside, beside)
    taps = spatial_axes(w.kernel)
    rc, left_c, right_c = summed_channels(p, filled)

    # A filter may be copied with channels last, whatever the image.
    as_given = not p.block or len(filter.shape) == p.rank + 3
    block = p.block if as_given and in_short_rows(p) else 0
    number = batch if each else None
    place = p.filter_place if as_given else p.replace(layout="NHWC").filter_place

    def tap(f: Any, c: Any, at: Sequence[Any], *own: Any) -> Any:
        kept = [k - 1 - t if turned else t for k, t in zip(w.kernel, at, strict=True)]
        found = place(*((c, f) if turned else (f, c)), kept[len(kept) - p.rank :])
        read = filter[(*own, *found)]
        return or_zero([f < wide, c < deep], read)

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
        blocks=(p.block, block), seen=seen.staged, beside=beside, halves=halves_of(p, filled),
        eights=eights,
    )  # fmt: skip


def slid_over(p: Convolution, image: Any) -> int:
    """Channels of an image, of which the last group may have fewer."""
    count = of_a_group(p)[0] * p.groups
    return count if p.groups == 1 else min(count, int(Images(p.layout).extents(image.shape)[1]))


def of_pixels(window: Callable[..., Any], image: Sequence[int]) -> Callable[..., Any]:
    """What results see by their number among those of all images."""

    def seen(n: Any, result: Any, *more: Any) -> Any:
        return window(*pixel_of(n, image), *more)

    return seen


def pixel_of(n: Any, image: Sequence[int]) -> tuple[Any, list[Any]]:
    """The image, and the place in it, of a pixel by its number among those of all images."""
    place, inner = list[Any](), 1
    for extent in reversed(image):
        place.insert(0, (n if inner == 1 else n // inner) % extent)
        inner *= extent
    return n // inner, place


def single_pixels(batch: Any, image: Sequence[int]) -> tuple[Any, ...]:
    """The results of images as those of images of a pixel each."""
    return batch * math.prod(image), *[1] * len(image)


def spatial_axes(extents: Sequence[int]) -> list[Any]:
    """What is summed over, along each dimension of an image."""
    names = "dhw"[3 - len(extents) :]
    return [te.reduce_axis((0, e), f"r{name}") for e, name in zip(extents, names, strict=True)]


def summed_channels(p: Convolution, filled: int) -> tuple[Any, Any, Any]:
    """What is summed but taps, and which channel of either factor is multiplied. Of halves these
    are three products of each channel, those of :func:`~tilewright.topi.nn.box_problems.half_step`
    channels one after the other: small by large, large by small, then large by large."""
    if not is_in_halves(p):
        rc = te.reduce_axis((0, filled), "rc")
        return rc, rc, rc
    own = half_step(filled)
    rc = te.reduce_axis((0, filled // 2 * 3), "rc")
    first, part = rc // (3 * own) * (2 * own), rc % (3 * own) // own
    return rc, first + (part + 1) // 2 * own + rc % own, first + part % 2 * own + rc % own


def halves_of(p: Convolution, filled: int) -> int:
    """:attr:`BoxSums.halves`."""
    return half_step(filled) if is_in_halves(p) else 0
