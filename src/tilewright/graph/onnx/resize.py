"""ONNX's Resize: dimension by dimension, by tables of places and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Value

Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Line:
    """How one dimension is resized.

    Attributes
    ----------
    extent, out : before and after.
    scale : ``out / extent``, before it is rounded.
    begin, end : the part of it that is taken, in the mode "tf_crop_and_resize".
    """

    extent: int
    out: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    def places(self, mode: str) -> Table:
        """Where in the dimension each result lies, by ONNX's transformation of coordinates."""
        i, n, out, scale = np.arange(self.out), self.extent, self.out, self.scale
        half = (i + 0.5) / scale - 0.5
        if mode == "half_pixel":
            return half
        if mode == "half_pixel_symmetric":
            return n / 2 * (1 - out / (scale * n)) + half
        if mode == "pytorch_half_pixel":
            return half if out > 1 else np.zeros(1)
        if mode == "asymmetric":
            return i / scale
        if mode == "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        if mode == "align_corners":
            return i * ((n - 1) / (out - 1)) if out > 1 else np.zeros(1)
        if mode == "tf_crop_and_resize":
            # In the type of the region, by which what lies between two elements is near one.
            begin, end, last = np.float32(self.begin), np.float32(self.end), np.float32(n - 1)
            if out == 1:
                return np.full(1, np.float32(0.5) * (begin + end) * last)
            return begin * last + i.astype("float32") * (end - begin) * last / np.float32(out - 1)
        raise ValueError(mode)


def _rounded(places: Table, mode: str) -> Table:
    """The nearest element; of two, by ONNX's ``nearest_mode``."""
    if mode == "floor":
        return np.floor(places)
    if mode == "ceil":
        return np.ceil(places)
    if mode == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return np.ceil(places - 0.5)


def linear(x: Table) -> Table:
    made: Table = np.clip(1 - np.abs(x), 0, 1)
    return made


def cubic(a: float) -> Callable[[Table], Table]:
    """Keys' kernel (1981)."""

    def of(x: Table) -> Table:
        x = np.abs(x)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0))

    return of


def table(
    line: Line, places: Table, kernel: Callable[[Table], Table], reach: int, smooth: bool,
    outside: bool,
) -> tuple[Table, Table]:  # fmt: skip
    """The elements that each result is a sum of, and their weights: of a kernel that is 0 from
    ``reach`` on, made wider where ``smooth`` and fewer elements are made than there are. Without
    ``outside`` those beyond the ends weigh nothing."""
    scale = min(line.scale, 1.0) if smooth else 1.0
    first = math.floor(-reach / scale) + 1
    taps = np.arange(first, 2 - first)
    base = np.ceil(places) - 1
    at = (base[:, None] + taps).astype(np.int64)
    weights = kernel((at - places[:, None]) * scale)
    if not outside:
        weights = np.where((at >= 0) & (at < line.extent), weights, 0)
    if smooth or not outside:
        weights = weights / weights.sum(1, keepdims=True)
    used = np.any(weights != 0, axis=0)
    return np.clip(at, 0, line.extent - 1)[:, used], weights[:, used]


def _lines(n: Operation) -> dict[int, Line]:
    """The dimensions that change, by number."""
    x = n[0]
    axes = [n.axis(a, x.rank) for a in n.attribute("axes", range(x.rank))]
    at_scales = 2 if n.kind == "Resize" and n.opset >= 11 else 1
    sizes = n.integers(3, "sizes") if n.has(3) else ()
    if n.kind == "Upsample" and n.opset < 9:
        scales: Sequence[float] = n.attribute("scales")
    elif sizes:
        scales = _from_sizes(n, sizes, axes)
        policy = n.attribute("keep_aspect_ratio_policy", b"stretch").decode()
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * len(axes)
            sizes = tuple(math.floor(x.shape[a] * scale + 0.5) for a in axes)
    else:
        scales = n.array(at_scales, "scales").reshape(-1).tolist()
    if len(scales) != len(axes) or (sizes and len(sizes) != len(axes)) or min(scales) <= 0:
        raise n.error(f"scales {tuple(scales)} for {len(axes)} dimensions")
    out = sizes or [math.floor(x.shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if n.has(1) and at_scales == 2 and n[1].shape != (0,):
        roi = n.array(1, "roi").reshape(-1).tolist()
    return {
        a: Line(x.shape[a], size, scale, roi[k], roi[len(axes) + k])
        for k, (a, size, scale) in enumerate(zip(axes, out, scales, strict=True))
    }


def _from_sizes(n: Operation, sizes: Sequence[int], axes: Sequence[int]) -> list[float]:
    if len(sizes) != len(axes):
        raise n.error(f"sizes {tuple(sizes)} for {len(axes)} dimensions")
    extents = [n[0].shape[a] for a in axes]
    return [size / e if e else 1.0 for size, e in zip(sizes, extents, strict=True)]


def _resize(n: Operation) -> Value:
    x = n[0]
    old = n.kind == "Upsample" or n.opset < 11
    coordinates = "asymmetric" if old else n.attribute(
        "coordinate_transformation_mode", b"half_pixel"
    ).decode()  # fmt: skip
    mode = n.attribute("mode", b"nearest").decode()
    nearest = "floor" if old else n.attribute("nearest_mode", b"round_prefer_floor").decode()
    crops = coordinates == "tf_crop_and_resize"
    found = x
    for axis, line in _lines(n).items():
        if (line.out > 0) != (line.extent > 0):
            raise n.error(f"it would make {line.out} of {line.extent} elements")
        if not line.extent or (line.out == line.extent and line.scale == 1 and not crops):
            continue
        places = line.places(coordinates)
        found = _along(n, found, axis, line, places, mode, nearest)
        beyond = (places < 0) | (places > line.extent - 1)
        if crops and beyond.any():
            shape = [line.out if d == axis else 1 for d in range(x.rank)]
            value = float(n.attribute("extrapolation_value", 0.0))
            found = n("where", constant(beyond.reshape(shape)), value, found)
    return cast(found, x.dtype)


def _along(
    n: Operation, x: Value, axis: int, line: Line, places: Table, mode: str, nearest: str
) -> Value:
    if mode == "nearest":
        at = np.clip(_rounded(places, nearest), 0, line.extent - 1)
        return n("take", x, constant(at.astype(np.int32)), axis=axis)
    kernel, reach = (linear, 1) if mode in ("linear", "bilinear") else (
        cubic(n.attribute("cubic_coeff_a", -0.75)), 2
    )  # fmt: skip
    smooth, outside = bool(n.attribute("antialias", 0)), not n.attribute("exclude_outside", 0)
    at, weights = table(line, places, kernel, reach, smooth, outside)
    wide = "float64" if x.dtype == "float64" else "float32"
    return n(
        "resample", x, constant(at.astype(np.int32)), constant(weights.astype(wide)), axis=axis
    )


CONVERTERS: dict[str, Callable[[Operation], Any]] = {"Resize": _resize, "Upsample": _resize}
