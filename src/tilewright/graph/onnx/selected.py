"""ONNX's operators whose results have as many elements as data says: of data that is known while a
model is converted, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.graph.builder import constant
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Value

_Array = np.ndarray[Any, Any]


def _non_zero(n: Operation) -> Value:
    found = n.array(0, "shape")
    # A number alone has one dimension, as ONNX Runtime has it.
    return constant(np.stack(np.nonzero(np.atleast_1d(found))), "int64")


def _compress(n: Operation) -> Value:
    """The slices where a condition holds; what is beyond the condition is left out."""
    x, where = n[0], n.array(1, "condition").reshape(-1)
    axis = n.attribute("axis")
    if axis is None:
        x, axis = n("reshape", x, newshape=(int(np.prod(x.shape)),)), 0
    axis = n.axis(axis, x.rank)
    places = np.flatnonzero(where[: x.shape[axis]])
    if not places.size or 0 in x.shape:
        shape = [len(places) if d == axis else e for d, e in enumerate(x.shape)]
        return constant(np.zeros(shape, x.dtype))
    return n("take", x, constant(places, "int32"), axis=axis)


def _unique(n: Operation) -> tuple[Value, ...]:
    x, axis = n.array(0, "data"), n.attribute("axis")
    if axis is None:
        lines = x.reshape(-1, 1)
    else:
        axis = n.axis(axis, x.ndim)
        lines = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    _, first, inverse, counts = np.unique(
        lines, return_index=True, return_inverse=True, return_counts=True, axis=0
    )
    inverse = inverse.reshape(-1)
    if not n.attribute("sorted", 1):
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    values = x.reshape(-1)[first] if axis is None else np.take(x, first, axis)
    return constant(values), *(constant(a, "int64") for a in (first, inverse, counts))


def _corners(boxes: _Array, centred: bool) -> tuple[_Array, _Array]:
    """The lower and the upper corners of boxes, which are corners in any order, or a centre and
    a size."""
    first, last = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - last / 2, first + last / 2
    return np.minimum(first, last), np.maximum(first, last)


def _kept(boxes: _Array, scores: _Array, most: int, limit: float, centred: bool) -> list[int]:
    """Boxes by their scores, without those that overlap one before them by more than ``limit``,
    of the area that both cover."""
    low, high = _corners(boxes.astype("float64"), centred)
    rank = np.empty(len(boxes), int)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(boxes))
    found = [k for own in _clusters(low, high) for k in _apart(own, low, high, rank, most, limit)]
    return sorted(found, key=rank.__getitem__)[:most]


def _clusters(low: _Array, high: _Array) -> list[_Array]:
    """Boxes by where they are along each axis: those of two clusters have nothing in common.
    Exporters move the boxes of each class to a place of its own."""
    found = [np.arange(len(low))]
    for d in range(low.shape[1]):
        parts = []
        for own in found:
            own = own[np.argsort(low[own, d], kind="stable")]
            reached = np.maximum.accumulate(high[own, d])
            parts += np.split(own, np.flatnonzero(~(low[own[1:], d] <= reached[:-1])) + 1)
        found = parts
    return found


def _apart(
    own: _Array, low: _Array, high: _Array, rank: _Array, most: int, limit: float
) -> Iterator[int]:
    """At most ``most`` of some boxes, as :func:`_kept`."""
    area = np.prod(high - low, axis=1)
    left = own[np.argsort(rank[own])]
    while left.size and most > 0:
        best, left, most = left[0], left[1:], most - 1
        yield int(best)
        sides = np.minimum(high[best], high[left]) - np.maximum(low[best], low[left])
        common = np.prod(np.maximum(sides, 0), axis=1)
        left = left[common <= limit * (area[best] + area[left] - common)]


def _non_max_suppression(n: Operation) -> Value:
    boxes, scores = n.array(0, "boxes"), n.array(1, "scores")
    most = max(n.integers(2, "number of boxes")[0], 0) if n.has(2) else 0
    limit = float(n.array(3, "threshold of overlap").reshape(-1)[0]) if n.has(3) else 0.0
    centred = bool(n.attribute("center_point_box", 0))
    rows: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(*scores.shape[:2]):
        own = scores[batch, kind]
        places = np.arange(own.size)
        if n.has(4):
            places = np.flatnonzero(own > n.array(4, "threshold of scores").reshape(-1)[0])
        chosen = _kept(boxes[batch, places], own[places], most, limit, centred)
        rows += [(batch, kind, int(places[k])) for k in chosen]
    return constant(np.asarray(rows, "int64").reshape(-1, 3))


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "Compress": _compress, "NonMaxSuppression": _non_max_suppression, "NonZero": _non_zero,
    "Unique": _unique,
}  # fmt: skip
