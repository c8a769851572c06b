"""Activations of one value, as networks use them: NaN stays NaN, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

from tilewright import te


def relu(v: Any) -> Any:
    """``max(v, 0)``."""
    return te.Select(v < 0.0, _number(0, v), v)


def clamp(v: Any, low: float, high: float) -> Any:
    """``min(max(v, low), high)``."""
    above = te.Select(v < low, _number(low, v), v)
    return te.Select(above > high, _number(high, v), above)


def hsigmoid(v: Any) -> Any:
    """``clamp(v + 3, 0, 6) / 6``."""
    return clamp(v + 3.0, 0, 6) * (1 / 6)


def hswish(v: Any) -> Any:
    """``v * hsigmoid(v)``."""
    return v * hsigmoid(v)


def leaky_relu(v: Any, slope: float) -> Any:
    """``v`` where it is positive, else ``slope * v``."""
    return te.Select(v > 0.0, v, v * slope)


def silu(v: Any) -> Any:
    """``v * sigmoid(v)``."""
    return v * te.sigmoid(v)


def gelu(v: Any) -> Any:
    """``v`` times the normal distribution's share below it, which ``1 + erf`` would lose digits of
    where it is small: all of them from -5.5 on in float32."""
    return v * 0.5 * te.erfc(v * -math.sqrt(0.5))


def gelu_tanh(v: Any) -> Any:
    """:func:`gelu` by its approximation with a hyperbolic tangent."""
    inner = (v + v * v * v * 0.044715) * math.sqrt(2 / math.pi)
    return v * 0.5 * (te.tanh(inner) + 1.0)


def softplus(v: Any) -> Any:
    """``log(1 + exp(v))``, which does not overflow."""
    return te.max(v, _number(0, v)) + te.log1p(te.exp(-te.abs(v)))


def softsign(v: Any) -> Any:
    """``v / (1 + |v|)``."""
    return v / (te.abs(v) + 1.0)


def mish(v: Any) -> Any:
    """``v * tanh(softplus(v))``."""
    return v * te.tanh(softplus(v))


def elu(v: Any, alpha: float = 1.0) -> Any:
    """``v`` where it is positive, else ``alpha * (exp(v) - 1)``."""
    return te.Select(v > 0.0, v, te.expm1(v) * alpha)


def celu(v: Any, alpha: float = 1.0) -> Any:
    """``v`` where it is positive, else ``alpha * (exp(v / alpha) - 1)``."""
    return te.Select(v > 0.0, v, te.expm1(v * (1 / alpha)) * alpha)


def selu(v: Any, alpha: float, gamma: float) -> Any:
    """``gamma * elu(v, alpha)``."""
    return elu(v, alpha) * gamma


def thresholded_relu(v: Any, alpha: float = 1.0) -> Any:
    """``v`` where it is above ``alpha``, else 0."""
    return te.Select(v > alpha, v, _number(0, v))


def hard_sigmoid(v: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """``clamp(alpha * v + beta, 0, 1)``."""
    return clamp(v * alpha + beta, 0, 1)


def shrink(v: Any, bias: float = 0.0, threshold: float = 0.5) -> Any:
    """``v`` moved by ``bias`` towards 0 where it is beyond ``threshold``, else 0."""
    low = te.Select(v < -threshold, v + bias, _number(0, v))
    return te.Select(v > threshold, v - bias, low)


def swish(v: Any, alpha: float = 1.0) -> Any:
    """``v * sigmoid(alpha * v)``."""
    return v * te.sigmoid(v * alpha)


def _number(value: float, like: Any) -> Any:
    return te.const(value, like.dtype)
