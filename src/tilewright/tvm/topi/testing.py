"""``tvm.topi.testing``: what operators compute, in NumPy, to compare results with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.tvm.machines import make_target
from tilewright.tvm.topi import schedules, testing_moves, testing_vision
from tilewright.tvm.topi.testing_resampling import resize1d_python as resize1d_python
from tilewright.tvm.topi.testing_resampling import resize2d_python as resize2d_python
from tilewright.tvm.topi.testing_resampling import resize3d_python as resize3d_python
from tilewright.tvm.topi.windows import padding_of

Array = Any


def __getattr__(name: str) -> Any:
    for other in (testing_moves, testing_vision):
        if not name.startswith("_") and hasattr(other, name):
            return getattr(other, name)
    raise AttributeError(f"tvm.topi.testing has no {name!r}")


def _spatial(value: Any, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else [int(v) for v in value]


def convolved(
    data: Array, kernel: Array, stride: Any, padding: Any, groups: int = 1, dilation: Any = 1
) -> Array:
    """A convolution of (N, C, ...) with (O, C / groups, ...), in the type of the data."""
    rank = data.ndim - 2
    steps, holes = _spatial(stride, rank), _spatial(dilation, rank)
    size = [(k - 1) * h + 1 for k, h in zip(kernel.shape[2:], holes, strict=True)]
    before, behind = padding_of(padding, size)
    padded = np.pad(data, [(0, 0), (0, 0), *zip(before, behind, strict=True)])
    out = [(e - w) // s + 1 for e, w, s in zip(padded.shape[2:], size, steps, strict=True)]
    filters, each = kernel.shape[:2]
    made = np.zeros((data.shape[0], filters, *out), data.dtype)
    for tap in itertools.product(*map(range, kernel.shape[2:])):
        at = tuple(
            slice(t * h, t * h + (o - 1) * s + 1, s)
            for t, h, o, s in zip(tap, holes, out, steps, strict=True)
        )
        window = padded[(slice(None), slice(None), *at)]
        for g in range(groups):
            mine = slice(g * filters // groups, (g + 1) * filters // groups)
            own = window[:, g * each : (g + 1) * each]
            part = np.einsum("nc...,oc->no...", own, kernel[(mine, slice(None), *tap)])
            made[:, mine] += part.astype(data.dtype)
    return made


def _in_layout(layout: str, kernel_layout: str) -> Callable[..., Array]:
    """:func:`convolved` of data and kernels in a layout; behind the padding stands TVM's next
    parameter, of one dimension the dilation, of more the groups."""
    spatial = "".join(c for c in layout if c in "DHW")

    def function(
        a_np: Array,
        w_np: Array,
        stride: Any = 1,
        padding: Any = 0,
        more: Any = 1,
    ) -> Array:
        dilation, groups = (more, 1) if len(spatial) == 1 else (1, more)
        x = a_np.transpose([layout.index(c) for c in "NC" + spatial])
        w = w_np.transpose([kernel_layout.index(c) for c in "OI" + spatial])
        out = convolved(x, w, stride, padding, groups, dilation)
        return out.transpose([("NC" + spatial).index(c) for c in layout])

    return function


def conv2d_nchw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    return convolved(a_np, w_np, stride, padding, groups)


def depthwise_conv2d_python_nchw(
    input_np: Array, filter_np: Array, stride: Any, padding: Any
) -> Array:
    channels, times, kh, kw = filter_np.shape
    kernel = filter_np.reshape(channels * times, 1, kh, kw)
    return convolved(input_np, kernel, stride, padding, channels)


def depthwise_conv2d_python_nhwc(
    input_np: Array, filter_np: Array, stride: Any, padding: Any
) -> Array:
    kernel = filter_np.transpose(2, 3, 0, 1)
    out = depthwise_conv2d_python_nchw(input_np.transpose(0, 3, 1, 2), kernel, stride, padding)
    return out.transpose(0, 2, 3, 1)


def conv_transpose_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any = 0, groups: int = 1
) -> Array:
    """The convolution that goes back, of (N, C, ...) with (C, O / groups, ...)."""
    rank = a_np.ndim - 2
    steps, more = _spatial(stride, rank), _spatial(output_padding, rank)
    size = w_np.shape[2:]
    before, behind = padding_of(padding, size)
    wide: Array = np.zeros(
        (*a_np.shape[:2], *((e - 1) * s + 1 for e, s in zip(a_np.shape[2:], steps, strict=True))),
        a_np.dtype,
    )
    wide[(..., *(slice(None, None, s) for s in steps))] = a_np
    around = [
        (k - 1 - b, k - 1 - a + m) for k, b, a, m in zip(size, before, behind, more, strict=True)
    ]
    padded = np.pad(wide, [(0, 0), (0, 0), *around])
    each = w_np.shape[0] // groups
    parts = []
    for g in range(groups):
        kernel = np.flip(w_np[g * each : (g + 1) * each], tuple(range(2, 2 + rank))).swapaxes(0, 1)
        parts.append(convolved(padded[:, g * each : (g + 1) * each], kernel, 1, 0))
    return np.concatenate(parts, 1)


def dilate_python(input_np: Array, strides: Any, dilation_value: Any = 0.0, **_: Any) -> Array:
    shape = [(e - 1) * s + 1 for e, s in zip(input_np.shape, strides, strict=True)]
    made = np.full(shape, dilation_value, input_np.dtype)
    made[tuple(slice(None, None, s) for s in strides)] = input_np
    return made


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    power = np.exp(a_np - a_np.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    far = a_np - a_np.max(axis, keepdims=True)
    return far - np.log(np.exp(far).sum(axis, keepdims=True))


def _normalised(x: Array, axes: Any, epsilon: float) -> Array:
    wide = x.astype("float32") if x.dtype == "float16" else x
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (wide - mean) / np.sqrt(variance + epsilon)


def layer_norm_python(
    data: Array, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5
) -> Array:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shape = [e if d in [a % data.ndim for a in axes] else 1 for d, e in enumerate(data.shape)]
    made = _normalised(data, axes, epsilon)
    made = made * gamma.reshape(shape) if gamma is not None else made
    made = made + beta.reshape(shape) if beta is not None else made
    return made.astype(data.dtype)


def instance_norm_python(
    data: Array, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5
) -> Array:
    own = [a % data.ndim for a in axis] if gamma.ndim == len(axis) else [1]
    shape = [e if d in own else 1 for d, e in enumerate(data.shape)]
    made = _normalised(data, tuple(axis), epsilon)
    made = made * gamma.reshape(shape) + (0 if beta is None else beta.reshape(shape))
    return made.astype(data.dtype)


def group_norm_python(
    data: Array, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float = 1e-5,
) -> Array:  # fmt: skip
    c = channel_axis
    apart = data.reshape(*data.shape[:c], num_groups, -1, *data.shape[c + 1 :])
    over = (c + 1, *(a + (a > c) for a in axes if a != c))
    made = _normalised(apart, over, epsilon).reshape(data.shape)
    shape = [e if d == c else 1 for d, e in enumerate(data.shape)]
    made = made * gamma.reshape(shape) if gamma is not None else made
    made = made + beta.reshape(shape) if beta is not None else made
    return made.astype(data.dtype)


def rms_norm_python(data: Array, weight: Array, axis: Any, epsilon: float = 1e-5) -> Array:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shape = [e if d in [a % data.ndim for a in axes] else 1 for d, e in enumerate(data.shape)]
    wide = data.astype("float32") if data.dtype == "float16" else data
    made = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + epsilon) * weight.reshape(shape)
    return made.astype(data.dtype)


def batch_norm(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, axis: int,
    epsilon: float, center: bool, scale: bool, training: bool, momentum: float,
) -> list[Array]:  # fmt: skip
    shape = [e if d == axis else 1 for d, e in enumerate(x.shape)]
    mean, variance = moving_mean, moving_var
    if training:
        over = tuple(d for d in range(x.ndim) if d != axis)
        mean, variance = x.mean(over), x.var(over)
        moving_mean = moving_mean * (1 - momentum) + mean * momentum
        moving_var = moving_var * (1 - momentum) + variance * momentum
    out = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    out = out * gamma.reshape(shape) if scale else out
    return [out + beta.reshape(shape) if center else out, moving_mean, moving_var]


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    squares, total = np.moveaxis(a_np, axis, 0) ** 2, []
    for c in range(len(squares)):
        first, last = max(0, c - size // 2), min(len(squares), c + size - size // 2)
        total.append(squares[first:last].sum(0))
    whole = np.moveaxis(np.stack(total), 0, axis)
    return a_np / (bias + alpha * whole / size) ** beta


def poolnd_python(
    np_data: Array, kernel: Any, strides: Any, dilation: Any, padding_before: Any,
    padding_after: Any, pool_type: str, count_include_pad: bool = True, ceil_mode: bool = False,
    dtype: str = "float32", layout: str = "NCHW",
) -> Array:  # fmt: skip
    spatial = "".join(c for c in layout if c in "DHW")
    x = np_data.transpose([layout.index(c) for c in "NC" + spatial])
    out = []
    for k, e in enumerate(x.shape[2:]):
        span = e + padding_before[k] + padding_after[k] - (kernel[k] - 1) * dilation[k] - 1
        out.append((span + (strides[k] - 1 if ceil_mode else 0)) // strides[k] + 1)
    made: Array = np.zeros((*x.shape[:2], *out), dtype)
    for o in itertools.product(*map(range, out)):
        places, count = [], 1
        for k, v in enumerate(o):
            taps = [v * strides[k] - padding_before[k] + t * dilation[k] for t in range(kernel[k])]
            places.append([t for t in taps if 0 <= t < x.shape[2 + k]])
            count *= (
                sum(t < x.shape[2 + k] + padding_after[k] for t in taps)
                if count_include_pad
                else len(places[-1])
            )
        own = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *places)]
        axes = tuple(range(2, x.ndim))
        if 0 in own.shape:
            lowest = pool_type == "max" and not count_include_pad
            value: Any = np.finfo(dtype).min if lowest else 0
        else:
            value = own.max(axes) if pool_type == "max" else own.sum(axes) / max(count, 1)
        made[(..., *o)] = value
    return made.transpose([("NC" + spatial).index(c) for c in layout])


def adaptive_pool(np_data: Array, out_size: Any, pool_type: str, layout: str) -> Array:
    spatial = [d for d, c in enumerate(layout) if c in "DHW"]
    goal = _spatial(out_size, len(spatial))
    found = np_data
    for d, n in zip(spatial, goal, strict=True):
        e = found.shape[d]
        parts = [np.arange(k * e // n, -(-(k + 1) * e // n)) for k in range(n)]
        pick = np.max if pool_type == "max" else np.mean
        found = np.concatenate([pick(found.take(p, d), d, keepdims=True) for p in parts], d)
    return found


def batch_matmul(
    x: Array, y: Array, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    a = x.swapaxes(1, 2) if trans_x else x
    b = y.swapaxes(1, 2) if trans_y else y
    return np.matmul(a, b).astype(out_dtype or x.dtype)


def dense(
    x: Array,
    y: Array,
    bias: Any = None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: Any = None,
) -> Array:
    out = x.astype(out_dtype or x.dtype) @ y.T.astype(out_dtype or x.dtype)
    out = out + bias if use_bias else out
    return np.maximum(out, 0) if use_relu else out


def get_injective_schedule(target: Any) -> Callable[..., Any]:
    return schedules.schedule_any


def get_conv2d_nchw_implement(target: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A convolution of NCHW, and its schedule."""
    from tilewright.tvm.topi import NN  # whose tables import this package

    return NN["conv2d_nchw"], schedules.schedule_any


