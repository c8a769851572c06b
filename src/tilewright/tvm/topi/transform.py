"""topi's functions that move elements, and those that find them: slices, gathers, orders."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor
from tilewright.te.arithmetic import read
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.elements import axes_of, check_same, nearest
from tilewright.tvm.topi.shapes import make_idx, ravel_index, simplify, unravel_index, within_index


def moved(shape: Any, element: Callable[..., Any], name: str) -> Any:
    """A tensor of elements that stand elsewhere."""
    return te.compute(tuple(shape), element, name, tag="injective")


def integers(values: Any) -> list[int]:
    """A list of integers, of what may be constants of programs."""
    found = values if isinstance(values, (list, tuple)) else [values]
    numbers: list[Any] = [getattr(v, "value", v) for v in found]
    return [int(v) for v in numbers]


def number(value: Any) -> Any:
    """A number, of what may be a constant of a program."""
    return getattr(value, "value", value)


def put(at: Sequence[Any], axis: int, *values: Any) -> tuple[Any, ...]:
    return (*at[:axis], *values, *at[axis + 1 :])


def product(shape: Sequence[Any]) -> Any:
    """How many elements there are."""
    return functools.reduce(ops.mul, shape, ops.const(1))


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Any:
    place = dimension(axis, a.ndim + 1)
    shape = [*a.shape[:place], *[1] * num_newaxis, *a.shape[place:]]
    return moved(shape, lambda *i: a(*i[:place], *i[place + num_newaxis :]), "T_expand_dims")


def expand_like(a: Tensor, shape_like: Tensor, axis: Any) -> Any:
    axes = axes_of(axis, shape_like.ndim)
    return moved(
        shape_like.shape,
        lambda *i: a(*(v for d, v in enumerate(i) if d not in axes)),
        "T_expand_like",
    )


def squeeze(a: Tensor, axis: Any = None) -> Any:
    ones = [d for d, e in enumerate(a.shape) if ops.is_const(e, 1)]
    axes = ones if axis is None else axes_of(axis, a.ndim)
    shape = [e for d, e in enumerate(a.shape) if d not in axes]

    def element(*i: Any) -> Any:
        own = iter(i)
        return a(*(0 if d in axes else next(own) for d in range(a.ndim)))

    return moved(shape, element, "T_squeeze")


def transpose(a: Tensor, axes: Any = None) -> Any:
    order = [dimension(d, a.ndim) for d in integers(axes)] if axes else [*range(a.ndim)][::-1]
    if sorted(order) != [*range(a.ndim)]:
        raise LanguageError(f"transpose has each axis of {a} once, got {axes}")
    shape = [a.shape[d] for d in order]
    return moved(shape, lambda *i: a(*(i[order.index(d)] for d in range(a.ndim))), "T_transpose")


def reshape(a: Tensor, newshape: Any) -> Any:
    shape = list(newshape) if isinstance(newshape, (list, tuple)) else [newshape]
    if any(isinstance(e, int) and e == -1 for e in shape):
        rest = product([e for e in shape if not (isinstance(e, int) and e == -1)])
        whole = ops.floordiv(product(a.shape), rest)
        shape = [whole if isinstance(e, int) and e == -1 else e for e in shape]
    extents = [ops.as_index(e) for e in shape]
    check_same(f"reshape of {a.name} has elements", product(a.shape), product(extents))

    def element(*i: Any) -> Any:
        return a(*unravel_index(ravel_index(i, extents), a.shape))

    return moved(extents, element, "T_reshape")


def flatten(data: Tensor) -> Any:
    return reshape(data, (data.shape[0], product(data.shape[1:])))


def broadcast_to(data: Tensor, shape: Any) -> Any:
    return te.compute(tuple(shape), lambda *i: read(data, i), "T_broadcast_to", tag="broadcast")


def flip(a: Tensor, axis: int = 0) -> Any:
    d = dimension(axis, a.ndim)
    return moved(a.shape, lambda *i: a(*put(i, d, a.shape[d] - 1 - i[d])), "T_flip")


def reverse_sequence(a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Any:
    d, b = dimension(seq_axis, a.ndim), dimension(batch_axis, a.ndim)
    if not ops.is_const(simplify(ops.sub(seq_lengths.shape[0], a.shape[b])), 0):
        raise LanguageError(
            f"reverse_sequence: {seq_lengths.shape[0]} lengths for {a.shape[b]} sequences"
        )

    def element(*i: Any) -> Any:
        length = te.min(seq_lengths(i[b]).astype("int32"), a.shape[d])
        place = te.if_then_else(i[d] < length, length - 1 - i[d], i[d])
        return a(*put(i, d, nearest(place, a.shape[d])))

    return moved(a.shape, element, "T_reverse_sequence")


def _slices(a: Tensor, begin: Any, end: Any, strides: Any, axes: Any, mode: str = "end") -> Any:
    """By dimension where a slice starts, how many elements it has, and how far they are apart."""
    own = [dimension(d, a.ndim) for d in integers(axes)] if axes else list(range(a.ndim))
    firsts, lasts, steps = (
        [None if v is None else integers(v)[0] for v in given or ()]
        for given in (begin, end, strides)
    )
    found: list[Any] = [(0, extent, 1) for extent in a.shape]
    for d, first, last, step in itertools.zip_longest(own, firsts, lasts, steps):
        if d is None:
            raise LanguageError(f"a slice of {len(own)} dimensions has as many ends, not more")
        if mode == "size":
            step, last = 1, None if last is None or last < 0 else (first or 0) + last
        found[d] = _slice(slice(first, last, step), a.shape[d])
    return found


def _slice(part: slice, extent: Any) -> tuple[Any, Any, int]:
    step = 1 if part.step is None else part.step
    if isinstance(extent, IntImm):
        start, stop, step = part.indices(extent.value)
        return start, len(range(start, stop, step)), step
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def end(value: int | None, default: Any) -> Any:
        if value is None or value >= 2**31 - 1:
            return default if value is None else high
        return te.max(te.min(extent + value if value < 0 else value, high), low)

    start, stop = (
        end(part.start, low if step > 0 else high),
        end(part.stop, high if step > 0 else low),
    )
    far = stop - start if step > 0 else start - stop
    return start, simplify(te.max(te.floordiv(far + abs(step) - 1, abs(step)), 0)), step


def strided_slice(
    a: Tensor, begin: Any, end: Any, strides: Any = None, axes: Any = None,
    slice_mode: str = "end", assume_inbound: bool = True,
) -> Any:  # fmt: skip
    if isinstance(begin, Tensor):
        shape = [te.var(f"n{d}") for d in range(a.ndim)]
        return dynamic_strided_slice(a, begin, end, strides, shape)
    found = _slices(a, begin, end, strides, axes, slice_mode)
    return moved(
        [count for _, count, _ in found],
        lambda *i: a(*(start + v * step for v, (start, _, step) in zip(i, found, strict=True))),
        "T_strided_slice",
    )


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Any, output_shape: Any
) -> Any:
    """The slice whose ends and steps are elements of tensors, one a dimension.

    The shape of the result is what the caller says it is: elements that it has beyond the slice
    are undefined.
    """

    def element(*i: Any) -> Any:
        at = []
        for d, v in enumerate(i):
            extent = a.shape[d]
            known = isinstance(strides, Tensor) and d < integers(strides.shape)[0]
            step = strides(d).astype("int32") if known else ops.const(1)
            if d >= integers(begin.shape)[0]:
                at.append(nearest(v, extent))
                continue
            start = begin(d).astype("int32")
            start = te.max(te.Select(start < 0, start + extent, start), 0)
            at.append(nearest(te.min(start, extent - 1) + v * step, extent))
        return a(*at)

    return moved(output_shape, element, "T_dynamic_strided_slice")


def strided_set(a: Tensor, v: Tensor, begin: Any, end: Any, strides: Any = None) -> Any:
    if isinstance(begin, Tensor):
        return _dynamic_strided_set(a, v, begin, end, strides)
    found = _slices(a, list(begin), list(end), list(strides) if strides else None, None)

    def element(*i: Any) -> Any:
        inside, place = [], []
        for at, (start, count, step) in zip(i, found, strict=True):
            far = (at - start) * (1 if step > 0 else -1)
            inside += [far >= 0, far < count * abs(step), te.floormod(far, abs(step)).equal(0)]
            place.append(te.floordiv(far, abs(step)))
        return te.if_then_else(te.all(*inside), v(*place), a(*i))

    return moved(a.shape, element, "T_strided_set")


def _dynamic_strided_set(a: Tensor, v: Tensor, begin: Tensor, end: Tensor, strides: Any) -> Any:
    def element(*i: Any) -> Any:
        inside, place = [], []
        for d, at in enumerate(i):
            known = isinstance(strides, Tensor) and d < integers(strides.shape)[0]
            step = strides(d).astype("int32") if known else ops.const(1)
            first, last = ops.const(0), a.shape[d]
            if d < integers(begin.shape)[0]:
                first, last = (
                    te.Select(v < 0, v + a.shape[d], v)
                    for v in (begin(d).astype("int32"), end(d).astype("int32"))
                )
                last = te.max(te.min(last, a.shape[d]), -1)
            inside.append(within_index(first, last, step, at))
            found = make_idx(first, last, step, a.shape[d], at)
            place.append(nearest(found, v.shape[d]))
        return te.if_then_else(te.all(*inside), v(*place), a(*i))

    return moved(a.shape, element, "T_strided_set")


def __getattr__(name: str) -> Any:
    """TVM's module of this name has functions that stand elsewhere here."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("tilewright.tvm.topi"), name)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Any:
    d = dimension(axis, a_tuple[0].ndim)
    shape = list(a_tuple[0].shape)
    starts = [ops.const(0)]
    for x in a_tuple:
        if x.ndim != len(shape):
            raise LanguageError(f"concatenate of {a_tuple[0]} and {x}, of other dimensions")
        for other in {*range(x.ndim)} - {d}:
            what = f"concatenate of {a_tuple[0].name} and {x.name}, dimension {other}"
            check_same(what, a_tuple[0].shape[other], x.shape[other])
        starts.append(ops.add(starts[-1], x.shape[d]))
    shape[d] = starts[-1]

    def element(*i: Any) -> Any:
        found = a_tuple[-1](*put(i, d, i[d] - starts[-2]))
        for x, start, stop in reversed(list(zip(a_tuple[:-1], starts, starts[1:], strict=False))):
            found = te.if_then_else(i[d] < stop, x(*put(i, d, i[d] - start)), found)
        return found

    return moved(shape, element, "T_concat")


