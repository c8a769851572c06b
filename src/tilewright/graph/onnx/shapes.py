"""ONNX's operators that move elements, and its arithmetic of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import constant, reshape
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.operation import Making
from tilewright.graph.value import Value


def _shape(n: Operation) -> Value:
    extents = n[0].shape[slice(n.attribute("start"), n.attribute("end"))]
    return constant(extents, "int64", n.name)


def _size(n: Operation) -> Value:
    return constant(math.prod(n[0].shape), "int64", n.name)


def _reshape(n: Operation) -> Value:
    x, wanted = n[0], list(n.integers(1, "shape"))
    if not n.attribute("allowzero", 0):
        wanted = [x.shape[d] if e == 0 and d < x.rank else e for d, e in enumerate(wanted)]
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(x.shape) // rest if rest else 0
    if math.prod(wanted) != math.prod(x.shape) or min(wanted, default=0) < 0:
        raise n.error(f"{x.shape} is not reshaped to {tuple(wanted)}")
    return reshape(x, tuple(wanted))


def _flatten(n: Operation) -> Value:
    x, axis = n[0], n.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _squeeze(n: Operation) -> Value:
    x, axes = n[0], n.listed("axes", 1, 13)
    if axes is None:
        gone = {d for d, e in enumerate(x.shape) if e == 1}
    else:
        gone = {n.axis(a, x.rank) for a in axes}
    if any(x.shape[d] != 1 for d in gone):
        raise n.error(f"dimensions {sorted(gone)} of {x.shape} are not all 1")
    return reshape(x, tuple(e for d, e in enumerate(x.shape) if d not in gone))


def _unsqueeze(n: Operation) -> Value:
    x, axes = n[0], n.listed("axes", 1, 13) or ()
    rank = x.rank + len(axes)
    places = {n.axis(a, rank) for a in axes}
    if len(places) < len(axes):
        raise n.error(f"axes {axes} are not different ones")
    rest = iter(x.shape)
    return reshape(x, tuple(1 if d in places else next(rest) for d in range(rank)))


def _transpose(n: Operation) -> Value:
    rank = n[0].rank
    axes = n.attribute("perm", list(reversed(range(rank))))
    return n("transpose", n[0], axes=tuple(n.axis(a, rank) for a in axes))


def _expand(n: Operation) -> Value:
    return n("broadcast_to", n[0], shape=n.integers(1, "shape"))


def _tile(n: Operation) -> Value:
    return n("tile", n[0], reps=n.integers(1, "repeats"))


def _concat(n: Operation) -> Value:
    parts = [x for x in n.operands if 0 not in x.shape] or n.operands
    axis = n.axis(n.attribute("axis"), parts[0].rank)
    for x in parts[1:]:
        same = len(x.shape) == parts[0].rank and all(
            a == b for d, (a, b) in enumerate(zip(x.shape, parts[0].shape, strict=True))
            if d != axis
        )  # fmt: skip
        if not same or x.dtype != parts[0].dtype:
            raise n.error(f"{x.shape} does not fit behind {parts[0].shape} along axis {axis}")
    return parts[0] if len(parts) == 1 else n("concatenate", *parts, axis=axis)


def part(n: Making, x: Value, begin: list[int], strides: list[int], shape: list[int]) -> Value:
    """A strided part of a tensor."""
    if 0 in shape:
        return constant(np.zeros(shape, x.dtype))
    if tuple(shape) == x.shape and set(strides) == {1}:
        return x
    values = {"begin": tuple(begin), "strides": tuple(strides), "shape": tuple(shape)}
    return n("strided_slice", x, **values)


def _split(n: Operation) -> tuple[Value, ...]:
    x = n[0]
    axis = n.axis(n.attribute("axis", 0), x.rank)
    sizes = n.listed("split", 1, 13)
    if sizes is None:
        count = n.attribute("num_outputs", n.outputs)
        size = -(-x.shape[axis] // count)
        sizes = (*(size,) * (count - 1), x.shape[axis] - size * (count - 1))
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise n.error(f"parts of {sizes} do not make {x.shape[axis]}")
    found, at = [], 0
    for size in sizes:
        begin, shape = [0] * x.rank, list(x.shape)
        begin[axis], shape[axis] = at, size
        found.append(part(n, x, begin, [1] * x.rank, shape))
        at += size
    return tuple(found)


def _slice(n: Operation) -> Value:
    x = n[0]
    if n.opset < 10:
        starts, ends = n.attribute("starts"), n.attribute("ends")
        axes, steps = n.attribute("axes"), None
    else:
        starts, ends = n.integers(1, "starts"), n.integers(2, "ends")
        axes = n.integers(3, "axes") if n.has(3) else None
        steps = n.integers(4, "steps") if n.has(4) else None
    begin, strides, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    each = zip(axes or range(len(starts)), starts, ends, steps or (1,) * len(starts), strict=True)
    for a, start, end, step in each:
        d = n.axis(a, x.rank)
        if step == 0:
            raise n.error("a step is 0")
        # Backwards, what begins before the first element begins at it: NumPy takes nothing.
        start = max(start, -x.shape[d]) if step < 0 else start
        places = range(x.shape[d])[slice(start, end, step)]
        begin[d], shape[d] = places.start, len(places)
        strides[d] = step if len(places) > 1 else 1
    return part(n, x, begin, strides, shape)


def _gather(n: Operation) -> Value:
    return n("take", n[0], n[1], axis=n.axis(n.attribute("axis", 0), n[0].rank))


def _features(n: Operation) -> Value:
    """Elements along the last dimension; those of a vector as a row."""
    x, index = n[0], reshape(n[1], (math.prod(n[1].shape),))
    found = n("take", x, index, axis=x.rank - 1)
    return reshape(found, (1, *found.shape)) if x.rank == 1 else found


def _gather_elements(n: Operation) -> Value:
    return n("gather", n[0], n[1], axis=n.axis(n.attribute("axis", 0), n[0].rank))


def _gather_nd(n: Operation) -> Value:
    return n("gather_nd", n[0], n[1], batch_dims=n.attribute("batch_dims", 0))


def _pad(n: Operation) -> Value:
    x, mode = n[0], n.attribute("mode", b"constant").decode()
    pads = n.listed("pads", 1, 11) or ()
    axes = n.integers(3, "axes") if n.has(3) else tuple(range(x.rank))
    count = len(axes)
    if len(pads) != 2 * count:
        raise n.error(f"{len(pads)} pads for {count} dimensions")
    before, after = [0] * x.rank, [0] * x.rank
    for k, a in enumerate(axes):
        d = n.axis(a, x.rank)
        before[d], after[d] = pads[k], pads[count + k]
    # What is cut off, then what is added.
    begin = [max(0, -b) for b in before]
    shape = [e + min(0, b) + min(0, a) for e, b, a in zip(x.shape, before, after, strict=True)]
    x = part(n, x, begin, [1] * x.rank, shape)
    before, after = [max(0, b) for b in before], [max(0, a) for a in after]
    if not any((*before, *after)):
        return x
    if mode != "constant":
        return n("pad", x, before=tuple(before), after=tuple(after), mode=mode)
    value: Any = n.attribute("value", 0.0)
    if n.opset >= 11:
        value = n.array(2, "value").item() if n.has(2) else 0
    return n("constant_pad", x, before=tuple(before), after=tuple(after), value=value)


def _constant(n: Operation) -> Value:
    for name, dtype in (("value_float", "float32"), ("value_floats", "float32"),
                        ("value_int", "int64"), ("value_ints", "int64")):  # fmt: skip
        if name in n.attributes:
            return constant(n.attribute(name), dtype, n.name)
    if "value" not in n.attributes:
        raise n.error(f"a constant of {', '.join(n.attributes)} is not supported")
    return constant(n.attribute("value"), name=n.name)


def _constant_of_shape(n: Operation) -> Value:
    value = n.attribute("value", np.zeros(1, "float32"))
    shape = n.integers(0, "shape")
    if value.size != 1 or min(shape, default=0) < 0:
        raise n.error(f"{value.size} values in the shape {shape}")
    if 0 in shape or not shape:
        return constant(np.full(shape, value.reshape(())[()]), name=n.name)
    # Folded unless it is large: a model of a few bytes may ask for any amount of memory.
    return n("broadcast_to", constant(value.reshape((1,) * len(shape))), shape=shape)


def _range(n: Operation) -> Value:
    start, limit, delta = (n.array(k, "range").item() for k in range(3))
    if delta == 0 or (limit - start) / delta > 1 << 24:
        raise n.error(f"a range from {start} to {limit} by {delta}")
    return constant(np.arange(start, limit, delta, dtype=n[0].dtype), name=n.name)


def _eye_like(n: Operation) -> Value:
    dtype = dtype_of(n.attribute("dtype"), n) if "dtype" in n.attributes else n[0].dtype
    rows, columns = n[0].shape
    return constant(np.eye(rows, columns, n.attribute("k", 0)), dtype)


def _one_hot(n: Operation) -> Value:
    depth = int(n.array(1, "depth").item())
    values = n[2]
    off = n("strided_slice", values, begin=(0,), strides=(1,), shape=(1,))
    on = n("strided_slice", values, begin=(1,), strides=(1,), shape=(1,))
    axis = n.axis(n.attribute("axis", -1), n[0].rank + 1)
    return n("one_hot", n[0], on, off, depth=depth, axis=axis)


def _depth_to_space(n: Operation) -> Value:
    x, b = n[0], n.attribute("blocksize")
    batch, c, h, w = x.shape
    if n.attribute("mode", b"DCR") == b"DCR":
        inner, axes = (batch, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        inner, axes = (batch, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    found = n("transpose", reshape(x, inner), axes=axes)
    return reshape(found, (batch, c // b**2, h * b, w * b))


def _space_to_depth(n: Operation) -> Value:
    x, b = n[0], n.attribute("blocksize")
    batch, c, h, w = x.shape
    if h % b or w % b:
        raise n.error(f"images of {h} by {w} are not made of blocks of {b}")
    inner = reshape(x, (batch, c, h // b, b, w // b, b))
    axes = (0, 3, 5, 1, 2, 4) if n.attribute("mode", b"DCR") == b"DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(n("transpose", inner, axes=axes), (batch, c * b * b, h // b, w // b))


def _trilu(n: Operation) -> Value:
    k = int(n.array(1, "diagonal").item()) if n.has(1) else 0
    if 0 in n[0].shape:
        return n[0]
    return n("trilu", n[0], k=k, upper=bool(n.attribute("upper", 1)))


def _element(n: Operation) -> Value:
    return n[0]


def _has_element(n: Operation) -> Value:
    return constant(n.has(0))


def _reverse_sequence(n: Operation) -> Value:
    """Of each of a batch, as many elements as it has are in the opposite order."""
    x, lengths = n[0], n[1]
    time, batch = (
        n.axis(n.attribute(f"{k}_axis", d), x.rank) for k, d in (("time", 0), ("batch", 1))
    )
    if time == batch or lengths.shape != (x.shape[batch],):
        raise n.error(f"{lengths.shape} lengths along {batch} for {x.shape} along {time}")
    along = [1] * x.rank
    along[batch] = x.shape[batch]
    many = reshape(lengths, tuple(along))
    along[batch], along[time] = 1, x.shape[time]
    place = constant(np.arange(x.shape[time], dtype="int64").reshape(along))
    back = n("subtract", n("subtract", many, 1), place)
    at = n("where", n("less", place, many), back, place)
    return n("gather", x, n("broadcast_to", at, shape=x.shape), axis=time)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "ai.onnx.ml.ArrayFeatureExtractor": _features,
    "Concat": _concat, "Constant": _constant, "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space, "Expand": _expand, "EyeLike": _eye_like, "Flatten": _flatten,
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "OneHot": _one_hot, "OptionalGetElement": _element, "OptionalHasElement": _has_element,
    "Pad": _pad, "Range": _range, "Reshape": _reshape, "ReverseSequence": _reverse_sequence,
    "Shape": _shape, "Size": _size, "Slice": _slice, "SpaceToDepth": _space_to_depth,
    "Split": _split, "Squeeze": _squeeze, "Tile": _tile, "Transpose": _transpose, "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}  # fmt: skip
