"""ONNX's scatters at places that are known: gathers, by the place that writes an element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Value

#: The function that joins what was there with what is written, by ONNX's name of the reduction.
_JOINED = {"none": "", "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
#: How often one element may be written, at most.
_MOST = 64
#: Elements that may be there for those that are written, at most.
_MOST_ZEROS = 1 << 26


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


def _max_unpool(n: Operation) -> Value:
    """Zeros but for the elements that a pool has chosen, at their places."""
    x, places = n[0], n.array(1, "indices").reshape(-1)
    rank = x.rank - 2
    size, strides = n.attribute("kernel_shape"), n.attribute("strides", [1] * rank)
    pads = n.attribute("pads", [0] * 2 * rank)
    each = zip(x.shape[2:], size, strides, pads[:rank], pads[rank:], strict=True)
    image = [(e - 1) * s + k - b - a for e, k, s, b, a in each]
    if places.size != math.prod(x.shape) or min(image, default=0) < 1:
        raise n.error(f"{places.size} places for {x.shape}, in images of {image}")
    whole = (*x.shape[:2], *image)
    if math.prod(whole) > _MOST_ZEROS:
        raise n.error(f"images of {image} of {math.prod(x.shape)} elements that are known")
    zeros = constant(np.zeros(whole, x.dtype))
    made = _written(n, zeros, _checked(n, places, math.prod(whole)), x)
    if not n.has(2):
        return made
    shape = n.integers(2, "output_shape")
    behind = tuple(e - m for e, m in zip(shape, whole, strict=True))
    if min(behind) < 0:
        raise n.error(f"images of {image} do not fit into {shape}")
    return n("constant_pad", made, before=(0,) * x.rank, after=behind, value=0.0)


def _tensor_scatter(n: Operation) -> Value:
    """``past`` with new elements along an axis, from a place on that each of the batch has; in a
    ring where the mode is "circular"."""
    past, new = n[0], n[1]
    axis = n.axis(n.attribute("axis", -2), past.rank)
    fits = new.rank == past.rank and all(
        a <= b if d == axis else a == b
        for d, (a, b) in enumerate(zip(new.shape, past.shape, strict=True))
    )
    if not axis or not fits:
        raise n.error(f"{new.shape} is not written into {past.shape} along {axis}")
    shape = [1] * past.rank
    shape[axis] = past.shape[axis]
    at: Value = constant(np.arange(past.shape[axis]).reshape(shape), "int64")
    if n.has(2):
        at = n(
            "subtract",
            at,
            reshape(cast(n[2], "int64"), (past.shape[0], *shape[1:axis], 1, *shape[axis + 1 :])),
        )
    if n.attribute("mode", b"linear") == b"circular":
        at = n("mod", at, past.shape[axis])
    inside = n("logical_and", n("greater_equal", at, 0), n("less", at, new.shape[axis]))
    at = n("broadcast_to", n("clip", at, low=0, high=new.shape[axis] - 1), shape=past.shape)
    return n("where", inside, n("gather", new, at, axis=axis), past)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "MaxUnpool": _max_unpool, "Scatter": _elements, "ScatterElements": _elements,
    "ScatterND": _nd, "TensorScatter": _tensor_scatter,
}  # fmt: skip
