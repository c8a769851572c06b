"""Numbers of few bits: an integer ``q`` stands for ``(q - zero) * scale``."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.dtype import int_range
from tilewright.te import Tensor
from tilewright.topi.broadcast import BROADCAST, common_shape, read, shape_of


def quantize(x: Tensor, scale: Tensor | float, zero: Tensor | int, dtype: str) -> Tensor:
    """``round(x / scale) + zero``, ties to even, saturated, as integers of type ``dtype``. Scale
    and zero point are numbers, or tensors that are broadcast to ``x``."""
    low, high = int_range(_dtype(dtype))

    def element(*i: Any) -> Any:
        s, z = (_number(p, i, x.dtype) for p in (scale, zero))
        found = te.nearbyint(x[i] / s)
        found = found if isinstance(zero, int) and zero == 0 else found + z
        return te.clip(found, float(low), float(high)).astype(dtype)

    return _of(x, (scale, zero), element, "quantize")


def dequantize(q: Tensor, scale: Tensor | float, zero: Tensor | int) -> Tensor:
    """``(q - zero) * scale`` in the type of the scale, float32 for a number."""
    kind = scale.dtype if isinstance(scale, Tensor) else "float32"

    def element(*i: Any) -> Any:
        whole = q[i].astype("int32")
        if not (isinstance(zero, int) and zero == 0):
            whole = whole - _number(zero, i, "int32")
        return whole.astype(kind) * _number(scale, i, kind)

    return _of(q, (scale, zero), element, "dequantize")


def _number(p: Tensor | float, index: tuple[Any, ...], dtype: str) -> Any:
    return read(p, index).astype(dtype) if isinstance(p, Tensor) else te.const(p, dtype)


def _of(x: Tensor, more: tuple[Any, ...], element: Any, name: str) -> Tensor:
    shapes = [shape_of(t) for t in (x, *more) if isinstance(t, Tensor)]
    if common_shape(*shapes) != shape_of(x):
        raise ValueError(f"{name} of {shape_of(x)} with parameters of {shapes[1:]}")
    made: Tensor = te.compute(shape_of(x), element, name=name, tag=BROADCAST)
    return made
