"""Pooling over windows of images of any number of dimensions, channels first, or ``last``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.broadcast import shape_of
from tilewright.topi.elementwise import ELEMENTWISE
from tilewright.topi.nn.images import or_zero
from tilewright.topi.reduction import REDUCE


def _windows(
    x: Tensor, size: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], out: Sequence[int], combine: Any, name: str, last: bool,
) -> Tensor:  # fmt: skip
    """``combine`` of what a window has inside of the image; ``padding`` before each dimension."""
    batch, channels, *image = _parts(shape_of(x), last)
    taps = [te.reduce_axis((0, k), f"k{d}") for d, k in enumerate(size)]

    def element(*index: Any) -> Any:
        n, c, *at = _parts(index, last)
        places = [
            o * s + t * d - b
            for o, t, s, d, b in zip(at, taps, strides, dilation, padding, strict=True)
        ]
        bounds = zip(places, image, at, strides, dilation, size, padding, out, strict=True)
        inside = []
        for p, extent, _, s, d, k, b, count in bounds:
            inside += [p >= 0] if b else []
            inside += [p < extent] if (count - 1) * s + (k - 1) * d - b >= extent else []
        return combine(x[_whole(n, c, places, last)], te.all(*inside), places, taps)

    shape = _whole(batch, channels, out, last)
    made: Tensor = te.compute(shape, element, name=name, tag=REDUCE)
    return made


def _parts(whole: Sequence[Any], last: bool) -> list[Any]:
    """Batch, channel and the rest, of a shape or an index."""
    return [whole[0], whole[-1], *whole[1:-1]] if last else list(whole)


def _whole(n: Any, c: Any, space: Sequence[Any], last: bool) -> tuple[Any, ...]:
    """The inverse of :func:`_parts`."""
    return (n, *space, c) if last else (n, c, *space)


def max_pool(
    x: Tensor, size: Any, strides: Any, padding: Any, dilation: Any, out: Any, last: bool = False
) -> Tensor:
    """The largest element of each window; NaN where one is."""
    low = te.min_value(x.dtype)

    def largest(value: Any, inside: Any, _: Any, taps: Any) -> Any:
        return te.max(te.if_then_else(inside, value, low), axis=taps)

    return _windows(x, size, strides, padding, dilation, out, largest, "max_pool", last)


def max_pool_places(
    x: Tensor, pooled: Tensor, size: Any, strides: Any, padding: Any, dilation: Any, out: Any,
    column_major: bool = False,
) -> Tensor:  # fmt: skip
    """Where in all of ``x`` the first element is that a window of :func:`max_pool` has, NaN where
    there is one: an int64."""
    batch, channels, *image = shape_of(x)
    order = range(len(image)) if not column_major else range(len(image) - 1, -1, -1)
    taps = [te.reduce_axis((0, k), f"k{d}") for d, k in enumerate(size)]
    beyond = te.max_value("int64")

    def element(n: Any, c: Any, *at: Any) -> Any:
        places = [
            o * s + t * d - b
            for o, t, s, d, b in zip(at, taps, strides, dilation, padding, strict=True)
        ]
        inside = [c for p, e in zip(places, image, strict=True) for c in (p >= 0, p < e)]
        offset: Any = n.astype("int64") * channels + c
        for d in order:
            offset = offset * image[d] + places[d]
        value = te.if_then_else(te.all(*inside), x[(n, c, *places)], te.min_value(x.dtype))
        found = value.equal(pooled[(n, c, *at)])
        if x.dtype.is_float:
            found = te.any(found, te.isnan(value))  # which is the largest then, and equals nothing
        return te.min(te.Select(te.all(*inside, found), offset, beyond), axis=taps)

    made: Tensor = te.compute((batch, channels, *out), element, name="max_pool_places", tag=REDUCE)
    return made


def sum_pool(
    x: Tensor, size: Any, strides: Any, padding: Any, dilation: Any, out: Any, last: bool = False
) -> Tensor:
    """The sum of each window."""
    wide = "float32" if x.dtype.bits == 16 else x.dtype

    def total(value: Any, inside: Any, _: Any, taps: Any) -> Any:
        return te.sum(or_zero([inside], value.astype(wide)), axis=taps)

    return _windows(x, size, strides, padding, dilation, out, total, "sum_pool", last)


def avg_pool(
    x: Tensor, size: Any, strides: Any, padding: Any, dilation: Any, out: Any,
    behind: Sequence[int] | None = None, last: bool = False,
) -> Tensor:  # fmt: skip
    """The mean of each window: of its elements inside of the image, or, where padding ``behind`` is
    given, of those inside of the padded image, whose other elements are 0."""
    total = sum_pool(x, size, strides, padding, dilation, out, last)
    image = _parts(shape_of(x), last)[2:]

    def count(o: Any, d: int) -> Any:
        step, k, before = dilation[d], size[d], padding[d]
        reach = (out[d] - 1) * strides[d] + (k - 1) * step
        start, low = o * strides[d], 0 if behind is not None else before
        end = before + image[d] + (0 if behind is None else behind[d])
        if not low and reach < end:
            return k
        first: Any = te.max(0, te.ceildiv(low - start, step)) if low else 0
        beyond = te.min(k, te.ceildiv(end - start, step)) if reach >= end else k
        return beyond - first

    def element(*index: Any) -> Any:
        at = _parts(index, last)[2:]
        within: Any = 1
        for d, o in enumerate(at):
            within = count(o, d) * within
        value = total[index]
        if isinstance(within, int):
            mean = value * (1 / within)
        else:
            # A division a place, not one for each of its channels.
            mean = value * (te.const(1, value.dtype) / te.max(within, 1).astype(value.dtype))
        return mean.astype(x.dtype)

    made: Tensor = te.compute(total.shape, element, name="avg_pool", tag=ELEMENTWISE)
    return made
