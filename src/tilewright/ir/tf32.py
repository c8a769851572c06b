"""TF32, the type of float32 on tensor cores: its 8 bits of exponent, and 10 of its 23 of mantissa.

A value of it is kept in a float32 whose low 13 bits are zero. A float32 is the sum of two of them
up to a relative error of 2**-23: ``round_tf32(x)``, and ``x - round_tf32(x)``, which float32 holds
exactly, without its last bit. So three products of such parts, the product of the small ones left
out, are a product of float32.
"""

from __future__ import annotations

import math

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Call, Expr
from tilewright.ir.ops import Value, absolute, add, as_expr, cast, const, mul, select, sub

#: The functions by the names of their calls.
TF32_FUNCTIONS = ("round_tf32", "truncate_tf32")

# In float64, of 53 bits: what a value is lengthened by so that 11 of them are left; what moves a
# value halfway between two of 11 bits away from zero; and a little less than 1, by which the next
# of 11 bits towards zero is nearest (it is 1/2047 to 1/1024 less).
_LONGER, _AWAY, _BELOW = 2.0**42, 1 + 2.0**-40, 1 - 6e-4


def round_tf32(x: Value) -> Expr:
    """The nearest TF32 to a float32, of two the one away from zero (PTX ISA, "cvt.rna.tf32.f32").

    From 3.4011e38 on it is infinite; of NaN it is NaN, or on NVIDIA's GPUs 0, where ``x`` less it
    still is NaN.
    """
    return _call("round_tf32", x)


def truncate_tf32(x: Value) -> Expr:
    """The nearest TF32 towards zero: what tensor cores read of a float32, whose low 13 bits they
    leave out."""
    return _call("truncate_tf32", x)


def _call(name: str, x: Value) -> Expr:
    a = as_expr(x)
    if a.dtype.element is not dtype("float32"):
        raise LanguageError(f"{name} is of float32, not of {a.dtype}: cast it first")
    return Call(a.dtype, name, (a,))


def in_arithmetic(name: str, x: Expr) -> Expr:
    """One of the functions by what every machine has; numbers below 2**-126 keep 11 bits.

    >>> from tilewright.ir.ops import const
    >>> in_arithmetic("round_tf32", const(1.0, "float32")).dtype == dtype("float32")
    True
    """
    t, wide = x.dtype, dtype("float64").with_lanes(x.dtype.lanes)
    given = cast(wide, x)
    found = _nearest(given)
    if name == "truncate_tf32":
        less = _nearest(mul(found, const(_BELOW, wide)))
        found = select(absolute(found) > absolute(given), less, found)
    finite = absolute(given) < const(math.inf, wide)
    return cast(t, select(finite, found, given))


def _nearest(x: Expr) -> Expr:
    """The nearest number of 11 bits, where products and sums are contracted, too: a product with a
    power of two is exact, and its last bit is the last of those that are left."""
    away = mul(x, const(_AWAY, x.dtype))
    longer = mul(away, const(_LONGER, x.dtype))
    return sub(add(away, longer), longer)
