"""Between bytes and float32 in CUDA C++, mostly by instructions of full rate.

A GPU converts bytes to floats, and floats to integers, in a unit that takes one from each thread of
a warp every eight cycles. An integer of few bits is a float by adding: the mantissa of 2**23 + n
ends in the bits of n.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.dtype import DType, dtype, int_range
from tilewright.ir.expr import Expr

_FLOAT32, _INT32 = dtype("float32"), dtype("int32")
#: By lanes, the types of vectors of bytes: registers, which no compiler takes apart as it does
#: structures of bytes.
WORDS = {2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}
#: Sizes of numbers that :data:`_NEAREST` rounds.
_NEAR = 2.0**22
#: By how much what is rounded may be beyond the integer that it is rounded to, and not be another.
_NEARLY = 0.49
#: Sizes of divisors whose reciprocals, and products with these, are far from both ends.
_QUICK = 2.0**-60

#: Byte ``k`` of a word becomes the last of 2**23 + n.
_UNSIGNED = """template <int k>
static __device__ __forceinline__ float unsigned_byte(unsigned word) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + k)) - 8388608.0f;
}"""
#: A signed byte as 32 bits, which have an instruction of half the rate: PTX ISA, "prmt", whose
#: selectors from 8 on take the sign.
_SIGNED = """template <int k>
static __device__ __forceinline__ float signed_byte(unsigned word) {
#ifdef __CUDA_ARCH__
  int n;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(n) : "r"(word), "n"(0x8880 + 0x1111 * k));
  return (float)n;
#else
  return (float)(signed char)(word >> 8 * k);
