"""ONNX's reductions, and what normalises along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape, widened
from tilewright.graph.onnx.operation import Converter, Operation
from tilewright.graph.operation import Making
from tilewright.graph.value import Constant, Value


def mean(n: Making, x: Value, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    """The mean over axes."""
    count = math.prod(x.shape[a] for a in axes)
    if count == 1:
        return (
            x if keepdims else reshape(x, tuple(e for d, e in enumerate(x.shape) if d not in axes))
        )
    total = n("sum", widened(x), axis=axes, keepdims=keepdims)
    return cast(n("divide", total, count), x.dtype)


#: A reduction of a value over axes, whose dimensions are kept or not.
_Reduce = Callable[[Operation, Value, tuple[int, ...], bool], Value]


def _reduction(compute: _Reduce, since: int, empty: float = 0.0) -> Converter:
    """``empty`` is what no elements are reduced to."""

    def convert(n: Operation) -> Value:
        x, keepdims = n[0], bool(n.attribute("keepdims", 1))
        axes = n.listed("axes", 1, since)
        if not axes:
            if n.attribute("noop_with_empty_axes", 0):
                return compute(n, x, (), True)
            axes = tuple(range(x.rank))
        found = tuple(sorted({n.axis(a, x.rank) for a in axes}))
        if 0 in x.shape:
            return _filled(x, found, keepdims, empty)
        return compute(n, x, found, keepdims)

    return convert


def _filled(x: Value, axes: tuple[int, ...], keepdims: bool, value: float) -> Value:
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if keepdims or d not in axes]
    kind = np.dtype(x.dtype)
    if kind.kind in "iu" and math.isinf(value):
        value = np.iinfo(kind).min if value < 0 else np.iinfo(kind).max
    if kind.kind == "b" and math.isinf(value):
        value = value > 0
    return constant(np.full(shape, value, kind))


def _plain(name: str) -> _Reduce:
    def compute(n: Operation, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        if not axes:
            return x
        if x.dtype == "bool":
            return cast(compute(n, cast(x, "uint8"), axes, keepdims), "bool")
        return n(name, x, axis=axes, keepdims=keepdims)

    return compute


def _after(
    before: Callable[[Operation, Value], Value], after: Callable[[Operation, Value], Value]
) -> _Reduce:
    def compute(n: Operation, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        total = _plain("sum")(n, before(n, widened(x)), axes, keepdims)
        return cast(after(n, total), x.dtype)

    return compute


def _mean(n: Operation, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    return mean(n, x, axes, keepdims) if axes else x


def _log_sum_exp(n: Operation, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    if not axes:
        return x
    largest = widened(n("max", x, axis=axes, keepdims=True))
    if "float" in x.dtype:  # an infinite one less itself is no number
        nothing = constant(0, largest.dtype)
        largest = n("where", n("isinf", largest), nothing, largest)
    powers = n("exp", n("subtract", widened(x), largest))
    total = n("log", n("sum", powers, axis=axes, keepdims=True))
    found = cast(n("add", total, largest), x.dtype)
    if keepdims:
        return found
    return reshape(found, tuple(e for d, e in enumerate(x.shape) if d not in axes))


def _same(n: Operation, x: Value) -> Value:
    return x


def _square(n: Operation, x: Value) -> Value:
    return n("multiply", x, x)


def _abs(n: Operation, x: Value) -> Value:
    return n("abs", x)


def _root(n: Operation, x: Value) -> Value:
    return n("sqrt", x)


def _log(n: Operation, x: Value) -> Value:
    return n("log", x)


def _arg(name: str) -> Converter:
    def convert(n: Operation) -> Value:
        x = n[0]
        axis = n.axis(n.attribute("axis", 0), x.rank)
        last = bool(n.attribute("select_last_index", 0))
        return n(name, x, axis=axis, keepdims=bool(n.attribute("keepdims", 1)), last=last)

    return convert


def lines(n: Operation, function: Callable[[Value, int], Value]) -> Value:
    """``function`` along an axis; before opset 13 along all dimensions from it on."""
    x = n[0]
    if n.opset >= 13:
        return function(x, n.axis(n.attribute("axis", -1), x.rank))
    axis = n.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    flat = reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return reshape(function(flat, 1), x.shape)


def _softmax(name: str) -> Converter:
    return lambda n: lines(n, lambda x, axis: n(name, x, axis=axis))


def _hardmax(n: Operation) -> Value:
    def of(x: Value, axis: int) -> Value:
        place = n("argmax", x, axis=axis, keepdims=True)
        shape = [1] * x.rank
        shape[axis] = x.shape[axis]
        index = constant(np.arange(x.shape[axis], dtype="int64").reshape(shape))
        return cast(n("equal", place, index), x.dtype)

    return lines(n, of)


def _running(name: str) -> Converter:
    def convert(n: Operation) -> Value:
        (axis,) = n.integers(1, "axis")
        modes = {m: bool(n.attribute(m, 0)) for m in ("exclusive", "reverse")}
        return n(name, n[0], axis=n.axis(axis, n[0].rank), **modes)

    return convert


def _lp(n: Operation) -> Value:
    x = n[0]
    axis, p = n.axis(n.attribute("axis", -1), x.rank), n.attribute("p", 2)
    wide = widened(x)
    terms = n("abs", wide) if p == 1 else n("multiply", wide, wide)
    total = n("sum", terms, axis=(axis,), keepdims=True)
    norm = total if p == 1 else n("sqrt", total)
    nothing = constant(np.zeros((1,) * x.rank, wide.dtype))
    found = n("where", n("equal", norm, constant(0, wide.dtype)), nothing, n("divide", wide, norm))
    return cast(found, x.dtype)


def _sorted_places(x: np.ndarray[Any, Any], axis: int, largest: bool) -> np.ndarray[Any, Any]:
    """All places along an axis in order, of equal elements the first first; NaN is the largest."""
    ordered = np.argsort(np.flip(x, axis) if largest else x, axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(ordered, axis) if largest else ordered


def _top_k(n: Operation) -> tuple[Value, ...]:
    x = n[0]
    (k,) = n.integers(1, "k") if n.opset >= 10 else (n.attribute("k"),)
    axis = n.axis(n.attribute("axis", -1), x.rank)
    if k == 0:
        shape = [0 if d == axis else e for d, e in enumerate(x.shape)]
        return constant(np.zeros(shape, x.dtype)), constant(np.zeros(shape, "int64"))
    largest = bool(n.attribute("largest", 1))
    if isinstance(x, Constant):  # of what is known, by sorting
        places: Value = constant(
            _sorted_places(x.array, axis, largest).take(range(k), axis), "int64"
        )
    else:
        places = n("topk_places", x, k=k, axis=axis, largest=largest)
    return n("gather", x, places, axis=axis), places


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "ReduceSum": _reduction(_plain("sum"), 13),
    "ReduceMean": _reduction(_mean, 18),
    "ReduceProd": _reduction(_plain("prod"), 18, 1.0),
    "ReduceMax": _reduction(_plain("max"), 18, -math.inf),
    "ReduceMin": _reduction(_plain("min"), 18, math.inf),
    "ReduceSumSquare": _reduction(_after(_square, _same), 18),
    "ReduceL1": _reduction(_after(_abs, _same), 18),
    "ReduceL2": _reduction(_after(_square, _root), 18),
    "ReduceLogSum": _reduction(_after(_same, _log), 18, -math.inf),
    "ReduceLogSumExp": _reduction(_log_sum_exp, 18, -math.inf),
    "ArgMax": _arg("argmax"), "ArgMin": _arg("argmin"), "CumProd": _running("cumprod"),
    "CumSum": _running("cumsum"), "Hardmax": _hardmax,
    "LogSoftmax": _softmax("log_softmax"), "LpNormalization": _lp, "Softmax": _softmax("softmax"),
    "TopK": _top_k,
}  # fmt: skip
