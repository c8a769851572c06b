"""ATen's reductions, and what normalises along axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.graph.builder import cast, reshape, widened
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.onnx.reduction import mean
from tilewright.graph.value import Value


def _reduced(function: Callable[[Operation, Value, tuple[int, ...], bool], Value]) -> Converter:
    def convert(n: Operation) -> Value:
        axes = n.axes("dim", n.x.rank)
        x = cast(n.x, n.dtype)
        return function(n, x, axes, bool(n["keepdim"])) if axes else n("identity", x)

    return convert


def _plain(name: str) -> Converter:
    return _reduced(lambda n, x, axes, keepdims: n(name, x, axis=axes, keepdims=keepdims))


def _extremum(function: str, place: str) -> Converter:
    """The value, its place along an axis, or the larger of two."""

    def convert(n: Operation) -> Value | tuple[Value, ...]:
        if n["other"] is not None:
            return n(f"{function}imum", n.operand(n.x), n.operand(n["other"]))
        if n["dim"] is None or not n.x.rank:
            return n(function, n.x, axis=n.axes("dim", n.x.rank), keepdims=False)
        axis, keepdims = n.axis(n["dim"], n.x.rank), bool(n["keepdim"])
        values = n(function, n.x, axis=(axis,), keepdims=keepdims)
        return values, n(place, n.x, axis=axis, keepdims=keepdims, last=False)

    return convert


def _arg(name: str) -> Converter:
    def convert(n: Operation) -> Value:
        x, keepdims = n.x, bool(n["keepdim"])
        if n["dim"] is None:
            x, axis = reshape(x, (math.prod(x.shape),)), 0
        else:
            axis = n.axis(n["dim"], x.rank)
        return n(name, x, axis=axis, keepdims=keepdims, last=False)

    return convert


def spread(n: Operation, x: Value, axes: tuple[int, ...], less: float) -> tuple[Value, Value]:
    """The variance, of which the divisor is ``less`` than the number, and the mean; both with
    their dimensions kept."""
    centre = mean(n, x, axes)
    rest = n("subtract", x, centre)
    total = n("sum", n("multiply", rest, rest), axis=axes, keepdims=True)
    count = math.prod(x.shape[a] for a in axes)
    if count <= less:
        raise n.error("a variance of too few elements")
    return n("divide", total, float(count - less)), centre


def _variance(n: Operation) -> tuple[Value, Value]:
    x, axes = n.x, n.axes("dim", n.x.rank)
    less = n["correction"]
    if less is None:
        less = 1 if n["unbiased"] in (None, True) else 0
    both = spread(n, widened(x), axes, less)
    if not n["keepdim"]:
        left = tuple(e for d, e in enumerate(x.shape) if d not in axes)
        both = (reshape(both[0], left), reshape(both[1], left))
    return cast(both[0], n.dtype), cast(both[1], n.dtype)


def _softmax(name: str) -> Converter:
    def convert(n: Operation) -> Value:
        if not n.x.rank:
            raise n.error("of a number")
        return n(name, cast(n.x, n.dtype), axis=n.axis(n["dim"], n.x.rank))

    return convert


def _cumsum(n: Operation) -> Value:
    return n("cumsum", cast(n.x, n.dtype), axis=n.axis(n["dim"], n.x.rank),
             exclusive=False, reverse=False)  # fmt: skip


def _norm(n: Operation) -> Value:
    x, axes = widened(cast(n.x, n.dtype)), n.axes("dim", n.x.rank)
    if n["ord"] not in (1, 2):
        raise n.error(f"of order {n['ord']}")
    terms = n("abs", x) if n["ord"] == 1 else n("multiply", x, x)
    total = n("sum", terms, axis=axes, keepdims=bool(n["keepdim"]))
    return cast(total if n["ord"] == 1 else n("sqrt", total), n.dtype)


def _any(n: Operation) -> Value:
    axes = n.axes("dim", n.x.rank)
    bits = cast(cast(n.x, "bool"), "uint8")
    return cast(n("max", bits, axis=axes, keepdims=bool(n["keepdim"])), n.dtype)


CONVERTERS: dict[str, Converter] = {
    "sum": _plain("sum"), "prod": _plain("prod"), "amax": _plain("max"), "amin": _plain("min"),
    "mean": _reduced(mean), "max": _extremum("max", "argmax"), "min": _extremum("min", "argmin"),
    "argmax": _arg("argmax"), "argmin": _arg("argmin"), "var_mean": _variance,
    "var": lambda n: _variance(n)[0], "std": lambda n: n("sqrt", _variance(n)[0]),
    "_softmax": _softmax("softmax"), "softmax": _softmax("softmax"),
    "_log_softmax": _softmax("log_softmax"), "log_softmax": _softmax("log_softmax"),
    "cumsum": _cumsum, "any": _any,
    "linalg_vector_norm": _norm,
}  # fmt: skip
