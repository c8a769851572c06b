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
from tilewright.topi.operators.conv import Conv


def depthwise_forward(
    p: Conv,
    data: Tensor,
    filter: Tensor,
    taken: Taken = NOTHING,
) -> Tensor:
    """The sum, in the type of sums: images of ``channels * multiplier`` channels.

    The image is padded as far as windows see. Sums and the filter take over what ``taken`` says.
    """
    images, d = Images(p.layout), 2 - p.rank
    source = padded_input(p, data)
    taps = tap_axes(p)
    weight = filter_reader(p, filter, taken.scale)

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        steps = zip(at, taps, p.stride[d:], p.dilation[d:], strict=True)
        read = source[images.order(n, c // p.multiplier, [i * s + t * e for i, t, s, e in steps])]
        return te.sum(
            read.astype(summed_in(p)) * weight(c, list(taps)).astype(summed_in(p)),
            axis=list(taps),
            init=None if taken.begin is None else taken.begin(c),
        )

    batch = images.meaning(data.shape)[0]
    tag = f"{p.operator}_{p.layout.lower()}"
    return images.compute(batch, p.out_channels, p.out_image[d:], element, "DepthwiseConv", tag)


def padded_input(p: Conv, data: Tensor) -> Tensor:
    """The part of the padded image that windows see; where it is not padded, ``data`` itself."""
    d = 2 - p.rank
    seen = [
        (o - 1) * s + (k - 1) * e + 1
        for o, s, k, e in zip(p.out_image, p.stride, p.kernel, p.dilation, strict=True)
    ]
    return padded(Images(p.layout), data, p.padding[d:2], seen[d:], "PaddedInput")


def summed_in(p: Conv) -> str:
    """The type of sums while they are made: of integers float32, in which sums of 512 products of
    8 bits are exact, in any order, and which processors multiply faster."""
    few = math.prod(p.kernel) <= 512  # 2**24 by 255 * 128
    return "float32" if p.is_quantized and few else p.accumulate


def whole(extent: int, tile: int) -> int:
    """``extent``, filled up to whole tiles."""
    return -(-extent // tile) * tile


def tap_axes(p: Conv) -> list[te.IterVar]:
    """Reduction axes over the taps of a filter."""
    names = ("di", "dj")[2 - p.rank :]
    return [
        te.reduce_axis((0, k), name=name)
        for k, name in zip(p.kernel[2 - p.rank :], names, strict=True)
    ]


def filter_reader(p: Conv, filter: Tensor, scale: ByChannel | None = None) -> Any:
    """A function of an output channel and a tap (two indices, or one) that reads the filter,
    through the stage ``ScaledFilter``, in the type of sums, where it is scaled."""
    m = p.multiplier
    if not Images(p.layout).last:
        if scale is not None:
            filter = _scaled(p, filter, lambda i: scale(i[0] * m + i[1]))
        return lambda c, taps: filter[(c // m, c % m, *taps)]
    packed = te.compute(
        (*filter.shape[2:], p.out_channels),
        lambda *i: filter[(i[-1] // m, i[-1] % m, *i[:-1])],
        name="PackedFilter",
        tag="filter",
        varargs_names=[*("di", "dj")[2 - p.rank :], "c"],
    )
    if scale is not None:
        packed = _scaled(p, packed, lambda i: scale(i[-1]))
    return lambda c, taps: packed[(*taps, c)]


def _scaled(p: Conv, filter: Tensor, scale: Callable[[Any], Any]) -> Tensor:
    made: Tensor = te.compute(
        filter.shape,
        lambda *i: filter[i].astype(p.accumulate) * scale(i),
        name="ScaledFilter",
        tag="scaled",
    )
    return made
