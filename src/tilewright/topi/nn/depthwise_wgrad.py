"""The gradient of a depthwise convolution by its filter: a sum over the batch and all outputs.

The stage ``WeightGrad`` sums; in channels-last layouts it is (KH, KW, C * M), so that vectors are
of channels, and the result is written from it in the order of the filter.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_forward import padded_input
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv


def depthwise_wgrad(p: Conv, data: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The filter's gradient, (C, M, KH, KW), in the type of sums, and the stage of the sum."""
    images, d, m = Images(p.layout), 2 - p.rank, p.multiplier
    source = padded_input(p, data)
    batch = images.meaning(data.shape)[0]
    over = [te.reduce_axis((0, batch), name="b")]
    names = ("oi", "oj")[d:]
    over += [te.reduce_axis((0, o), name=x) for o, x in zip(p.out_image[d:], names, strict=True)]
    tag = f"{p.operator}_wgrad_{p.layout.lower()}"

    def summed(channel: Any, filter: Any, taps: Any) -> Any:
        steps = zip(over[1:], taps, p.stride[d:], p.dilation[d:], strict=True)
        read = source[images.order(over[0], channel, [i * s + t * e for i, t, s, e in steps])]
        back = grad[images.order(over[0], channel * m + filter, over[1:])]
        return te.sum(read.astype(p.accumulate) * back.astype(p.accumulate), axis=over)

    taps = ["di", "dj"][d:]
    if not images.last:
        made: Tensor = te.compute(
            p.filter_shape,
            lambda c, f, *at: summed(c, f, at),
            name="WeightGrad",
            tag=tag,
            varargs_names=["c", "m", *taps],
        )
        return made, made
    sums: Tensor = te.compute(
        (*p.kernel[d:], p.out_channels),
        lambda *i: summed(i[-1] // m, i[-1] % m, i[:-1]),
        name="WeightGrad",
        tag=tag,
        varargs_names=[*taps, "c"],
    )
    result: Tensor = te.compute(
        p.filter_shape,
        lambda *i: sums[(*i[2:], i[0] * m + i[1])],
        name="FilterGrad",
        tag="elemwise",
        varargs_names=["c", "m", *taps],
    )
    return result, sums
