"""The types of programs in LLVM, and conversions among them.

float16 is LLVM's ``half`` where the machine converts it, and bfloat16 (and float16 elsewhere) are
carried as their bits: arithmetic on them is done in float32 and rounded after every operation, to
nearest even. Sums, differences, products, quotients and square roots so computed are correctly
rounded, because float32 has more than twice their digits. Floats of 8 bits are their bits, too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tilewright.codegen.llvm.builder import (
    Builder,
    Value,
    half_bits,
    literal,
    opaque,
    round_to_float32,
    split_type,
    vector_type,
)
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.float8 import LAYOUTS as FLOAT8
from tilewright.ir.float8 import NAN, bits_of

FLOAT32 = dtype("float32")
#: VFPCLASSPS's bit for denormals.
_DENORMAL = 0x20
_NATIVE = {"float64": "double", "float32": "float", "float16": "half", "bool": "i1"}


class Types:
    """How values of each type are held.

    Parameters
    ----------
    native_half : whether the machine converts float16 to float32 and back.
    rounds_bfloat : whether it rounds 16 numbers to bfloat16, but for denormals (AVX512-BF16).
    """

    def __init__(self, native_half: bool, rounds_bfloat: bool = False) -> None:
        self.native_half, self.rounds_bfloat = native_half, rounds_bfloat

    def register(self, t: DType) -> str:
        """The type of a value."""
        return vector_type(self._element(t.element), t.lanes)

    def memory(self, t: DType) -> str:
        """The type of the same value in memory, where a bool is a byte."""
        return vector_type("i8" if t.is_bool else self._element(t.element), t.lanes)

    def _element(self, t: DType) -> str:
        if t == "handle":
            return "ptr"
        native = _NATIVE.get(t)
        return native if native and (t != "float16" or self.native_half) else f"i{t.bits}"

    def narrow(self, t: DType) -> bool:
        """Whether arithmetic on it is done in float32."""
        return t.is_float and t.bits <= 16 and (t.kind != "float" or not self.native_half)


class Layout(NamedTuple):
    """Of a float narrower than float32: the bits of its mantissa, the bias of its exponents, and
    the bits of the first pattern that is no finite number."""

    mantissa: int
    bias: int
    special: int


_LAYOUTS = {"float": Layout(10, 15, 0x7C00)} | {
    kind: Layout(mantissa, bias, largest + 1) for kind, (mantissa, bias, largest) in FLOAT8.items()
}


def widen(b: Builder, t: DType, x: Value) -> Value:
    """Bits of a narrower float as float32."""
    lanes = t.lanes
    i32, f32 = vector_type("i32", lanes), vector_type("float", lanes)
    bits = b.convert("zext", x, i32)

    def imm(value: int) -> Value:
        return literal(i32, value)

    if t.kind == "bfloat":
        return b.convert("bitcast", b.binary("shl", bits, imm(16)), f32)
    mantissa, bias, first = _LAYOUTS[t.kind]
    top, by = 1 << (t.bits - 1), 23 - mantissa
    sign = b.binary("shl", b.binary("and", bits, imm(top)), imm(32 - t.bits))
    size = b.binary("shl", b.binary("and", bits, imm(top - 1)), imm(by))
    normal = b.binary("add", size, imm((127 - bias) << 23))
    special = b.binary("add", size, imm((255 - 2 * bias - 1) << 23))
    # a denormal: give it an exponent, then subtract what that added
    biased = b.convert("bitcast", b.binary("add", size, imm((127 - bias + 1) << 23)), f32)
    denormal = b.binary("fsub", biased, literal(f32, 2.0 ** (1 - bias)))
    found = b.select(b.compare("icmp uge", size, imm(first << by)), special, normal)
    zero = b.compare("icmp ult", size, imm(1 << 23))
    found = b.select(zero, b.convert("bitcast", denormal, i32), found)
    return b.convert("bitcast", b.binary("or", found, sign), f32)


def narrow(b: Builder, types: Types, t: DType, x: Value) -> Value:
    """float32 as bits of a narrower float, rounded to nearest even; floats of 8 bits saturate."""
    if not types.rounds_bfloat or t.kind != "bfloat" or t.lanes % 16:
        return _narrow(b, t, x)
    parts = [b.shuffle(x, x, range(k, k + 16)) for k in range(0, t.lanes, 16)]
    return b.join([_rounded_by_processor(b, t.with_lanes(16), part) for part in parts])


def _rounded_by_processor(b: Builder, t: DType, x: Value) -> Value:
    """:func:`narrow` by VCVTNEPS2BF16, which takes denormals for zeros: a vector with one of these
    goes the long way (Intel SDM volume 2C)."""
    kinds = b.call("<16 x i1>", "llvm.x86.avx512.fpclass.ps.512", [x, literal("i32", _DENORMAL)])
    some = b.compare("icmp ne", b.convert("bitcast", kinds, "i16"), literal("i16", 0))
    some = b.call("i1", "llvm.expect.i1", [some, literal("i1", 0)])
    rare, often, done = b.label("denormal"), b.label("normal"), b.label("end")
    b.branch(some, rare, often)
    b.start(rare)
    exact, last = _narrow(b, t, x), b.block
    b.jump(done)
    b.start(often)
    made = b.call("<16 x bfloat>", "llvm.x86.avx512bf16.cvtneps2bf16.512", [x])
    fast = b.convert("bitcast", made, exact.type)
    b.jump(done)
    b.start(done)
    return b.phi((exact, last), (fast, often))


def _narrow(b: Builder, t: DType, x: Value) -> Value:
    lanes = t.lanes
    i32, narrow = vector_type("i32", lanes), vector_type(f"i{t.bits}", lanes)
    bits = b.convert("bitcast", x, i32)

    def imm(value: int) -> Value:
        return literal(i32, value)

    if t.kind == "bfloat":
        odd = b.binary("and", b.binary("lshr", bits, imm(16)), imm(1))
        rounded = b.binary("add", b.binary("add", bits, imm(0x7FFF)), odd)
        quiet = b.binary("or", bits, imm(0x400000))
        nan = b.compare("fcmp uno", x, x)
        found = b.binary("lshr", b.select(nan, quiet, rounded), imm(16))
        return b.convert("trunc", found, narrow)
    f32, (mantissa, bias, first) = x.type, _LAYOUTS[t.kind]
    by = 23 - mantissa
    sign = b.binary("and", bits, imm(-(2**31)))
    size = b.binary("xor", bits, sign)
    odd = b.binary("and", b.binary("lshr", size, imm(by)), imm(1))
    normal = b.binary("add", size, imm(((bias - 127) << 23) + (1 << by - 1) - 1))
    normal = b.binary("lshr", b.binary("add", normal, odd), imm(by))
    # a denormal: adding a power of two lets the float adder round at its last bit
    power = 24 - bias - mantissa
    sum = b.binary("fadd", b.convert("bitcast", size, f32), literal(f32, 2.0**power))
    denormal = b.binary("sub", b.convert("bitcast", sum, i32), imm((127 + power) << 23))
    found = b.select(b.compare("icmp ult", size, imm((128 - bias) << 23)), denormal, normal)
    nan = b.compare("icmp ugt", size, imm(0x7F800000))
    if t.is_float8:
        found = b.intrinsic("umin", found, imm(first - 1))
        found = b.select(nan, imm(NAN), found)
    else:
        infinite = b.compare("icmp uge", size, imm((127 + 16) << 23))
        found = b.select(infinite, b.select(nan, imm(0x7E00), imm(0x7C00)), found)
    found = b.binary("or", found, b.binary("lshr", sign, imm(32 - t.bits)))
    return b.convert("trunc", found, narrow)


def round_to_odd(b: Builder, x: Value) -> Value:
    """float64 as float32, inexact results with an odd last bit.

    Rounding that to 16 bits gives what rounding the float64 at once would.
    """
    lanes = split_type(x.type)[1]
    f32, i32 = vector_type("float", lanes), vector_type("i32", lanes)
    nearest = b.convert("fptrunc", x, f32)
    back = b.convert("fpext", nearest, x.type)
    bits = b.convert("bitcast", nearest, i32)
    beyond = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", x))
    bits = b.select(beyond, b.binary("sub", bits, literal(i32, 1)), bits)
    inexact = b.compare("fcmp one", back, x)
    bits = b.select(inexact, b.binary("or", bits, literal(i32, 1)), bits)
    return b.convert("bitcast", bits, f32)


def cast(b: Builder, types: Types, source: DType, to: DType, x: Value) -> Value:
    """A conversion of value: floats to integers truncate, floats to floats round to nearest even.

    A float beyond the range of the integer gives some integer.
    """
    if source is to or (types.register(source) == types.register(to) and not _differs(source, to)):
        return x
    target = types.register(to)
    if to.is_bool:
        if types.narrow(source):
            return cast(b, types, FLOAT32.with_lanes(source.lanes), to, widen(b, source, x))
        zero = literal(x.type, 0)
        return b.compare("fcmp une" if source.is_float else "icmp ne", x, zero)
    if types.narrow(source):
        return cast(b, types, FLOAT32.with_lanes(source.lanes), to, widen(b, source, x))
    if types.narrow(to) or (to.bits == 16 and to.is_float and source != "float32"):
        return _to_narrow(b, types, source, to, x)
    if source.is_float and to.is_float:
        return b.convert("fpext" if to.bits > source.bits else "fptrunc", x, target)
    if source.is_float:
        return _to_integer(b, to, x, target)
    if to.is_float:
        signed = source.kind == "int"
        return b.convert("sitofp" if signed else "uitofp", x, target)
    if source.is_bool or to.bits > source.bits:
        wide = b.convert("sext" if source.kind == "int" else "zext", x, target)
        if source.kind == "int" and to.kind == "uint" and to.lanes == 1:
            # Where such a number is widened again, to int64, LLVM 22's vectoriser of straight code
            # compares it in its narrow type, as a signed one. It may not see where it comes from.
            return b.op(target, opaque(wide.text, type=target))
        return wide
    return b.convert("trunc", x, target) if to.bits < source.bits else x


def _differs(source: DType, to: DType) -> bool:
    """Whether equal registers hold different meanings (bits of float16 and of bfloat16)."""
    return (source.is_float or to.is_float) and source != to


def _to_narrow(b: Builder, types: Types, source: DType, to: DType, x: Value) -> Value:
    """To a float narrower than float32 by way of that, rounded once."""
    f32 = FLOAT32.with_lanes(to.lanes)
    if source.is_float and source.bits == 64:
        wide = round_to_odd(b, x)
    elif source.is_float or source.is_bool or source.bits <= 16:
        wide = cast(b, types, source, f32, x)
    else:
        double = cast(b, types, source, dtype("float64").with_lanes(to.lanes), x)
        wide = round_to_odd(b, double)
    if types.narrow(to):
        return narrow(b, types, to, wide)
    return b.convert("fptrunc", wide, types.register(to))


def _to_integer(b: Builder, to: DType, x: Value, target: str) -> Value:
    bits = 64 if to.bits == 64 or to == "uint32" else 32
    wide = vector_type(f"i{bits}", to.lanes)
    opcode = "fptoui" if to.element == "uint64" else "fptosi"
    found = b.convert(opcode, x, wide)
    # out of range it is poison; frozen, it is a number like any other
    found = b.op(wide, f"freeze {found}")
    return b.convert("trunc", found, target)


def narrow_bits(t: DType, value: float) -> int:
    """A constant of a narrower float as its bits."""
    if t.is_float8:
        return bits_of(value, t)
    if t.kind == "float":
        return half_bits(value)
    bits: int = struct.unpack("<I", struct.pack("<f", round_to_float32(value)))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
