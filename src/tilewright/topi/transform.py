"""Functions that move elements, under TVM's names: each is read from one place of one tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.topi.broadcast import proves_equal, shape_of
from tilewright.topi.nn.images import or_zero
from tilewright.topi.reduction import dimension

#: The tag of stages that read one element for each.
INJECTIVE = "injective"


def _moved(shape: Sequence[int], element: Any, name: str) -> Tensor:
    made: Tensor = te.compute(tuple(shape), element, name=name, tag=INJECTIVE)
    return made


def transpose(x: Tensor, axes: Sequence[int]) -> Tensor:
    """``x`` with its dimensions in another order: dimension ``d`` is its ``axes[d]``."""
    shape = shape_of(x)
    if sorted(axes) != list(range(x.ndim)):
        raise LanguageError(f"axes {tuple(axes)} do not permute {x.ndim} dimensions")

    def element(*i: Any) -> Any:
        return x[tuple(i[axes.index(d)] for d in range(x.ndim))] if x.ndim else x()

    return _moved([shape[a] for a in axes], element, "transpose")


def reshape(x: Tensor, newshape: Sequence[int]) -> Tensor:
    """The same elements in the same order, in another shape. First extents may be symbolic."""
    shape = shape_of(x)
    if any(not isinstance(e, int) for e in (*shape[1:], *newshape[1:])):
        raise LanguageError(f"{x.name} has an unknown extent behind the first: it has one there")
    if not proves_equal(math.prod(shape), math.prod(newshape)):
        raise LanguageError(f"{x.name} has {math.prod(shape)} elements, not as {newshape}")

    def element(*i: Any) -> Any:
        offset: Any = 0
        for k, extent in zip(i, newshape, strict=True):
            offset = offset * extent + k
        at = []
        for extent in reversed(shape):
            if not isinstance(extent, int):  # the first
                at.append(offset)
                break
            at.append(te.floormod(offset, extent) if extent > 1 else 0)
            offset = te.floordiv(offset, extent)
        return x[tuple(reversed(at))] if shape else x()

    return _moved(newshape, element, "reshape")


def strided_slice(
    x: Tensor, begin: Sequence[int], strides: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """As many elements of each dimension as ``shape`` says, from ``begin`` on, ``strides``
    apart."""

    def element(*i: Any) -> Any:
        return x[tuple(b + k * s for k, b, s in zip(i, begin, strides, strict=True))]

    return _moved(shape, element, "strided_slice")


def concatenate(*tensors: Tensor, axis: int = 0) -> Tensor:
    """Tensors one behind the other along ``axis``."""
    axis = dimension(axis, tensors[0].ndim)
    sizes = [shape_of(t)[axis] for t in tensors]
    shape = list(shape_of(tensors[0]))
    shape[axis] = sum(sizes)
    begins = [sum(sizes[:k]) for k in range(len(sizes))]

    def element(*i: Any) -> Any:
        def among(first: int, last: int) -> Any:
            # Halves of the tensors from first to last: many of them nest few conditions.
            if first == last:
                return tensors[first][(*i[:axis], i[axis] - begins[first], *i[axis + 1 :])]
            half = (first + last + 1) // 2
            return te.if_then_else(
                i[axis] < begins[half], among(first, half - 1), among(half, last)
            )

        return among(0, len(tensors) - 1)

    return _moved(shape, element, "concatenate")


def frames(x: Tensor, count: int, size: int, stride: int, before: int, width: int) -> Tensor:
    """Windows over the last dimension but one, as what lies in each: ``count`` of them, of ``size``
    places times the last dimension, filled up with zeros to ``width``. They are ``stride`` apart,
    and the first begins ``before`` the first place; beyond the ends are zeros."""
    *outer, extent, each = shape_of(x)

    def element(*index: Any) -> Any:
        *at, i, j = index
        place = i * stride + j // each - before
        inside = [place >= 0] if before else []
        inside += [place < extent] if (count - 1) * stride + size - before > extent else []
        inside += [j < size * each] if width > size * each else []
        return or_zero(inside, x[(*at, place, j % each)])

    return _moved([*outer, count, width], element, "frames")


def tile(x: Tensor, reps: Sequence[int]) -> Tensor:
    """``x`` repeated ``reps`` times along each dimension."""
    shape = shape_of(x)

    def element(*i: Any) -> Any:
        return x[tuple(k if r == 1 else k % e for k, e, r in zip(i, shape, reps, strict=True))]

    return _moved([e * r for e, r in zip(shape, reps, strict=True)], element, "tile")


def pad(x: Tensor, before: Sequence[int], after: Sequence[int], mode: str) -> Tensor:
    """``x`` with elements of its own around: of its "edge", "reflect" without it, or from the other
    side ("wrap")."""
    shape = shape_of(x)

    def place(k: Any, low: int, high: int, extent: int) -> Any:
        if not (low or high):
            return k
        k = k - low
        if mode == "edge":
            return te.clip(k, 0, extent - 1)
        if mode == "wrap":
            return te.floormod(k, extent)
        if extent == 1:
            return 0
        turn = te.floormod(k, 2 * (extent - 1))
        return te.min(turn, 2 * (extent - 1) - turn)

    def element(*i: Any) -> Any:
        return x[tuple(map(place, i, before, after, shape))]

    return _moved([sum(e) for e in zip(shape, before, after, strict=True)], element, "pad")


def _index(i: Any, extent: int) -> Any:
    """An index from data as a place: negative ones count from the end, others are brought
    inside."""
    return te.clip(te.Select(i < 0, i + extent, i), 0, extent - 1).astype("int32")


def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Slices of ``x`` along ``axis``, of each of the ``indices`` one."""
    axis = dimension(axis, x.ndim)
    shape, more = shape_of(x), shape_of(indices)

    def element(*i: Any) -> Any:
        at = i[axis : axis + len(more)]
        index = indices[at] if more else indices()
        return x[(*i[:axis], _index(index, shape[axis]), *i[axis + len(more) :])]

    return _moved([*shape[:axis], *more, *shape[axis + 1 :]], element, "take")


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """``x`` at the index of each element of ``indices`` but along ``axis``, where it is that
    element."""
    axis, extent = dimension(axis, x.ndim), shape_of(x)[dimension(axis, x.ndim)]

    def element(*i: Any) -> Any:
        return x[(*i[:axis], _index(indices[i], extent), *i[axis + 1 :])]

    return _moved(shape_of(indices), element, "gather")


