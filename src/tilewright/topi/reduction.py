"""Reductions over some dimensions of a tensor, under TVM's names."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.broadcast import shape_of
from tilewright.topi.elementwise import elementwise, identity

#: The tags of stages that reduce, and of others that are computed once, for all that read them.
REDUCE, STORED = "comm_reduce", "stored"


def dimension(axis: int, rank: int) -> int:
    """An axis counted from the front; raises :class:`LanguageError` where there is none."""
    try:
        axis = operator.index(axis)
    except TypeError:
        raise LanguageError(f"an axis is an integer, got {axis!r}") from None
    if not -rank <= axis < rank:
        raise LanguageError(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % rank


def _axes(x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    given = (axis,) if isinstance(axis, int) else axis
    return tuple(sorted({dimension(a, x.ndim) for a in given}))


def reduce(
    x: Tensor,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    combine: Callable[..., Any],
    name: str,
) -> Tensor:
    """``combine`` over the elements along ``axis``, all by default; ``combine`` takes a value, the
    indices of what is reduced, and axes."""
    axes, shape = _axes(x, axis), shape_of(x)
    if not axes:
        return identity(x)
    kept = [e for d, e in enumerate(shape) if d not in axes]
    extents = [1 if d in axes else e for d, e in enumerate(shape)] if keepdims else kept
    reduced = {d: te.reduce_axis((0, shape[d]), f"r{d}") for d in axes}

    def element(*i: Any) -> Any:
        own = iter(i if not keepdims else [v for d, v in enumerate(i) if d not in axes])
        at = tuple(reduced[d] if d in axes else next(own) for d in range(x.ndim))
        return combine(x[at], i, list(reduced.values()))

    made: Tensor = te.compute(tuple(extents), element, name=name, tag=REDUCE)
    return made


def sum(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The sum, of 16-bit floats in float32."""
    wide = "float32" if x.dtype.is_float and x.dtype.bits == 16 else x.dtype
    total = reduce(x, axis, keepdims, lambda v, _, r: te.sum(v.astype(wide), axis=r), "sum")
    if total.dtype == x.dtype:
        return total
    return elementwise(total, lambda v: v.astype(x.dtype), "sum_rounded")


def sums(*tensors: Tensor, axis: Any = None) -> Tensor:
    """The sums of several tensors of one shape and type, one behind the other along the first
    dimension where that is reduced, else along one before it; dimensions that are reduced stay,
    with one element each. An element of what all read is read once."""
    x = tensors[0]
    wide = "float32" if x.dtype.is_float and x.dtype.bits == 16 else x.dtype
    axes, shape = _axes(x, axis), shape_of(x)
    if any((t.dtype, shape_of(t)) != (x.dtype, shape) for t in tensors):
        raise LanguageError("sums of tensors of several shapes or types")
    before = 0 if 0 in axes else 1
    reduced = {d: te.reduce_axis((0, shape[d]), f"r{d}") for d in axes}

    def element(which: Any, *i: Any) -> Any:
        at = tuple(reduced.get(d, v) for d, v in enumerate((which, *i)[before:]))
        found = tensors[-1][at].astype(wide)
        for k, t in reversed(list(enumerate(tensors[:-1]))):
            found = te.Select(which.equal(k), t[at].astype(wide), found)
        return te.sum(found, axis=list(reduced.values()))

    extents = [1 if d in axes else e for d, e in enumerate(shape)]
    total: Tensor = te.compute(
        (len(tensors), *extents[1 - before :]), element, name="sums", tag=REDUCE
    )
    return total


def prod(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The product."""
    return reduce(x, axis, keepdims, lambda v, _, r: te.prod(v, axis=r), "prod")


def max(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element."""
    return reduce(x, axis, keepdims, lambda v, _, r: te.max(v, axis=r), "max")


def min(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element."""
    return reduce(x, axis, keepdims, lambda v, _, r: te.min(v, axis=r), "min")


def argmax(x: Tensor, axis: int = 0, keepdims: bool = False, last: bool = False) -> Tensor:
    """Where the largest element is, an int64: the first of several, or the ``last``; where there
    is NaN, where that is."""
    return _place(x, max(x, axis, True), axis, keepdims, last, "argmax")


def argmin(x: Tensor, axis: int = 0, keepdims: bool = False, last: bool = False) -> Tensor:
    """Where the smallest element is, an int64: the first of several, or the ``last``; where there
    is NaN, where that is."""
    return _place(x, min(x, axis, True), axis, keepdims, last, "argmin")


def _place(x: Tensor, extreme: Tensor, axis: int, keepdims: bool, last: bool, name: str) -> Tensor:
    axis = dimension(axis, x.ndim)

    def equal(*i: Any) -> Any:
        there = (*i[:axis], 0, *i[axis + 1 :])
        other = te.const(-1 if last else shape_of(x)[axis], "int64")
        found = x[i].equal(extreme[there])
        if x.dtype.is_float:
            found = te.any(found, te.isnan(x[i]))  # which is the extreme then, and equals nothing
        return te.Select(found, i[axis].astype("int64"), other)

    places: Tensor = te.compute(x.shape, equal, name=f"{name}_places", tag="injective")
    return (max if last else min)(places, axis, keepdims)


def above(a: Any, b: Any, beside: Any) -> Any:
    """Whether ``a`` is larger than ``b``, or as large and ``beside`` holds. NaN is above all
    numbers, and as large as NaN."""
    if a.dtype.is_float:
        nan = te.isnan(b)
        larger = te.logical_not(a <= te.Select(nan, te.max_value(b.dtype), b))
        larger = te.all(larger, te.any(te.logical_not(nan), beside))
    else:
        larger = a > b
    return te.any(larger, te.all(a.equal(b), beside))
