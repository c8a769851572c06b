"""What resizing computes, in NumPy: a product with a matrix of weights along each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any


def _place(o: int, extent: int, goal: int, mode: str) -> float:
    """Where the output ``o`` of ``goal`` lies among ``extent`` inputs."""
    if mode == "align_corners":
        return o * (extent - 1) / (goal - 1) if goal > 1 else 0.0
    if mode == "half_pixel":
        return (o + 0.5) * extent / goal - 0.5
    if mode == "asymmetric":
        return o * extent / goal
    raise ValueError(f"unknown coordinate_transformation_mode: {mode!r}")


def _taps(place: float, method: str, mode: str) -> list[tuple[int, float]]:
    """Inputs and their weights."""
    if method == "nearest_neighbor":
        return [(math.floor(place + 0.5 * (mode == "align_corners")), 1.0)]
    low = math.floor(place)
    t = place - low
    if method in ("linear", "bilinear", "trilinear"):
        return [(low, 1 - t), (low + 1, t)]
    if method not in ("cubic", "bicubic", "tricubic"):
        raise ValueError(f"unknown method: {method!r}")
    a = -0.5

    def near(d: float) -> float:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: float) -> float:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(low - 1, far(1 + t)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def _weights(extent: int, goal: int, method: str, mode: str) -> Array:
    """The matrix of (goal, extent) that resizes an axis; inputs beyond the edge are those at it."""
    made = np.zeros((goal, extent))
    for o in range(goal):
        for at, weight in _taps(_place(o, extent, goal, mode), method, mode):
            made[o, min(max(at, 0), extent - 1)] += weight
    return made


def _resized(data: Array, scale: Sequence[float], layout: str, method: str, mode: str) -> Array:
    spatial = [c for c in layout if c in "DHW"]
    found = data
    for factor, c in zip(scale, spatial, strict=True):
        axis = [k for k in layout if k.isalpha()].index(c)
        extent = data.shape[axis]
        matrix = _weights(extent, round(extent * factor), method, mode)
        found = np.moveaxis(np.tensordot(matrix, found, (1, axis)), 0, axis)
    return found.astype(data.dtype)


def resize1d_python(
    data: Array,
    scale: Any,
    layout: str = "NCW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """``data`` with its width ``scale`` times as large, for ``topi.image.resize1d``."""
    return _resized(data, scale, layout, method, coordinate_transformation_mode)


def resize2d_python(
    data: Array,
    scale: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """``data`` with height and width ``scale`` times as large, for ``topi.image.resize2d``."""
    return _resized(data, scale, layout, method, coordinate_transformation_mode)


def resize3d_python(
    data: Array,
    scale: Any,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """``data`` with depth, height and width ``scale`` times as large, for
    ``topi.image.resize3d``."""
    return _resized(data, scale, layout, method, coordinate_transformation_mode)
