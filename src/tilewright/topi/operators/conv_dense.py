"""What a convolution that is dense, or in groups, computes; no stage of it knows of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import OPERANDS, Convolution


def declare_dense(p: Convolution, given: Any = None) -> Declared:
    """The program of a problem: one stage that sums, then the epilogue; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    total = {"forward": _forward, "dgrad": _dgrad, "wgrad": _wgrad}[p.pass_](p, first, second)
    return Declared(p, inputs, finished(p, total, inputs))


def _forward(p: Convolution, data: Tensor, filter: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    r, taps = te.reduce_axis((0, own), "rc"), _taps(p)

    def element(n: Any, m: Any, at: list[Any]) -> Any:
        places = _places(p, at, taps)
        read = data[images.order(n, m // p.multiplier * own + r, places)]
        inside = _inside(places, p.image_extents, any(d.before or d.after for d in p.dims))
        value = or_zero(inside, read).astype(p.accumulate)
        return te.sum(
            value * filter[p.filter_place(m, r, taps)].astype(p.accumulate), axis=[r, *taps]
        )

    return images.compute(data.shape[0], p.out_channels, p.out_extents, element, "Conv", "conv")


def _dgrad(p: Convolution, grad: Tensor, filter: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    r, taps = te.reduce_axis((0, p.multiplier), "rm"), _taps(p)

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        shifted = [i + d.before - t * d.dilation for i, t, d in zip(at, taps, p.dims, strict=True)]
        rows = [x // d.stride for x, d in zip(shifted, p.dims, strict=True)]
        inside = _inside(rows, p.out_extents, True)
        inside += [x % d.stride == 0 for x, d in zip(shifted, p.dims, strict=True) if d.stride > 1]
        m = c // own * p.multiplier + r
        value = or_zero(inside, grad[images.order(n, m, rows)]).astype(p.accumulate)
        tap = filter[p.filter_place(m, c % own, taps)].astype(p.accumulate)
        return te.sum(value * tap, axis=[r, *taps])

    return images.compute(
        grad.shape[0], p.channels, p.image_extents, element, "ConvDgrad", "conv_dgrad"
    )


def _wgrad(p: Convolution, data: Tensor, grad: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    n = te.reduce_axis((0, data.shape[0]), "rn")
    at = [te.reduce_axis((0, d.results), f"r{d.letter.lower()}") for d in p.dims]

    def element(m: Any, *tap: Any) -> Any:
        *taps, c = tap if p.channels_last else (*tap[1:], tap[0])
        places = _places(p, at, taps)
        read = data[images.order(n, m // p.multiplier * own + c, places)]
        inside = _inside(places, p.image_extents, any(d.before or d.after for d in p.dims))
        value = or_zero(inside, read).astype(p.accumulate)
        step = grad[images.order(n, m, at)].astype(p.accumulate)
        return te.sum(value * step, axis=[n, *at])

    made: Tensor = te.compute(p.filter_shape, element, name="ConvWgrad", tag="conv_wgrad")
    return made


def _taps(p: Convolution) -> list[Any]:
    return [te.reduce_axis((0, d.taps), f"k{d.letter.lower()}") for d in p.dims]


def _places(p: Convolution, at: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
    """What a tap reads for a result: the place in x."""
    return [
        o * d.stride + t * d.dilation - d.before for o, t, d in zip(at, taps, p.dims, strict=True)
    ]


def _inside(places: Sequence[Any], extents: Sequence[int], beyond: bool) -> list[Any]:
    """That an element is one of the image, where it may lie ``beyond``."""
    return within(places, extents) if beyond else []
