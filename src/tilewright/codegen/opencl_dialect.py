"""OpenCL C: its types, operators, functions and accesses.

A device without half-precision arithmetic (cl_khr_fp16) computes float16 in float32 and rounds
each result, which gives the same bits for sums, products, quotients and roots; bfloat16, which no
OpenCL has, likewise. In memory both are what they are everywhere.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from tilewright.codegen.c_like_dialect import Dialect, Launch
from tilewright.codegen.c_like_text import ADD, UNARY, Code, call, code, infix, wrapped
from tilewright.codegen.total_integers import total_functions
from tilewright.codegen.warps import warp_part
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func
from tilewright.ir.ops import BITS_FUNCTIONS

_FLOAT32 = dtype("float32")
_NATIVE = (E.Add, E.Sub, E.Mul, E.Min, E.Max)
_NATIVE_INT = (E.BitAnd, E.BitOr, E.BitXor, E.Shl, E.Shr)
#: Lanes of the widest vector.
_MOST = 16
#: Types of floats and of vectors of them.
_FLOATS = [f"{t}{n}" for t in ("float", "double", "half") for n in ("", 2, 3, 4, 8, 16)]
#: Functions that take vectors, under their names in OpenCL.
_FUNCTIONS = {
    name: name
    for name in """exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan
    sinh cosh tanh erf erfc floor ceil round trunc pow fma""".split()
} | {"nearbyint": "rint", "abs": "fabs"}


class OpenCLDialect(Dialect):
    """OpenCL C 1.2; ``half`` tells whether the device has cl_khr_fp16, ``aligned`` whether all of a
    kernel's buffers begin where every type may, and ``own`` which of them do otherwise: memory
    objects of the program."""

    kind = "opencl"
    is_gpu = True
    reserved = Dialect.reserved | frozenset(
        """kernel global local constant private half uchar ushort uint ulong barrier event_t
        image2d_t sampler_t size_t ptrdiff_t select step mix sign dot cross length distance
        clamp mad hypot degrees radians normalize all any rint popcount prefetch as_float as_uint
        as_ulong as_double
        get_local_id get_group_id vload_half vstore_half round_half round_bfloat""".split()
    ) | frozenset(
        f"{name}{n}"
        for name in """char short int long uchar ushort uint ulong float double half vload vstore
        vload_half vstore_half""".split()
        for n in (2, 3, 4, 8, 16)
    ) | frozenset(f"{name}_{t}" for name in ("min", "max") for t in _FLOATS)  # fmt: skip
    types: ClassVar[dict[str, str]] = {
        **Dialect.types,
        "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
        "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float16": "half",
        "bfloat16": "float",
    }  # fmt: skip
    suffixes: ClassVar[dict[str, str]] = {"int64": "L", "uint32": "u", "uint64": "UL"}

    def __init__(self, half: bool = False, aligned: bool = False) -> None:
        super().__init__()
        self.half, self.aligned = half, aligned
        self.own: set[Buffer] = set()
        # Whether the function has one: PoCL then keeps arrays of all threads, of which it loses
        # values that are read as a vector.
        self.holds_barrier = False

    def rounded(self, t: DType) -> bool:
        """Whether values of this type are float32 values that have been rounded to it."""
        return t.kind == "bfloat" or (t.element == "float16" and not self.half)

    def type_name(self, t: DType) -> str:
        if t.bits == 64 and t.is_float:
            self.require("cl_khr_fp64")
        if t.element == "float16" and self.half:
            self.require("cl_khr_fp16")
        name = "float" if self.rounded(t) else super().type_name(t.element)
        return name if t.lanes == 1 else f"{name}{t.lanes}"

    def storage_name(self, t: DType, scope: str) -> str:
        if t.is_bool:
            return "uchar"
        if not self.rounded(t) or scope == "local":
            return self.type_name(t)
        return "ushort" if t.kind == "bfloat" else "half"

    # Constants and operators

    def floating(self, t: DType, value: float) -> Code:
        if t.bits > 16:
            return super().floating(t, value)
        if math.isfinite(value):
            value = _nearest(t, value)
        made = super().floating(_FLOAT32, value)
        return made if self.rounded(t) else self.plain_cast(t, made)

    def infinity(self, t: DType) -> Code:
        return self._constant(t, code("INFINITY"))

    def nan(self, t: DType) -> Code:
        return self._constant(t, code("NAN"))

    def _constant(self, t: DType, x: Code) -> Code:
        """A float as an argument of an overloaded function of ``t``."""
        return self.plain_cast(t, x) if t.bits == 64 else x

    def _round(self, t: DType, x: Code) -> Code:
        """``x``, a float32, rounded to ``t`` where values of ``t`` are held in float32."""
        if not self.rounded(t):
            return x
        name = "round_half" if t.kind == "float" else "round_bfloat"
        self.require(name)
        return call(name, x)

    def native(self, node: type[E.Expr], t: DType) -> bool:
        if t.is_bool or self.rounded(t):
            return False
        return (
            node in _NATIVE or (node in _NATIVE_INT and t.is_int) or (node is E.Div and t.is_float)
        )

    def binary(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        made = super().binary(node, t, a, b)
        if t.is_float and node in (E.Add, E.Sub, E.Mul, E.Div):
            return self._round(t, made)
        return made

    def extremum(self, name: str, t: DType, a: Code, b: Code) -> Code:
        if t.is_float:
            function = f"{name}_{self.type_name(t)}"
            self.require(function)
            return call(function, a, b)
        return call(name, self._typed(t, a), self._typed(t, b))

    def bound(self, name: str, t: DType, nan: bool) -> str:
        return "" if nan or self.rounded(t) else f"f{name}"

    def _typed(self, t: DType, x: Code) -> Code:
        """``x``, which may be an int, as an argument of an overloaded function of ``t``."""
        narrow = t.is_int and t.bits < 32 and t.lanes == 1
        return self.plain_cast(t, x) if narrow else x

    def cast(self, to: DType, source: DType, x: Code) -> Code:
        if to.is_float and to.bits == 16 and self.rounded(to):
            narrow = source == _FLOAT32 or self.rounded(source)
            x = x if narrow else self.plain_cast(_FLOAT32, x)
            return x if source == to else self._round(to, x)
        if self.rounded(source) and to == _FLOAT32:
            return x
        return super().cast(to, source, x)

    # Functions

    def function(self, name: str, t: DType, args: Sequence[Code]) -> Code:
        if name == "isnan":
            return call("isnan", *args)
        if name == "popcount":
            return self.popcount(t, args[0])
        if name == "abs" and t.is_int:
            return self.total_size(t, args[0])
        if name == "sigmoid":
            exp = call("exp", self.negate(t, args[0]))
            one = self.floating(t, 1.0)
            return self._round(t, code(f"{one} / ({one} + {exp})", 13))
        if name in BITS_FUNCTIONS:
            words = ("uint", "float") if t.bits == 32 else ("ulong", "double")
            return call(f"as_{words[not t.is_float]}", *args)
        made = call(_FUNCTIONS[name], *args)
        return made if name == "abs" else self._round(t, made)

    def popcount(self, t: DType, x: Code) -> Code:
        return call("popcount", self._typed(t, x))

    # Memory

    def prefetch(self, buffer: Buffer, pointer: Code) -> str:
        if self._packed_half(buffer):  # no functions of half without cl_khr_fp16
            pointer = code(f"(__global const ushort*)({pointer})", UNARY)
        return call("prefetch", pointer, "1")

    def barrier(self, scope: str) -> Iterable[str]:
        if scope == "cluster":  # that of a work-group would let other blocks of the cluster go on
            raise TargetError("OpenCL has no clusters, and so no T.sync('cluster')")
        # a warp is one thread here, and in step with itself
        return () if scope == "warp" else ("barrier(CLK_LOCAL_MEM_FENCE);",)

    def _packed_half(self, buffer: Buffer) -> bool:
        """Whether elements are in memory as float16 and are read and written by functions."""
        t = buffer.dtype
        return self.rounded(t) and t.kind == "float" and buffer.scope != "local"

    def _bits(self, buffer: Buffer) -> bool:
        """Whether elements are in memory as the bits of a bfloat16."""
        return buffer.dtype.kind == "bfloat" and buffer.scope != "local"

    def load(self, buffer: Buffer, name: str, offset: Code) -> Code:
        if self._packed_half(buffer):
            return call("vload_half", offset, name)
        if self._bits(buffer):
            return call("as_float", f"(uint){name}[{offset}] << 16")
        return super().load(buffer, name, offset)

    def store(self, buffer: Buffer, name: str, offset: Code, value: Code) -> str:
        if self._packed_half(buffer):
            return f"vstore_half({value}, {offset}, {name});"
        if self._bits(buffer):
            return f"{name}[{offset}] = (ushort)(as_uint({value}) >> 16);"
        return super().store(buffer, name, offset, value)

    def updates_in_place(self, buffer: Buffer) -> bool:
        return super().updates_in_place(buffer) and not self.rounded(buffer.dtype)

    def shared_array(self, buffer: Buffer, name: str, size: int, offset: int | None) -> str:
        if self._packed_half(buffer):  # no arrays of half without cl_khr_fp16
            return (
                f"__local ushort {name}_bits[{size}];\n"
                f"__local half* const {name} = (__local half*){name}_bits;"
            )
        t = self.storage_name(buffer.dtype, "shared")
        if not self.needs_alignment(buffer):
            return f"__local {t} {name}[{size}];"
        return f"__local {t} {name}[{size}] __attribute__((aligned({_MOST * buffer.dtype.bytes})));"

    def local_array(self, buffer: Buffer, name: str, size: int) -> str:
        made, t = super().local_array(buffer, name, size), buffer.dtype
        most = min(1 << size.bit_length() >> 1, _MOST)
        if most < 2 or t.is_bool or not self.needs_alignment(buffer):
            return made
        align = most * (4 if self.rounded(t) else t.bytes)
        return f"{made[:-1]} __attribute__((aligned({align})));"

    def warp_part(self, buffer: Buffer, name: str, whole: str, size: int, func: Func) -> str:
        t = self.storage_name(buffer.dtype, "shared")
        part = warp_part(func, lambda d: f"(int)get_local_id({'xyz'.index(d)})")
        return f"__local {t}* const {name} = {whole} + {part} * {size};"

    # Vectors

    def width(self, t: DType) -> int:
        return 1 if t.is_bool or self.rounded(t) else _MOST

    def chunk(self, buffer: Buffer, lanes: int, aligned: Callable[[int], bool]) -> int:
        if buffer.dtype.is_bool or self._bits(buffer):
            return 1
        return math.gcd(lanes, _MOST)

    def vector_name(self, t: DType, lanes: int) -> str:
        return self.type_name(t.with_lanes(lanes))

    def needs_alignment(self, buffer: Buffer) -> bool:
        # vload and vstore promise the alignment of one element: some compilers split them, and
        # PoCL calls them as functions on processors that its library was not made for.
        if self._packed_half(buffer):
            return False
        if buffer.scope == "local":
            return not self.holds_barrier
        if buffer.scope != "global":
            return buffer.scope == "shared"
        return self.aligned or buffer in self.own

    def load_vector(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, aligned: bool = False
    ) -> Code:
        if self._packed_half(buffer):
            return call(f"vload_half{lanes}", "0", self._moved(name, offset))
        if aligned:
            vector = self.vector_name(buffer.dtype, lanes)
            where = _space(buffer)
            return code(f"*({where} const {vector}*){self.pointer(name, offset)}", UNARY)
        return call(f"vload{lanes}", "0", self.pointer(name, offset))

    def store_vector(
        self,
        buffer: Buffer,
        name: str,
        offset: Code,
        lanes: int,
        value: Code,
        aligned: bool = False,
    ) -> str:
        if self._packed_half(buffer):
            return f"vstore_half{lanes}({value}, 0, {self._moved(name, offset)});"
        if aligned:
            vector = self.vector_name(buffer.dtype, lanes)
            return f"*({_space(buffer)} {vector}*){self.pointer(name, offset)} = {value};"
        return f"vstore{lanes}({value}, 0, {self.pointer(name, offset)});"

    def _moved(self, name: str, offset: Code) -> Code:
        return code(name) if offset == "0" else infix(code(name), "+", offset, ADD)

    def part(self, text: str, t: DType, lanes: int, index: int, width: int) -> Code:
        digits = "".join(f"{i:x}" for i in range(index, index + width))
        return code(f"{text}.{'xyzw'[index]}" if lanes <= 4 and width == 1 else f"{text}.s{digits}")

    def pack(self, t: DType, parts: Sequence[Code]) -> Code:
        made = wrapped(f"({self.type_name(t)})(", parts, ")")
        made.level = UNARY
        return made

    def splat(self, t: DType, x: Code) -> Code:
        return code(f"({self.type_name(t)})({x})", UNARY)

    def vector_cast(self, to: DType, source: DType, x: Code) -> Code | None:
        if to.is_bool or source.is_bool or self.rounded(to) or self.rounded(source):
            return None
        return x if to == source else call(f"convert_{self.type_name(to)}", x)

    def vector_function(self, name: str, t: DType, args: Sequence[Code]) -> Code | None:
        if name not in _FUNCTIONS or not t.is_float or self.rounded(t):
            return None
        return call(_FUNCTIONS[name], *args)

    # The frame

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        const = "" if written else "const "
        return f"__global {const}{self.storage_name(buffer.dtype, 'global')}* restrict {name}"

    def signature(self, symbol: str, params: Sequence[str], launch: Launch) -> str:
        shape = f"__attribute__((reqd_work_group_size{launch.block})) " if launch.block else ""
        return wrapped(f"__kernel {shape}void {symbol}(", params, ")")

    def axis(self, tag: str, uniform: bool = False) -> str:
        function = "get_group_id" if tag.startswith("blockIdx") else "get_local_id"
        return f"(int){function}({'xyz'.index(tag[-1])})"

    def unroll(self) -> Iterable[str]:
        return ("#pragma unroll",)


def _nearest(t: DType, value: float) -> float:
    """The finite value of a 16-bit type that is nearest; infinity beyond its range."""
    if t.kind == "float":
        try:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    try:
        bits = int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return math.copysign(math.inf, value)
    bits += 0x7FFF + (bits >> 16 & 1)
    return float(struct.unpack("<f", (bits & 0xFFFF0000).to_bytes(4, "little"))[0])


_HELPERS = total_functions("", ("int", "long", "uint", "ulong")) | {
    "round_half": """float round_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return vload_half(0, (const half*)&bits);
}
""",
    "round_bfloat": """float round_bfloat(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? x : as_float((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}
""",
}
for _suffix, _type in (("", "int"), ("64", "long")):
    _HELPERS[f"floordiv{_suffix}"] = f"""{_type} floordiv{_suffix}({_type} a, {_type} b) {{
  const {_type} q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}}
"""
    _HELPERS[f"floormod{_suffix}"] = f"""{_type} floormod{_suffix}({_type} a, {_type} b) {{
  const {_type} r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}}
"""


for _name, _sign in (("min", "<"), ("max", ">")):
    for _type in _FLOATS:
        # Comparisons of vectors are -1 in each lane, and a choice between vectors is lane by lane.
        _HELPERS[f"{_name}_{_type}"] = f"""{_type} {_name}_{_type}({_type} a, {_type} b) {{
  return ((a {_sign} b) | (a != a)) ? a : b;
}}
"""


def _space(buffer: Buffer) -> str:
    """Where a buffer is that vectors of its own alignment are read from."""
    return {"shared": "__local", "local": "__private"}.get(buffer.scope, "__global")


def prelude(needs: set[str]) -> str:
    """Extensions and functions that a text relies on."""
    parts = [
        f"#pragma OPENCL EXTENSION {name} : enable\n"
        for name in sorted(needs)
        if name.startswith("cl_khr")
    ]
    parts += [_HELPERS[name] for name in sorted(needs) if name in _HELPERS]
    return "\n".join(parts) + "\n" if parts else ""
