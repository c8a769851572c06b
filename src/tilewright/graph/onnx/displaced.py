"""ONNX's operators that read images at places that are data, weighted by their distance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.control import row_of
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.products import matmul
from tilewright.graph.onnx.windows import biased, window
from tilewright.graph.value import Value


@dataclass(frozen=True)
class _Line:
    """A dimension that is read from: its extent, and what is beyond its ends."""

    n: Operation
    extent: int
    padding: str
    corners: bool

    def place(self, x: Value) -> Value:
        """Where in the dimension a number from -1 to 1 lies."""
        n, e = self.n, self.extent
        if self.corners:
            return n("multiply", n("add", x, 1.0), (e - 1) / 2)
        return n("add", n("multiply", x, e / 2), (e - 1) / 2)

    def inside(self, x: Value) -> Value:
        """A place that padding brings into the dimension."""
        n, last = self.n, float(self.extent - 1)
        if self.padding == "reflection":
            low, high = (0.0, last) if self.corners else (-0.5, last + 0.5)
            if high == low:
                x = n("multiply", x, 0.0)
            else:  # the way up and the way down again, of which each is `high - low` long
                period = 2 * (high - low)
                x = n("subtract", x, low)
                turns = n("floor", n("multiply", x, 1 / period))
                x = n("subtract", x, n("multiply", turns, period))
                x = n("add", n("minimum", x, n("subtract", period, x)), low)
        if self.padding == "zeros":
            return x
        return n("clip", x, low=0.0, high=last)

    def index(self, x: Value) -> tuple[Value, Value | None]:
        """A whole place as an index, and 1 where there is one, of the type of places."""
        n, last = self.n, float(self.extent - 1)
        safe = n("clip", x, low=0.0, high=last)
        known = cast(n("equal", safe, x), x.dtype) if self.padding == "zeros" else None
        return cast(safe, "int32"), known


def _taps(n: Operation, line: _Line, place: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The whole places that are read for one dimension, each with its weight."""
    if mode == "nearest":
        return [(n("round", line.inside(place)), None)]
    if mode == "linear":
        place = line.inside(place)
        low = n("floor", place)
        high = n("subtract", place, low)
        return [(low, n("subtract", 1.0, high)), (n("add", low, 1.0), high)]
    low = n("floor", place)
    rest = n("subtract", place, low)
    found: list[tuple[Value, Value | None]] = []
    for k in (-1, 0, 1, 2):
        distance = n("abs", n("subtract", rest, float(k)))
        at = n("add", low, float(k))
        found.append((line.inside(at), _cubic(n, distance, k in (0, 1))))
    return found


def _cubic(n: Operation, x: Value, near: bool) -> Value:
    """Keys' kernel (1981) with -0.75, of distances up to 1, or from there to 2."""
    a = -0.75
    powers = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    found = n("multiply", x, powers[0])
    for p in powers[1:-1]:
        found = n("multiply", n("add", found, p), x)
    return n("add", found, powers[-1])


def _grid_sample(n: Operation) -> Value:
    x, grid = n[0], n[1]
    mode = n.attribute("mode", b"linear").decode().removeprefix("bi")
    padding = n.attribute("padding_mode", b"zeros").decode()
    rank = x.rank - 2
    known = mode in ("linear", "nearest", "cubic") and padding in ("zeros", "border", "reflection")
    if rank < 1 or grid.rank != x.rank or grid.shape[-1] != rank or not known or (
        grid.shape[0] != x.shape[0]
    ):  # fmt: skip
        raise n.error(f"{mode} {padding} of {x.shape} at {grid.shape}")
    batch, channels, *image = x.shape
    count = math.prod(grid.shape[1:-1])
    wide = "float64" if grid.dtype == "float64" else "float32"
    flat = reshape(cast(grid, wide), (batch, count, rank))
    corners = bool(n.attribute("align_corners", 0))
    each = []
    for d, extent in enumerate(image):
        line = _Line(n, extent, padding, corners)
        place = line.place(row_of(n, flat, 2, rank - 1 - d))
        each.append([(*line.index(at), weight) for at, weight in _taps(n, line, place, mode)])
    total = _read(n, x, each)
    turned = n("transpose", total, axes=(0, 2, 1))
    return cast(reshape(turned, (batch, channels, *grid.shape[1:-1])), x.dtype)


