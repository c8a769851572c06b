"""ONNX's products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.shapes import part
from tilewright.graph.operation import Making
from tilewright.graph.passes.integer_products import integer_weights
from tilewright.graph.value import Constant, Node, Value
from tilewright.topi.operators.gemm import Gemm

#: Whole numbers are multiplied in doubles, which are exact up to 2**53.
_WIDE = "float64"
#: Rows of a matrix whose determinant is computed, at most: each is a few nodes.
_MOST_ROWS = 64


def matmul(n: Making, a: Value, b: Value) -> Value:
    """NumPy's product of matrices, or of batches of them."""
    if a.dtype not in Gemm.TYPES:
        return cast(matmul(n, cast(a, _WIDE), cast(b, _WIDE)), a.dtype)
    if not a.rank or not b.rank:
        raise n.error("it multiplies matrices, not scalars")
    if b.rank == 1:
        found = matmul(n, a, reshape(b, (*b.shape, 1)))
        return reshape(found, found.shape[:-1])
    if a.rank == 1:
        found = matmul(n, reshape(a, (1, *a.shape)), b)
        return reshape(found, (*found.shape[:-2], *found.shape[-1:]))
    if a.shape[-1] != b.shape[-2]:
        raise n.error(f"{a.shape} and {b.shape} are not multiplied")
    rows, columns = a.shape[-2], b.shape[-1]
    if math.prod(b.shape[:-2]) == 1 and a.rank >= b.rank:
        flat = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        found = _gemm_of(n, flat, reshape(b, b.shape[-2:]))
        return reshape(found, (*a.shape[:-1], columns))
    batch = _batch(n, a, b)
    a, b = (_repeated(n, x, batch) for x in (a, b))
    return reshape(_gemm_of(n, a, b), (*batch, rows, columns))


def _gemm_of(n: Making, a: Value, b: Value) -> Value:
    """The product of matrices, or of batches, read as they lie where they were transposed."""
    (a, turned_a), (b, turned_b) = _untransposed(a), _untransposed(b)
    return n("gemm", a, b, transpose_a=turned_a, transpose_b=turned_b)


def _untransposed(x: Value) -> tuple[Value, bool]:
    """What was transposed to matrices, or to batches of them, and whether something was."""
    if isinstance(x, Constant) and x.rank == 2 and x.array.flags.fnc:
        return Constant(x.array.T, x.name), True
    source = x.inputs[0] if isinstance(x, Node) and x.operator == "reshape" else x
    if isinstance(source, Node) and source.operator == "transpose" and x.rank in (2, 3):
        swapped = (*range(source.rank - 2), source.rank - 1, source.rank - 2)
        if source.attributes["axes"] == swapped and source.shape[-2:] == x.shape[-2:]:
            (whole,) = source.inputs
            return reshape(whole, (*x.shape[:-2], *whole.shape[-2:])), True
    return x, False


def _batch(n: Making, a: Value, b: Value) -> tuple[int, ...]:
    from tilewright.ir.errors import LanguageError
    from tilewright.topi.broadcast import common_shape

    try:
        return common_shape(a.shape[:-2], b.shape[:-2])
    except LanguageError as error:
        raise n.error(str(error)) from None


def _repeated(n: Making, x: Value, batch: tuple[int, ...]) -> Value:
    """Matrices, one for each of a batch; of a batch of one they are no batch."""
    whole = n("broadcast_to", x, shape=(*batch, *x.shape[-2:]))
    count = math.prod(batch)
    return reshape(whole, (count, *x.shape[-2:]) if count > 1 else x.shape[-2:])


def _matmul(n: Operation) -> Value:
    return matmul(n, n[0], n[1])


