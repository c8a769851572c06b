"""Arithmetic as a GPU does it, on NumPy arrays: types, rounding, conversions, functions.

A value of a scalar type is a NumPy scalar (the same in all threads) or an array of one element a
thread; a vector is an array of shape (threads or 1, lanes). Values of floats that NumPy lacks
are kept as float32 that these can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.runtime.narrow_floats import is_narrow, round_to

Array: TypeAlias = Any  # an np.ndarray or a NumPy scalar


def numpy_type(t: DType) -> np.dtype[Any]:
    """What values of type ``t`` are computed and kept in."""
    if is_narrow(t):
        return np.dtype("float32")
    return np.dtype(str(t.element))


def cast(x: Array, source: DType, to: DType) -> Array:
    """``x`` converted by value; floats become integers by truncation, bool by ``!= 0``."""
    kind = numpy_type(to)
    if to.is_bool:
        return x != 0
    if is_narrow(to):
        return x if source.kind == to.kind else round_to(x, to)
    if source.is_float and to.is_int:
        return np.trunc(x).astype(np.int64 if to.bits < 64 else kind).astype(kind)
    return x.astype(kind)


def poison(t: DType) -> Any:
    """What memory holds that nobody wrote: NaN, or a number that no program means."""
    if t.is_float:
        return np.nan
    if t.is_bool:
        return True
    return int.from_bytes(b"\x5a" * t.bytes, "little")


def _trunc_div(a: Array, b: Array) -> Array:
    return (a - np.fmod(a, b)) // b


BINARY: dict[type[E.Expr], Callable[[Array, Array], Array]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: np.divide,
    E.FloorDiv: np.floor_divide, E.FloorMod: np.remainder,
    E.TruncDiv: _trunc_div, E.TruncMod: np.fmod, E.Min: np.minimum, E.Max: np.maximum,
    E.BitAnd: np.bitwise_and, E.BitOr: np.bitwise_or, E.BitXor: np.bitwise_xor,
    E.Shl: np.left_shift, E.Shr: np.right_shift,
    E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal,
    E.GT: np.greater, E.GE: np.greater_equal,
}  # fmt: skip


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x).astype(x.dtype)


def _of_numbers(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function that NumPy lacks, number by number in float64."""
    each = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(each(np.float64(x)), np.float64).astype(x.dtype)[()]


def _popcount(x: Array) -> Array:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product of two doubles and its rounding error (Dekker 1971, with Veltkamp's split)."""
    p = a * b
    scale = np.float64(2**27 + 1)
    a_high = a * scale - (a * scale - a)
    b_high = b * scale - (b * scale - b)
    a_low, b_low = a - a_high, b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once (for float32 and narrower by way of float64)."""
    if a.dtype != np.float64:
        return (a.astype(np.float64) * b + c).astype(a.dtype)
    p, low = _two_product(a, b)
    s = p + c
    t = s - p
    exact = s + (((p - (s - t)) + (c - t)) + low)
    return np.where(np.isfinite(exact), exact, s)[()]


#: Functions by the names of calls; halves are computed in float32 and rounded once.
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(x.dtype.type(10), x),
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "erf": _of_numbers(math.erf), "erfc": _of_numbers(math.erfc),
    "sigmoid": lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    "floor": np.floor, "ceil": np.ceil, "round": _round_away, "trunc": np.trunc,
    "nearbyint": np.rint, "pow": np.power, "fma": fma, "abs": np.abs, "popcount": _popcount,
    "isnan": np.isnan,
    "bits_of_float": lambda x: x.view(f"u{x.dtype.itemsize}"),
    "float_of_bits": lambda x: x.view(f"f{x.dtype.itemsize}"),
}  # fmt: skip

#: Functions of the C library under their own names, for ``extern:`` calls.
_C_NAMES = {"fabs": "abs", "fmin": "min", "fmax": "max"}


def function(name: str) -> Callable[..., Array] | None:
    """What a call of ``name`` computes, None where sim does not know it."""
    if not name.startswith("extern:"):
        return FUNCTIONS.get(name)
    symbol = name.removeprefix("extern:")
    for candidate in (symbol, symbol.removesuffix("f")):
        if candidate in ("fmin", "fmax"):
            return np.fmin if candidate == "fmin" else np.fmax
        found = FUNCTIONS.get(_C_NAMES.get(candidate, candidate))
        if found is not None:
            return found
    return None