#: What is read along a dimension, (batch, count) each: the index, 1 where it is inside, a weight.
_Read = tuple[Value, Value | None, Value | None]


def _read(n: Operation, x: Value, each: Sequence[Sequence[_Read]]) -> Value:
    """Elements of images (batch, channels, ...) at places along all of their dimensions, weighted:
    (batch, count, channels)."""
    batch, channels, *image = x.shape
    lines = n("transpose", x, axes=(0, *range(2, x.rank), 1))
    lines = reshape(lines, (batch, math.prod(image), channels))
    count = each[0][0][0].shape[1]
    total: Value | None = None
    for chosen in itertools.product(*each):
        place: Value = constant(np.zeros((1, 1), "int32"))
        factor: Value | None = None
        for (index, inside, weight), extent in zip(chosen, image, strict=True):
            place = n("add", n("multiply", place, extent), index)
            for f in (inside, weight):
                factor = f if factor is None else factor if f is None else n("multiply", factor, f)
        found = n("gather_nd", lines, reshape(place, (batch, count, 1)), batch_dims=1)
        if factor is not None:
            found = n("multiply", cast(found, factor.dtype), reshape(factor, (batch, count, 1)))
        total = found if total is None else n("add", total, found)
    assert total is not None
    return total


def _deform_conv(n: Operation) -> Value:
    """A convolution of what is read beside each element of its windows, by offsets that are data;
    beyond the image there are zeros."""
    x, w, offset = n[0], n[1], n[2]
    groups, own = n.attribute("group", 1), n.attribute("offset_group", 1)
    found = window(n, x.shape[2:], n.attribute("kernel_shape", w.shape[2:]))
    rank, taps, count = x.rank - 2, math.prod(found.size), math.prod(found.out)
    batch, channels = x.shape[:2]
    fits = w.rank == x.rank and w.shape[1] * groups == channels and not w.shape[0] % groups
    if not fits or channels % own or offset.shape != (batch, own * taps * rank, *found.out):
        raise n.error(f"filters of {w.shape} and offsets of {offset.shape} for {x.shape}")
    wide = "float64" if x.dtype == "float64" else "float32"
    far = reshape(cast(offset, wide), (batch * own, taps, rank, count))
    each = []
    for d, extent in enumerate(x.shape[2:]):
        along = [1] * rank
        along[d] = -1
        tap = np.arange(found.size[d]) * found.dilation[d] - found.before[d]
        taps_at = np.broadcast_to(tap.reshape(along), found.size).reshape(-1, 1)
        start = np.arange(found.out[d]) * found.strides[d]
        starts = np.broadcast_to(start.reshape(along), found.out).reshape(1, -1)
        place = n("add", row_of(n, far, 2, d), constant(taps_at + starts, wide))
        line = _Line(n, extent, "zeros", True)
        read = _taps(n, line, reshape(place, (batch * own, taps * count)), "linear")
        each.append([(*line.index(at), weight) for at, weight in read])
    image = reshape(x, (batch * own, channels // own, *x.shape[2:]))
    values = reshape(_read(n, image, each), (batch, own, taps, count, channels // own))
    if n.has(4):
        mask = reshape(cast(n[4], wide), (batch, own, taps, count, 1))
        values = n("multiply", values, mask)
    columns = n("transpose", values, axes=(0, 1, 4, 2, 3))
    columns = reshape(cast(columns, x.dtype), (batch, groups, channels // groups * taps, count))
    made = matmul(n, reshape(w, (groups, w.shape[0] // groups, math.prod(w.shape[1:]))), columns)
    return biased(n, reshape(made, (batch, w.shape[0], *found.out)), n[3] if n.has(3) else None)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "DeformConv": _deform_conv, "GridSample": _grid_sample,
}  # fmt: skip
