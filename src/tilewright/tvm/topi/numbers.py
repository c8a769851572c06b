"""topi's tensors that are made of numbers, and its sums of products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor
from tilewright.te.arithmetic import elementwise
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.elements import nearest, reduced
from tilewright.tvm.topi.products import inner
from tilewright.tvm.topi.transform import integers, moved, number, product


def full(shape: Any, dtype: str, fill_value: Any) -> Any:
    extents = shape if isinstance(shape, (list, tuple)) else (shape,)
    value = ops.cast(dtype, ops.as_expr(fill_value))
    return te.compute(tuple(extents), lambda *i: value, "T_full", tag="elemwise")


def full_like(x: Tensor, fill_value: Any) -> Any:
    return full(x.shape, x.dtype, fill_value)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    numbers = [number(v) for v in (first, last, step)]
    if all(isinstance(v, (int, float)) for v in numbers):
        count: Any = max(0, int(-(-(numbers[1] - numbers[0]) // numbers[2])))
    else:
        count = ops.ceildiv(ops.sub(last, first), step)
    return te.compute(
        (count,), lambda i: ops.cast(dtype, ops.add(first, ops.mul(step, i))), "T_arange",
        tag="injective",
    )  # fmt: skip


def eye(n: int, m: int | None = None, k: int = 0, dtype: str = "float32") -> Any:
    return moved(
        (n, m or n),
        lambda i, j: te.Select((j - i).equal(k), te.const(1, dtype), te.const(0, dtype)),
        "T_eye",
    )


def meshgrid(a_tuple: Sequence[Tensor], indexing: str) -> list[Any]:
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [product(a_tuple[k].shape) for k in order]
    return [
        moved(shape, lambda *i, x=x, k=k: x(*([i[order.index(k)]] if x.ndim else [])), "T_meshgrid")
        for k, x in enumerate(a_tuple)
    ]


def shape(array: Tensor, dtype: str = "int32") -> Any:
    def element(i: Any) -> Any:
        found = ops.cast(dtype, array.shape[0])
        for k, extent in enumerate(array.shape[1:], 1):
            found = te.Select(i.equal(k), ops.cast(dtype, extent), found)
        return found

    return moved((array.ndim,), element, "T_shape")


def ndarray_size(array: Tensor, dtype: str = "int32") -> Any:
    return moved((), lambda: ops.cast(dtype, product(array.shape)), "T_ndarray_size")


def trilu(data: Tensor, k: Any, upper: bool) -> Any:
    def element(*i: Any) -> Any:
        offset = k(*([0] * k.ndim)) if isinstance(k, Tensor) else ops.as_expr(k)
        far = (i[-1] - i[-2]).astype(offset.dtype)
        kept = far >= offset if upper else far <= offset
        return te.Select(kept, data(*i), te.const(0, data.dtype))

    return moved(data.shape, element, "T_trilu")


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    low, high = (integers(k) * 2)[:2]
    rows, columns = integers(data.shape[-2])[0], integers(data.shape[-1])[0]
    alone = low == high and diagonal.ndim == data.ndim - 1
    width = integers(diagonal.shape[-1])[0]

    def element(*i: Any) -> Any:
        row, column = i[-2], i[-1]
        far = column - row
        place = te.min(row, column)
        if not alone:
            upper = te.min(rows + te.min(far, 0), columns - te.max(far, 0))
            sup, sub_ = align.split("_")
            right = te.Select(
                far >= 0, te.const(int(sup == "RIGHT")), te.const(int(sub_ == "RIGHT"))
            )
            place = place + right * (width - upper)
        at = (*i[:-2], *([] if alone else [high - far]), place)
        at = tuple(nearest(v, e) for v, e in zip(at, diagonal.shape, strict=True))
        return te.if_then_else(te.all(far >= low, far <= high), diagonal(*at), data(*i))

    return moved(data.shape, element, "T_matrix_set_diag")


def sliding_window(data: Tensor, axis: int, window_shape: Any, strides: Any) -> Any:
    d, windows, steps = dimension(axis, data.ndim), integers(window_shape), integers(strides)
    inner = [integers(e)[0] for e in data.shape[d:]]
    counts = [(e - w) // s + 1 for e, w, s in zip(inner, windows, steps, strict=True)]

    def element(*i: Any) -> Any:
        outer, inside = i[d : d + len(counts)], i[d + len(counts) :]
        at = (o * s + v for o, s, v in zip(outer, steps, inside, strict=True))
        return data(*i[:d], *at)

    return moved((*data.shape[:d], *counts, *windows), element, "T_sliding_window")


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Any:
    k = te.reduce_axis((0, inner("matmul", a, b, transp_a, transp_b)), "k")
    return te.compute(
        (a.shape[1 if transp_a else 0], b.shape[0 if transp_b else 1]),
        lambda i, j: te.sum(
            (a(k, i) if transp_a else a(i, k)) * (b(j, k) if transp_b else b(k, j)), axis=k
        ),
        "T_matmul", tag="matmul",
    )  # fmt: skip


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Any:
    if isinstance(axes, (list, tuple)) and len(axes) == 2:
        left, right = (
            [dimension(d, x.ndim) for d in integers(g)] for x, g in zip((a, b), axes, strict=True)
        )
    else:
        count = integers(axes)[0]
        left, right = list(range(a.ndim - count, a.ndim)), list(range(count))
    free = [d for d in range(a.ndim) if d not in left], [d for d in range(b.ndim) if d not in right]
    over = [te.reduce_axis((0, a.shape[d]), f"k{d}") for d in left]
    shape = [*(a.shape[d] for d in free[0]), *(b.shape[d] for d in free[1])]

    def element(*i: Any) -> Any:
        mine, other = i[: len(free[0])], i[len(free[0]) :]
        at = {**dict(zip(free[0], mine, strict=True)), **dict(zip(left, over, strict=True))}
        bt = {**dict(zip(free[1], other, strict=True)), **dict(zip(right, over, strict=True))}
        value = a(*(at[d] for d in range(a.ndim))) * b(*(bt[d] for d in range(b.ndim)))
        return te.sum(value, axis=over) if over else value

    return te.compute(tuple(shape), element, "T_tensordot", tag="matmul")


def einsum(subscripts: str, *operand: Tensor) -> Any:
    """The sum over the letters that are not in the result; "..." are the dimensions that are left,
    broadcast from behind, and an extent of 1 is repeated."""
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    terms, rest = given.split(","), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    counts = [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, operand, strict=False)]
    many = max([0, *(n for n, t in zip(counts, terms, strict=False) if "..." in t)])
    whole = rest[:many]
    terms = [
        t.replace("...", whole[many - max(n, 0) :]) for t, n in zip(terms, counts, strict=False)
    ]
    fits = all(len(t) == x.ndim for t, x in zip(terms, operand, strict=False))
    if len(given.split(",")) != len(operand) or not fits:
        raise LanguageError(
            f"einsum: {subscripts!r} does not say the axes of {len(operand)} tensors"
        )
    letters = "".join(terms)
    result = result.replace("...", whole)
    if not arrow:
        once = {c for c in letters if letters.count(c) == 1 and c not in whole}
        result = whole + "".join(sorted(once))
    extents: dict[str, Any] = {}
    for t, x in zip(terms, operand, strict=True):
        for c, e in zip(t, x.shape, strict=True):
            if c not in extents or ops.is_const(extents[c], 1):
                extents[c] = e
    over = {c: te.reduce_axis((0, e), c) for c, e in extents.items() if c not in result}

    def read(x: Tensor, term: str, at: dict[str, Any]) -> Any:
        if not x.ndim:
            return x.as_scalar()
        index, inside = [], []
        for c, e in zip(term, x.shape, strict=True):
            i = at[c]
            if e is not extents[c] and not isinstance(
                e, IntImm
            ):  # another variable, which may be 1
                i = te.min(i, e - 1)
                inside.append(e > 0)
            index.append(0 if ops.is_const(e, 1) else i)
        value = x(*index)
        return te.if_then_else(te.all(*inside), value, te.const(0, x.dtype)) if inside else value

    def element(*i: Any) -> Any:
        at = {**dict(zip(result, i, strict=True)), **over}
        values = [read(x, t, at) for t, x in zip(terms, operand, strict=True)]
        value = functools.reduce(ops.mul, values)
        return te.sum(value, axis=list(over.values())) if over else value

    return te.compute(tuple(extents[c] for c in result), element, "T_einsum", tag="matmul")


def elemwise_sum(xs: Sequence[Tensor]) -> Any:
    if len(xs) == 1:
        return elementwise(lambda v: v, xs[0], name="T_sum")
    return functools.reduce(lambda a, b: elementwise("add", a, b, name="T_sum"), xs)


def collapse_sum(data: Tensor, target_shape: Any) -> Any:
    goal = [ops.as_index(e) for e in target_shape]
    extra = data.ndim - len(goal)
    summed = [
        ops.is_const(e, 1) and not ops.is_const(data.shape[extra + d], 1)
        for d, e in enumerate(goal)
    ]
    axes = [*range(extra), *(extra + d for d, gone in enumerate(summed) if gone)]
    total = reduced(data, axes, False, lambda v, _, k: te.sum(v, axis=k), "T_collapse_sum")
    return moved(
        goal, lambda *i: total(*(v for v, gone in zip(i, summed, strict=True) if not gone)), "T_sum"
    )


def dft(re_data: Tensor, im_data: Tensor, inverse: Any) -> list[Any]:
    """The discrete Fourier transform along the last dimension, the inverse divided by its
    length."""
    length = re_data.shape[-1]
    sign = 1.0 if number(inverse) else -1.0
    k = te.reduce_axis((0, length), "k")

    def part(real: bool) -> Callable[..., Any]:
        def element(*i: Any) -> Any:
            turn = te.floormod(i[-1] * k.var, length).astype(re_data.dtype)
            angle = (
                turn
                * te.const(sign * 6.283185307179586, re_data.dtype)
                / ops.cast(re_data.dtype, length)
            )
            re, im = re_data(*i[:-1], k), im_data(*i[:-1], k)
            value = (
                re * te.cos(angle) - im * te.sin(angle)
                if real
                else re * te.sin(angle) + im * te.cos(angle)
            )
            return te.sum(value / ops.cast(re_data.dtype, length) if sign > 0 else value, axis=k)

        return element

    return [
        te.compute(re_data.shape, part(real), f"T_dft_{real}", tag="comm_reduce")
        for real in (True, False)
    ]


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        arange, collapse_sum, dft, einsum, elemwise_sum, eye, full, full_like,
        matmul, matrix_set_diag, meshgrid, ndarray_size, shape, sliding_window,
        tensordot, trilu,
    )
}  # fmt: skip
