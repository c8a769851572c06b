"""ATen's operators that move elements, and those that make tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import build, cast, constant, reshape
from tilewright.graph.fx.layout import inverse, is_dense, memory_order, permuted
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.onnx.shapes import part
from tilewright.graph.value import Value

#: Elements of a tensor that is made of nothing, at most.
_MOST = 1 << 22


def _view(n: Operation) -> Value:
    x, shape = n.x, list(n["size"] if n["size"] is not None else n["shape"])
    if -1 in shape:
        shape[shape.index(-1)] = math.prod(x.shape) // -math.prod(shape)
    return reshape(x, tuple(shape))


def _permute(n: Operation) -> Value:
    return n("transpose", n.x, axes=tuple(n.axis(d, n.x.rank) for d in n["dims"]))


def swapped(n: Operation, x: Value, a: int, b: int) -> Value:
    """With two dimensions in the place of each other."""
    order = list(range(x.rank))
    if order:
        a, b = n.axis(a, x.rank), n.axis(b, x.rank)
        order[a], order[b] = order[b], order[a]
    return n("transpose", x, axes=tuple(order))


def _expand(n: Operation) -> Value:
    x, size = n.x, list(n["size"])
    own = [1] * (len(size) - x.rank) + list(x.shape)
    shape = tuple(o if s == -1 else s for o, s in zip(own, size, strict=True))
    return n("broadcast_to", x, shape=shape)


def _as_strided(n: Operation) -> Value:
    """Of all elements, in another order or shape."""
    order, wanted = _orders(n)
    lies = reshape(permuted(n.x, order), tuple(n["size"][d] for d in wanted))
    return permuted(lies, inverse(wanted))


def _as_strided_scatter(n: Operation) -> Value:
    """Where all elements are other ones: these, in the order or shape of the first operand."""
    order, wanted = _orders(n)
    lies = reshape(permuted(n["src"], wanted), tuple(n.x.shape[d] for d in order))
    return permuted(lies, inverse(order))


def _orders(n: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How the first operand lies in memory, and how a view of all its elements does."""
    x, size, strides = n.x, n["size"], n["stride"]
    order = None if n.strides is None else memory_order(x.shape, n.strides)
    wanted = memory_order(size, strides)
    if order is None or n["storage_offset"] or math.prod(size) != math.prod(x.shape):
        raise n.error("it is a part of a tensor")
    assert n.strides is not None
    if not (is_dense(x.shape, n.strides, order) and is_dense(size, strides, wanted)):
        raise n.error("there are gaps in memory")
    return order, wanted


def _unsqueeze(n: Operation) -> Value:
    at = n.axis(n["dim"], n.x.rank + 1)
    return reshape(n.x, (*n.x.shape[:at], 1, *n.x.shape[at:]))


def _squeeze(n: Operation) -> Value:
    axes = n.axes("dim", n.x.rank)
    return reshape(n.x, tuple(e for d, e in enumerate(n.x.shape) if e != 1 or d not in axes))


def _cut(n: Operation, x: Value, axis: int, places: range) -> Value:
    begin, strides, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    begin[axis], strides[axis], shape[axis] = places.start, places.step, len(places)
    return part(n, x, begin, strides, shape)


def _slice(n: Operation) -> Value:
    axis = n.axis(n["dim"] or 0, n.x.rank)
    return _cut(n, n.x, axis, range(n.x.shape[axis])[slice(n["start"], n["end"], n["step"])])


def _drop(x: Value, axis: int) -> Value:
    return reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _select(n: Operation) -> Value:
    axis = n.axis(n["dim"], n.x.rank)
    at = n["index"] % n.x.shape[axis]
    return _drop(_cut(n, n.x, axis, range(at, at + 1)), axis)


