"""Numbers of few bits: an integer ``q`` stands for ``(q - zero) * scale``."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.dtype import int_range
from tilewright.te import Tensor
from tilewright.topi.broadcast import BROADCAST, common_shape, read, shape_of


def quantize(x: Tensor, scale: Tensor | float, zero: Tensor | int, dtype: str) -> Tensor:
    """``round(x / scale) + zero``, ties to even, saturated, as integers of type ``dtype``, or as
    the nearest floats of 8 bits. Scale and zero point are numbers, or tensors that are broadcast to
    ``x``."""
    if _dtype(dtype).is_float8:

        def nearest(*i: Any) -> Any:
            found = x[i] / _number(scale, i, x.dtype)
            return (found if _is_zero(zero) else found + _number(zero, i, x.dtype)).astype(dtype)

        return _of(x, (scale, zero), nearest, "quantize")
    low, high = int_range(_dtype(dtype))

    def element(*i: Any) -> Any:
        by = _number(scale, i, x.dtype)
        if isinstance(zero, int) and _is_usual(scale) and x.dtype == "float32":
            # What saturates does so before, too: the quotients of the bounds round to these.
            ends = (scale * (low - zero), scale * (high - zero))
            return (te.nearbyint(within(x[i], *ends) / by).astype("int32") + zero).astype(dtype)
        found = te.nearbyint(x[i] / by) + _number(zero, i, x.dtype)
        return within(found, low, high).astype(dtype)

    return _of(x, (scale, zero), element, "quantize")


def saturated(value: Any, zero: int, dtype: str, rectified: bool = False) -> Any:
    """The nearest integer of an expression, ties to even, plus ``zero``, saturated, and at least
    ``zero`` where it is ``rectified``; of NaN the lowest. Bounds come first, which are integers: so
    it is proved to be small as it is rounded."""
    low, high = int_range(_dtype(dtype))
    if rectified:
        low = max(low, zero)
    most = within(value, low - zero, high - zero)
    return (te.nearbyint(most).astype("int32") + zero).astype(dtype)


def dequantize(q: Tensor, scale: Tensor | float, zero: Tensor | int) -> Tensor:
    """``(q - zero) * scale`` in the type of the scale, float32 for a number."""
    kind = scale.dtype if isinstance(scale, Tensor) else "float32"

    def element(*i: Any) -> Any:
        wide = kind if q.dtype.is_float8 else "int32"
        whole = q[i].astype(wide)
        if not _is_zero(zero):
            whole = whole - _number(zero, i, wide)
        return whole.astype(kind) * _number(scale, i, kind)

    return _of(q, (scale, zero), element, "dequantize")


def within(value: Any, low: float, high: float) -> Any:
    """An expression brought into ``[low, high]``, and ``low`` of NaN, which no integer is."""
    lowest, highest = te.const(float(low), value.dtype), te.const(float(high), value.dtype)
    above = te.Select(value > lowest, value, lowest)
    return te.Select(above < highest, above, highest)


def _is_zero(zero: Tensor | float) -> bool:
    return not isinstance(zero, Tensor) and zero == 0


def _is_usual(scale: Tensor | float) -> bool:
    """Whether it is a number whose products with integers are neither subnormal nor infinite."""
    return not isinstance(scale, Tensor) and 2.0**-60 < scale < 2.0**60


def _number(p: Tensor | float, index: tuple[Any, ...], dtype: str) -> Any:
    return read(p, index).astype(dtype) if isinstance(p, Tensor) else te.const(p, dtype)


def _of(x: Tensor, more: tuple[Any, ...], element: Any, name: str) -> Tensor:
    shapes = [shape_of(t) for t in (x, *more) if isinstance(t, Tensor)]
    if common_shape(*shapes) != shape_of(x):
        raise ValueError(f"{name} of {shape_of(x)} with parameters of {shapes[1:]}")
    made: Tensor = te.compute(shape_of(x), element, name=name, tag=BROADCAST)
    return made
