"""topi's functions of indices that are data: gathers, scatters and orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.te.arithmetic import common_shape, elementwise, read
from tilewright.topi.reduction import above, dimension
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.numbers import full
from tilewright.tvm.topi.shapes import unravel_index as indices_of
from tilewright.tvm.topi.transform import (
    broadcast_to,
    expand_dims,
    integers,
    moved,
    number,
    product,
    put,
    reshape,
    transpose,
)


def _index(i: Any) -> Any:
    """An index of a type that indices have; real numbers are cut."""
    return i if i.dtype.is_int and i.dtype.bits >= 32 else i.astype("int32")


def _inside(i: Any, extent: Any, mode: str = "clip") -> Any:
    i = _index(i)
    extent = ops.cast(i.dtype, extent)
    if mode == "wrap":
        return te.floormod(te.floormod(i, extent) + extent, extent)
    return te.max(te.min(i, extent - te.const(1, i.dtype)), te.const(0, i.dtype))


def _negative(i: Any, extent: Any) -> Any:
    i = _index(i)
    return _inside(te.Select(i < 0, i + ops.cast(i.dtype, extent), i), extent)


def take(a: Tensor, indices: Any, axis: Any = None, batch_dims: int = 0, mode: str = "clip") -> Any:
    if axis is None:
        a, axis = reshape(a, (product(a.shape),)), 0
    d = dimension(axis, a.ndim)
    if not isinstance(indices, Tensor):
        return moved(
            [e for k, e in enumerate(a.shape) if k != d],
            lambda *i: a(*i[:d], _inside(ops.as_expr(indices), a.shape[d]), *i[d:]),
            "T_take",
        )
    rank = indices.ndim
    shape = [*a.shape[:d], *indices.shape[batch_dims:], *a.shape[d + 1 :]]

    def element(*i: Any) -> Any:
        own = i[d : d + rank - batch_dims]
        place = indices(*i[:batch_dims], *own)
        return a(*i[:d], _inside(place, a.shape[d], mode), *i[d + rank - batch_dims :])

    return moved(shape, element, "T_take")


def gather(data: Tensor, axis: int, indices: Tensor) -> Any:
    d = dimension(axis, data.ndim)
    return moved(
        indices.shape,
        lambda *i: data(*put(i, d, _negative(indices(*i), data.shape[d]))),
        "T_gather",
    )


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Any:
    depth = integers(indices.shape[0])[0]
    if not 0 <= batch_dims <= a.ndim - depth:
        raise LanguageError(f"gather_nd: {depth} indices behind {batch_dims} dimensions of {a}")
    outer = indices.shape[1:]

    def element(*i: Any) -> Any:
        own, rest = i[: len(outer)], i[len(outer) :]
        at = [_negative(indices(k, *own), a.shape[batch_dims + k]) for k in range(depth)]
        return a(*own[:batch_dims], *at, *rest)

    return moved([*outer, *a.shape[batch_dims + depth :]], element, "T_gather_nd")


def one_hot(
    indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str
) -> Any:
    d = indices.ndim if axis == -1 else dimension(axis, indices.ndim + 1)
    shape = [*indices.shape[:d], depth, *indices.shape[d:]]

    def element(*i: Any) -> Any:
        here = indices(*i[:d], *i[d + 1 :]).equal(ops.cast(indices.dtype, i[d]))
        return te.Select(
            here, te.const(number(on_value), dtype), te.const(number(off_value), dtype)
        )

    return moved(shape, element, "T_one_hot")


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Any:
    d = dimension(axis, data.ndim)

    def element(*i: Any) -> Any:
        length = valid_length(i[1 - d])
        inside = ops.cast(length.dtype, i[d]) < length
        return te.if_then_else(inside, data(*i), te.const(number(mask_value), data.dtype))

    return moved(data.shape, element, "T_sequence_mask")


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Any:
    shape = common_shape([x.shape for x in indices])

    def element(*i: Any) -> Any:
        own = i[: len(shape)]
        at = [_negative(read(x, own), data.shape[k]) for k, x in enumerate(indices)]
        return data(*at, *i[len(shape) :])

    return moved([*shape, *data.shape[len(indices) :]], element, "T_adv_index")


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Any:
    d = dimension(axis, data.ndim)
    k = te.reduce_axis((0, indices.shape[d]), "k")

    def matches(i: Any) -> tuple[Any, Any]:
        at = put(i, d, k.var)
        rest = te.all(
            *(v < e for n, (v, e) in enumerate(zip(i, indices.shape, strict=True)) if n != d)
        )
        at = tuple(
            te.min(v, e - 1) if n != d else v
            for n, (v, e) in enumerate(zip(at, indices.shape, strict=True))
        )
        place = _negative(indices(*at), data.shape[d])
        return te.all(rest, place.equal(ops.cast(place.dtype, i[d]))), at

    return _scattered(data, k, matches, updates, reduction)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Any:
    depth, outer = integers(indices.shape[0])[0], indices.shape[1:]
    k = te.reduce_axis((0, product(outer)), "k")

    def matches(i: Any) -> tuple[Any, Any]:
        own = indices_of(k.var, outer)
        here = [
            _negative(indices(n, *own), data.shape[n]).equal(ops.cast(indices.dtype, i[n]))
            for n in range(depth)
        ]
        return te.all(*here), (*own, *i[depth:])

    return _scattered(data, k, matches, updates, mode)


def _scattered(data: Tensor, k: Any, matches: Any, updates: Tensor, how: str) -> Any:
    """``data`` with the updates that belong to each element, found among all of them."""
    start = {"add": 0, "mul": 1}.get(how)
    if how in ("add", "mul", "min", "max"):
        combiners: dict[str, Any] = {"add": te.sum, "mul": te.prod, "min": te.min, "max": te.max}
        combine = combiners[how]

        def part(*i: Any) -> Any:
            here, at = matches(i)
            none = (
                te.const(start, data.dtype)
                if start is not None
                else (te.max_value(data.dtype) if how == "min" else te.min_value(data.dtype))
            )
            return combine(te.if_then_else(here, updates(*at), none), axis=k)

        parts: Any = te.compute(data.shape, part, "T_scatter_parts", tag="comm_reduce")
        join = {"add": "add", "mul": "mul"}.get(how, te.min if how == "min" else te.max)
        return elementwise(join, data, parts, name="T_scatter")
    if how != "update":
        raise LanguageError(f"scatter: {how!r} is none of update, add, mul, min and max")

    def last(*i: Any) -> Any:
        here, _ = matches(i)
        return te.max(te.Select(here, k.var.astype("int32"), te.const(-1, "int32")), axis=k)

    places: Any = te.compute(data.shape, last, "T_scatter_places", tag="comm_reduce")

    def element(*i: Any) -> Any:
        from tilewright.ir.visit import substitute

        _, at = matches(i)
        assert k.dom is not None
        place = nearest(places(*i), k.dom.extent)
        value = substitute(updates(*at), {k.var: place})
        return te.if_then_else(places(*i) < 0, data(*i), value)

    return moved(data.shape, element, "T_scatter")


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Any, sparse_values: Tensor, default_value: Any = 0
) -> Any:
    shape = integers(output_shape)
    start = full(shape, sparse_values.dtype, number(default_value))
    rows = sparse_indices
    if rows.ndim == 0:
        rows = reshape(rows, (1, 1))
    elif rows.ndim == 1:
        rows = expand_dims(rows, 0) if len(shape) == 1 else reshape(rows, (len(shape), 1))
    else:
        rows = transpose(rows)
    values = sparse_values if sparse_values.ndim else broadcast_to(sparse_values, rows.shape[1:])
    return scatter_nd(start, rows, values, "update")


def unravel_index(indices: Tensor, shape: Any) -> Any:
    rank = integers(shape.shape[0])[0] if isinstance(shape, Tensor) else len(shape)

    def element(d: Any, *i: Any) -> Any:
        place, found = indices(*i), None
        parts = []
        for k in reversed(range(rank)):
            extent = shape(k) if isinstance(shape, Tensor) else ops.as_expr(shape[k])
            parts.append(te.floormod(place, ops.cast(place.dtype, extent)))
            place = te.floordiv(place, ops.cast(place.dtype, extent))
        for k, part in enumerate(reversed(parts)):
            found = part if found is None else te.Select(d.equal(k), part, found)
        return found

    return moved((rank, *indices.shape), element, "T_unravel_index")


def invert_permutation(data: Tensor) -> Any:
    k = te.reduce_axis((0, data.shape[0]), "k")
    return te.compute(
        data.shape,
        lambda i: te.sum(
            te.Select(data(k).equal(i.astype(data.dtype)), k.var.astype(data.dtype),
                      te.const(0, data.dtype)), axis=k,
        ),
        "T_invert_permutation", tag="comm_reduce",
    )  # fmt: skip


def _ranks(data: Tensor, d: int, ascending: Any) -> Any:
    """How many elements of its line come before each, or behind it in ``ascending`` order; NaN is
    above all numbers."""
    k = te.reduce_axis((0, data.shape[d]), "k")

    def element(*i: Any) -> Any:
        value, other = data(*i), data(*put(i, d, k.var))
        beside = k.var > i[d] if ascending else k.var < i[d]
        return te.sum(above(other, value, beside).astype("int32"), axis=k)

    return te.compute(data.shape, element, "T_ranks", tag="comm_reduce")


def _ordered(data: Tensor, d: int, ascending: Any, count: Any, value: Any, name: str) -> Any:
    """By place in the order, what ``value`` says of the element that comes there."""
    ranks = _ranks(data, d, ascending)

    def combine(*i: Any) -> Any:
        at = put(i, d, k.var)
        place = data.shape[d] - 1 - i[d] if ascending else i[d]
        here = ranks(*at).equal(place.astype("int32"))
        found = value(at)
        return te.sum(te.Select(here, found, te.const(0, found.dtype)), axis=k)

    k = te.reduce_axis((0, data.shape[d]), "k")
    return te.compute(put(data.shape, d, count), combine, name, tag="comm_reduce")


def argsort(
    data: Tensor, valid_count: Any = None, axis: int = -1, is_ascend: int = 1,
    dtype: str = "float32",
) -> Any:  # fmt: skip
    if valid_count is not None:
        raise LanguageError("argsort: valid_count is not supported; mask what does not count")
    d = dimension(axis, data.ndim)
    return _ordered(data, d, is_ascend, data.shape[d], lambda at: at[d].astype(dtype), "T_argsort")


def sort(data: Tensor, axis: int = -1, is_ascend: int = 1) -> Any:
    d = dimension(axis, data.ndim)
    return _ordered(data, d, is_ascend, data.shape[d], lambda at: data(*at), "T_sort")


def topk(
    data: Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:  # fmt: skip
    d = dimension(axis, data.ndim)
    count = integers(k)[0]
    many = ops.const(count) if count > 0 else data.shape[d]
    found = []
    if ret_type in ("both", "values"):
        found.append(_ordered(data, d, is_ascend, many, lambda at: data(*at), "T_topk"))
    if ret_type in ("both", "indices"):
        found.append(
            _ordered(data, d, is_ascend, many, lambda at: at[d].astype(dtype), "T_topk_places")
        )
    return found if ret_type == "both" else found[0]


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Any:
    k = te.reduce_axis((0, sorted_sequence.shape[-1]), "k")

    def element(*i: Any) -> Any:
        at = (*i[: sorted_sequence.ndim - 1], k.var)
        low, value = sorted_sequence(*at), values(*i)
        return te.sum((low <= value if right else low < value).astype(out_dtype), axis=k)

    return te.compute(values.shape, element, "T_searchsorted", tag="comm_reduce")


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        adv_index, argsort, gather, gather_nd, invert_permutation, one_hot, scatter_elements,
        scatter_nd, searchsorted, sequence_mask, sort, sparse_to_dense, take, topk,
        unravel_index,
    )
}  # fmt: skip
