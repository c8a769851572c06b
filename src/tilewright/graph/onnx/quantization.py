"""ONNX's quantised numbers: an integer stands for ``(q - zero_point) * scale``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import build, cast, constant, reshape
from tilewright.graph.onnx.narrow import Narrow, NarrowFloat, NarrowInt
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.products import matmul
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.onnx.windows import biased, convolution
from tilewright.graph.passes.integer_products import integer_weights
from tilewright.graph.value import Constant, Node, Operand, Value

#: Types of quantised activations and weights.
BYTES = ("int8", "uint8")
#: Types of scales and zero points that are written as numbers.
_NUMBERS = ("float32", "int8", "uint8", "int16", "uint16", "int32")


def _fit(n: Operation, p: Value, x: Value) -> Value:
    """A scale, or a zero point, in a shape that is broadcast to that of ``x``: one for all, one an
    index of the node's axis, or one a block along it."""
    if p.rank == 0 or (p.rank == 1 and p.shape[0] == 1):
        return reshape(p, ())
    axis = n.axis(n.attribute("axis", 1), x.rank)
    if p.rank == 1:
        return reshape(p, tuple(p.shape[0] if d == axis else 1 for d in range(x.rank)))
    size = n.attribute("block_size", 0) or -(-x.shape[axis] // p.shape[axis])
    places = np.arange(x.shape[axis], dtype=np.int32) // size
    return n("take", p, constant(places), axis=axis)


def _known(p: Value | None) -> Operand:
    """A parameter as a number where it is one that is known; 0 without."""
    if p is None:
        return 0
    single = isinstance(p, Constant) and not p.rank and p.dtype in _NUMBERS
    return p.array.item() if single and isinstance(p, Constant) else p


def quantized(n: Operation, x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """``round(x / scale) + zero``, brought into the type."""
    x = x if x.dtype.startswith(("float", "bfloat")) else cast(x, scale.dtype)
    return n("quantize", x, _known(scale), _known(zero), dtype=dtype)


def dequantized(n: Operation, q: Value, scale: Value, zero: Value | None) -> Value:
    """``(q - zero) * scale``; weights, though they are known, are not multiplied yet."""
    operands = q, _known(scale), _known(zero)
    if isinstance(q, Constant) and q.rank > 1 and q.dtype in BYTES:
        return Node("dequantize", operands, name=n.name)
    return n("dequantize", *operands)


def _quantize(n: Operation) -> Value:
    x, scale = n[0], _fit(n, n[1], n[0])
    zero = _fit(n, n[2], x) if n.has(2) else None
    if n.result is not None:
        return _narrow(n, n.result, x, scale, zero)
    number = n.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(number, n) if number else "uint8"
    return quantized(n, x, scale, zero, dtype)


def _narrow(n: Operation, kind: Narrow, x: Value, scale: Value, zero: Value | None) -> Value:
    """The nearest of less than a byte."""
    if isinstance(kind, NarrowInt):
        wide = zero if zero is None else cast(zero, "int16")
        return kind.nearest(n, quantized(n, x, scale, wide, "int16"))
    found = n("divide", cast(x, "float32"), cast(scale, "float32"))
    return kind.of(n, found if zero is None else n("add", found, zero))


def _dequantize(n: Operation) -> Value:
    zero = _fit(n, n[2], n[0]) if n.has(2) else None
    if isinstance(n.narrow[0], NarrowFloat):
        scale = _fit(n, n[1], n[0])
        number = n[0] if zero is None else n("subtract", n[0], zero)
        return n("multiply", cast(number, scale.dtype), scale)
    return dequantized(n, n[0], _fit(n, n[1], n[0]), zero)


def _dynamic(n: Operation) -> tuple[Value, ...]:
    x = n[0]
    axes = tuple(range(x.rank))
    low = n("minimum", n("min", x, axis=axes), 0.0) if axes else n("minimum", x, 0.0)
    high = n("maximum", n("max", x, axis=axes), 0.0) if axes else n("maximum", x, 0.0)
    scale = n("divide", n("subtract", high, low), 255.0)
    zero = n("clip", n("round", n("divide", n("negative", low), scale)), low=0.0, high=255.0)
    zero = cast(zero, "uint8")
    return quantized(n, x, scale, zero, "uint8"), scale, zero


def _centred(n: Operation, k: int, axis: int | None) -> tuple[Value, Value]:
    """Operand ``k`` less its zero point, in doubles, which hold sums of products of 8 bits; and its
    scale. Both may be one an index of ``axis``."""
    x, scale, zero = n[k], n[k + 1], n[k + 2]

    def fit(p: Value) -> Value:
        if p.rank == 0 or p.shape == (1,):
            return reshape(p, ())
        if p.rank > 1 or axis is None:
            return p
        return reshape(p, tuple(p.shape[0] if d == axis else 1 for d in range(x.rank)))

    return build("subtract", cast(x, "float64"), cast(fit(zero), "float64")), fit(scale)


def _requantized(n: Operation, total: Value, scale: Value, k: int) -> Value:
    real = n("multiply", total, cast(scale, "float64"))
    return quantized(n, real, reshape(n[k], ()), reshape(n[k + 1], ()), n[k + 1].dtype)


def _is_of_bytes(n: Operation) -> bool:
    """Whether a QLinear operator is a product of integers of 8 bits, by weights that are known."""
    single = [n[k] for k in (1, 2, 6, 7)]
    known = all(isinstance(p, Constant) and p.array.size == 1 for p in single)
    weights, zero = n[3], n[5]
    if not known or n[0].dtype != n[7].dtype or not isinstance(zero, Constant):
        return False
    axis = weights.rank - 1 if n.kind == "QLinearMatMul" else 0
    return (
        n[0].dtype in BYTES
        and integer_weights(weights, _along(zero, axis, weights.rank)) is not None
    )


def _of_dequantized(n: Operation, product: Callable[[Value, Value], Value]) -> Value:
    """A product of dequantised values, quantised."""
    x = dequantized(n, n[0], reshape(n[1], ()), reshape(n[2], ()))
    axis = n[3].rank - 1 if n.kind == "QLinearMatMul" else 0
    scale, zero = (_along(p, axis, n[3].rank) for p in (n[4], n[5]))
    found = product(x, dequantized(n, n[3], scale, zero))
    return quantized(n, found, reshape(n[6], ()), reshape(n[7], ()), n[7].dtype)


def _along(p: Value, axis: int, rank: int) -> Value:
    if p.rank == 0 or p.shape == (1,):
        return reshape(p, ())
    return reshape(p, tuple(p.shape[0] if d == axis else 1 for d in range(rank)))


def _qlinear_conv(n: Operation) -> Value:
    if _is_of_bytes(n):
        bias = n("multiply", cast(n[8], "float32"), n("multiply", n[1], n[4])) if n.has(8) else None
        return _of_dequantized(n, lambda x, w: biased(n, convolution(n, x, w), bias))
    (x, one), (w, other) = _centred(n, 0, None), _centred(n, 3, 0)
    other = reshape(other, (*other.shape[:1], *(1,) * (x.rank - 2))) if other.rank else other
    bias = cast(n[8], "float64") if n.has(8) else None
    total = biased(n, convolution(n, x, w), bias)
    return _requantized(n, total, n("multiply", one, other), 6)


def _qlinear_matmul(n: Operation) -> Value:
    if n[3].rank == 2 and _is_of_bytes(n):
        return _of_dequantized(n, lambda a, b: matmul(n, a, b))
    (a, one), (b, other) = (_centred(n, k, None) for k in (0, 3))
    one = reshape(one, (*one.shape, 1)) if one.rank == 1 else one
    return _requantized(n, matmul(n, a, b), n("multiply", one, other), 6)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic,
    "QLinearConv": _qlinear_conv, "QLinearMatMul": _qlinear_matmul, "QuantizeLinear": _quantize,
}  # fmt: skip
