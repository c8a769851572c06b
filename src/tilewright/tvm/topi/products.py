"""topi's products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.te.arithmetic import common_shape, elementwise
from tilewright.topi.reduction import dimension
from tilewright.tvm.topi.elements import check_same


def _batch(x: Tensor, at: list[Any]) -> list[Any]:
    """The indices of a matrix among those of ``x``, which are broadcast from behind."""
    lead = x.shape[:-2]
    own = at[len(at) - len(lead) :]
    return [0 if ops.is_const(e, 1) else i for e, i in zip(lead, own, strict=True)]


def inner(name: str, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool) -> Any:
    """The extent that a product sums over; raises :class:`LanguageError` for operands that have
    none in common."""
    if min(a.ndim, b.ndim) < 2:
        raise LanguageError(f"{name} takes matrices, or batches of them, got {a} and {b}")
    first, second = a.shape[-2 if transpose_a else -1], b.shape[-1 if transpose_b else -2]
    check_same(f"{name} sums over extents of {a.name} and {b.name}", first, second)
    return first


def matmul(
    tensor_a: Tensor, tensor_b: Tensor, bias: Any = None, out_dtype: Any = None,
    transpose_a: bool = False, transpose_b: bool = False, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    out = str(out_dtype or tensor_a.dtype)
    shared = inner("matmul", tensor_a, tensor_b, transpose_a, transpose_b)
    k = te.reduce_axis((0, shared), "k")
    rows = tensor_a.shape[-1 if transpose_a else -2]
    columns = tensor_b.shape[-2 if transpose_b else -1]

    def element(*i: Any) -> Any:
        *b, m, n = i
        p, q = _batch(tensor_a, b), _batch(tensor_b, b)
        left = tensor_a(*p, k, m) if transpose_a else tensor_a(*p, m, k)
        right = tensor_b(*q, n, k) if transpose_b else tensor_b(*q, k, n)
        return te.sum(left.astype(out) * right.astype(out), axis=k)

    name = "T_dense" if transpose_b and not transpose_a else "T_matmul"
    batch = common_shape([tensor_a.shape[:-2], tensor_b.shape[:-2]])
    made = te.compute((*batch, rows, columns), element, name, tag="dense")
    return (
        made
        if bias is None
        else elementwise(
            "add", made, elementwise(lambda v: v.astype(out), bias, name="T_bias"), name="T_add"
        )
    )


def dense(
    data: Tensor, weight: Tensor, bias: Any = None, out_dtype: Any = None, *_: Any, **__: Any
) -> Any:
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, oshape: Any = None, out_dtype: Any = None,
    transpose_a: bool = False, transpose_b: bool = True, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    out = str(out_dtype or tensor_a.dtype)
    shared = inner("batch_matmul", tensor_a, tensor_b, transpose_a, transpose_b)
    if (tensor_a.ndim, tensor_b.ndim) != (3, 3):
        raise LanguageError(f"batch_matmul takes batches of matrices, got {tensor_a}, {tensor_b}")
    firsts = tensor_a.shape[0], tensor_b.shape[0]
    if not any(ops.is_const(e, 1) for e in firsts):
        check_same("batch_matmul has batches of", *firsts)
    k = te.reduce_axis((0, shared), "k")
    batch = tensor_b.shape[0] if ops.is_const(tensor_a.shape[0], 1) else tensor_a.shape[0]
    shape = (
        batch,
        tensor_a.shape[2 if transpose_a else 1],
        tensor_b.shape[1 if transpose_b else 2],
    )

    def element(b: Any, m: Any, n: Any) -> Any:
        p, q = (0 if ops.is_const(x.shape[0], 1) else b for x in (tensor_a, tensor_b))
        left = tensor_a(p, k, m) if transpose_a else tensor_a(p, m, k)
        right = tensor_b(q, n, k) if transpose_b else tensor_b(q, k, n)
        return te.sum(left.astype(out) * right.astype(out), axis=k)

    return te.compute(shape, element, "T_batch_matmul", tag="batch_matmul")


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Any:
    d = dimension(axis, data.ndim)
    return te.compute(data.shape, lambda *i: data(*i) + bias(i[d]), "T_bias_add", tag="broadcast")


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (batch_matmul, bias_add, dense, matmul)
}
