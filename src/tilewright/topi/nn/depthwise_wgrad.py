"""The gradient of a depthwise convolution by its filter: a sum over the batch and all outputs.

The stage ``WeightGrad`` sums; in channels-last layouts it is (KH, KW, C * M), so that vectors are
of channels, and the result is written from it in the order of the filter.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_forward import padded_input, tap_names
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import Convolution


def depthwise_wgrad(p: Convolution, data: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The filter's gradient, as the filter lies, in the type of sums, and the stage of the sum."""
    images, m = Images(p.layout), p.multiplier
    source = padded_input(p, data)
    batch = images.meaning(data.shape)[0]
    over = [te.reduce_axis((0, batch), name="b")]
    names = ("od", "oi", "oj")[3 - p.rank :]
    over += [te.reduce_axis((0, o), name=x) for o, x in zip(p.out_extents, names, strict=True)]
    tag = f"{p.operator}_wgrad_{p.layout.lower()}"

    def summed(channel: Any, filter: Any, taps: Any) -> Any:
        each = zip(over[1:], taps, p.dims, strict=True)
        seen = [i * d.stride + t * d.dilation for i, t, d in each]
        read = source[images.order(over[0], channel, seen)]
        back = grad[images.order(over[0], channel * m + filter, over[1:])]
        return te.sum(read.astype(p.accumulate) * back.astype(p.accumulate), axis=over)

    taps, own = tap_names(p), p.OWN_FILTERS

    def filter_of(i: Any) -> tuple[Any, Any, Any]:
        """The channel, which of its filters, and the tap of an element of the result."""
        return (i[0], i[1], i[2:]) if own else (i[0] // m, i[0] % m, i[1:-1] if last else i[2:])

    last = images.last
    axes = ["c", "m", *taps] if own else ["m", *taps, "c"] if last else ["m", "c", *taps]
    if not last:
        made: Tensor = te.compute(
            p.filter_shape,
            lambda *i: summed(*filter_of(i)),
            name="WeightGrad",
            tag=tag,
            varargs_names=axes,
        )
        return made, made
    sums: Tensor = te.compute(
        (*(d.taps for d in p.dims), p.out_channels),
        lambda *i: summed(i[-1] // m, i[-1] % m, i[:-1]),
        name="WeightGrad",
        tag=tag,
        varargs_names=[*taps, "c"],
    )

    def placed(*i: Any) -> Any:
        channel, filter, tap = filter_of(i)
        return sums[(*tap, channel * m + filter if own else i[0])]

    result: Tensor = te.compute(
        p.filter_shape, placed, name="FilterGrad", tag="elemwise", varargs_names=axes
    )
    return result, sums
