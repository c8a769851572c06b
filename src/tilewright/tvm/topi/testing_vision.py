"""What operators at computed places, and gradients, compute, in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.tvm.topi.windows import padding_of

Array = Any


def _two(value: Any) -> list[int]:
    return [value] * 2 if isinstance(value, int) else [int(v) for v in value]


# -- places between elements -------------------------------------------------------------------


def _cubic(t: Array) -> list[Array]:
    a = -0.75
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((d * a - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    return [far[0], *near, far[1]]


def _reflected(x: Array, size: int, align_corners: bool) -> Array:
    low, span = (0.0, max(size - 1, 1)) if align_corners else (-0.5, size)
    far = np.abs(x - low)
    times = np.floor(far / span)
    extra = far - times * span
    back = np.where(times % 2 == 0, extra + low, span - extra + low)
    inside = (x >= low) & (x <= span + low)
    return np.clip(np.where(inside, x, back), 0, size - 1)


def grid_sample_python(
    data: Array, grid: Array, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = True,
) -> Array:  # fmt: skip
    """Elements at the places of ``grid``, (x, y) or (x, y, z) from -1 to 1 along dimension 1."""
    sizes, rank = data.shape[2:], data.ndim - 2
    taps: list[list[tuple[Array, Array]]] = []
    for k, size in enumerate(sizes):
        at = grid[:, rank - 1 - k].astype("float64")
        at = (at + 1) * (size - 1) / 2 if align_corners else (at + 1) * size / 2 - 0.5
        if method != "bicubic" and padding_mode == "reflection":
            at = _reflected(at, size, align_corners)
        if method != "bicubic" and padding_mode == "border":
            at = np.clip(at, 0, size - 1)
        low = np.floor(at)
        if method == "nearest":
            found = [(np.trunc(at + np.where(at > 0, 0.5, -0.5)), np.ones_like(at))]
        elif method == "bilinear":
            found = [(low, 1 - (at - low)), (low + 1, at - low)]
        else:
            found = [(low - 1 + n, w) for n, w in enumerate(_cubic(at - low))]
        if method == "bicubic" and padding_mode == "reflection":
            found = [(_reflected(p, size, align_corners), w) for p, w in found]
        taps.append(found)
    made = np.zeros((*data.shape[:2], *grid.shape[2:]))
    batch = np.arange(data.shape[0]).reshape(-1, *[1] * rank)
    for chosen in itertools.product(*taps):
        inside, weight, index = np.ones(grid[:, 0].shape, bool), 1.0, []
        for (place, w), size in zip(chosen, sizes, strict=True):
            inside &= (place >= 0) & (place < size)
            index.append(np.clip(place, 0, size - 1).astype(int))
            weight = weight * w
        values = np.moveaxis(data[(batch, slice(None), *index)], -1, 1)
        kept = inside if padding_mode == "zeros" else np.ones_like(inside)
        made += values * (weight * kept)[:, None]
    return made


def affine_grid_python(data: Array, target_shape: Any) -> Array:
    """The places that matrices (N, 2, 3) send a grid from -1 to 1 to: (N, 2, H, W)."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, e) for e in target_shape), indexing="ij")
    return np.einsum("nij,jyx->niyx", data, np.stack([x, y, np.ones_like(x)]))


def crop_and_resize_python(
    image: Array, boxes: Array, box_indices: Array, crop_size: Any, layout: str,
    method: str = "bilinear", extrapolation_value: float = 0,
) -> Array:  # fmt: skip
    """Boxes (y1, x1, y2, x2), in parts of the image, resized to one size."""
    x = image if layout == "NCHW" else image.transpose(0, 3, 1, 2)
    made = np.full((len(boxes), x.shape[1], *crop_size), float(extrapolation_value))
    for n, box in enumerate(boxes):
        places = [
            low * (e - 1) + np.arange(goal) * np.float32((e - 1) * (high - low)) / (goal - 1)
            for low, high, e, goal in zip(box[:2], box[2:], x.shape[2:], crop_size, strict=True)
        ]
        for r, c in itertools.product(*(range(len(p)) for p in places)):
            at = [places[0][r], places[1][c]]
            if not all(0 <= v <= e - 1 for v, e in zip(at, x.shape[2:], strict=True)):
                continue
            source = x[box_indices[n]]
            if method == "bilinear":
                made[n, :, r, c] = _between(source, at)
            else:
                made[n, :, r, c] = source[(slice(None), *(int(np.round(v)) for v in at))]
    return made if layout == "NCHW" else made.transpose(0, 2, 3, 1)