get_elemwise_schedule = get_broadcast_schedule = get_reduce_schedule = get_injective_schedule


def dispatch(target: Any, dispatch_map: Any) -> Any:
    """What a table has for a target: by its device or kind, or under "generic"."""
    device = re.search(r"-device=(\w+)", str(target))
    if device and device[1] in dispatch_map:
        return dispatch_map[device[1]]
    kind = str(target).split()[0]
    found = (
        dispatch_map.get("gpu") if kind in ("cuda", "sim", "opencl") else dispatch_map.get("cpu")
    )
    return dispatch_map.get(kind) or found or dispatch_map["generic"]


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    return convolved(a_np, w_np, stride, padding, groups, dilation)


def group_conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any, groups: int = 1
) -> Array:
    return conv_transpose_python(a_np, w_np, stride, padding, output_padding, groups)


conv1d_ncw_python = _in_layout("NCW", "OIW")
conv1d_nwc_python = _in_layout("NWC", "WIO")
conv2d_nhwc_python = _in_layout("NHWC", "HWIO")
conv2d_hwcn_python = _in_layout("HWCN", "HWIO")
conv3d_ndhwc_python = _in_layout("NDHWC", "DHWIO")
conv1d_transpose_ncw_python = conv2d_transpose_nchw_python = conv_transpose_python
conv3d_transpose_ncdhw_python = conv_transpose_python


def conv3d_ncdhw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    return convolved(a_np, w_np, stride, padding, groups)


def adaptive_pool_channel_first(np_data: Array, out_size: Any, pool_type: str) -> Array:
    return adaptive_pool(np_data, out_size, pool_type, "NC" + "DHW"[5 - np_data.ndim :])


def compare_numpy_tvm(
    inputs: Sequence[Array], output: Array, target: Any, device: Any, compute: Any, schedule: Any
) -> None:
    """Compare what ``compute`` makes of arrays, by a schedule, with ``output``.

    Raises :class:`AssertionError` where they differ by more than 1e-4, relative or absolute.
    """
    from tilewright import te
    from tilewright.tvm import nd, programs

    tensors = [te.placeholder(x.shape, str(x.dtype), f"in{k}") for k, x in enumerate(inputs)]
    with make_target(target):
        made = compute(*tensors)
        kernel = programs.build(schedule([made]), [*tensors, made])
    found = nd.array(np.zeros(output.shape, output.dtype), device)
    kernel(*(nd.array(x, device) for x in inputs), found)
    np.testing.assert_allclose(found.numpy(), output, rtol=1e-4, atol=1e-4)
