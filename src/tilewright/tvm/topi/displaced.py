"""topi's sums over windows whose places are data, or run over a neighbourhood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.te.arithmetic import elementwise
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.transform import integers
from tilewright.tvm.topi.windows import numbers, pad, padding_of


def bilinear(data: Tensor, layout: str, at: dict[str, Any]) -> Any:
    """The value of an image between its elements, at real places "H" and "W" that are inside."""
    size = dict(zip(layout, data.shape, strict=True))
    low: dict[str, Any] = {}
    part: dict[str, Any] = {}
    for c in "HW":
        whole = te.floor(at[c])
        low[c], part[c] = whole.astype("int32"), at[c] - whole

    def corner(down: int, right: int) -> Any:
        place = {"N": at["N"], "C": at["C"]}
        for c, step in (("H", down), ("W", right)):
            place[c] = nearest(low[c] + step, size[c])
        return data(*(place[c] for c in layout))

    top, bottom = (corner(d, 0) * (1.0 - part["W"]) + corner(d, 1) * part["W"] for d in (0, 1))
    return top * (1.0 - part["H"]) + bottom * part["H"]


def correlation_nchw(
    data1: Tensor, data2: Tensor, kernel_size: int, max_displacement: int, stride1: int,
    stride2: int, padding: Any, is_multiply: bool,
) -> Any:  # fmt: skip
    """The mean product of windows of two images, or the mean of their differences' absolute values,
    for each displacement of the second, row by row along the channels of the result."""
    if kernel_size % 2 != 1:
        raise LanguageError(f"correlation_nchw: kernel_size is to be odd, got {kernel_size}")
    before, behind = padding_of(padding, [kernel_size, kernel_size])
    x, y = (pad(t, [0, 0, *before], [0, 0, *behind]) for t in (data1, data2))
    n, c, h, w = x.shape
    radius = max_displacement // stride2
    side = 2 * radius + 1
    border = 2 * (max_displacement + (kernel_size - 1) // 2)
    rc, ry, rx = (te.reduce_axis((0, e), f"r{k}") for k, e in enumerate((c, *[kernel_size] * 2)))
    shape = (n, side * side, *(te.floordiv(e - border + stride1 - 1, stride1) for e in (h, w)))

    def element(b: Any, q: Any, i: Any, j: Any) -> Any:
        far = ((te.floordiv(q, side) - radius) * stride2, (te.floormod(q, side) - radius) * stride2)
        at = (i * stride1 + max_displacement + ry, j * stride1 + max_displacement + rx)
        first, second = x(b, rc, *at), y(b, rc, *(v + d for v, d in zip(at, far, strict=True)))
        value = first * second if is_multiply else te.abs(first - second)
        return te.sum(value, axis=[rc, ry, rx])

    total = te.compute(shape, element, "correlation_sum", tag="correlation_nchw")
    count = ops.cast(data1.dtype, ops.mul(c, kernel_size * kernel_size))
    return elementwise(lambda v: v / count, total, name="correlation")


def _deformable(layout: str, kernel_layout: str) -> Callable[..., Any]:
    def function(
        data: Tensor, offset: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any,
        deformable_groups: int, groups: int, out_dtype: Any = None,
    ) -> Any:  # fmt: skip
        if groups != 1:
            raise LanguageError("deformable_conv2d: groups are not supported")
        size = dict(zip(kernel_layout, kernel.shape, strict=True))
        extent, goal = (dict(zip(layout, t.shape, strict=True)) for t in (data, offset))
        steps, holes = numbers(strides, 2, "strides"), numbers(dilation, 2, "dilation")
        kh, kw = integers([size["H"], size["W"]])
        before, _ = padding_of(
            padding, [(k - 1) * d + 1 for k, d in zip((kh, kw), holes, strict=True)]
        )
        each = te.floordiv(size["I"], deformable_groups)

        def moved(n: Any, c: Any, h: Any, w: Any, y: Any, x: Any) -> Any:
            first = (te.floordiv(c, each) * (kh * kw) + h * kw + w) * 2
            place = {"N": n, "C": c}
            inside = []
            for k, (axis, tap, at) in enumerate((("H", h, y), ("W", w, x))):
                own = {"N": n, "C": first + k, "H": y, "W": x}
                real = offset(*(own[v] for v in layout))
                start = at * steps[k] - before[k] + tap * holes[k]
                place[axis] = real + start.astype(real.dtype)
                limit = ops.cast(real.dtype, extent[axis])
                inside += [place[axis] >= te.const(0, real.dtype), place[axis] < limit]
            value = bilinear(data, layout, place)
            return te.if_then_else(te.all(*inside), value, te.const(0, value.dtype))

        shape = (extent["N"], extent["C"], kh, kw, goal["H"], goal["W"])
        read = te.compute(shape, moved, "data_deform", tag="data_deform")
        taps = {c: te.reduce_axis((0, size[c]), f"r{c.lower()}") for c in "IHW"}
        out = str(out_dtype or data.dtype)

        def element(*i: Any) -> Any:
            at = dict(zip(layout, i, strict=True))
            tap = {**taps, "O": at["C"]}
            value = read(at["N"], *(taps[c] for c in "IHW"), at["H"], at["W"]).astype(out)
            weight = kernel(*(tap[c] for c in kernel_layout)).astype(out)
            return te.sum(value * weight, axis=list(taps.values()))

        sizes = {"N": extent["N"], "C": size["O"], "H": goal["H"], "W": goal["W"]}
        name = f"deformable_conv2d_{layout.lower()}"
        return te.compute(tuple(sizes[c] for c in layout), element, name, tag=name)

    return function


def _region(rois: Tensor, i: Any, images: Any) -> tuple[Any, Sequence[Any]]:
    """The image of a region of interest, and its left, upper, right and lower ends."""
    image = nearest(rois(i, 0).astype("int32"), images)
    return image, [rois(i, k) for k in range(1, 5)]


def _roi_align(layout: str) -> Callable[..., Any]:
    def function(
        data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, mode: Any = "avg",
        sample_ratio: int = -1,
    ) -> Any:  # fmt: skip
        """The mean (mode 0) or the largest (mode 1) of values between elements, in as many parts of
        regions (image, left, upper, right, lower) as ``pooled_size`` says; of each part
        ``sample_ratio`` squared, or one an element where that is not positive."""
        if mode not in (0, 1, b"avg", b"max", "avg", "max"):
            raise LanguageError(f"roi_align: mode {mode!r} is neither 'avg' nor 'max'")
        mean, type = mode in (0, b"avg", "avg"), rois.dtype
        size = dict(zip(layout, data.shape, strict=True))
        parts = dict(zip("HW", numbers(pooled_size, 2, "pooled_size"), strict=True))

        def element(*i: Any) -> Any:
            at = dict(zip(layout, i, strict=True))
            image, (left, up, right, low) = _region(rois, at["N"], size["N"])
            place: dict[str, Any] = {"N": image, "C": at["C"]}
            taps, outside, count = [], [], te.const(1, "int32")
            for c, first, last in (("H", up, low), ("W", left, right)):
                start = first * te.const(spatial_scale, type)
                length = te.max(last * te.const(spatial_scale, type) - start, te.const(1, type))
                part = length / te.const(parts[c], type)
                many: Any = te.const(sample_ratio, "int32")
                if sample_ratio <= 0:
                    many = te.ceil(part).astype("int32")
                tap = te.reduce_axis((0, many), f"r{c.lower()}")
                far = (tap.var.astype(type) + te.const(0.5, type)) * part / many.astype(type)
                real = start + at[c].astype(type) * part + far
                limit = ops.cast(type, size[c])
                outside += [real < te.const(-1, type), real > limit]
                place[c] = te.max(te.min(real, limit - te.const(1, type)), te.const(0, type))
                taps.append(tap)
                count = count * many
            value = bilinear(data, layout, place)
            value = te.if_then_else(te.any(*outside), te.const(0, value.dtype), value)
            if mean:
                return te.sum(value / count.astype(value.dtype), axis=taps)
            return te.max(value, axis=taps)

        shape: dict[str, Any] = {"N": rois.shape[0], "C": size["C"], **parts}
        tag = f"pool,roi_align_{layout.lower()}"
        return te.compute(tuple(shape[c] for c in layout), element, "roi_align", tag=tag)

    return function


def roi_pool_nchw(data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float) -> Any:
    """The largest element of each part of regions (image, left, upper, right, lower); of a part
    outside of the image, 0."""
    parts = dict(zip("HW", numbers(pooled_size, 2, "pooled_size"), strict=True))
    size = dict(zip("NCHW", data.shape, strict=True))
    type = rois.dtype

    def ends(c: str, o: Any, first: Any, last: Any) -> tuple[Any, Any]:
        low, high = (
            te.round(v * te.const(spatial_scale, type)).astype("int32") for v in (first, last)
        )
        part = te.max(high - low + 1, 1).astype(type) / te.const(parts[c], type)
        small, place = te.const(1e-5, type), o.astype(type)
        start = te.floor(place * part + small).astype("int32") + low
        stop = te.ceil((place + te.const(1, type)) * part - small).astype("int32") + low
        return te.max(te.min(start, size[c]), 0), te.max(te.min(stop, size[c]), 0)

    def element(n: Any, c: Any, y: Any, x: Any) -> Any:
        image, (left, up, right, low) = _region(rois, n, size["N"])
        place, taps = [], []
        for axis, o, first, last in (("H", y, up, low), ("W", x, left, right)):
            start, stop = ends(axis, o, first, last)
            taps.append(te.reduce_axis((0, stop - start), f"r{axis.lower()}"))
            place.append(nearest(start + taps[-1].var, size[axis]))
        return te.max(data(image, c, *place), axis=taps)

    shape = (rois.shape[0], size["C"], parts["H"], parts["W"])
    most = te.compute(shape, element, "roi_pool_max", tag="pool,roi_pool")

    def filled(n: Any, c: Any, y: Any, x: Any) -> Any:
        _, (left, up, right, low) = _region(rois, n, size["N"])
        (a, b), (d, e) = ends("H", y, up, low), ends("W", x, left, right)
        value = most(n, c, y, x)
        return te.Select(te.all(a < b, d < e), value, te.const(0, value.dtype))

    return te.compute(shape, filled, "roi_pool", tag="elemwise")


NN: dict[str, Callable[..., Any]] = {
    "correlation_nchw": correlation_nchw,
    "deformable_conv2d_nchw": _deformable("NCHW", "OIHW"),
    "deformable_conv2d_nhwc": _deformable("NHWC", "HWIO"),
}
VISION: dict[str, Callable[..., Any]] = {
    "roi_align_nchw": _roi_align("NCHW"),
    "roi_align_nhwc": _roi_align("NHWC"),
    "roi_pool_nchw": roi_pool_nchw,
}
