"""topi's products with sparse matrices in rows: of numbers (CSR), or of dense blocks (BSR).

``data`` are the numbers (n) or blocks (n, rows, columns) or (n, rows) row by row, ``indices`` their
columns, and ``indptr`` where each row starts, and the last one ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.te.arithmetic import elementwise
from tilewright.tvm import ir_builder
from tilewright.tvm.csr import CSRPlaceholder
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.transform import integers


def _row(matrix: tuple[Tensor, Tensor, Tensor], n: Any, extent: Any, dense: Any) -> Any:
    """The sum of row ``n``'s numbers times ``dense(column)``; columns are below ``extent``."""
    data, indices, indptr = matrix
    blocked = data.ndim > 1
    high, wide = (*integers(data.shape[1:]), 1, 1)[:2]
    row = te.floordiv(n, high) if blocked else n
    start = indptr(row).astype("int32")
    k = te.reduce_axis((0, indptr(row + 1).astype("int32") - start), "k")
    at = start + k.var
    column = indices(at).astype("int32")
    axes = [k]
    if data.ndim == 3:
        c = te.reduce_axis((0, wide), "c")
        axes.append(c)
        column = column * wide + c.var
        value = data(at, te.floormod(n, high), c.var)
    else:
        value = data(at, te.floormod(n, high)) if blocked else data(at)
    value = value * dense(column)
    none = te.const(0, value.dtype)
    inside = te.if_then_else(te.all(column >= 0, column < extent), value, none)
    return te.sum(te.if_then_else(te.all(at >= 0, at < data.shape[0]), inside, none), axis=axes)


def _rows(matrix: tuple[Tensor, Tensor, Tensor]) -> Any:
    """How many rows a sparse matrix has."""
    count = ops.sub(matrix[2].shape[0], 1)
    return ops.mul(count, matrix[0].shape[1]) if matrix[0].ndim > 1 else count


def sparse_dense(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor,
    sparse_lhs: bool = False,
) -> Any:  # fmt: skip
    """A matrix (m, k) times the transpose of a sparse one (n, k); with ``sparse_lhs`` the sparse
    one times the transpose of the other: the transpose of the result."""
    matrix = (sparse_data, sparse_indices, sparse_indptr)
    rows, (many, width) = _rows(matrix), dense_data.shape

    def element(*i: Any) -> Any:
        m, n = i[::-1] if sparse_lhs else i
        return _row(matrix, n, width, lambda column: dense_data(m, column))

    shape = (rows, many) if sparse_lhs else (many, rows)
    return te.compute(shape, element, "T_sparse_dense", tag="sparse_dense")


def sparse_dense_sp_lhs(data: Tensor, indices: Tensor, indptr: Tensor, weight: Tensor) -> Any:
    return sparse_dense(weight, data, indices, indptr, True)


def sparse_conv2d(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor,
    layout: str = "NHWC", kernel_size: int = 1,
) -> Any:  # fmt: skip
    """A convolution with a sparse kernel of one element a channel."""
    if kernel_size != 1:
        raise LanguageError("sparse_conv2d: the kernel is to have one element a channel")
    matrix, d = (sparse_data, sparse_indices, sparse_indptr), layout.index("C")

    def element(*i: Any) -> Any:
        return _row(matrix, i[d], dense_data.shape[d], lambda c: dense_data(*i[:d], c, *i[d + 1 :]))

    shape = (*dense_data.shape[:d], _rows(matrix), *dense_data.shape[d + 1 :])
    return te.compute(shape, element, "T_sparse_conv2d", tag="sparse_conv2d")


