"""Depthwise convolution of a problem: the stages ``PaddedInput`` and ``DepthwiseConv``.

In channels-last layouts the filter is read through the stage ``PackedFilter``, (KH, KW, C * M), in
which the taps of neighbouring channels lie next to one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.images import Images, padded
from tilewright.topi.nn.taken_steps import NOTHING, ByChannel, Taken
from tilewright.topi.operators.convolution import Convolution


def depthwise_forward(
    p: Convolution,
    data: Tensor,
    filter: Tensor,
    taken: Taken = NOTHING,
) -> Tensor:
    """The sum, in the type of sums: images of ``channels * multiplier`` channels.

    The image is padded as far as windows see. Sums and the filter take over what ``taken`` says.
    """
    images = Images(p.layout)
    source = padded_input(p, data)
    taps = tap_axes(p)
    weight = filter_reader(p, filter, taken.scale)

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        seen = [i * d.stride + t * d.dilation for i, t, d in zip(at, taps, p.dims, strict=True)]
        read = source[images.order(n, c // p.multiplier, seen)]
        return te.sum(
            read.astype(summed_in(p)) * weight(c, list(taps)).astype(summed_in(p)),
            axis=list(taps),
            init=None if taken.begin is None else taken.begin(c),
        )

    batch = images.meaning(data.shape)[0]
    tag = f"{p.operator}_{p.layout.lower()}"
    return images.compute(batch, p.out_channels, p.out_extents, element, "DepthwiseConv", tag)


def padded_input(p: Convolution, data: Tensor) -> Tensor:
    """The part of the padded image that windows see; where it is not padded, ``data`` itself."""
    seen = [(d.results - 1) * d.stride + d.window for d in p.dims]
    return padded(Images(p.layout), data, [d.before for d in p.dims], seen, "PaddedInput")


def summed_in(p: Convolution) -> str:
    """The type of sums while they are made: of integers float32, in which sums of 512 products of
    8 bits are exact, in any order, and which processors multiply faster."""
    few = math.prod(p.kernel) <= 512  # 2**24 by 255 * 128
    return "float32" if p.is_quantized and few else p.accumulate


def whole(extent: int, tile: int) -> int:
    """``extent``, filled up to whole tiles."""
    return -(-extent // tile) * tile


def tap_axes(p: Convolution) -> list[te.IterVar]:
    """Reduction axes over the taps of a filter."""
    each = zip(p.dims, tap_names(p), strict=True)
    return [te.reduce_axis((0, d.taps), name=name) for d, name in each]


def tap_names(p: Convolution) -> list[str]:
    """What axes over taps are called."""
    return ["dd", "di", "dj"][3 - p.rank :]


def filter_reader(p: Convolution, filter: Tensor, scale: ByChannel | None = None) -> Any:
    """A function of an output channel and a tap (an index a dimension) that reads the filter,
    through the stage ``ScaledFilter``, in the type of sums, where it is scaled."""
    m = p.multiplier
    if not Images(p.layout).last:
        if scale is not None:
            own = m if p.OWN_FILTERS else 1  # filters that lie in one row of the filter's
            filter = _scaled(p, filter, lambda i: scale(i[0] * own + i[1]))
        return lambda c, taps: filter[p.filter_place(c, 0, taps)]
    packed = te.compute(
        (*(d.taps for d in p.dims), p.out_channels),
        lambda *i: filter[p.filter_place(i[-1], 0, i[:-1])],
        name="PackedFilter",
        tag="filter",
        varargs_names=[*tap_names(p), "c"],
    )
    if scale is not None:
        packed = _scaled(p, packed, lambda i: scale(i[-1]))
    return lambda c, taps: packed[(*taps, c)]


def _scaled(p: Convolution, filter: Tensor, scale: Callable[[Any], Any]) -> Tensor:
    made: Tensor = te.compute(
        filter.shape,
        lambda *i: filter[i].astype(p.accumulate) * scale(i),
        name="ScaledFilter",
        tag="scaled",
    )
    return made