def stack(a: Any, axis: int = 0) -> Any:
    given = list(a) if isinstance(a, (list, tuple)) else [a]
    return concatenate([expand_dims(x, axis) for x in given], axis)


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    d = dimension(axis, ary.ndim)
    if isinstance(indices_or_sections, (list, tuple)):
        extent = int(getattr(ary.shape[d], "value", 0))
        ends = [0, *integers(indices_or_sections), extent]
    else:
        count = integers(indices_or_sections)[0]
        extent = int(getattr(ary.shape[d], "value", 0))
        if extent % count:
            raise LanguageError(f"split: {extent} elements do not split into {count} equal parts")
        ends = [k * (extent // count) for k in range(count + 1)]
    return [
        moved(
            put(ary.shape, d, ops.const(stop - start)),
            lambda *i, start=start: ary(*put(i, d, i[d] + start)),
            "T_split",
        )
        for start, stop in itertools.pairwise(ends)
    ]


def repeat(a: Tensor, repeats: int, axis: int) -> Any:
    d = dimension(axis, a.ndim)
    shape = put(a.shape, d, ops.mul(a.shape[d], repeats))
    return moved(shape, lambda *i: a(*put(i, d, te.floordiv(i[d], repeats))), "T_repeat")


def tile(a: Tensor, reps: Any) -> Any:
    times = integers(reps)
    rank = max(a.ndim, len(times))
    times = [1] * (rank - len(times)) + times
    own = [ops.const(1)] * (rank - a.ndim) + list(a.shape)

    def element(*i: Any) -> Any:
        at = [te.floormod(v, e) for v, e in zip(i, own, strict=True)]
        return a(*at[rank - a.ndim :])

    return moved([ops.mul(e, t) for e, t in zip(own, times, strict=True)], element, "T_tile")


def layout_transform(
    array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> Any:
    """Dimensions in another order, and split into parts: "NCHW" to "NCHW4c"."""
    source, target = _layout(src_layout), _layout(dst_layout)
    if {n.upper() for n, _ in source} != {n.upper() for n, _ in target}:
        raise LanguageError(
            f"layout_transform: {src_layout!r} and {dst_layout!r} have other dimensions"
        )
    extents: dict[str, Any] = {}
    for (name, _), extent in zip(source, array.shape, strict=True):
        extents[name.upper()] = ops.mul(extents.get(name.upper(), ops.const(1)), extent)
    inner = {n.upper(): f for n, f in target if n.islower()}
    shape = [
        ops.const(f)
        if n.islower()
        else ops.floordiv(extents[n] + inner.get(n, 1) - 1, inner.get(n, 1))
        for n, f in target
    ]
    packed = {n.upper(): f for n, f in source if n.islower()}

    def element(*i: Any) -> Any:
        whole: dict[str, Any] = {}
        for (name, _), v in zip(target, i, strict=True):
            step = 1 if name.islower() else inner.get(name, 1)
            whole[name.upper()] = whole.get(name.upper(), 0) + v * step
        at = []
        for name, factor in source:
            v = whole[name.upper()]
            if name.islower():
                at.append(te.floormod(v, factor))
            else:
                at.append(te.floordiv(v, packed[name]) if name in packed else v)
        return array(*at)

    return moved(shape, element, "T_layout_trans")


def _layout(text: str) -> list[tuple[str, int]]:
    """The dimensions of a layout: "NCHW4c" has a part of 4 channels last."""
    found, number = [], ""
    if not isinstance(text, str):
        raise LanguageError(f'a layout is written like "NCHW" or "NCHW4c", got {text!r}')
    for letter in text:
        if letter.isdigit():
            number += letter
        else:
            found.append((letter, int(number or 1)))
            number = ""
    return found


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        broadcast_to, concatenate, expand_dims, expand_like, flip, layout_transform, repeat,
        dynamic_strided_slice, reshape, reverse_sequence, split, squeeze, stack, strided_set,
        strided_slice, tile, transpose,
    )
}  # fmt: skip
