"""ATen's normalisations."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graph.builder import cast, reshape
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.fx.reduction import spread
from tilewright.graph.value import Value

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _scaled(n: Operation, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """With what is given of a factor and a term, both of few dimensions, in the type of the
    result."""
    found = x if weight is None else n("multiply", x, cast(weight, x.dtype))
    found = found if bias is None else n("add", found, cast(bias, x.dtype))
    return cast(found, n.dtype)


def _layer(n: Operation) -> tuple[Value, ...]:
    x, count = n["input"], len(n["normalized_shape"])
    wide = cast(x, _WIDE.get(x.dtype, x.dtype))
    axes = tuple(range(x.rank - count, x.rank))
    variance, centre = spread(n, wide, axes, 0)
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    normal = n("multiply", n("subtract", wide, centre), root)
    return _scaled(n, normal, n["weight"], n["bias"]), centre, root


def _group(n: Operation) -> tuple[Value, ...]:
    x, groups = n["input"], n["group"]
    batch = x.shape[0]
    lines = reshape(x, (batch, groups, math.prod(x.shape[1:]) // groups))
    wide = cast(lines, _WIDE.get(x.dtype, x.dtype))
    variance, centre = spread(n, wide, (2,), 0)
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    normal = reshape(n("multiply", n("subtract", wide, centre), root), x.shape)
    return (
        _scaled(n, normal, *(_by_channel(n[k], x.rank) for k in ("weight", "bias"))),
        reshape(centre, (batch, groups)), reshape(root, (batch, groups)),
    )  # fmt: skip


def _by_channel(x: Value | None, rank: int) -> Any:
    return None if x is None else reshape(x, (*x.shape, *(1,) * (rank - 2)))


def _batch(n: Operation) -> tuple[Value | None, ...]:
    """By statistics that are given."""
    x = n["input"]
    wide = _WIDE.get(x.dtype, x.dtype)
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


def _batch_training(n: Operation) -> tuple[Value | None, ...]:
    """By statistics of the batch, which the running ones follow."""
    x, momentum = n["input"], n["momentum"]
    if not n["training"]:
        return (*_batch(n), n["running_mean"], n["running_var"])
    wide = cast(x, _WIDE.get(x.dtype, x.dtype))
    axes = (0, *range(2, x.rank))
    count = math.prod(x.shape[d] for d in axes)
    # Sums over a batch are long: PyTorch adds in float64, too.
    variance, centre = (cast(v, wide.dtype) for v in spread(n, cast(x, "float64"), axes, 0))
    root = n("rsqrt", n("add", variance, float(n["eps"])))
    normal = n("multiply", n("subtract", wide, centre), root)
    found = _scaled(n, normal, *(_by_channel(n[k], x.rank) for k in ("weight", "bias")))
    flat = x.shape[1:2]
    less = float(count / (count - 1)) if count > 1 else math.nan
    now = {"running_mean": reshape(centre, flat),
           "running_var": n("multiply", reshape(variance, flat), less)}  # fmt: skip
    running = [
        n("add", n("multiply", n[k], 1.0 - momentum), n("multiply", cast(v, n[k].dtype), momentum))
        for k, v in now.items()
    ]
    return found, reshape(centre, flat), reshape(root, flat), *running


CONVERTERS: dict[str, Converter] = {
    "native_layer_norm": _layer, "native_group_norm": _group,
    "_native_batch_norm_legit_no_training": _batch,
    "_native_batch_norm_legit_functional": _batch_training,
}  # fmt: skip
