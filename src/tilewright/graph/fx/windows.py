"""ATen's convolutions, pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.onnx.reduction import mean
from tilewright.graph.onnx.resize import Line, cubic, linear, table
from tilewright.graph.value import Value


def _each(values: Sequence[int] | int | None, rank: int, default: int = 1) -> list[int]:
    """One number for each dimension of an image."""
    found = [values] if isinstance(values, int) else list(values or (default,))
    return found * rank if len(found) == 1 else found


def _convolution(n: Operation) -> Any:
    x, w, b = n["input"], n["weight"], n["bias"]
    rank = w.rank - 2
    if x.rank != w.rank:
        raise n.error("an image without a batch")
    pads = _each(n["padding"], rank, 0)
    values: dict[str, Any] = {
        "strides": _each(n["stride"], rank), "dilations": _each(n["dilation"], rank),
        "group": n["groups"], "pads": [*pads, *pads],
    }  # fmt: skip
    if not n["transposed"]:
        return n.onnx("Conv", x, w, b, **values)
    more = _each(n["output_padding"], rank, 0)
    return n.onnx("ConvTranspose", x, w, b, output_padding=more, **values)


def _window(n: Operation, rank: int) -> dict[str, Any]:
    size, pads = _each(n["kernel_size"], rank), _each(n["padding"], rank, 0)
    return {
        "kernel_shape": size, "strides": _each(n["stride"] or size, rank),
        "pads": [*pads, *pads], "ceil_mode": int(bool(n["ceil_mode"])),
    }  # fmt: skip


def _batched(n: Operation, rank: int) -> Value:
    if n.x.rank != rank + 2:
        raise n.error("an image without a batch")
    return n.x


def _max_pool(rank: int) -> Converter:
    def convert(n: Operation) -> tuple[Value, ...]:
        x = _batched(n, rank)
        values = {**_window(n, rank), "dilations": _each(n["dilation"], rank)}
        found, places = n.onnx("MaxPool", x, outputs=2, **values)
        # PyTorch counts the places of each image by itself.
        return found, n("mod", places, math.prod(x.shape[2:]))

    return convert


def _average_pool(rank: int) -> Converter:
    def convert(n: Operation) -> Any:
        x, values = _batched(n, rank), _window(n, rank)
        if n["divisor_override"] is not None:
            raise n.error("it divides by a number of its own")
        counts = int(n["count_include_pad"] is not False)
        return n.onnx("AveragePool", x, count_include_pad=counts, **values)

    return convert


def _adaptive_average(n: Operation) -> Any:
    x, out = n.x, n["output_size"]
    image = x.shape[-len(out) :]
    axes = tuple(range(x.rank - len(out), x.rank))
    if set(out) == {1}:
        return mean(n, x, axes)
    if x.rank == len(out) + 2 and not any(e % o for e, o in zip(image, out, strict=True)):
        size = [e // o for e, o in zip(image, out, strict=True)]
        return n.onnx("AveragePool", x, kernel_shape=size, strides=size)
    for axis, extent, count in zip(axes, image, out, strict=True):
        x = _resampled(n, x, axis, *_means(extent, count))
    return x


def _means(extent: int, count: int) -> tuple[Any, Any]:
    """The elements of windows of nearly one size, and their weights."""
    at = np.arange(count)
    begin, end = at * extent // count, -(-(at + 1) * extent // count)
    places = begin[:, None] + np.arange((end - begin).max())
    weights = np.where(places < end[:, None], 1 / (end - begin)[:, None], 0)
    return np.minimum(places, extent - 1), weights


def _scales(n: Operation, rank: int) -> list[float | None]:
    """The factors that PyTorch computes places with, where it is given them."""
    listed = n["scale_factors"]
    if listed is not None:
        return list(listed)
    names = {
        1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w"),
    }[rank]  # fmt: skip
    return [n[name] for name in names]


def _resize(rank: int, kind: str) -> Converter:
    def convert(n: Operation) -> Value:
        found = x = _batched(n, rank)
        given = _scales(n, rank)
        out = n["output_size"] or [
            int(e * s) for e, s in zip(x.shape[2:], given, strict=True) if s is not None
        ]
        for d, (size, scale) in enumerate(zip(out, given, strict=True)):
            extent = x.shape[2 + d]
            if size == extent:
                continue
            line = Line(extent, size, scale or size / extent)
            found = _along(n, found, 2 + d, line, kind)
        return found

    return convert


def _along(n: Operation, x: Value, axis: int, line: Line, kind: str) -> Value:
    if kind == "nearest":
        at = np.minimum(np.floor(line.places("asymmetric")), line.extent - 1)
        return n("take", x, constant(at.astype(np.int32)), axis=axis)
    places = line.places("align_corners" if n["align_corners"] else "half_pixel")
    if kind == "linear":
        places = np.clip(places, 0, None)
    kernel, reach = (linear, 1) if kind == "linear" else (cubic(-0.75), 2)
    return _resampled(n, x, axis, *table(line, places, kernel, reach, False, True))


def _resampled(n: Operation, x: Value, axis: int, at: Any, weights: Any) -> Value:
    wide = "float64" if x.dtype == "float64" else "float32"
    made = n(
        "resample", x, constant(at.astype(np.int32)), constant(weights.astype(wide)), axis=axis
    )
    return cast(made, x.dtype)


def _gradients(n: Operation) -> tuple[Value | None, ...]:
    """Of a convolution, by the image, the filter and the bias."""
    grad, x, w = n["grad_output"], n["input"], n["weight"]
    rank, (by_x, by_w, by_bias) = w.rank - 2, n["output_mask"]
    if n["transposed"] or x.rank != w.rank or rank not in (1, 2, 3):
        raise n.error("the gradients of this convolution are not supported")
    pads, strides = _each(n["padding"], rank, 0), _each(n["stride"], rank)
    dilation, image = _each(n["dilation"], rank), x.shape[2:]
    values: dict[str, Any] = {
        "groups": n["groups"], "stride": tuple(strides), "padding": (*pads, *pads),
        "dilation": tuple(dilation),
    }  # fmt: skip
    made: list[Value | None] = [None, None, None]
    if by_x:
        reach = [
            (o - 1) * s + (k - 1) * d + 1 - 2 * p
            for o, s, k, d, p in zip(
                grad.shape[2:], strides, w.shape[2:], dilation, pads, strict=True
            )
        ]
        more = tuple(e - r for e, r in zip(image, reach, strict=True))
        made[0] = n(f"conv{rank}d", grad, w, pass_="dgrad", output_padding=more, **values)
    if by_w:
        kernel = tuple(w.shape[2:])
        found = n(f"conv{rank}d", x, grad, pass_="wgrad", kernel=kernel, **values)
        made[1] = reshape(found, w.shape)
    if by_bias:
        made[2] = n("sum", grad, axis=(0, *range(2, grad.rank)), keepdims=False)
    return tuple(made)


CONVERTERS: dict[str, Converter] = {
    "convolution": _convolution, "convolution_backward": _gradients,
    **{f"max_pool{d}d_with_indices": _max_pool(d) for d in (2, 3)},
    **{f"avg_pool{d}d": _average_pool(d) for d in (1, 2, 3)},
    **{f"_adaptive_avg_pool{d}d": _adaptive_average for d in (2, 3)},
    **{f"adaptive_avg_pool{d}d": _adaptive_average for d in (1, 2, 3)},
    **{f"upsample_nearest{d}d": _resize(d, "nearest") for d in (1, 2, 3)},
    "upsample_linear1d": _resize(1, "linear"), "upsample_bilinear2d": _resize(2, "linear"),
    "upsample_bicubic2d": _resize(2, "cubic"),
}  # fmt: skip