def _parts(n: Operation, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(_cut(n, n.x, axis, range(a, b)) for a, b in itertools.pairwise(ends))


def _split(n: Operation) -> tuple[Value, ...]:
    axis = n.axis(n["dim"] or 0, n.x.rank)
    sizes, whole = n["split_sizes"], n.x.shape[axis]
    if sizes is None:
        sizes = n["split_size"]
    if isinstance(sizes, int):
        sizes = [min(sizes, whole - at) for at in range(0, whole, sizes)]
    return _parts(n, sizes, axis)


def _unbind(n: Operation) -> tuple[Value, ...]:
    axis = n.axis(n["dim"] or 0, n.x.rank)
    return tuple(_drop(x, axis) for x in _parts(n, [1] * n.x.shape[axis], axis))


def _cat(n: Operation) -> Value:
    parts = [cast(x, n.dtype) for x in n["tensors"] if x.shape != (0,)]
    axis = n.axis(n["dim"] or 0, parts[0].rank)
    return parts[0] if len(parts) == 1 else n("concatenate", *parts, axis=axis)


def _stack(n: Operation) -> Value:
    tensors = n["tensors"]
    axis = n.axis(n["dim"] or 0, tensors[0].rank + 1)
    parts = [reshape(cast(x, n.dtype), (*x.shape[:axis], 1, *x.shape[axis:])) for x in tensors]
    return parts[0] if len(parts) == 1 else n("concatenate", *parts, axis=axis)


def _flip(n: Operation) -> Value:
    found = n.x
    for axis in n.axes("dims", n.x.rank) if n["dims"] else ():
        found = _cut(n, found, axis, range(found.shape[axis])[::-1])
    return found


def _roll(n: Operation) -> Value:
    found, shifts = n.x, n["shifts"]
    if not n["dims"]:
        raise n.error("it has no dimensions")
    for shift, d in zip(shifts, n["dims"], strict=True):
        axis = n.axis(d, found.rank)
        whole = found.shape[axis]
        at = -shift % whole
        if at:
            ends = (range(at, whole), range(at))
            found = n("concatenate", *(_cut(n, found, axis, r) for r in ends), axis=axis)
    return found


def _repeat(n: Operation) -> Value:
    reps = n["repeats"]
    x = reshape(n.x, ((1,) * (len(reps) - n.x.rank) + n.x.shape))
    return n("tile", x, reps=tuple(reps))


def _sides(n: Operation, pads: Sequence[int]) -> tuple[list[int], list[int]]:
    """Before and after each dimension, of pairs that begin with the last dimension."""
    rank = n.x.rank
    before, after = [0] * rank, [0] * rank
    for k in range(len(pads) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = pads[2 * k], pads[2 * k + 1]
    return before, after


def _constant_pad(n: Operation) -> Any:
    before, after = _sides(n, n["pad"])
    return n.onnx("Pad", n.x, [*before, *after], constant(n["value"] or 0, n.dtype))


def _pad(mode: bytes) -> Converter:
    def convert(n: Operation) -> Any:
        before, after = _sides(n, n["padding"])
        return n.onnx("Pad", n.x, [*before, *after], mode=mode)

    return convert


def _index(n: Operation) -> Value:
    """``x[..., i]`` of one tensor of integers, or of several next to one another, each of any
    shape."""
    x, indices = n.x, n["indices"]
    places = [d for d, i in enumerate(indices) if i is not None]
    given = [indices[d] for d in places]
    if any(i.dtype not in ("int32", "int64") for i in given):
        raise n.error("its indices are no integers")
    if places != list(range(places[0], places[0] + len(places))):
        raise n.error("its indices are not next to one another")
    first = places[0]
    if len(given) == 1:
        return n("take", x, given[0], axis=first)
    # One index into the dimensions as one.
    flat: Value | None = None
    for d, i in zip(places, given, strict=True):
        extent = x.shape[d]
        i = cast(i, "int64")
        i = n("where", n("less", i, 0), n("add", i, extent), i)
        flat = i if flat is None else n("add", n("multiply", flat, extent), i)
    assert flat is not None
    shape = x.shape
    size = math.prod(shape[first : first + len(given)])
    flattened = reshape(x, (*shape[:first], size, *shape[first + len(given) :]))
    return n("take", flattened, flat, axis=first)


def _embedding(n: Operation) -> Value:
    return n("take", n["weight"], n["indices"], axis=0)


def _index_select(n: Operation) -> Value:
    return n("take", n.x, n["index"], axis=n.axis(n["dim"], n.x.rank))


def _gather(n: Operation) -> Value:
    x, index = n.x, n["index"]
    axis = n.axis(n["dim"], x.rank)
    if index.shape != (*x.shape[:axis], index.shape[axis], *x.shape[axis + 1 :]):
        raise n.error("its indices leave parts out")
    return n("gather", x, index, axis=axis)


def _tri(upper: bool) -> Converter:
    return lambda n: n("trilu", n.x, k=n["diagonal"] or 0, upper=upper)


def _full(shape: Any, value: Any, n: Operation) -> Value:
    if math.prod(shape) > _MOST:
        found = constant(value, n.dtype)
        return build("broadcast_to", found, name=n.name, shape=tuple(shape))
    return constant(np.full(tuple(shape), value), n.dtype, n.name)


def _arange(n: Operation) -> Value:
    start, step = n["start"] or 0, 1 if n["step"] is None else n["step"]
    return constant(np.arange(start, n["end"], step), n.dtype, n.name)


def _pixel_shuffle(n: Operation) -> Value:
    *batch, c, h, w = n.x.shape
    b, lead = n["upscale_factor"], len(batch)
    inner = reshape(n.x, (*batch, c // b**2, b, b, h, w))
    axes = (*range(lead), *(lead + d for d in (0, 3, 1, 4, 2)))
    return reshape(n("transpose", inner, axes=axes), (*batch, c // b**2, h * b, w * b))


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    "as_strided": _as_strided, "as_strided_scatter": _as_strided_scatter,
    "copy": lambda n: n("broadcast_to", cast(n["src"], n.dtype), shape=n.x.shape),
    "permute": _permute, "expand": _expand,
    "unsqueeze": _unsqueeze, "squeeze": _squeeze,
    "t": lambda n: swapped(n, n.x, 0, n.x.rank - 1) if n.x.rank else n.x,
    "transpose": lambda n: swapped(n, n.x, n["dim0"], n["dim1"]),
    "slice": _slice, "select": _select, "split": _split, "split_with_sizes": _split,
    "unbind": _unbind, "cat": _cat, "stack": _stack, "flip": _flip, "roll": _roll,
    "repeat": _repeat, "constant_pad_nd": _constant_pad, "index": _index,
    **{f"reflection_pad{d}d": _pad(b"reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d": _pad(b"edge") for d in (1, 2, 3)},
    "embedding": _embedding, "index_select": _index_select, "gather": _gather,
    "tril": _tri(False), "triu": _tri(True), "pixel_shuffle": _pixel_shuffle,
    "full": lambda n: _full(n["size"], n["fill_value"], n),
    "full_like": lambda n: _full(n.x.shape, n["fill_value"], n),
    "zeros": lambda n: _full(n["size"], 0, n), "ones": lambda n: _full(n["size"], 1, n),
    "zeros_like": lambda n: _full(n.x.shape, 0, n), "ones_like": lambda n: _full(n.x.shape, 1, n),
    "new_zeros": lambda n: _full(n["size"], 0, n), "new_ones": lambda n: _full(n["size"], 1, n),
    "new_full": lambda n: _full(n["size"], n["fill_value"], n),
    "scalar_tensor": lambda n: _full((), n["s"], n), "arange": _arange,
}  # fmt: skip
