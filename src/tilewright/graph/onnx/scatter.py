"""ONNX's scatters at places that are known: gathers, by the place that writes an element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import constant, reshape
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Value

#: The function that joins what was there with what is written, by ONNX's name of the reduction.
_JOINED = {"none": "", "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
#: How often one element may be written, at most.
_MOST = 64


def _written(n: Operation, x: Value, places: np.ndarray[Any, Any], updates: Value) -> Value:
    """``x`` with updates at flat places: those that write an element a first time, a second time
    and so on are a gather each; without a reduction the last one remains."""
    name = n.attribute("reduction", b"none").decode()
    if name not in _JOINED:
        raise n.error(f"there is no reduction {name!r}")
    if x.dtype != updates.dtype:
        raise n.error(f"updates of {updates.dtype} for {x.dtype}")
    size = math.prod(x.shape)
    flat, given = reshape(x, (size,)), reshape(updates, (places.size,))
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    starts = np.flatnonzero(first)
    times = np.arange(places.size) - np.repeat(starts, np.diff(np.r_[starts, places.size]))
    rounds = [order[times == k] for k in range(int(times.max(initial=-1)) + 1)]
    if not _JOINED[name]:
        source = np.full(size, -1)
        source[ordered] = order
        rounds = [source[source >= 0]]
    if len(rounds) > _MOST:
        raise n.error(f"it writes an element {len(rounds)} times")
    for chosen in rounds:
        source = np.full(size, -1)
        source[places[chosen]] = chosen
        new = n("take", given, constant(np.maximum(source, 0).astype("int32")), axis=0)
        new = n(_JOINED[name], flat, new) if _JOINED[name] else new
        flat = new if (source >= 0).all() else n("where", constant(source >= 0), new, flat)
    return reshape(flat, x.shape)


def _checked(n: Operation, index: Any, extent: Any) -> np.ndarray[Any, Any]:
    index, extent = np.asarray(index), np.asarray(extent)
    if ((index < -extent) | (index >= extent)).any():
        raise n.error("an index is beyond its dimension")
    found: np.ndarray[Any, Any] = np.where(index < 0, index + extent, index)
    return found


def _elements(n: Operation) -> Value:
    x, index, updates = n[0], n.array(1, "indices"), n[2]
    axis = n.axis(n.attribute("axis", 0), x.rank)
    fits = index.ndim == x.rank and all(
        a <= b for d, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis
    )
    if not fits or updates.shape != index.shape:
        raise n.error(f"indices of {index.shape}, updates of {updates.shape} for {x.shape}")
    if not index.size:
        return x
    at = list(np.indices(index.shape))
    at[axis] = _checked(n, index, x.shape[axis])
    places = np.ravel_multi_index(at, x.shape).reshape(-1)
    return _written(n, x, places, updates)


def _nd(n: Operation) -> Value:
    x, index, updates = n[0], n.array(1, "indices"), n[2]
    depth = index.shape[-1] if index.ndim else 0
    if not 0 < depth <= x.rank or updates.shape != (*index.shape[:-1], *x.shape[depth:]):
        raise n.error(f"indices of {index.shape}, updates of {updates.shape} for {x.shape}")
    if not updates.shape or 0 in updates.shape:
        return x if 0 in updates.shape else _single(n, x, index, updates)
    index = _checked(n, index.reshape(-1, depth), x.shape[:depth])
    inner = math.prod(x.shape[depth:])
    starts = np.ravel_multi_index(tuple(index.T), x.shape[:depth]) * inner
    return _written(n, x, (starts[:, None] + np.arange(inner)).reshape(-1), updates)


def _single(n: Operation, x: Value, index: np.ndarray[Any, Any], updates: Value) -> Value:
    at = _checked(n, index.reshape(-1), x.shape)
    place = np.ravel_multi_index(tuple(at), x.shape)
    return _written(n, x, np.asarray(place).reshape(1), updates)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "Scatter": _elements, "ScatterElements": _elements, "ScatterND": _nd,
}  # fmt: skip
