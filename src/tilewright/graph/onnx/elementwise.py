"""ONNX's operators of elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant
from tilewright.graph.onnx.operation import Converter, Operation
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.value import Value

#: Of one operand, by the function that computes them.
_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish",
    "Identity": "identity", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "negative",
    "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus",
    "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
#: Of one operand, with attributes: the function, and of each its name there and default here.
_WITH_VALUES: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "LeakyRelu": ("leaky_relu", {"slope": ("alpha", 0.01)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.67326319217681884765625),
                      "gamma": ("gamma", 1.05070102214813232421875)}),
    "Shrink": ("shrink", {"bias": ("bias", 0.0), "threshold": ("lambd", 0.5)}),
    "Swish": ("swish", {"alpha": ("alpha", 1.0)}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": ("alpha", 1.0)}),
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Pow": "power",
    "Equal": "equal", "Less": "less", "Greater": "greater", "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "PRelu": "prelu", "Where": "where",
}  # fmt: skip
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _function(name: str) -> Converter:
    return lambda n: n(name, *n.operands)


def _valued(name: str, values: dict[str, tuple[str, float]]) -> Converter:
    return lambda n: n(name, n[0], **{k: float(n.attribute(*v)) for k, v in values.items()})


def _variadic(name: str) -> Converter:
    def convert(n: Operation) -> Value:
        found = functools.reduce(lambda a, b: n(name, a, b), n.operands)
        return n("identity", found)

    return convert


def _mean(n: Operation) -> Value:
    return n("divide", _variadic("add")(n), float(len(n.operands)))  # type: ignore[arg-type]


def _mod(n: Operation) -> Value:
    return n("fmod" if n.attribute("fmod", 0) else "mod", n[0], n[1])


def _shift(n: Operation) -> Value:
    return n("left_shift" if n.attribute("direction") == b"LEFT" else "right_shift", n[0], n[1])


def _gelu(n: Operation) -> Value:
    return n("gelu_tanh" if n.attribute("approximate", b"none") == b"tanh" else "gelu", n[0])


def _isinf(n: Operation) -> Value:
    sides = {s: bool(n.attribute(f"detect_{s}", 1)) for s in ("negative", "positive")}
    return n("isinf", n[0], **sides)


def _clip(n: Operation) -> Value:
    if n.opset < 11:
        low, high = n.attribute("min"), n.attribute("max")
        found = n[0] if low is None else n("maximum", n[0], float(low))
        return found if high is None else n("minimum", found, float(high))
    found = n("maximum", n[0], n[1]) if n.has(1) else n[0]
    return n("minimum", found, n[2]) if n.has(2) else found


def _cast(n: Operation) -> Value:
    return _convert(n, dtype_of(n.attribute("to"), n))


def _bit_cast(n: Operation) -> Value:
    dtype = dtype_of(n.attribute("to"), n)
    if "bool" in (dtype, n[0].dtype):  # a byte that is 0 or 1
        if "uint8" not in (dtype, n[0].dtype):
            raise n.error(f"{n[0].dtype} as {dtype}")
        return cast(n[0], dtype)
    return n("reinterpret", n[0], dtype=dtype)


def _cast_like(n: Operation) -> Value:
    return _convert(n, n[1].dtype)


#: By float of 8 bits which numbers are nearer to the one after its largest, if there were one, ties
#: to even; and what they become where they are not saturated.
_BEYOND = {
    "float8_e4m3fn": ("greater", 464.0, math.nan),
    "float8_e5m2": ("greater_equal", 61440.0, math.inf),
}


def _convert(n: Operation, dtype: str) -> Value:
    x = n[0]
    if n.result is not None:
        mode = n.attribute("round_mode", b"up").decode()
        return n.result.of(n, x, bool(n.attribute("saturate", 1)), mode)
    if dtype not in _BEYOND or x.dtype == dtype or n.attribute("saturate", 1):
        return cast(x, dtype)
    wide = x if x.dtype in ("float32", "float64") else cast(x, "float32")
    compare, limit, beyond = _BEYOND[dtype]
    far = n(compare, n("abs", wide), limit)
    sign = n("where", n("less", wide, 0.0), constant(-beyond, dtype), constant(beyond, dtype))
    return n("where", far, sign, cast(x, dtype))


def _binarizer(n: Operation) -> Value:
    return cast(n("greater", n[0], float(n.attribute("threshold", 0.0))), n[0].dtype)


def _dropout(n: Operation) -> Any:
    training = n.has(2) and bool(n.array(2, "mode of training").item())
    if training and not (n.has(1) and n.array(1, "ratio").item() == 0):
        raise n.error("it is in training mode, which draws random numbers")
    if n.outputs == 1:
        return n[0]
    return n[0], constant(np.ones(n[0].shape, bool))


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    **{kind: _function(name) for kind, name in (_UNARY | _BINARY).items()},
    **{kind: _valued(*given) for kind, given in _WITH_VALUES.items()},
    **{kind: _variadic(name) for kind, name in _VARIADIC.items()},
    "BitCast": _bit_cast, "BitShift": _shift, "Cast": _cast, "CastLike": _cast_like, "Clip": _clip,
    "Dropout": _dropout, "ai.onnx.ml.Binarizer": _binarizer, "Gelu": _gelu,
    "IsInf": _isinf, "Mean": _mean, "Mod": _mod,
}  # fmt: skip