def _between(image: Array, at: Sequence[float]) -> Array:
    """The values of an image (C, H, W) between its elements, at a place that is inside."""
    value = image
    for v in at:
        low = int(np.floor(v))
        high = min(low + 1, value.shape[1] - 1)
        value = value[:, low] * (1 - (v - low)) + value[:, high] * (v - low)
    return value


def correlation_nchw_python(
    data1: Array, data2: Array, kernel_size: int, max_displacement: int, stride1: int,
    stride2: int, padding: int, is_multiply: bool,
) -> Array:  # fmt: skip
    """The mean of products or differences of windows, for each displacement of the second."""
    around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    x: Any = np.pad(data1, around)
    y: Any = np.pad(data2, around)
    border, radius = max_displacement + (kernel_size - 1) // 2, max_displacement // stride2
    out = [(e - 2 * border) // stride1 for e in x.shape[2:]]
    moves = list(itertools.product(range(-radius, radius + 1), repeat=2))
    made = np.zeros((x.shape[0], len(moves), *out))
    for q, move in enumerate(moves):
        for i, j in np.ndindex(*out):
            first, second = [], []
            for v, far in zip((i, j), move, strict=True):
                start = v * stride1 + max_displacement
                first.append(slice(start, start + kernel_size))
                second.append(slice(start + far * stride2, start + far * stride2 + kernel_size))
            a, b = x[(..., *first)], y[(..., *second)]
            values = a * b if is_multiply else np.abs(a - b)
            made[:, q, i, j] = values.sum((1, 2, 3)) / (kernel_size**2 * x.shape[1])
    return made


def deformable_conv2d_nchw_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int,
) -> Array:  # fmt: skip
    """A convolution whose taps are displaced by real offsets, 0 outside of the image."""
    steps, holes, size = _two(stride), _two(dilation), w_np.shape[2:]
    before, _ = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(size, holes, strict=True)])
    each = a_np.shape[1] // deformable_groups
    n, _, *out = offset_np.shape
    read = np.zeros((n, a_np.shape[1], *size, *out))
    for b, g, h, w, y, x in np.ndindex(n, deformable_groups, *size, *out):
        first = (g * size[0] * size[1] + h * size[1] + w) * 2
        at = [
            v * steps[k] - before[k] + tap * holes[k] + offset_np[b, first + k, y, x]
            for k, (v, tap) in enumerate(((y, h), (x, w)))
        ]
        own = slice(g * each, (g + 1) * each)
        if all(0 <= v < e for v, e in zip(at, a_np.shape[2:], strict=True)):
            read[b, own, h, w, y, x] = _between(a_np[b, own], at)
    return np.einsum("nchwyx,ochw->noyx", read, w_np).astype(a_np.dtype)


def deformable_conv2d_nhwc_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int,
) -> Array:  # fmt: skip
    made = deformable_conv2d_nchw_python(
        a_np.transpose(0, 3, 1, 2), offset_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1),
        stride, padding, dilation, deformable_groups, groups,
    )  # fmt: skip
    return made.transpose(0, 2, 3, 1)