def sparse_add(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor
) -> Any:
    """The sum of a matrix and a sparse one; the work is that of the rows' numbers times columns."""

    def element(m: Any, n: Any) -> Any:
        start = sparse_indptr(m).astype("int32")
        k = te.reduce_axis((0, sparse_indptr(m + 1).astype("int32") - start), "k")
        at, none = start + k.var, te.const(0, sparse_data.dtype)
        here = sparse_indices(at).astype("int32").equal(ops.cast("int32", n))
        value = te.Select(here, sparse_data(at), none)
        known = te.all(at >= 0, at < sparse_data.shape[0])
        return te.sum(te.if_then_else(known, value, none), axis=k)

    part = te.compute(dense_data.shape, element, "T_sparse_part", tag="sparse_add")
    return elementwise("add", dense_data, part, name="T_sparse_add")


def sparse_transpose(sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor) -> Any:
    """The transpose of a square matrix: its numbers, columns and starts of rows, for "llvm"."""
    count, rows = integers(sparse_data.shape)[0], integers(sparse_indptr.shape)[0] - 1

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        data, indices, indptr = (ib.buffer_ptr(b) for b in ins)
        out, columns, starts = (ib.buffer_ptr(b) for b in outs)

        with ib.for_range(0, rows + 1, "r") as r:
            starts[r] = te.const(0, "int32")
        with ib.for_range(0, count, "i") as i:
            column = ib.let("column", nearest(indices[i], rows) + 1)
            starts[column] = starts[column] + 1
        with ib.for_range(0, rows, "r") as r:
            starts[r + 1] = starts[r + 1] + starts[r]
        # starts are moved on while numbers are placed, and back at the end
        with ib.for_range(0, rows, "r") as r:
            first = ib.let("first", nearest(indptr[r], count + 1))
            last = ib.let("last", te.max(nearest(indptr[r + 1], count + 1), first))
            with ib.for_range(first, last, "i") as i:
                column = ib.let("column", nearest(indices[i], rows))
                at = ib.let("at", nearest(starts[column], count))
                out[at], columns[at] = data[i], r
                starts[column] = at + 1
        with ib.for_range(0, rows, "r") as r:
            back = rows - r
            starts[back] = starts[back - 1]
        starts[0] = te.const(0, "int32")
        return ib.get()

    return list(
        te.extern(
            [(count,), (count,), (rows + 1,)], [sparse_data, sparse_indices, sparse_indptr], body,
            "sparse_transpose", [str(sparse_data.dtype), "int32", "int32"],
        )
    )  # fmt: skip


def csrmm(a: CSRPlaceholder, b: Tensor, c: Tensor | None = None) -> Any:
    """A sparse matrix (m, k) times a dense one (k, n), and a number ``c`` (m) added to each row."""
    matrix = (a.data, a.indices, a.indptr)
    made = te.compute(
        (a.shape[0], b.shape[1]),
        lambda m, n: _row(matrix, m, b.shape[0], lambda column: b(column, n)),
        "csrmm", tag="csrmm",
    )  # fmt: skip
    if c is None:
        return made
    return te.compute(made.shape, lambda m, n: made(m, n) + c(m), "csrmm_bias", tag="broadcast")


def dense(data: Any, weight: Any, bias: Tensor | None = None) -> Any:
    """``data @ weight.T + bias``, of which one is a :class:`CSRPlaceholder`."""
    sparse = next(x for x in (data, weight) if isinstance(x, CSRPlaceholder))
    matrix, lhs = (sparse.data, sparse.indices, sparse.indptr), sparse is data
    other = weight if lhs else data
    made = sparse_dense(other, *matrix, lhs)
    if bias is None:
        return made
    return te.compute(made.shape, lambda m, n: made(m, n) + bias(n), "dense_bias", tag="broadcast")


NN: dict[str, Callable[..., Any]] = {
    **{
        f.__name__: f
        for f in (
            sparse_add, sparse_conv2d, sparse_dense, sparse_dense_sp_lhs, sparse_transpose,
        )
    },
    "sparse_dense_sp_rhs": sparse_dense,
}  # fmt: skip
NAMES: dict[str, Callable[..., Any]] = {"csrmm": csrmm, "csrmv": csrmm, "dense": dense}
