"""ONNX's GridSample: elements read at places that are data, weighted by their distance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.control import row_of
from tilewright.graph.onnx.operation import Operation
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


def _taps(n: Operation, line: _Line, x: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The whole places that are read for one dimension, each with its weight."""
    place = line.place(x)
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
        taps = _taps(n, line, row_of(n, flat, 2, rank - 1 - d), mode)
        each.append([(*line.index(at), weight) for at, weight in taps])
    lines = n("transpose", x, axes=(0, *range(2, x.rank), 1))
    lines = reshape(lines, (batch, math.prod(image), channels))
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
            found = n("multiply", cast(found, wide), reshape(factor, (batch, count, 1)))
        total = found if total is None else n("add", total, found)
    assert total is not None
    turned = n("transpose", total, axes=(0, 2, 1))
    return cast(reshape(turned, (batch, channels, *grid.shape[1:-1])), x.dtype)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {"GridSample": _grid_sample}