#endif
}"""
#: The nearest integer, ties to even, of a number of at most 2**22: what 1.5 * 2**23 added to it is
#: rounded to.
_NEAREST = """static __device__ __forceinline__ int nearest_integer(float x) {
  return __float_as_int(x + 12582912.0f) - 0x4b400000;
}"""
#: Extrema of four bytes as those of pairs of 16 bits, which end in what decides nothing: of bytes 1
#: and 3 where they are, of bytes 0 and 2 moved up by one.
_EXTREMUM = """static __device__ __forceinline__ unsigned bytes_{name}{sign}(
    unsigned x, unsigned y) {{
  const unsigned odd = __v{name}{sign}2(x, y), even = __v{name}{sign}2(x << 8, y << 8);
  return __byte_perm(even, odd, 0x7351);
}}"""
_BYTES_OF = """static __device__ __forceinline__ unsigned bytes_of(
    unsigned char a, unsigned char b, unsigned char c, unsigned char d) {
  const uchar4 bytes = make_uchar4(a, b, c, d);
  return *(const unsigned*)&bytes;
}
static __device__ __forceinline__ unsigned short bytes_of(
    unsigned char a, unsigned char b) {
  const uchar2 bytes = make_uchar2(a, b);
  return *(const unsigned short*)&bytes;
}"""

#: The nearest bytes, ties to even, of numbers, saturated, and 0 of a NaN: since compute capability
#: 8.6 one instruction rounds and packs two of them (PTX ISA, "cvt.pack" of what "cvt.rni" makes).
_NEAREST_BYTES = """static __device__ __forceinline__ unsigned nearest_{sign}8(
    float a, float b, unsigned above = 0) {{
#ifdef __CUDA_ARCH__
  unsigned bytes;
  asm("cvt.pack.sat.{sign}8.s32.b32 %0, %1, %2, %3;"
      : "=r"(bytes) : "r"(__float2int_rn(b)), "r"(__float2int_rn(a)), "r"(above));
  return bytes;
#else
  const float pair[] = {{a, b}};
  for (int k = 1; k >= 0; --k) {{
    const float x = fminf(fmaxf(pair[k], {least}.0f), {most}.0f);
    above = above << 8 | ((int)rintf(pair[k] == pair[k] ? x : 0.0f) & 255);
  }}
  return above;
#endif
}}
static __device__ __forceinline__ unsigned nearest_{sign}8(float a, float b, float c, float d) {{
  return nearest_{sign}8(a, b, nearest_{sign}8(c, d));
}}"""

#: A quotient that is rounded once, by the reciprocal of a divisor that is known, which is rounded,
#: too; so that of Brisebarre, Muller and Raina, "Accelerating correctly rounded floating-point
#: division when the divisor is known in advance" (2004), where the rest is no subnormal number.
_DIVIDED = """static __device__ __forceinline__ float divided(float x, float by, float reciprocal) {
  const float near = x * reciprocal;
  return fmaf(fmaf(-near, by, x), reciprocal, near);
}"""

#: By the name of a helper, its text.
TEXTS = {
    "signed_byte": _SIGNED,
    "unsigned_byte": _UNSIGNED,
    "nearest_integer": _NEAREST,
    "bytes_of": _BYTES_OF,
    "nearest_s8": _NEAREST_BYTES.format(sign="s", least=-128, most=127),
    "nearest_u8": _NEAREST_BYTES.format(sign="u", least=0, most=255),
    "divided": _DIVIDED,
    **{
        f"bytes_{name}{sign}": _EXTREMUM.format(name=name, sign=sign)
        for name in ("min", "max")
        for sign in "su"
    },
}


def is_byte(t: DType) -> bool:
    """Whether it is an integer of 8 bits, or a float, which is held as one."""
    return t.bits == 8 and not t.is_bool


def of_byte(to: DType, t: DType) -> str:
    """The template that makes an integer of type ``t`` a float32; empty where ``to`` is another
    type, or ``t`` no integer of 8 bits."""
    if to is not _FLOAT32 or not is_byte(t) or t.is_float8:
        return ""
    return "signed_byte" if t.kind == "int" else "unsigned_byte"


def rounded_near(to: DType, x: Expr) -> Expr | None:
    """``x`` rounded to an integer of type ``to``, where it is proved to be small and no NaN; None
    elsewhere.

    >>> x, low, high = E.Var.make("x", "float32"), E.FloatImm(_FLOAT32, -8), E.FloatImm(_FLOAT32, 7)
    >>> above = E.Select(x > low, x, low)
    >>> rounded_near(_INT32, E.Select(above < high, above, high)).name
    'nearest_integer'
    >>> rounded_near(_INT32, E.Select(above < low, above, low) / 4.0).args[0].name
    'divided'
    """
    size = _largest(x) if to is _INT32 and x.dtype is _FLOAT32 else math.inf
    return E.Call(to, "nearest_integer", (_divided(x),)) if size <= _NEAR else None


def saturated(to: DType, x: Expr) -> tuple[str, Expr] | None:
    """What rounds and packs numbers to integers of 8 bits, and the number that it takes, where one
    is within what they hold, also of a NaN; None elsewhere.

    >>> x, low, high = (E.Var.make("x", "float32"), *(E.FloatImm(_FLOAT32, n) for n in (0, 127)))
    >>> above = E.Select(x > low, x, low)
    >>> saturated(dtype("int8"), E.Select(above < high, above, high)) == ("nearest_s8", above)
    True
    """
    if to.bits != 8 or to.kind not in ("int", "uint") or x.dtype is not _FLOAT32:
        return None
    least, most = int_range(to)
    name = "nearest_s8" if to.kind == "int" else "nearest_u8"
    if isinstance(x, E.Div) and isinstance(x.b, E.FloatImm) and (inside := _bounds(x.a)):
        by = x.b.value
        if not _QUICK < by < 1 / _QUICK:
            return None
        if least - _NEARLY < inside.low / by and inside.high / by < most + _NEARLY:
            return name, _divided(x)
    elif (inside := _bounds(x)) and inside.low >= least:
        # Beyond both ends the instruction saturates; of a NaN it makes 0.
        if inside.high == most:
            return name, inside.value if inside.low == least == 0 else inside.above
        return (name, x) if least <= inside.high < most else None
    return None


class _Bounds(NamedTuple):
    """``value`` brought above ``low``, and that below ``high``; of NaN ``low``, or NaN, which no
    integer is: then any will do."""

    value: Expr
    low: float
    above: Expr
    high: float


def _bounds(x: Expr) -> _Bounds | None:
    match x:
        case E.Select(E.LT(E.Select(E.GT(v, E.FloatImm() as a), c, d) as above, b), e, f) if (
            v is c and a is d and above is e and b is f and isinstance(b, E.FloatImm)
        ):
            return _Bounds(v, a.value, above, b.value)
        case E.Min(E.Max(v, E.FloatImm(_, low)) as above, E.FloatImm(_, high)):
            return _Bounds(v, low, above, high)
    return None


def _largest(x: Expr) -> float:
    """The largest size that it may have; infinity where that is not known, or it may be NaN."""
    if inside := _bounds(x):
        return max(abs(inside.low), abs(inside.high))
    match x:
        case E.Div(a, E.FloatImm(_, b)) if _QUICK < abs(b) < 1 / _QUICK:
            return 1.01 * _largest(a) / abs(b)
    return math.inf


def _divided(x: Expr) -> Expr:
    """A quotient by a constant in functions that are right where it is not very small."""
    match x:
        case E.Div(a, E.FloatImm(t, b)):
            divisor = struct.unpack("f", struct.pack("f", b))[0]
            return E.Call(t, "divided", (a, E.FloatImm(t, divisor), ops.const(1 / divisor, t)))
    return x