def roi_align_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    mode: Any = b"avg",
) -> Array:  # fmt: skip
    """The mean or the largest of values between elements in each part of regions."""
    parts, pick = _two(pooled_size), np.mean if mode in (b"avg", "avg", 0) else np.max
    made = np.zeros((len(rois_np), a_np.shape[1], *parts))
    for n, roi in enumerate(rois_np):
        image = a_np[int(roi[0])]
        places = []
        for k in (0, 1):
            low, high = roi[2 - k] * spatial_scale, roi[4 - k] * spatial_scale
            part = max(high - low, 1.0) / parts[k]
            many = sample_ratio if sample_ratio > 0 else int(np.ceil(part))
            places.append(
                [[low + o * part + (t + 0.5) * part / many for t in range(many)]
                 for o in range(parts[k])]
            )  # fmt: skip
        for y, x in np.ndindex(*parts):
            values = []
            for at in itertools.product(places[0][y], places[1][x]):
                if any(v < -1 or v > e for v, e in zip(at, image.shape[1:], strict=True)):
                    values.append(np.zeros(image.shape[0]))
                    continue
                inside = [min(max(v, 0), e - 1) for v, e in zip(at, image.shape[1:], strict=True)]
                values.append(_between(image, inside))
            made[n, :, y, x] = pick(np.stack(values), 0)
    return made


def roi_align_nhwc_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    mode: Any = b"avg",
) -> Array:  # fmt: skip
    made = roi_align_nchw_python(
        a_np.transpose(0, 3, 1, 2), rois_np, pooled_size, spatial_scale, sample_ratio, mode
    )
    return made.transpose(0, 2, 3, 1)


def roi_pool_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Any, spatial_scale: float
) -> Array:
    """The largest element of each part of regions; of a part outside of the image, 0."""
    parts = _two(pooled_size)
    made = np.zeros((len(rois_np), a_np.shape[1], *parts), a_np.dtype)
    for n, roi in enumerate(rois_np):
        image, ends = a_np[int(roi[0])], []
        for k in (0, 1):
            # halves away from zero, as roundf does
            low, high = (
                int(np.floor(abs(v) + 0.5) * np.sign(v))
                for v in (roi[2 - k] * spatial_scale, roi[4 - k] * spatial_scale)
            )
            part = float(max(high - low + 1, 1)) / parts[k]
            ends.append(
                [
                    (int(np.floor(o * part)) + low, int(np.ceil((o + 1) * part)) + low)
                    for o in range(parts[k])
                ]
            )
        for y, x in np.ndindex(*parts):
            (a, b), (c, d) = ends[0][y], ends[1][x]
            own = image[:, max(a, 0) : max(b, 0), max(c, 0) : max(d, 0)]
            made[n, :, y, x] = own.max((1, 2)) if own.size else 0
    return made


def reorg_python(a_np: Array, stride: int) -> Array:
    """Darknet's rearrangement of an image."""
    n, c, h, w = a_np.shape
    wide = c // stride**2
    source = a_np.reshape(n, wide, h, stride, w, stride).transpose(0, 3, 5, 1, 2, 4)
    return source.reshape(n, c * stride**2, h // stride, w // stride)


# -- gradients and losses ----------------------------------------------------------------------


def pool_grad_nchw(
    a_np: Array, out_grad_np: Array, pool_size: Any, strides: Any, padding: Any, pool_type: str,
    ceil_mode: bool, count_include_pad: bool = True,
) -> Array:  # fmt: skip
    """The gradient of a pool with respect to its input."""
    top, left, bottom, right = padding
    around = [(0, 0), (0, 0), (top, bottom), (left, right)]
    none = 0.0 if pool_type == "avg" else -np.inf
    x: Any = np.pad(a_np.astype("float64"), around, constant_values=none)
    real = np.pad(np.ones(a_np.shape[2:]), around[2:])
    made: Any = np.zeros(x.shape)
    for i, j in np.ndindex(*out_grad_np.shape[2:]):
        own = tuple(
            slice(v * s, v * s + k) for v, s, k in zip((i, j), strides, pool_size, strict=True)
        )
        window = x[(..., *own)]
        grad = out_grad_np[:, :, i, j]
        if pool_type == "avg":
            count = window[0, 0].size if count_include_pad else real[own].sum()
            made[(..., *own)] += (grad / max(count, 1))[..., None, None]
            continue
        flat = window.reshape(*window.shape[:2], -1)
        hit = np.eye(flat.shape[-1])[flat.argmax(-1)].reshape(window.shape)
        made[(..., *own)] += hit * grad[..., None, None]
    return made[:, :, top : top + a_np.shape[2], left : left + a_np.shape[3]]


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean",
    ignore_index: int = -100,
) -> Array:  # fmt: skip
    """Minus the weighted prediction of each target's class."""
    counted = targets != ignore_index
    classes = np.where(counted, targets, 0)
    d = 1 if predictions.ndim > 1 else 0
    own = np.take_along_axis(predictions, np.expand_dims(classes, d), d).squeeze(d)
    shares = weights[classes] * counted
    losses = -own * shares
    if reduction == "none":
        return losses
    return losses.sum() / max(shares.sum(), 1e-30) if reduction == "mean" else losses.sum()


