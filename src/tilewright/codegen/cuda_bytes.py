"""Between bytes and float32 in CUDA C++, by instructions of full rate.

A GPU converts a number in a unit that takes one from each thread of a warp every eight cycles. An
integer of few bits is a float by adding: the mantissa of ``2**23 + n`` ends in the bits of ``n``.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr

_FLOAT32, _INT32 = dtype("float32"), dtype("int32")
#: By lanes, the types of vectors of bytes: registers, which no compiler takes apart as it does
#: structures of bytes.
WORDS = {2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}
#: Sizes of numbers that :data:`_NEAREST` rounds.
_NEAR = 2.0**22

#: Byte ``k`` of a word becomes the last of 2**23 + n, one of a signed type as n + 128.
_BYTE = """template <int k>
static __device__ __forceinline__ float {name}(unsigned word) {{
  return __uint_as_float(__byte_perm(word{flip}, 0x4b000000u, 0x7440 + k)) - {bias}.0f;
}}"""
#: The nearest integer, ties to even, of a number of at most 2**22: what 1.5 * 2**23 added to it is
#: rounded to.
_NEAREST = """static __device__ __forceinline__ int nearest_integer(float x) {
  return __float_as_int(x + 12582912.0f) - 0x4b400000;
}"""
#: Extrema of four bytes as those of pairs of 16 bits, which end in what decides nothing: of bytes 1
#: and 3 where they are, of bytes 0 and 2 moved up by one.
_EXTREMUM = """static __device__ __forceinline__ unsigned bytes_{name}{sign}(unsigned x, unsigned y) {{
  const unsigned odd = __v{name}{sign}2(x, y), even = __v{name}{sign}2(x << 8, y << 8);
  return __byte_perm(even, odd, 0x7351);
}}"""
_BYTES_OF = """static __device__ __forceinline__ unsigned bytes_of(int a, int b, int c, int d) {
  const uchar4 bytes = make_uchar4(a, b, c, d);
  return *(const unsigned*)&bytes;
}
static __device__ __forceinline__ unsigned short bytes_of(int a, int b) {
  const uchar2 bytes = make_uchar2(a, b);
  return *(const unsigned short*)&bytes;
}"""

#: By the name of a helper, its text.
TEXTS = {
    "signed_byte": _BYTE.format(name="signed_byte", flip=" ^ 0x80808080u", bias=2**23 + 128),
    "unsigned_byte": _BYTE.format(name="unsigned_byte", flip="", bias=2**23),
    "nearest_integer": _NEAREST,
    "bytes_of": _BYTES_OF,
    **{
        f"bytes_{name}{sign}": _EXTREMUM.format(name=name, sign=sign)
        for name in ("min", "max")
        for sign in "su"
    },
}


def is_byte(t: DType) -> bool:
    """Whether it is an integer of 8 bits."""
    return t.is_int and t.bits == 8


def of_byte(to: DType, t: DType) -> str:
    """The template that makes a byte of type ``t`` a float32; empty where ``to`` is another type,
    or ``t`` no byte."""
    if to is not _FLOAT32 or not is_byte(t):
        return ""
    return "signed_byte" if t.kind == "int" else "unsigned_byte"


def rounding(to: DType, x: Expr) -> str:
    """The function that rounds ``x`` to an integer of type ``to``, where it is proved to be small
    and no NaN; empty where there is none.

    >>> x, low, high = E.Var.make("x", "float32"), E.FloatImm(_FLOAT32, -8), E.FloatImm(_FLOAT32, 7)
    >>> rounding(_INT32, E.Min(E.Max(x, low), high))
    'nearest_integer'
    """
    small = to is _INT32 and x.dtype is _FLOAT32 and _is_bounded(x)
    return "nearest_integer" if small else ""


def _is_bounded(x: Expr) -> bool:
    """Whether it is the smaller and the larger of something and two small numbers; the bounds of a
    NaN are these."""
    match x:
        case E.Min(E.Max(_, E.FloatImm(_, a)), E.FloatImm(_, b)) | E.Max(
            E.Min(_, E.FloatImm(_, a)), E.FloatImm(_, b)
        ):
            return abs(a) <= _NEAR and abs(b) <= _NEAR
    return False
