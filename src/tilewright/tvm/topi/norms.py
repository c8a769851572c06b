"""topi's normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.elements import NN, axes_of, reduced
from tilewright.tvm.topi.transform import product, reshape


def _sum(data: Tensor, axes: Any, keepdims: bool, value: Any, name: str) -> Any:
    return reduced(data, axes, keepdims, lambda v, i, k: te.sum(value(v, i), axis=k), name)


def _normalised(
    data: Tensor, axes: Sequence[int], epsilon: float, scale: Any, centred: bool, name: str
) -> Any:
    """``(data - mean) / sqrt(variance + epsilon)`` over ``axes``, then ``scale``; of the mean of
    squares alone where it is not ``centred``. In float32."""
    wide = "float32" if data.dtype == "float16" else str(data.dtype)
    kept = [d for d in range(data.ndim) if d not in axes]
    count = product([data.shape[d] for d in axes]).astype(wide)

    def own(i: Any) -> list[Any]:
        return [i[d] for d in kept]

    mean = (
        _sum(data, axes, False, lambda v, i: v.astype(wide) / count, f"{name}_mean")
        if centred
        else None
    )

    def far(v: Any, i: Any) -> Any:
        apart = v.astype(wide) - mean(*own(i)) if mean is not None else v.astype(wide)
        return apart

    variance = _sum(
        data, axes, False, lambda v, i: far(v, i) * far(v, i) / count, f"{name}_variance"
    )

    def element(*i: Any) -> Any:
        value = far(data(*i), i) * te.rsqrt(variance(*own(i)) + te.const(epsilon, wide))
        return scale(value, i, wide).astype(data.dtype)

    return te.compute(data.shape, element, f"T_{name}", tag="injective")


def _affine(gamma: Any, beta: Any, index: Callable[[Any], Any]) -> Callable[..., Any]:
    def scale(value: Any, i: Any, wide: str) -> Any:
        value = value * gamma(*index(i)).astype(wide) if gamma is not None else value
        return value + beta(*index(i)).astype(wide) if beta is not None else value

    return scale


def layer_norm(data: Tensor, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    axes = axes_of(axis, data.ndim)
    return _normalised(
        data,
        axes,
        epsilon,
        _affine(gamma, beta, lambda i: [i[d] for d in axes]),
        True,
        "layer_norm",
    )


def rms_norm(data: Tensor, weight: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    axes = axes_of(axis, data.ndim)
    return _normalised(
        data,
        axes,
        epsilon,
        _affine(weight, None, lambda i: [i[d] for d in axes]),
        False,
        "rms_norm",
    )


def instance_norm(
    data: Tensor, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5, channel_axis: int = 1
) -> Any:
    """``gamma`` and ``beta`` have the dimensions ``axis``, or those of the channels alone."""
    axes = axes_of(axis, data.ndim)
    own = axes if gamma is not None and gamma.ndim == len(axes) else [channel_axis]
    scale = _affine(gamma, beta, lambda i: [i[d] for d in own])
    return _normalised(data, axes, epsilon, scale, True, "instance_norm")


def group_norm(
    data: Tensor, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float = 1e-5,
) -> Any:  # fmt: skip
    c = dimension(channel_axis, data.ndim)
    each = te.floordiv(data.shape[c], num_groups)
    apart = reshape(data, (*data.shape[:c], num_groups, each, *data.shape[c + 1 :]))
    over = [c + 1, *(d + (d > c) for d in axes_of(axes, data.ndim) if d != c)]
    scale = _affine(gamma, beta, lambda i: [i[c] * each + i[c + 1]])
    return reshape(_normalised(apart, sorted(over), epsilon, scale, True, "group_norm"), data.shape)


def batch_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor,
    axis: Any = None, epsilon: Any = None, center: Any = None, scale: Any = None,
    training: Any = None, momentum: Any = None,
) -> list[Any]:  # fmt: skip
    """With what is known of the batches, or in ``training`` of this one; then also the new mean and
    variance, tensors of their own."""
    d = dimension(1 if axis is None else axis, data.ndim)
    eps, wanted = 1e-5 if epsilon is None else epsilon, [k for k in range(data.ndim) if k != d]
    mean, variance = moving_mean, moving_var
    outs = [te.compute(t.shape, lambda c, t=t: t(c), "T_moving") for t in (mean, variance)]
    if training:
        count = product([data.shape[k] for k in wanted]).astype(data.dtype)
        mean = _sum(data, wanted, False, lambda v, i: v / count, "batch_mean")
        variance = _sum(
            data,
            wanted,
            False,
            lambda v, i: (v - mean(i[d])) * (v - mean(i[d])) / count,
            "batch_variance",
        )
        m = 0.1 if momentum is None else momentum
        outs = [
            te.compute(
                old.shape, lambda c, old=old, new=new: old(c) * (1 - m) + new(c) * m, "T_moving"
            )
            for old, new in ((moving_mean, mean), (moving_var, variance))
        ]

    def element(*i: Any) -> Any:
        value = (data(*i) - mean(i[d])) / te.sqrt(variance(i[d]) + te.const(eps, data.dtype))
        value = value if scale is False else value * gamma(i[d])
        return value if center is False else value + beta(i[d])

    return [te.compute(data.shape, element, "T_batch_norm", tag="broadcast"), *outs]


def softmax(x: Tensor, axis: int = -1) -> Any:
    return _softmax(x, axis, False)


def log_softmax(x: Tensor, axis: int = -1) -> Any:
    return _softmax(x, axis, True)


def softmax_common(x: Tensor, axis: int, use_fast_exp: bool) -> Any:
    return _softmax(x, axis, False)


def _softmax(x: Tensor, axis: int, log: bool) -> Any:
    d = dimension(axis, x.ndim)

    def own(i: Any) -> tuple[Any, ...]:
        return (*i[:d], *i[d + 1 :])

    most = reduced(x, d, False, lambda v, _, k: te.max(v, axis=k), "T_softmax_maxelem")
    power = te.compute(
        x.shape, lambda *i: te.exp(x(*i) - most(*own(i))), "T_softmax_exp", tag="elemwise"
    )
    total = reduced(power, d, False, lambda v, _, k: te.sum(v, axis=k), "T_softmax_expsum")
    return te.compute(
        x.shape,
        lambda *i: (
            x(*i) - most(*own(i)) - te.log(total(*own(i))) if log else power(*i) / total(*own(i))
        ),
        "T_log_softmax" if log else "T_softmax_norm",
        tag="log_softmax_output" if log else "softmax_output",
        attrs={"axis": d},
    )


def lrn(
    data: Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2,
) -> Any:
    d = dimension(axis, data.ndim)
    k = te.reduce_axis((0, size), "k")

    def squares(*i: Any) -> Any:
        place = i[d] + k - size // 2
        value = data(*i[:d], place, *i[d + 1 :])
        inside = te.all(place >= 0, place < data.shape[d])
        return te.sum(te.if_then_else(inside, value * value, te.const(0, data.dtype)), axis=k)

    total = te.compute(data.shape, squares, "T_lrn_sum")
    by, first = te.const(alpha / size, data.dtype), te.const(bias, data.dtype)
    return te.compute(
        data.shape,
        lambda *i: data(*i) / te.power(total(*i) * by + first, te.const(beta, data.dtype)),
        "T_lrn",
        tag="elemwise",
    )


def _scale_shift(axes: Sequence[int]) -> Callable[..., Any]:
    def function(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Any:
        def own(i: Any) -> list[Any]:
            return [i[d] for d in axes]

        return te.compute(
            Input.shape,
            lambda *i: Input(*i) * Scale(*own(i)) + Shift(*own(i)),
            "ScaleShift",
            tag="broadcast",
        )

    return function


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Any:
    d = dimension(axis, x.ndim)
    return te.compute(
        x.shape,
        lambda *i: te.Select(x(*i) > 0, x(*i), x(*i) * slope(i[d])),
        "T_prelu",
        tag="broadcast",
    )


NAMES: dict[str, Callable[..., Any]] = {
    **NN,
    **{
        f.__name__: f
        for f in (
            batch_norm, group_norm, instance_norm, layer_norm, log_softmax, lrn, prelu, rms_norm,
            softmax, softmax_common,
        )
    },
    "fast_softmax": softmax,
    "scale_shift_nchw": _scale_shift([1]),
    "scale_shift_nchwc": _scale_shift([1, 4]),
    "scale_shift_nhwc": _scale_shift([3]),
}  # fmt: skip
