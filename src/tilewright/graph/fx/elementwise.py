"""ATen's operators of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant
from tilewright.graph.fx.operation import Converter, Operation, common_type
from tilewright.graph.value import Value

#: Of one operand, by the function that computes them.
_UNARY = {
    **{n: n for n in (
        "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isnan isinf "
        "log logical_not mish reciprocal relu round rsqrt sigmoid sign silu sin sinh softsign sqrt "
        "tan tanh trunc"
    ).split()},
    "neg": "negative", "hardswish": "hard_swish",
}  # fmt: skip
_PREDICATES = ("isnan", "isinf", "logical_not")
#: Of two operands in the type of the result: the function, and their names.
_ARITHMETIC = {
    "mul": ("multiply", "self", "other"),
    "remainder": ("mod", "self", "other"), "fmod": ("fmod", "self", "other"),
    "maximum": ("maximum", "self", "other"), "minimum": ("minimum", "self", "other"),
    "bitwise_xor": ("bitwise_xor", "self", "other"),
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal", "lt": "less", "gt": "greater", "le": "less_equal", "ge": "greater_equal",
}  # fmt: skip
_LOGICAL = {
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
}  # fmt: skip


def _unary(kind: str) -> Converter:
    function = _UNARY[kind]

    def convert(n: Operation) -> Value:
        if n["decimals"]:
            raise n.error("it rounds decimals")
        if kind in ("isinf", "isnan") and "float" not in n.x.dtype:
            raise n.error("of integers")
        if function == "bitwise_not" and n.x.dtype == "bool":
            return n("logical_not", n.x)
        x = n.x if kind in _PREDICATES else cast(n.x, n.dtype)
        if kind == "sign" and "float" in n.dtype:  # of NaN 0, where ONNX has NaN
            x = n("where", n("isnan", x), constant(0, n.dtype), x)
        return n(function, cast(x, "bool") if kind == "logical_not" else x)

    return convert


def _arithmetic(kind: str) -> Converter:
    function, first, second = _ARITHMETIC[kind]
    return lambda n: n(function, n.operand(n[first]), n.operand(n[second]))


def _power(n: Operation) -> Value:
    exponent = n["exponent"]
    if "float" not in n.dtype and (isinstance(exponent, Value) or exponent < 0):
        raise n.error("integers are not divided by their powers")
    return n("power", n.operand(n["self"]), n.operand(exponent))


def _compare(kind: str) -> Converter:
    def convert(n: Operation) -> Value:
        dtype = common_type(n["self"], n["other"])
        return n(_COMPARISONS[kind], n.operand(n["self"], dtype), n.operand(n["other"], dtype))

    return convert


def _not_equal(n: Operation) -> Value:
    return n("logical_not", _compare("eq")(n))  # type: ignore[arg-type]


def _logical(kind: str) -> Converter:
    return lambda n: n(kind, n.operand(n["self"], "bool"), n.operand(n["other"], "bool"))


def _bits(bitwise: str, logical: str) -> Converter:
    """Bitwise, or logical where the operands are."""

    def convert(n: Operation) -> Value:
        function = logical if n.dtype == "bool" else bitwise
        return n(function, n.operand(n["self"]), n.operand(n["other"]))

    return convert


def _sum(function: str) -> Converter:
    def convert(n: Operation) -> Value:
        a, b, alpha = n["self"], n["other"], n["alpha"]
        if alpha not in (None, 1):
            b = b * alpha if not isinstance(b, Value) else n("multiply", n.operand(b), alpha)
        if n.dtype == "bool":
            return n("logical_or", n.operand(a), n.operand(b))
        return n(function, n.operand(a), n.operand(b))

    return convert


def _reversed_difference(n: Operation) -> Value:
    b = n.x if n["alpha"] in (None, 1) else n("multiply", n.operand(n.x), n["alpha"])
    return n("subtract", n.operand(n["other"]), n.operand(b))


def _rounded_down(n: Operation, a: Any, b: Any, quotient: Value, is_float: bool) -> Value:
    """The exact quotient rounded down; ``quotient`` is it rounded to a float, or to zero."""
    rest = n("fmod", a, b)
    less = cast(n("logical_not", n("equal", rest, n("mod", a, b))), quotient.dtype)  # other signs
    if not is_float:
        return n("subtract", quotient, less)
    exact = n("subtract", n("round", n("divide", n("subtract", a, rest), b)), less)
    if not isinstance(b, Value):
        return exact if b else quotient
    return n("where", n("equal", b, constant(0, b.dtype)), quotient, exact)


def _divide(n: Operation) -> Value:
    mode, is_float = n["rounding_mode"], "float" in n.dtype
    a, b = n.operand(n["self"]), n.operand(n["other"])
    found = n("divide", a, b)  # integers round to zero
    if mode == "floor":
        return _rounded_down(n, a, b, found, is_float)
    return n("trunc", found) if mode == "trunc" and is_float else found


def _where(n: Operation) -> Value:
    return n("where", cast(n["condition"], "bool"), n.value(n["self"]), n.value(n["other"]))


def _masked_fill(n: Operation) -> Value:
    return n("where", cast(n["mask"], "bool"), n.value(n["value"]), n.x)


def _bounded(n: Operation, low: Any, high: Any) -> Value:
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and "float" in n.dtype:
        if low <= high:
            return n("clamp", cast(n.x, n.dtype), low=float(low), high=float(high))
    found = cast(n.x, n.dtype)
    found = found if low is None else n("maximum", found, n.operand(low))
    return found if high is None else n("minimum", found, n.operand(high))


def _cast(n: Operation) -> Value:
    return n("identity", cast(n.x, n.dtype))


def _gelu(n: Operation) -> Value:
    return n("gelu_tanh" if n["approximate"] == "tanh" else "gelu", n.x)


def _softplus(n: Operation) -> Value:
    if n["beta"] not in (None, 1):
        raise n.error("it has another beta than 1")
    return n("where", n("greater", n.x, float(n["threshold"])), n.x, n("softplus", n.x))


def _elu(n: Operation) -> Value:
    if (n["scale"], n["input_scale"]) != (1, 1):
        raise n.error("it has scales")
    return n("elu", n.x, alpha=float(n["alpha"]))


def _addcmul(function: str) -> Converter:
    def convert(n: Operation) -> Value:
        terms = n(function, n.operand(n["tensor1"]), n.operand(n["tensor2"]))
        value = n["value"]
        return n("add", n.operand(n.x), terms if value == 1 else n("multiply", terms, value))

    return convert


def _threshold_backward(n: Operation) -> Value:
    zero = constant(np.zeros((), n.dtype))  # the gradient of NaN is passed on
    return n("where", n("less_equal", n.x, float(n["threshold"])), zero, n["grad_output"])


CONVERTERS: dict[str, Converter] = {
    **{kind: _unary(kind) for kind in _UNARY},
    **{kind: _arithmetic(kind) for kind in _ARITHMETIC},
    **{kind: _compare(kind) for kind in _COMPARISONS},
    **{kind: _logical(kind) for kind in _LOGICAL},
    "ne": _not_equal, "pow": _power, "rsub": _reversed_difference,
    "add": _sum("add"), "sub": _sum("subtract"),
    "div": _divide, "where": _where, "masked_fill": _masked_fill,
    "bitwise_and": _bits("bitwise_and", "logical_and"),
    "bitwise_or": _bits("bitwise_or", "logical_or"),
    "clamp": lambda n: _bounded(n, n["min"], n["max"]),
    "clamp_min": lambda n: _bounded(n, n["min"], None),
    "clamp_max": lambda n: _bounded(n, None, n["max"]),
    "hardtanh": lambda n: _bounded(n, n["min_val"], n["max_val"]),
    "relu6": lambda n: _bounded(n, 0, 6),
    "hardsigmoid": lambda n: n("hard_sigmoid", n.x, alpha=1 / 6, beta=0.5),
    "leaky_relu": lambda n: n("leaky_relu", n.x, slope=float(n["negative_slope"])),
    "elu": _elu, "gelu": _gelu, "softplus": _softplus,
    "square": lambda n: n("multiply", n.x, n.x),
    "addcmul": _addcmul("multiply"), "addcdiv": _addcmul("divide"),
    "threshold_backward": _threshold_backward,
    "_to_copy": _cast, "convert_element_type": _cast, "to": _cast,
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy", "contiguous"), _cast),
}  # fmt: skip
