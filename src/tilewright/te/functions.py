"""The functions of the language: arithmetic, conditions, mathematics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import ops as _ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype as _dtype
from tilewright.ir.dtype import int_range as _int_range
from tilewright.ir.errors import LanguageError as _LanguageError
from tilewright.ir.expr import Call, Expr, StringImm
from tilewright.ir.operand import Operand as _Operand
from tilewright.ir.ops import (
    Value,
    absolute,
    as_expr,
    cast,
    ceildiv,
    clip,
    div,
    floordiv,
    floormod,
    fma,
    if_then_else,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    popcount,
    power,
    reinterpret,
    select,
    truncdiv,
    truncmod,
    unary,
)
from tilewright.ir.tf32 import round_tf32, truncate_tf32

__all__ = [
    "all", "abs", "any", "address_of", "call_extern", "cast", "ceildiv", "clip", "const", "div",
    "floordiv", "floormod", "fma", "if_then_else", "indexdiv", "indexmod", "isnan", "logical_not",
    "popcount", "power", "reinterpret", "select", "truncdiv", "truncmod",
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid",
    "floor", "ceil", "round", "trunc", "nearbyint", "round_tf32", "truncate_tf32",
]  # fmt: skip

indexdiv, indexmod = floordiv, floormod


def const(value: Any, dtype: str | None = None) -> Expr:
    """A constant. Where no type is named, a NumPy scalar has its own; a Python number is bool,
    int32 or float32, or int64 or float64 where it is beyond the range of these.

    Raises :class:`LanguageError` where an integer type does not hold the value.
    """
    if (
        not hasattr(value, "__float__")
        or isinstance(value, _Operand)
        or getattr(value, "ndim", None)
    ):
        raise _LanguageError(f"te.const takes a number, got {value!r}")
    t = None if dtype is None else _dtype(dtype).element
    if t is not None and t.is_int:
        low, high = _int_range(t)
        if not low <= value <= high:  # NaN neither
            raise _LanguageError(
                f"a constant {value} of {t} is beyond its range, {low} to {high}: name a wider type"
            )
    return _ops.const(value, dtype)


def all(*conditions: Any) -> Expr:
    """Whether every condition holds; a later one is evaluated only if the earlier ones do."""
    return logical_and(*_flat(conditions))


def any(*conditions: Any) -> Expr:
    """Whether some condition holds; a later one is evaluated only if the earlier ones do not."""
    return logical_or(*_flat(conditions))


def _flat(conditions: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(conditions) == 1 and isinstance(conditions[0], (list, tuple)):
        return tuple(conditions[0])
    return conditions


def abs(x: Value) -> Expr:
    """The absolute value."""
    return absolute(x)


def address_of(buffer: Buffer, *indices: Value) -> Expr:
    """The address of an element (by default the first), an argument for :func:`call_extern`."""
    at = indices or tuple(const(0) for _ in buffer.shape)
    return Call(_dtype("handle"), "address_of", (buffer[at],))


def call_extern(dtype: str, symbol: str, *args: Any) -> Expr:
    """A call of the C function ``symbol``; buffers are passed as pointers to their start."""
    given = tuple(
        address_of(a)
        if isinstance(a, Buffer)
        else StringImm(a)
        if isinstance(a, str)
        else as_expr(a)
        for a in args
    )
    return Call(_dtype(dtype), f"extern:{symbol}", given)


def _function(name: str) -> Callable[[Value], Expr]:
    def apply(x: Value) -> Expr:
        return unary(name, x)

    apply.__name__ = name
    apply.__doc__ = f"``{name}`` of a floating-point value, element by element."
    return apply


exp = _function("exp")
exp2 = _function("exp2")
exp10 = _function("exp10")
log = _function("log")
log2 = _function("log2")
log10 = _function("log10")
log1p = _function("log1p")
expm1 = _function("expm1")
sqrt = _function("sqrt")
rsqrt = _function("rsqrt")
sin = _function("sin")
cos = _function("cos")
tan = _function("tan")
asin = _function("asin")
acos = _function("acos")
atan = _function("atan")
sinh = _function("sinh")
cosh = _function("cosh")
tanh = _function("tanh")
erf = _function("erf")
erfc = _function("erfc")
sigmoid = _function("sigmoid")
floor = _function("floor")
ceil = _function("ceil")
round = _function("round")
trunc = _function("trunc")
nearbyint = _function("nearbyint")
