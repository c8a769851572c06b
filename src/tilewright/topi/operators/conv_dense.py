"""What a convolution that is dense, or in groups, computes; no stage of it knows of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import OPERANDS, Conv


def declare_dense(p: Conv, given: Any = None) -> Declaration:
    """The program of a problem: one stage that sums, then the epilogue; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    first, second = (inputs[name] for name in OPERANDS[p.pass_])
    total = {"forward": _forward, "dgrad": _dgrad, "wgrad": _wgrad}[p.pass_](p, first, second)
    return Declaration(p, inputs, finished(p, total, inputs), total, None, None)


def _forward(p: Conv, data: Tensor, filter: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    r, taps = te.reduce_axis((0, own), "rc"), _taps(p)

    def element(n: Any, m: Any, at: list[Any]) -> Any:
        places = [
            o * s + t * d - before
            for o, t, s, d, before in zip(at, taps, *_geometry(p), strict=True)
        ]
        read = data[images.order(n, m // p.multiplier * own + r, places)]
        inside = _inside(places, p.image[2 - p.rank :], any(p.padding))
        value = _guarded(inside, read).astype(p.accumulate)
        return te.sum(
            value * filter[p.filter_place(m, r, taps)].astype(p.accumulate), axis=[r, *taps]
        )

    space = p.out_image[2 - p.rank :]
    return images.compute(data.shape[0], p.out_channels, space, element, "Conv", "conv")


def _dgrad(p: Conv, grad: Tensor, filter: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    r, taps = te.reduce_axis((0, p.multiplier), "rm"), _taps(p)
    stride = p.stride[2 - p.rank :]

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        shifted = [
            i + before - t * d for i, t, _, d, before in zip(at, taps, *_geometry(p), strict=True)
        ]
        rows = [x // s for x, s in zip(shifted, stride, strict=True)]
        inside = _inside(rows, p.out_image[2 - p.rank :], True)
        inside += [x % s == 0 for x, s in zip(shifted, stride, strict=True) if s > 1]
        m = c // own * p.multiplier + r
        value = _guarded(inside, grad[images.order(n, m, rows)]).astype(p.accumulate)
        tap = filter[p.filter_place(m, c % own, taps)].astype(p.accumulate)
        return te.sum(value * tap, axis=[r, *taps])

    space = p.image[2 - p.rank :]
    return images.compute(grad.shape[0], p.channels, space, element, "ConvDgrad", "conv_dgrad")


def _wgrad(p: Conv, data: Tensor, grad: Tensor) -> Tensor:
    own, images = p.channels // p.groups, Images(p.layout)
    n = te.reduce_axis((0, data.shape[0]), "rn")
    at = [te.reduce_axis((0, e), f"r{x}") for e, x in zip(p.out_image, "hw", strict=True)]
    at = at[2 - p.rank :]

    def element(m: Any, *tap: Any) -> Any:
        *taps, c = tap if p.channels_last else (*tap[1:], tap[0])
        places = [
            o * s + t * d - before
            for o, t, s, d, before in zip(at, taps, *_geometry(p), strict=True)
        ]
        read = data[images.order(n, m // p.multiplier * own + c, places)]
        inside = _inside(places, p.image[2 - p.rank :], any(p.padding))
        value = _guarded(inside, read).astype(p.accumulate)
        step = grad[images.order(n, m, at)].astype(p.accumulate)
        return te.sum(value * step, axis=[n, *at])

    made: Tensor = te.compute(p.filter_shape, element, name="ConvWgrad", tag="conv_wgrad")
    return made


def _taps(p: Conv) -> list[Any]:
    names = zip(p.kernel, ("kh", "kw"), strict=True)
    return [te.reduce_axis((0, extent), name) for extent, name in names][2 - p.rank :]


def _geometry(p: Conv) -> list[tuple[int, ...]]:
    """Strides, dilations, and the padding before, of the dimensions that there are."""
    return [x[2 - p.rank :] for x in (p.stride, p.dilation, p.padding[:2])]


def _inside(places: Sequence[Any], extents: Sequence[int], beyond: bool) -> list[Any]:
    """That an element is one of the image, where it may lie ``beyond``."""
    if not beyond:
        return []
    return [c for x, e in zip(places, extents, strict=True) for c in (x >= 0, x < e)]


def _guarded(inside: list[Any], value: Any) -> Any:
    return te.if_then_else(te.all(*inside), value, te.const(0, value.dtype)) if inside else value
