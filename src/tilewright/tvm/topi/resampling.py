"""topi's resampling of images: by the places where elements of the result fall."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.tvm.topi.convolution import dilation2d
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.transform import integers, moved
from tilewright.tvm.topi.windows import check_layout

_SPATIAL = "DHW"


def _place(o: Any, extent: Any, goal: Any, mode: str, roi: Any = None) -> Any:
    """Where element ``o`` of the result falls in the image, a float32."""
    x, size, out = (ops.cast("float32", v) for v in (o, extent, goal))
    if mode == "half_pixel":
        return (x + 0.5) * (size / out) - 0.5
    if mode == "pytorch_half_pixel":
        return te.Select(out > 1.0, (x + 0.5) * (size / out) - 0.5, te.const(0.0))
    if mode == "align_corners":
        return x * ((size - 1.0) / te.max(out - 1.0, 1.0))
    if mode == "asymmetric":
        return x * (size / out)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) * (size / out)
    if mode == "tf_crop_and_resize" and roi is not None:
        low, high = roi
        return low * (size - 1.0) + x * (high - low) * (size - 1.0) / te.max(out - 1.0, 1.0)
    raise LanguageError(f"resize: no coordinate_transformation_mode {mode!r}")


def _nearest(place: Any, rounding: str) -> Any:
    if rounding in ("round", "round_prefer_ceil"):
        return te.floor(place + 0.5)
    if rounding == "round_prefer_floor":
        return te.ceil(place - 0.5)
    if rounding in ("", "floor"):
        return te.floor(place + 1e-5)
    if rounding == "ceil":
        return te.ceil(place - 1e-5)
    raise LanguageError(f"resize: no rounding_method {rounding!r}")


def _weights(place: Any, method: str, rounding: str, alpha: float) -> list[tuple[Any, Any]]:
    """The elements that are read around a place, and what each counts."""
    if method == "nearest_neighbor":
        return [(_nearest(place, rounding).astype("int32"), te.const(1.0))]
    first = te.floor(place)
    t = place - first
    whole = first.astype("int32")
    if method in ("linear", "bilinear", "trilinear"):
        return [(whole, 1.0 - t), (whole + 1, t)]
    if method in ("cubic", "bicubic"):
        a = alpha
        far, near = t + 1.0, 1.0 - t
        return [
            (whole - 1, ((far * a - 5 * a) * far + 8 * a) * far - 4 * a),
            (whole, ((a + 2) * t - (a + 3)) * t * t + 1.0),
            (whole + 1, ((a + 2) * near - (a + 3)) * near * near + 1.0),
            (whole + 2, (((2.0 - t) * a - 5 * a) * (2.0 - t) + 8 * a) * (2.0 - t) - 4 * a),
        ]
    raise LanguageError(f"resize: no method {method!r}")


def _resize(rank: int) -> Callable[..., Any]:
    layout0 = "NC" + _SPATIAL[3 - rank :]

    def function(
        data: Tensor, roi: Any, size: Any, layout: str = layout0, method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
        bicubic_alpha: float = -0.5, bicubic_exclude: int = 0, extrapolation_value: float = 0.0,
        out_dtype: Any = None, output_shape: Any = None,
    ) -> Any:  # fmt: skip
        check_layout(layout, data, layout0[2:], free=True)
        spatial = [d for d, c in enumerate(layout) if c in _SPATIAL]
        goal = list(output_shape or size)
        shape = list(data.shape)
        for d, e in zip(spatial, goal, strict=True):
            shape[d] = ops.as_index(e)
        mode = coordinate_transformation_mode
        rounding = rounding_method
        if method == "nearest_neighbor" and not rounding:
            rounding = "round" if mode == "align_corners" else "floor"
        out = str(out_dtype or data.dtype)

        def element(*i: Any) -> Any:
            reads = []
            for k, d in enumerate(spatial):
                box = None
                if mode == "tf_crop_and_resize":
                    box = ops.as_expr(roi[k]), ops.as_expr(roi[len(spatial) + k])
                place = _place(i[d], data.shape[d], shape[d], mode, box)
                reads.append(_weights(place, method, rounding, bicubic_alpha))
            value = _sampled(data, i, spatial, reads)
            whole = (
                value
                if data.dtype.is_float or not out.startswith(("int", "uint"))
                else te.round(value)
            )
            return whole.astype(out)

        return moved(shape, element, f"resize{rank}d")

    return function


def _sampled(
    data: Tensor, at: Sequence[Any], spatial: Sequence[int], reads: Any, where: Any = None
) -> Any:
    """The sum of elements by their weights, those outside as their nearest neighbours inside, or
    as ``where`` says."""
    terms: list[tuple[list[Any], Any]] = [(list(at), None)]
    for d, choices in zip(spatial, reads, strict=True):
        terms = [
            ([*index[:d], place, *index[d + 1 :]], w if weight is None else weight * w)
            for index, weight in terms
            for place, w in choices
        ]
    values = []
    for index, weight in terms:
        inside = []
        for d in spatial:
            inside += [index[d] >= 0, index[d] < data.shape[d]]
            index[d] = nearest(index[d], data.shape[d])
        value = data(*index).astype("float32")
        if where == "zeros":
            value = te.if_then_else(te.all(*inside), value, te.const(0.0))
        values.append(value if ops.is_const(weight, 1.0) else value * weight)
    return functools.reduce(ops.add, values)


def upsampling(
    data: Tensor, scale_h: Any, scale_w: Any, layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False, output_shape: Any = None,
) -> Any:  # fmt: skip
    check_layout(layout, data, "HW", free=True)
    base = layout[:4].upper()
    extent = dict(zip(base, data.shape, strict=False))
    size = output_shape or [
        round(integers(extent[c])[0] * scale) for c, scale in (("H", scale_h), ("W", scale_w))
    ]
    mode = "align_corners" if align_corners else "asymmetric"
    return _resize(2)(data, None, size, layout, method.removeprefix("bi"), mode, "", -0.5)


def upsampling3d(
    data: Tensor, scale_d: Any, scale_h: Any, scale_w: Any, layout: str = "NCDHW",
    method: str = "nearest_neighbor", coordinate_transformation_mode: str = "half_pixel",
    output_shape: Any = None,
) -> Any:  # fmt: skip
    check_layout(layout, data, "DHW")
    extent = dict(zip(layout, data.shape, strict=False))
    size = output_shape or [
        round(integers(extent[c])[0] * s)
        for c, s in zip("DHW", (scale_d, scale_h, scale_w), strict=True)
    ]
    return _resize(3)(
        data,
        None,
        size,
        layout,
        method.removeprefix("tri"),
        coordinate_transformation_mode,
        "",
        -0.5,
    )


def crop_and_resize(
    data: Tensor, boxes: Tensor, box_indices: Tensor, crop_size: Any, layout: str = "NCHW",
    method: str = "bilinear", extrapolation_value: Any = None, out_dtype: Any = None,
) -> Any:  # fmt: skip
    """Boxes (y1, x1, y2, x2), in parts of the image, resized to one size."""
    check_layout(layout, data, "HW")
    spatial, out = [layout.index("H"), layout.index("W")], str(out_dtype or data.dtype)
    shape = list(data.shape)
    shape[0] = boxes.shape[0]
    for d, e in zip(spatial, integers(crop_size), strict=True):
        shape[d] = ops.const(e)

    def element(*i: Any) -> Any:
        reads, inside = [], []
        for k, d in enumerate(spatial):
            box = boxes(i[0], k), boxes(i[0], 2 + k)
            place = _place(i[d], data.shape[d], shape[d], "tf_crop_and_resize", box)
            inside += [place >= 0.0, place <= ops.cast("float32", data.shape[d] - 1)]
            name = method if method == "nearest_neighbor" else "linear"
            reads.append(_weights(place, name, "round", -0.5))
        image = nearest(box_indices(i[0]).astype("int32"), data.shape[0])
        value = _sampled(data, (image, *i[1:]), spatial, reads)
        return te.Select(te.all(*inside), value, te.const(extrapolation_value or 0.0)).astype(out)

    return moved(shape, element, "crop_and_resize")


def affine_grid(data: Tensor, target_shape: Any) -> Any:
    """The places (x, y) from -1 to 1 that matrices (N, 2, 3) send a grid to: (N, 2, H, W)."""
    height, width = integers(target_shape)

    def element(n: Any, d: Any, y: Any, x: Any) -> Any:
        at = [
            -1.0 + ops.cast("float32", v) * (2.0 / max(e - 1, 1))
            for v, e in ((x, width), (y, height))
        ]
        return data(n, d, 0) * at[0] + data(n, d, 1) * at[1] + data(n, d, 2)

    return moved((data.shape[0], 2, height, width), element, "affine_grid")


def _reflected(x: Any, size: Any, align_corners: bool) -> Any:
    """A place outside of ``size`` elements, reflected at their ends until it is inside."""
    low, span = (0.0, te.max(size - 1.0, 1.0)) if align_corners else (-0.5, size)
    far = te.abs(x - low)
    times = te.floor(far / span)
    extra = far - times * span
    even = (times - te.floor(times * 0.5) * 2.0).equal(0.0)
    back = te.Select(even, extra + low, span - extra + low)
    return te.Select(te.all(x >= low, x <= span + low), x, back)


def grid_sample(
    data: Tensor, grid: Tensor, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = True,
) -> Any:  # fmt: skip
    """Elements at the places of ``grid``, (x, y) or (x, y, z) from -1 to 1 along dimension 1."""
    rank = data.ndim - 2
    if padding_mode not in ("zeros", "border", "reflection"):
        raise LanguageError(
            f"grid_sample: padding_mode {padding_mode!r} is none of zeros, border and reflection"
        )
    cubic = method in ("cubic", "bicubic")  # whose elements are moved inside, not the place

    def element(n: Any, c: Any, *at: Any) -> Any:
        reads = []
        for k in range(rank):
            size = ops.cast("float32", data.shape[2 + k])
            place = grid(n, rank - 1 - k, *at)
            real = (
                (place + 1.0) * ((size - 1.0) * 0.5)
                if align_corners
                else ((place + 1.0) * size - 1.0) * 0.5
            )
            if padding_mode == "reflection" and not cubic:
                real = _reflected(real, size, align_corners)
            if padding_mode != "zeros" and not cubic:
                real = te.max(te.min(real, size - 1.0), 0.0)
            if method == "nearest":
                reads.append([(te.round(real).astype("int32"), te.const(1.0))])
                continue
            found = _weights(real, {"bilinear": "linear"}.get(method, method), "", -0.75)
            if padding_mode == "reflection" and cubic:
                found = [
                    (_reflected(p.astype("float32"), size, align_corners).astype("int32"), w)
                    for p, w in found
                ]
            reads.append(found)
        return _sampled(data, (n, c, *at), range(2, 2 + rank), reads, padding_mode).astype(
            data.dtype
        )

    return moved((*data.shape[:2], *grid.shape[2:]), element, "grid_sample")


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: Any = None
) -> Any:
    return dilation2d(input, filter, stride, padding, dilations, "NCHW", out_dtype)


def dilation2d_nhwc(
    input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: Any = None
) -> Any:
    return dilation2d(input, filter, stride, padding, dilations, "NHWC", out_dtype)


NAMES: dict[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (affine_grid, crop_and_resize, dilation2d_nchw, dilation2d_nhwc, grid_sample)
    },
    "resize1d": _resize(1),
    "resize2d": _resize(2),
    "resize3d": _resize(3),
}
