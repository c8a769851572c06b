"""Floats of 8 bits: the values that they have, and rounding to these.

"float8_e4m3fn" has 4 bits of exponent and 3 of mantissa, no infinities, and numbers up to 448;
"float8_e5m2" has 5 and 2, and numbers up to 57344 (Micikevicius et al., "FP8 Formats for Deep
Learning", 2022). They are types of memory: what is computed with them is converted first. A
conversion to one rounds to nearest, ties to even, and saturates: what is beyond the largest number,
infinities too, becomes that. NaN stays NaN.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import pairwise

from tilewright.ir.dtype import DType

#: By type, the bits of the mantissa, the bias of exponents and the bits of the largest number.
LAYOUTS = {"float8_e4m3fn": (3, 7, 0x7E), "float8_e5m2": (2, 15, 0x7B)}
#: The bits of a NaN, in either type.
NAN = 0x7F


@cache
def values(kind: str) -> tuple[float, ...]:
    """What each of the 256 patterns of bits stands for; ``kind`` is the type of an element.

    >>> values("float8_e4m3fn")[0x7E], values("float8_e5m2")[0x01]
    (448.0, 1.52587890625e-05)
    """
    mantissa, bias, largest = LAYOUTS[kind]

    def value(size: int) -> float:
        if size > largest:
            return math.inf if (kind, size) == ("float8_e5m2", largest + 1) else math.nan
        exponent, part = divmod(size, 1 << mantissa)
        whole = part + ((1 << mantissa) if exponent else 0)
        return math.ldexp(whole, max(exponent, 1) - bias - mantissa)

    positive = [value(size) for size in range(0x80)]
    return (*positive, *(-x for x in positive))


@cache
def middles(kind: str) -> tuple[float, ...]:
    """What lies in the middle between a number and the next: the first between 0 and the least."""
    known = values(kind)[: LAYOUTS[kind][2] + 1]
    return tuple((a + b) / 2 for a, b in pairwise(known))


def bits_of(value: float, t: DType) -> int:
    """The bits of the nearest number of a type.

    >>> from tilewright.ir.dtype import dtype
    >>> [hex(bits_of(x, dtype("float8_e4m3fn"))) for x in (1.0, -1.0, 1e9, 0.0)]
    ['0x38', '0xb8', '0x7e', '0x0']
    """
    if math.isnan(value):
        return NAN
    between = middles(t.kind)
    low, high = bisect_left(between, abs(value)), bisect_right(between, abs(value))
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    return sign | (high if low % 2 else low)


def nearest(value: float, t: DType) -> float:
    """The nearest number of a type."""
    return values(t.kind)[bits_of(value, t)]