def lstm_python(
    Xs: Array, Wi: Array, Wh: Array, Bi: Any = None, Bh: Any = None, h_init: Any = None,
    c_init: Any = None, proj: Any = None, p_i: Any = None, p_f: Any = None, p_o: Any = None,
    f_act: Any = None, g_act: Any = None, h_act: Any = None, reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Array, Array]:  # fmt: skip
    """Hidden states and cells of an LSTM, a row a step."""
    f_act = f_act or (lambda x: 1 / (1 + np.exp(-x)))
    g_act, h_act = g_act or np.tanh, h_act or np.tanh
    batch, hidden = Xs.shape[1], Wi.shape[0] // 4
    h = np.zeros((batch, Wh.shape[1])) if h_init is None else h_init
    c = np.zeros((batch, hidden)) if c_init is None else c_init
    hs, cs = [], []
    for x in Xs[::-1] if reverse else Xs:
        gates = x @ Wi.T + h @ Wh.T
        gates = gates + (0 if Bi is None else Bi) + (0 if Bh is None else Bh)
        gate = dict(zip(weight_layout, np.split(gates, 4, 1), strict=True))
        i = f_act(gate["I"] + (0 if p_i is None else p_i * c))
        f = f_act(gate["F"] + (0 if p_f is None else p_f * c))
        c = f * c + i * g_act(gate["G"])
        h = f_act(gate["O"] + (0 if p_o is None else p_o * c)) * h_act(c)
        h = h if proj is None else h @ proj.T
        hs.append(h)
        cs.append(c)
    return np.stack(hs), np.stack(cs)


def l2_normalize_python(a_np: Array, eps: float, axis: Any = None) -> Array:
    """An array over the root of its sums of squares, of which the least is ``eps``."""
    total = (a_np**2).sum(None if axis is None else tuple(axis), keepdims=True)
    return a_np / np.sqrt(np.maximum(total, eps))


def slice_axis_python(data: Array, axis: int, begin: int, end: Any = None) -> Array:
    """The elements from ``begin`` to ``end`` along an axis."""
    cut = [slice(None)] * data.ndim
    cut[axis] = slice(begin, end)
    return data[tuple(cut)]


def depthwise_conv2d_python_nchwc(
    input_np: Array, filter_np: Array, stride: Any, padding: Any
) -> Array:
    """A depthwise convolution of channels in parts."""
    from tilewright.tvm.topi.testing import depthwise_conv2d_python_nchw

    n, chunks, h, w, block = input_np.shape
    x = input_np.transpose(0, 1, 4, 2, 3).reshape(n, chunks * block, h, w)
    out_chunks, more, kh, kw, inner, out_block = filter_np.shape
    kernel = filter_np.transpose(0, 5, 1, 4, 2, 3)
    kernel = kernel.reshape(out_chunks * out_block, more * inner, kh, kw)
    made = depthwise_conv2d_python_nchw(x, kernel, stride, padding)
    apart = made.reshape(n, out_chunks, out_block, *made.shape[2:])
    return apart.transpose(0, 1, 3, 4, 2)