def _gemm(n: Operation) -> Value:
    a, b = n[0], n[1]
    kind = a.dtype
    if kind not in Gemm.TYPES:
        a, b = cast(a, _WIDE), cast(b, _WIDE)
    if a.rank != 2 or b.rank != 2:
        raise n.error(f"{a.shape} and {b.shape} are no matrices")
    turned = {"transpose_a": bool(n.attribute("transA", 0)),
              "transpose_b": bool(n.attribute("transB", 0))}  # fmt: skip
    found = n("gemm", a, b, **turned)
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    found = found if alpha == 1 else n("multiply", found, float(alpha))
    if n.has(2) and beta != 0:
        c = cast(n[2], found.dtype)
        found = n("add", found, c if beta == 1 else n("multiply", c, float(beta)))
    return cast(found, kind)


def _matmul_integer(n: Operation) -> Value:
    weights = integer_weights(n[1], n[3] if n.has(3) else 0) if n[1].rank == 2 else None
    if weights is not None:
        found = matmul(n, n[0], weights)
        if not n.has(2):
            return found
        zero = _of_rows(cast(n[2], "int32"))  # it may be measured while the model runs
        sums = constant(weights.array.sum(axis=0, dtype="int32"))
        return n("subtract", found, n("multiply", zero, sums))
    a, b = (_less(n, k) for k in (0, 1))
    return cast(matmul(n, a, b), "int32")


def _less(n: Operation, k: int) -> Value:
    """An operand less its zero point, which rows of A may have each, and columns of B."""
    x = cast(n[k], _WIDE)
    if not n.has(k + 2):
        return x
    zero = cast(n[k + 2], _WIDE)
    return n("subtract", x, _of_rows(zero) if k == 0 else zero)


def _of_rows(zero: Value) -> Value:
    """Zero points of A: one a row, or one for all."""
    return reshape(zero, (*zero.shape, 1)) if zero.rank == 1 and zero.shape[0] > 1 else zero


def _det(n: Operation) -> Value:
    """Determinants of matrices, by elimination: of a column the largest element is the pivot."""
    x, size = n[0], n[0].shape[-1]
    if x.rank < 2 or x.shape[-2] != size or size > _MOST_ROWS:
        raise n.error(f"determinants of {x.shape}")
    a = reshape(x, (math.prod(x.shape[:-2]), size, size))
    total: Value = constant(np.ones((a.shape[0], 1, 1)), x.dtype)
    for rows in range(size, 0, -1):
        first = part(n, a, [0, 0, 0], [1] * 3, [a.shape[0], 1, rows])
        column = part(n, a, [0, 0, 0], [1] * 3, [a.shape[0], rows, 1])
        place = n("argmax", n("abs", column), axis=1, keepdims=True)
        row = n("gather", a, n("broadcast_to", place, shape=first.shape), axis=1)
        pivot = part(n, row, [0, 0, 0], [1] * 3, [a.shape[0], 1, 1])
        stays = n("equal", place, 0)
        total = n("multiply", total, n("where", stays, pivot, n("negative", pivot)))
        if rows == 1:
            break
        # The first row goes to where the pivot was.
        numbers = constant(np.arange(rows).reshape(1, rows, 1), "int64")
        left = n("where", n("equal", numbers, place), first, a)
        left = part(n, left, [0, 1, 0], [1] * 3, [a.shape[0], rows - 1, rows])
        safe = n("where", n("equal", pivot, 0.0), constant(1, x.dtype), pivot)
        row = n("divide", row, safe)
        column, row, left = (
            part(n, left, [0, 0, 0], [1] * 3, [a.shape[0], rows - 1, 1]),
            part(n, row, [0, 0, 1], [1] * 3, [a.shape[0], 1, rows - 1]),
            part(n, left, [0, 0, 1], [1] * 3, [a.shape[0], rows - 1, rows - 1]),
        )
        a = n("subtract", left, n("multiply", column, row))
    return reshape(total, x.shape[:-2])


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "Det": _det, "Gemm": _gemm, "MatMul": _matmul, "MatMulInteger": _matmul_integer,
}  # fmt: skip
