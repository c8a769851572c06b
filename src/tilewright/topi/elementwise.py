"""Functions of tensors, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te import Tensor
from tilewright.topi import activations

#: The tag of stages that may be fused into their consumers.
ELEMENTWISE = "elemwise"


def elementwise(x: Tensor, function: Callable[[Expr], Any], name: str) -> Tensor:
    """``function`` of every element of ``x``."""
    made: Tensor = te.compute(x.shape, lambda *i: function(x[i]), name=name, tag=ELEMENTWISE)
    return made


def identity(x: Tensor) -> Tensor:
    """A copy."""
    return elementwise(x, lambda v: v, "identity")


def negative(x: Tensor) -> Tensor:
    """Minus every element."""
    return elementwise(x, lambda v: -v, "negative")


def exp(x: Tensor) -> Tensor:
    """e to the power of every element."""
    return elementwise(x, te.exp, "exp")


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent of every element."""
    return elementwise(x, te.tanh, "tanh")


def sqrt(x: Tensor) -> Tensor:
    """The square root of every element."""
    return elementwise(x, te.sqrt, "sqrt")


def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))`` of every element."""
    return elementwise(x, te.sigmoid, "sigmoid")


def clip(x: Tensor, low: float, high: float) -> Tensor:
    """Every element brought into ``[low, high]``."""
    return elementwise(x, lambda v: te.clip(v, low, high), "clip")


def relu(x: Tensor, name: str = "Relu") -> Tensor:
    """``max(x, 0)`` of every element."""
    return elementwise(x, lambda v: te.max(v, te.const(0, x.dtype)), name)


def _asinh(v: Any) -> Any:
    size = te.abs(v)
    found = te.log1p(size + size * size / (te.sqrt(size * size + 1.0) + 1.0))
    return te.Select(v < 0.0, -found, found)


def _sign(v: Any) -> Any:
    zero, one = te.const(0, v.dtype), te.const(1, v.dtype)
    positive = te.Select(v > zero, one, te.Select(v.equal(zero), zero, v))
    return positive if v.dtype.kind in ("uint", "bool") else te.Select(v < zero, -one, positive)


def _isinf(v: Any, negative: bool = True, positive: bool = True) -> Any:
    found = [te.const(False)]
    found += [v.equal(te.max_value(v.dtype))] if positive else []
    found += [v.equal(te.min_value(v.dtype))] if negative else []
    return te.any(*found)


def _absolute(v: Any) -> Any:
    return v if v.dtype.kind == "uint" else te.abs(v)


def _cast(v: Any, dtype: str) -> Any:
    return v.astype(dtype)


def _reinterpret(v: Any, dtype: str) -> Any:
    return te.reinterpret(dtype, v)


#: What each element becomes, by the name of the function; further parameters are attributes.
ELEMENTS: dict[str, Callable[..., Any]] = {
    "abs": _absolute, "negative": lambda v: -v, "sign": _sign, "identity": lambda v: v,
    "reciprocal": lambda v: te.const(1, v.dtype) / v, "cast": _cast,
    "reinterpret": _reinterpret,
    "exp": te.exp, "log": te.log, "sqrt": te.sqrt, "rsqrt": te.rsqrt, "erf": te.erf,
    "sin": te.sin, "cos": te.cos, "tan": te.tan, "asin": te.asin, "acos": te.acos,
    "atan": te.atan, "sinh": te.sinh, "cosh": te.cosh, "tanh": te.tanh, "asinh": _asinh,
    "acosh": lambda v: te.log(v + te.sqrt(v * v - 1.0)),
    "atanh": lambda v: te.log1p(v * 2.0 / (te.const(1, v.dtype) - v)) * 0.5,
    "ceil": te.ceil, "floor": te.floor, "trunc": te.trunc, "round": te.nearbyint,
    "isnan": te.isnan, "isinf": _isinf, "logical_not": te.logical_not, "bitwise_not": lambda v: ~v,
    "sigmoid": te.sigmoid, "relu": activations.relu, "clip": te.clip,
    "clamp": activations.clamp,
    "leaky_relu": activations.leaky_relu, "elu": activations.elu, "celu": activations.celu,
    "selu": activations.selu, "thresholded_relu": activations.thresholded_relu,
    "hard_sigmoid": activations.hard_sigmoid, "hard_swish": activations.hswish,
    "gelu": activations.gelu, "gelu_tanh": activations.gelu_tanh, "silu": activations.silu,
    "swish": activations.swish, "mish": activations.mish, "softplus": activations.softplus,
    "softsign": activations.softsign, "shrink": activations.shrink,
}  # fmt: skip


def function(name: str) -> Callable[..., Tensor]:
    """The function of :data:`ELEMENTS` as one of a tensor and attributes.

    >>> x = te.placeholder((2, 3), name="x")
    >>> function("leaky_relu")(x, slope=0.1)
    Tensor(leaky_relu, shape=[2, 3], dtype=float32)
    """

    def of(x: Tensor, **attributes: Any) -> Tensor:
        return elementwise(x, lambda v: ELEMENTS[name](v, **attributes), name)

    return of