def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Slices of ``x`` at the indices that lie along the last dimension of ``indices``."""
    shape, (*outer, depth) = shape_of(x), shape_of(indices)

    def element(*i: Any) -> Any:
        own, rest = i[: len(outer)], i[len(outer) :]
        found = [_index(indices[(*own, k)], shape[batch_dims + k]) for k in range(depth)]
        return x[(*own[:batch_dims], *found, *rest)]

    return _moved([*outer, *shape[batch_dims + depth :]], element, "gather_nd")


def one_hot(indices: Tensor, on: Tensor, off: Tensor, depth: int, axis: int) -> Tensor:
    """``on`` at the place along a new ``axis`` that an index says, and ``off`` elsewhere."""
    shape = list(shape_of(indices))
    axis = dimension(axis, len(shape) + 1)

    def element(*i: Any) -> Any:
        own = (*i[:axis], *i[axis + 1 :])
        index = indices[own] if own else indices()
        whole = te.Select(index < 0, index + depth, index)
        return te.Select(i[axis].astype(whole.dtype).equal(whole), on[(0,)], off[(0,)])

    return _moved([*shape[:axis], depth, *shape[axis:]], element, "one_hot")


def trilu(x: Tensor, k: int = 0, upper: bool = True) -> Tensor:
    """Matrices of which what is below the ``k``-th diagonal, or above it, is 0."""

    def element(*i: Any) -> Any:
        row, column = i[-2:]
        inside = column - row >= k if upper else column - row <= k
        return te.Select(inside, x[i], te.const(0, x.dtype))

    return _moved(shape_of(x), element, "trilu")


def resample(x: Tensor, places: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Along ``axis`` sums of a few elements: element ``i`` of ``x[places[i, t]] * weights[i, t]``
    over ``t``, which is how any interpolation of one dimension is written."""
    axis, extent = dimension(axis, x.ndim), shape_of(x)[dimension(axis, x.ndim)]
    count, taps = shape_of(places)
    t = te.reduce_axis((0, taps), "t")

    def element(*i: Any) -> Any:
        at = _index(places[i[axis], t], extent)
        value = x[(*i[:axis], at, *i[axis + 1 :])].astype(weights.dtype)
        return te.sum(value * weights[i[axis], t], axis=t)

    shape = list(shape_of(x))
    shape[axis] = count
    made: Tensor = te.compute(tuple(shape), element, name="resample", tag="comm_reduce")
    return made
