"""ATen's normalisations."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graph.builder import WIDE, cast, reshape, widened
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.fx.reduction import spread
from tilewright.graph.value import Value


def _scaled(n: Operation, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """With what is given of a factor and a term, both of few dimensions, in the type of the
    result."""
    found = x if weight is None else n("multiply", x, cast(weight, x.dtype))
    found = found if bias is None else n("add", found, cast(bias, x.dtype))
    return cast(found, n.dtype)


def _layer(n: Operation) -> tuple[Value, ...]:
    x, count = n["input"], len(n["normalized_shape"])
    wide = widened(x)
    axes = tuple(range(x.rank - count, x.rank))
    variance, centre = spread(n, wide, axes, 0)
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    normal = n("multiply", n("subtract", wide, centre), root)
    return _scaled(n, normal, n["weight"], n["bias"]), centre, root


def _group(n: Operation) -> tuple[Value, ...]:
    x, groups = n["input"], n["group"]
    batch, channels, *image = x.shape
    # One group is the image as it lies, whatever the layout.
    shape = x.shape if groups == 1 else (batch, groups, channels // groups, *image)
    parts = reshape(x, shape)
    wide = widened(parts)
    axes = tuple(range(1 if groups == 1 else 2, len(shape)))
    variance, centre = _statistics(n, parts, wide, axes)
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    own = (channels // groups, *(1,) * len(image))
    weight, bias = (
        None
        if n[k] is None
        else cast(reshape(n[k], own if groups == 1 else (groups, *own)), wide.dtype)
        for k in ("weight", "bias")
    )
    # A factor and a term of each channel of an image, which it takes one instruction to apply.
    factor = root if weight is None else n("multiply", root, weight)
    term = n("negative", n("multiply", centre, factor))
    term = term if bias is None else n("add", term, bias)
    found = n("add", n("multiply", wide, factor), term)
    return (
        cast(reshape(found, x.shape), n.dtype),
        reshape(centre, (batch, groups)), reshape(root, (batch, groups)),
    )  # fmt: skip


def _by_channel(x: Value | None, rank: int) -> Any:
    return None if x is None else reshape(x, (*x.shape, *(1,) * (rank - 2)))


def _batch(n: Operation) -> tuple[Value | None, ...]:
    """By statistics that are given."""
    x = n["input"]
    wide = WIDE.get(x.dtype, x.dtype)
    scale, bias, centre, variance = (
        None if n[k] is None else cast(n[k], wide)
        for k in ("weight", "bias", "running_mean", "running_var")
    )
    assert centre is not None
    assert variance is not None
    factor = n("rsqrt", n("add", variance, float(n["eps"])))
    factor = factor if scale is None else n("multiply", scale, factor)
    shift = n("negative", n("multiply", centre, factor))
    shift = shift if bias is None else n("add", shift, bias)
    wide_x = n("multiply", cast(x, wide), _by_channel(factor, x.rank))
    found = n("add", wide_x, _by_channel(shift, x.rank))
    return cast(found, n.dtype), None, None


def _whole(x: Value | None, rank: int) -> Any:
    """Of each channel one, in as many dimensions as an image has."""
    return None if x is None else reshape(x, (1, *x.shape, *(1,) * (rank - 2)))


def _batch_training(n: Operation) -> tuple[Value | None, ...]:
    """By statistics of the batch, which the running ones follow."""
    x, momentum = n["input"], n["momentum"]
    if not n["training"]:
        return (*_batch(n), n["running_mean"], n["running_var"])
    wide = widened(x)
    axes = (0, *range(2, x.rank))
    count = math.prod(x.shape[d] for d in axes)
    variance, centre = _statistics(n, x, wide, axes)
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    normal = n("multiply", n("subtract", wide, centre), root)
    found = _scaled(n, normal, *(_whole(n[k], x.rank) for k in ("weight", "bias")))
    flat = x.shape[1:2]
    less = float(count / (count - 1)) if count > 1 else math.nan
    now = {"running_mean": centre, "running_var": n("multiply", variance, less)}
    running = []
    for k, v in now.items():
        before = n("multiply", _whole(n[k], x.rank), 1.0 - momentum)
        change = n("multiply", reshape(cast(v, n[k].dtype), before.shape), momentum)
        running.append(reshape(n("add", before, change), flat))
    return found, reshape(centre, flat), reshape(root, flat), *running


def _statistics(n: Operation, x: Value, wide: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """The variance and the mean over ``axes``, in the type of ``wide``, which is ``x`` in the type
    of sums."""
    if n.device == "cpu":
        # Sums over a batch are long: PyTorch adds in float64, too.
        variance, centre = (cast(v, wide.dtype) for v in spread(n, cast(x, "float64"), axes, 0))
        return variance, centre
    # Thousands of threads add few elements each, so float32 does. Both sums are of the distance
    # from one of the elements: they lose no digits to a mean that is far from zero, and
    # neither waits for the other.
    count = math.prod(x.shape[d] for d in axes)
    shape = tuple(1 if d in axes else e for d, e in enumerate(x.shape))
    first = n("strided_slice", x, begin=(0,) * x.rank, strides=(1,) * x.rank, shape=shape)
    first = cast(first, wide.dtype)
    rest = n("subtract", wide, first)
    off, square = (
        n("multiply", n("sum", v, axis=axes, keepdims=True), 1.0 / count)
        for v in (rest, n("multiply", rest, rest))
    )
    variance = n("maximum", n("subtract", square, n("multiply", off, off)), 0.0)
    return variance, n("add", first, off)


def _batch_gradients(n: Operation) -> tuple[Value | None, ...]:
    """Of a normalisation by statistics of the batch or by those that were given: by the image, the
    factor and the term."""
    grad, x = n["grad_out"], n["input"]
    wide, axes = WIDE.get(x.dtype, x.dtype), (0, *range(2, x.rank))
    count = math.prod(x.shape[d] for d in axes)
    dy, image = cast(grad, wide), cast(x, wide)
    if n["train"]:
        centre, root = n["save_mean"], n["save_invstd"]
    else:
        centre = n["running_mean"]
        root = n("rsqrt", n("add", cast(n["running_var"], wide), float(n["eps"])))
    centre, root = (_whole(cast(v, wide), x.rank) for v in (centre, root))
    rest = n("subtract", image, centre)
    total = n("sum", dy, axis=axes, keepdims=True)
    along = n("sum", n("multiply", dy, rest), axis=axes, keepdims=True)
    weight = n["weight"]
    factor = root if weight is None else n("multiply", root, _whole(cast(weight, wide), x.rank))
    by_x = dy
    if n["train"]:
        slope = n("multiply", n("multiply", along, 1.0 / count), n("multiply", root, root))
        by_x = n("subtract", dy, n("multiply", rest, slope))
        by_x = n("subtract", by_x, n("multiply", total, 1.0 / count))
    by_x = cast(n("multiply", by_x, factor), x.dtype)
    like = wide if weight is None else weight.dtype
    by_weight, by_bias = (
        cast(reshape(v, x.shape[1:2]), like) for v in (n("multiply", along, root), total)
    )
    made = (by_x, by_weight, by_bias)
    return tuple(v if wanted else None for v, wanted in zip(made, n["output_mask"], strict=True))


CONVERTERS: dict[str, Converter] = {
    "native_layer_norm": _layer, "native_group_norm": _group,
    "_native_batch_norm_legit_no_training": _batch,
    "_native_batch_norm_legit_functional": _batch_training,
    "native_batch_norm_backward": _batch_gradients,
}  # fmt: skip
