"""ONNX's RoiAlign: what detectors read of the regions of an image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.errors import NeedsData
from tilewright.graph.onnx.control import row_of
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Constant, Value

#: Elements that are read along a dimension of a region, at most.
_MOST = 1 << 12


def _counts(n: Operation, part: Value) -> np.ndarray[Any, Any]:
    """How many elements are read along a part of each region: as many as it is long, or as the
    node says."""
    given = n.attribute("sampling_ratio", 0)
    if given > 0:
        return np.full((1, 1, 1), given)
    if not isinstance(part, Constant):
        what = f"{n.kind} {n.name}: how many elements it reads depends on its regions"
        raise NeedsData(what, n[1])
    found: np.ndarray[Any, Any] = np.maximum(np.ceil(part.array), 1)
    return found


def _ends(
    n: Operation, low: Value, part: Value, parts: int, extent: int, shared: bool
) -> list[tuple[Value, Value]]:
    """The elements on either side of each place that is read, (regions, parts, places), and their
    weights, by how near they are and, where it is ``shared``, how many places a part has."""
    counts = _counts(n, part)
    most = int(counts.max(initial=1))
    if most * parts > _MOST:
        raise n.error(f"it reads {most * parts} elements along a dimension of a region")
    # Regions that have fewer places read their last ones again, which count for nothing.
    places = np.arange(most).reshape(1, 1, -1)
    place = constant(np.minimum(places, counts - 1) + 0.5, part.dtype)
    step = n("divide", n("multiply", place, part), constant(counts, part.dtype))
    first = n("multiply", constant(np.arange(parts).reshape(1, -1, 1), part.dtype), part)
    at = n("add", n("add", low, first), step)
    inside = n("logical_and", n("greater_equal", at, -1.0), n("less_equal", at, float(extent)))
    weight = cast(inside, part.dtype)
    if shared:
        weight = n("multiply", weight, constant((places < counts) / counts, part.dtype))
    at = n("clip", at, low=0.0, high=float(extent - 1))
    below = n("floor", at)
    far = n("subtract", at, below)
    above = n("minimum", n("add", below, 1.0), float(extent - 1))
    near = n("multiply", weight, n("subtract", 1.0, far))
    return [(cast(below, "int32"), near), (cast(above, "int32"), n("multiply", weight, far))]


def _roi_align(n: Operation) -> Value:
    """Of each part of regions (x, y, x, y) of images the mean of values between elements, or the
    largest of their weighted elements."""
    x, rois, batch = n[0], n[1], n[2]
    count, mode = rois.shape[0], n.attribute("mode", b"avg").decode()
    parts = n.attribute("output_height", 1), n.attribute("output_width", 1)
    given = n.attribute("coordinate_transformation_mode", b"half_pixel")
    centred = n.opset >= 16 and given == b"half_pixel"
    if x.rank != 4 or rois.shape != (count, 4) or batch.shape != (count,) or min(parts) < 1:
        raise n.error(f"regions of {rois.shape} of {batch.shape} images in {x.shape}")
    if mode not in ("avg", "max"):
        raise n.error(f"there is no mode {mode!r}")
    batches, channels, *image = x.shape
    wide = "float64" if x.dtype == "float64" else "float32"
    corners = n("multiply", cast(rois, wide), float(n.attribute("spatial_scale", 1.0)))
    corners = n("subtract", corners, 0.5) if centred else corners
    each: list[list[tuple[Value, Value]]] = []
    for d, extent in enumerate(image):
        low, high = (reshape(row_of(n, corners, 1, k), (count, 1, 1)) for k in (1 - d, 3 - d))
        size = n("subtract", high, low)
        part = n("divide", size if centred else n("maximum", size, 1.0), float(parts[d]))
        found = _ends(n, low, part, parts[d], extent, mode == "avg")
        # (regions, parts down, parts across, places down, places across)
        shape = [count, 1, 1, 1, 1]
        shape[1 + d], shape[3 + d] = found[0][1].shape[1:]
        each.append([(reshape(i, tuple(shape)), reshape(w, tuple(shape))) for i, w in found])
    lines = reshape(n("transpose", x, axes=(0, 2, 3, 1)), (batches * math.prod(image), channels))
    start = n("multiply", cast(reshape(batch, (count, 1, 1, 1, 1)), "int32"), math.prod(image))
    total: Value | None = None
    for (row, a), (column, b) in itertools.product(*each):
        place = n("add", n("add", n("multiply", row, image[1]), column), start)
        weight = n("multiply", a, b)
        value = cast(n("take", lines, place, axis=0), wide)
        value = n("multiply", value, reshape(weight, (*weight.shape, 1)))
        total = value if total is None else n("add" if mode == "avg" else "maximum", total, value)
    assert total is not None
    made = n("sum" if mode == "avg" else "max", total, axis=(3, 4), keepdims=False)
    return cast(n("transpose", made, axes=(0, 3, 1, 2)), x.dtype)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {"RoiAlign": _roi_align}
