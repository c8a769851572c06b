"""ONNX's normalisations: sums, products and roots of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph.builder import cast, reshape, widened
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.reduction import mean
from tilewright.graph.operation import Making
from tilewright.graph.value import Value


def _by_channel(x: Value, rank: int) -> Value:
    return reshape(x, (*x.shape, *(1,) * (rank - 2)))


def centred(n: Making, x: Value, axes: tuple[int, ...], eps: float) -> tuple[Value, ...]:
    """``x`` less its mean, that mean, and one over the root of its variance, in the type of
    sums."""
    x = widened(x)
    centre = mean(n, x, axes)
    rest = n("subtract", x, centre)
    variance = mean(n, n("multiply", rest, rest), axes)
    return rest, centre, n("rsqrt", n("add", variance, eps))


def _batch(n: Operation) -> Any:
    x = n[0]
    eps = n.attribute("epsilon", 1e-5)
    scale, bias, centre, variance = (_by_channel(n[k], x.rank) for k in range(1, 5))
    more: tuple[Value, ...] = ()
    if n.attribute("training_mode", 0):
        axes = (0, *range(2, x.rank))
        wide = widened(x)
        new = mean(n, wide, axes)
        rest = n("subtract", wide, new)
        spread = cast(mean(n, n("multiply", rest, rest), axes), variance.dtype)
        new = cast(new, centre.dtype)
        keep = n.attribute("momentum", 0.9)
        running = [
            n("add", n("multiply", old, keep), n("multiply", now, 1 - keep))
            for old, now in ((centre, new), (variance, spread))
        ]
        more = tuple(reshape(r, r.shape[1:2]) if r.rank > 1 else r for r in running)
        centre, variance = new, spread
    if x.dtype != scale.dtype:
        scale, bias = cast(scale, x.dtype), cast(bias, x.dtype)
    root = cast(n("rsqrt", n("add", variance, eps)), x.dtype)
    factor = n("multiply", scale, root)
    shift = n("subtract", bias, n("multiply", cast(centre, x.dtype), factor))
    found = n("add", n("multiply", x, factor), shift)
    return (found, *more) if n.outputs > 1 else found


def _instance(n: Operation) -> Value:
    x = n[0]
    rest, _, root = centred(n, x, tuple(range(2, x.rank)), n.attribute("epsilon", 1e-5))
    scale, bias = (_by_channel(n[k], x.rank) for k in (1, 2))
    return n("add", n("multiply", cast(n("multiply", rest, root), x.dtype), scale), bias)


def _layer(n: Operation) -> Any:
    x = n[0]
    axis = n.axis(n.attribute("axis", -1), x.rank)
    axes = tuple(range(axis, x.rank))
    rest, centre, root = centred(n, x, axes, n.attribute("epsilon", 1e-5))
    found = n("multiply", cast(n("multiply", rest, root), x.dtype), n[1])
    found = n("add", found, n[2]) if n.has(2) else found
    return (found, centre, root) if n.outputs > 1 else found


def _rms(n: Operation) -> Value:
    x = n[0]
    axes = tuple(range(n.axis(n.attribute("axis", -1), x.rank), x.rank))
    y = widened(x)
    spread = mean(n, n("multiply", y, y), axes)
    root = n("rsqrt", n("add", spread, n.attribute("epsilon", 1e-5)))
    return n("multiply", cast(n("multiply", y, root), x.dtype), n[1])


def _group(n: Operation) -> Value:
    x, groups = n[0], n.attribute("num_groups")
    batch, channels, *image = x.shape
    if channels % groups:
        raise n.error(f"{channels} channels in {groups} groups")
    size = channels // groups
    # One group is the image as it lies, whatever the layout.
    parts = x if groups == 1 else reshape(x, (batch, groups, size, *image))
    axes = tuple(range(1 if groups == 1 else 2, parts.rank))
    rest, _, root = centred(n, parts, axes, n.attribute("epsilon", 1e-5))
    normal = reshape(cast(n("multiply", rest, root), x.dtype), x.shape)
    scale, bias = (_spread(n[k], channels, size, x.rank) for k in (1, 2))
    return n("add", n("multiply", normal, scale), bias)


def _spread(x: Value, channels: int, size: int, rank: int) -> Value:
    """Numbers a channel; before opset 21 they are numbers a group."""
    if x.shape[0] != channels:
        from tilewright.graph.builder import build

        wide = build("broadcast_to", reshape(x, (*x.shape, 1)), shape=(x.shape[0], size))
        x = reshape(wide, (channels,))
    return _by_channel(x, rank)


def _mean_variance(n: Operation) -> Value:
    axes: Sequence[int] = n.attribute("axes", (0, 2, 3))
    rest, _, root = centred(n, n[0], tuple(n.axis(a, n[0].rank) for a in axes), 1e-9)
    return cast(n("multiply", rest, root), n[0].dtype)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "BatchNormalization": _batch, "GroupNormalization": _group, "InstanceNormalization": _instance,
    "LayerNormalization": _layer, "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
}  # fmt: skip
