"""The steps of an epilogue as stages, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.visit import BottomUp
from tilewright.te import Tensor
from tilewright.topi import activations
from tilewright.topi.elementwise import ELEMENTWISE
from tilewright.topi.epilogue import Step
from tilewright.topi.nn.images import Images
from tilewright.topi.quantization import saturated


def apply_step(
    step: Step,
    x: Tensor,
    images: Images,
    tensors: dict[str, Any],
    unit: float = 1.0,
    quantized: str = "",
    rectified: bool = False,
) -> Tensor:
    """``unit * x`` after one step, in the type of ``x``; ``tensors``, or what
    is read by the indices of theirs, by their names in the step.

    ``quantized`` is the type of images in 8 bits: each product is rounded by itself then, so that
    results are the same bits by every schedule and on every target. What is ``rectified`` has a
    ReLU before it is quantised, of which the lower bound of integers takes the place.
    """

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        index = images.order(n, c, at)
        value = x[index]
        if unit != 1.0:
            if step.name == "silu":  # a constant less between the exponent and the sum
                return value * (te.sigmoid(value * unit) * unit)
            value = value * unit
        if step.name == "quantize":
            return _rounded_apart(_quantize(value, step, quantized, rectified))
        if step.name == "dequantize":
            value = value.astype("float32")
        read = {
            name: (tensors[name][c] if shape == "channel" else tensors[name][index]).astype(
                value.dtype
            )
            for name, shape in step.tensors
        }
        found = _MEANING[step.name](value, *step.values, **read)
        return _rounded_apart(found) if quantized else found

    n, c, space = images.extents(x.shape)
    return images.compute(n, c, space, element, step.name.title().replace("_", ""), ELEMENTWISE)


def by_channel(
    step: Step, x: Tensor, images: Images, tensors: dict[str, Any], quantized: str = "",
    rectified: bool = False,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """As :func:`apply_step`, and the stages that it reads what is the same for a channel from: of a
    step that computes two such numbers, of others, which read what they need, there are none."""
    of = None if quantized else scale_and_shift(step, x.dtype, tensors)
    if of is None or len(step.tensors) == 2:
        return apply_step(step, x, images, tensors, 1.0, quantized, rectified), []
    n, c, space = images.extents(x.shape)
    scale, shift = (
        te.compute((c,), lambda k, j=j: of(k)[j], name=name)
        for j, name in enumerate(("Scale", "Shift"))
    )

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        return x[images.order(n, c, at)] * scale[c] + shift[c]

    name = step.name.title().replace("_", "")
    return images.compute(n, c, space, element, name, ELEMENTWISE), [scale, shift]


def scale_and_shift(step: Step, dtype: str, tensors: dict[str, Tensor]) -> Any:
    """What a step multiplies results of a channel with, and what it adds then: a function from the
    channel to both, in ``dtype``. None where it does anything else."""
    meaning = _AFFINE.get(step.name)
    if meaning is None:
        return None

    def of(c: Any) -> tuple[Any, Any]:
        read = {name: tensors[name][c].astype(dtype) for name, _ in step.tensors}
        found: tuple[Any, Any] = meaning(*step.values, **read)
        return found

    return of


class _Apart(BottomUp):
    """Products of floats as such that no compiler joins with a sum."""

    def made(self, old: Expr, new: Expr) -> Expr:
        if isinstance(new, E.Mul) and new.dtype.is_float:
            return te.fma(new.a, new.b, te.const(-0.0, new.dtype))  # exact: x + -0.0 is x
        return new


def _rounded_apart(e: Expr) -> Expr:
    return _Apart().expr(e)


def _quantize(v: Any, step: Step, dtype: str, rectified: bool) -> Any:
    """``round(v * (1 / scale)) + zero``, ties to even, saturated; the lowest value for NaN, or the
    least of the results that a ReLU before it leaves."""
    scale, zero = step.values
    if not dtype:  # of floats, which are rounded behind the epilogue
        return v * (1 / scale)
    return saturated(v * (1 / scale), int(zero), dtype, rectified)


def _affine(name: str) -> Callable[..., Any]:
    """``v * scale + shift``, both of which are the same for a channel, and leave its loops."""

    def of(v: Any, *values: float, **read: Any) -> Any:
        scale, shift = _AFFINE[name](*values, **read)
        return v * scale + shift

    return of


def _normalised(eps: float, mean: Any, variance: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
    scale = gamma * te.rsqrt(variance + eps)
    return scale, beta - mean * scale


#: Of a step that is a product and a sum, both numbers.
_AFFINE: dict[str, Callable[..., tuple[Any, Any]]] = {
    "scale_shift": lambda scale, shift: (scale, shift),
    "batch_norm": _normalised,
    "wide_batch_norm": _normalised,
}
_MEANING: dict[str, Callable[..., Any]] = {
    "bias": lambda v, bias: v + bias,
    **{name: _affine(name) for name in _AFFINE},
    "residual": lambda v, residual: v + residual,
    "dequantize": lambda v, sum_scale: v * sum_scale,
    "quantized_residual": lambda v, scale, zero, residual: v + (residual - zero) * scale,
    "relu": activations.relu,
    "relu6": lambda v: activations.clamp(v, 0, 6),
    "leaky_relu": activations.leaky_relu,
    "hswish": activations.hswish,
    "hsigmoid": activations.hsigmoid,
    "silu": activations.silu,
    "gelu": activations.gelu,
    "clamp": activations.clamp,
}
