"""Functions of tensors, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te import Tensor

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
