"""CUDA C++: its types, operators, functions and accesses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from tilewright.codegen.c_like_dialect import Dialect
from tilewright.codegen.c_like_text import (
    BIT_AND,
    EQUALITY,
    UNARY,
    Code,
    call,
    code,
    infix,
    wrapped,
)
from tilewright.codegen.cuda_functions import HELPERS, SINGLE, TEXTS, before_rounding, rounded
from tilewright.codegen.mbarriers import NAME
from tilewright.codegen.mbarriers import TEXT as TILE_LOADS
from tilewright.codegen.tensor_maps import MAPS
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func
from tilewright.ir.tf32 import TF32_FUNCTIONS
from tilewright.target.boxes import TensorMap
from tilewright.target.instructions._shared import SWIZZLED_ADDRESS
from tilewright.target.target import overlaps

#: Vectors that CUDA has, by element type and lanes; the last of each is 16 bytes or the longest.
_VECTORS: dict[str, dict[int, str]] = {
    "float32": {2: "float2", 4: "float4"},
    "float64": {2: "double2"},
    "int8": {2: "char2", 4: "char4", 8: "char8", 16: "char16"},
    "uint8": {2: "uchar2", 4: "uchar4", 8: "uchar8", 16: "uchar16"},
    "int16": {2: "short2", 4: "short4", 8: "short8"},
    "uint16": {2: "ushort2", 4: "ushort4", 8: "ushort8"},
    "int32": {2: "int2", 4: "int4"},
    "uint32": {2: "uint2", 4: "uint4"},
    "int64": {2: "longlong2"},
    "uint64": {2: "ulonglong2"},
    "float16": {2: "half2", 4: "half4", 8: "half8"},
    "bfloat16": {2: "__nv_bfloat162", 4: "bfloat4", 8: "bfloat8"},
}

#: Those of them that are structures of ours: (type of a part, its lanes, parts).
_STRUCTURES: dict[str, tuple[str, int, int]] = {
    "char8": ("char4", 4, 2), "char16": ("char4", 4, 4),
    "uchar8": ("uchar4", 4, 2), "uchar16": ("uchar4", 4, 4),
    "short8": ("short2", 2, 4), "ushort8": ("ushort2", 2, 4),
    "half4": ("half2", 2, 2), "half8": ("half2", 2, 4),
    "bfloat4": ("__nv_bfloat162", 2, 2), "bfloat8": ("__nv_bfloat162", 2, 4),
}  # fmt: skip

#: The types, elements and integers by which one instruction moves vectors whose parts have
#: constructors of their own.
_MOVED_AS: dict[str, tuple[str, str]] = {
    "half4": ("half", "uint2"), "half8": ("half", "uint4"),
    "bfloat4": ("__nv_bfloat16", "uint2"), "bfloat8": ("__nv_bfloat16", "uint4"),
}  # fmt: skip

_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
_NATIVE_16 = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max)
_FLOAT32 = dtype("float32")


def structure(name: str) -> str:
    """The definition of one of our vector types."""
    part, lanes, count = _STRUCTURES[name]
    size = lanes * count * {"char4": 1, "uchar4": 1}.get(part, 2)
    text = f"struct __align__({size}) {name} {{ {part} {', '.join('xyzw'[:count])}; }};"
    if name in _MOVED_AS:
        element, moved = _MOVED_AS[name]
        text += _ACCESS.format(name=name, element=element, moved=moved)
    return text


_ACCESS = """
static __device__ __forceinline__ {name} load_{name}(const {element}* p) {{
  const {moved} bits = *(const {moved}*)p;
  return *(const {name}*)&bits;
}}
static __device__ __forceinline__ void store_{name}({element}* p, const {name}& value) {{
  *({moved}*)p = *(const {moved}*)&value;
}}"""


#: Loads of what is there or else of zeros. Vectors of 16-bit floats are loaded as those of integers
#: and only then taken as what they are: else the compiler chooses between halves of registers.
_LOAD_WHERE = """template <typename T>
static __device__ __forceinline__ T load_where(bool on, const void* p) {
  T value = {};
  if (on) value = *(const T*)p;
  return value;
}
template <typename T, typename Bits>
static __device__ __forceinline__ T load_where_as(bool on, const void* p) {
  const Bits bits = load_where<Bits>(on, p);
  return *(const T*)&bits;
}"""


#: Lets the next kernel be launched once every block of this one has begun, then waits for the end
#: of the one before; without effect where kernels are launched one after another.
_FOLLOW = """static __device__ __forceinline__ void follow_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}"""


#: One instruction (PTX ISA, "max"), of NaN NaN.
_BOUND = """static __device__ __forceinline__ float {name}(float x, float b) {{
#if __CUDA_ARCH__ >= 800
  float y;
  asm("{ptx}.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(b));
  return y;
#else
  return x {sign} b ? b : x;
#endif
}}"""


class CudaDialect(Dialect):
    """CUDA C++ as NVRTC and nvcc take it.

    ``arch`` is the architecture ("sm_90a"), "" for any. ``aligned`` tells whether
    pointer parameters are at multiples of 16 bytes; where not, their elements are moved one by one.
    """

    kind = "cuda"
    is_gpu = True
    static_shared_limit = 48 * 1024
    reserved = Dialect.reserved | frozenset(
        "threadIdx blockIdx blockDim gridDim warpSize half half2 pow abs isnan at_least at_most "
        f"load_where load_where_as {NAME} TensorMap TileLoads swizzled_address".split()
        + list(HELPERS)
    )
    types: ClassVar[dict[str, str]] = {
        **Dialect.types,
        "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
        "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
        "uint64": "unsigned long long", "float16": "half", "bfloat16": "__nv_bfloat16",
    }  # fmt: skip

    def __init__(self, arch: str = "", aligned: bool = True) -> None:
        super().__init__()
        self.arch = arch
        self.aligned = aligned
        self.wide_params = False  # whether the text relies on that alignment

    def type_name(self, t: DType) -> str:
        header = _HEADERS.get(t.element)
        if header:
            self.require(header)
        if t.lanes > 1:
            return self.vector_name(t.element, t.lanes)
        return super().type_name(t)

    def infinity(self, t: DType) -> Code:
        if t.bits == 64:
            return code("__longlong_as_double(0x7ff0000000000000)")
        return code("__int_as_float(0x7f800000)")

    def nan(self, t: DType) -> Code:
        if t.bits == 64:
            return code("__longlong_as_double(0x7ff8000000000000)")
        return code("__int_as_float(0x7fffffff)")

    # Operators

    def native(self, node: type[E.Expr], t: DType) -> bool:
        return _is_half(t) and node in _NATIVE_16

    def extremum(self, name: str, t: DType, a: Code, b: Code) -> Code:
        if _is_half(t):
            return call(f"__h{name}{'2' if t.lanes == 2 else ''}", a, b)
        if t.is_float:
            return call(f"f{name}" + ("f" if t.bits == 32 else ""), a, b)
        return call(name, a, b)

    def bound(self, comparison: type[E.Expr], t: DType) -> str:
        if t is not _FLOAT32:
            return ""
        self.require("bounds")
        return "at_least" if comparison is E.LT else "at_most"

    def plain_cast(self, to: DType, x: Code) -> Code:
        name = self.type_name(to)
        return code(f"({name}){x.at(UNARY)}", UNARY)

    def cast(self, to: DType, source: DType, x: Code) -> Code:
        if _is_half(source) and (to.is_int or to.is_bool or to.bits == 64 or _is_half(to)):
            x, source = self.cast(_FLOAT32, source, x), _FLOAT32
        if _is_half(source) and to is _FLOAT32:
            return call("__half2float" if source.kind == "float" else "__bfloat162float", x)
        if _is_half(to):
            self.type_name(to)
            if source != _FLOAT32:
                x = self.plain_cast(_FLOAT32, x)
            return call("__float2half" if to.kind == "float" else "__float2bfloat16", x)
        return super().cast(to, source, x)

    # Functions

    def before_rounding(self, e: E.Expr) -> E.Expr:
        return before_rounding(e)

    def function(self, name: str, t: DType, args: Sequence[Code]) -> Code:
        if t.is_float and t.bits == 16:
            if name in ("fma", "abs"):
                return call(f"__h{name}", *args)
            wide = [self.cast(_FLOAT32, t, a) for a in args]
            made = self.function(rounded(name), _FLOAT32, wide)
            return made if name == "isnan" else self.cast(t, _FLOAT32, made)
        if name in SINGLE and t is _FLOAT32:
            self.require("approximate", SINGLE[name])
            return call(SINGLE[name], *args)
        if name in TF32_FUNCTIONS:
            bits = call("__float_as_uint", args[0])
            if name == "round_tf32":  # as ptxas has cvt.rna.tf32.f32
                bits = code(f"({bits} + 0x1000u)")
            return call("__uint_as_float", code(f"{bits} & 0xffffe000u", BIT_AND))
        if name in ("rsqrt", "exp10"):
            return call(name + ("f" if t.bits == 32 else ""), *args)
        return super().function(name, t, args)

    def popcount(self, t: DType, x: Code) -> Code:
        if t.bits < 32 and t.kind == "int":
            x = self.plain_cast(dtype(f"uint{t.bits}"), x)
        return call("__popcll" if t.bits == 64 else "__popc", x)

    def shuffle(self, name: str, t: DType, value: Code, lane: Code) -> Code:
        functions = {
            "shuffle_xor": "__shfl_xor_sync",
            "shuffle_down": "__shfl_down_sync",
            "shuffle": "__shfl_sync",
        }
        if name not in functions:
            raise TargetError(f"there is no warp shuffle {name!r}: there are {sorted(functions)}")
        made = call(functions[name], "0xffffffff", value, lane)
        if t.is_bool:
            return infix(made, "!=", code("0"), EQUALITY)
        return self.plain_cast(t, made) if t.is_int and t.bits < 32 else made

    # Memory

    def promises(self, buffer: Buffer, align: int) -> bool:
        if align <= max(buffer.dtype.bytes, buffer.align if buffer.scope == "local" else 0):
            return True
        if buffer.scope == "global":
            self.wide_params = self.wide_params or self.aligned
            return self.aligned and align <= 16
        return buffer.scope != "local" and align <= max(16, buffer.align)

    def prefetch(self, pointer: Code) -> str:
        return f'asm volatile("prefetch.global.L2 [%0];" :: "l"({pointer}))'

    def barrier(self, scope: str) -> Iterable[str]:
        return ("__syncwarp();" if scope == "warp" else "__syncthreads();",)

    def shared_pool(self, name: str, align: int = 16) -> str:
        self.pool = name
        return f"extern __shared__ __align__({align}) unsigned char {name}[];"

    def shared_array(self, buffer: Buffer, name: str, size: int, offset: int | None) -> str:
        t = self.storage_name(buffer.dtype, "shared")
        if offset is None:
            return f"__shared__ __align__({max(16, buffer.align)}) {t} {name}[{size}];"
        start = f"{self.pool} + {offset}" if offset else self.pool
        return f"{t}* const {name} = ({t}*)({start});"

    def warp_part(self, buffer: Buffer, name: str, whole: str, size: int, func: Func) -> str:
        t = self.storage_name(buffer.dtype, "shared")
        thread = "threadIdx.x"
        if func.extent("threadIdx.y") is not None or func.extent("threadIdx.z") is not None:
            thread = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
        return f"{t}* const {name} = {whole} + {thread} / 32 * {size};"

    def local_array(self, buffer: Buffer, name: str, size: int) -> str:
        t = self.storage_name(buffer.dtype, "local")
        least = 4 if _is_half(buffer.dtype) and size > 1 else 0
        align = max(least, buffer.align)  # what an instruction asks of its operand
        return f"{f'__align__({align}) ' if align else ''}{t} {name}[{size}];"

    # Vectors

    def width(self, t: DType) -> int:
        return 2 if _is_half(t) else 1

    def chunk(self, buffer: Buffer, lanes: int, aligned: Callable[[int], bool]) -> int:
        t = buffer.dtype
        if t.element not in _VECTORS:
            return 1
        if buffer.scope == "local":  # registers: only pairs that one operator takes
            return 2 if _is_half(t) and lanes % 2 == 0 and aligned(2) else 1
        if buffer.scope == "global" and not self.aligned:
            return 1
        k = min(math.gcd(lanes, 16), 16 // t.bytes)
        while k > 1 and not aligned(k):
            k //= 2
        if k > 1 and buffer.scope == "global":
            self.wide_params = True
        return k

    def vector_name(self, t: DType, lanes: int) -> str:
        name = _VECTORS[t.element][lanes]
        header = _HEADERS.get(t.element)
        if header:
            self.require(header)
        if name in _STRUCTURES:
            self.require(f"struct {name}")
        return name

    def load_vector(self, buffer: Buffer, name: str, offset: Code, lanes: int) -> Code:
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if vector in _MOVED_AS:
            return call(f"load_{vector}", pointer)
        return code(f"*(const {vector}*){pointer}", UNARY)

    def load_vector_where(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, condition: Code
    ) -> Code | None:
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if buffer.scope == "local":
            return None
        self.require("load_where")
        if not _is_half(buffer.dtype):
            return call(f"load_where<{vector}>", condition, pointer)
        bits = _MOVED_AS[vector][1] if vector in _MOVED_AS else "unsigned int"
        return call(f"load_where_as<{vector}, {bits}>", condition, pointer)

    def store_vector(self, buffer: Buffer, name: str, offset: Code, lanes: int, value: Code) -> str:
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if vector in _MOVED_AS:
            return f"store_{vector}({pointer}, {value});"
        return f"*({vector}*){pointer} = {value};"

    def part(self, text: str, t: DType, lanes: int, index: int, width: int) -> Code:
        name = self.vector_name(t, lanes)
        if name in _STRUCTURES:
            inner = _STRUCTURES[name][1]
            text = f"{text}.{'xyzw'[index // inner]}"
            if width == inner:
                return code(text)
            index %= inner
        return code(f"{text}.{'xyzw'[index]}")

    def pack(self, t: DType, parts: Sequence[Code]) -> Code:
        name = self.vector_name(t.element, t.lanes)
        if name not in _STRUCTURES:
            if t.kind == "float" and t.bits == 16:
                return call("__halves2half2", *parts)
            if t.kind == "bfloat":
                return call("__halves2bfloat162", *parts)
            return wrapped(f"make_{name}(", parts, ")")
        inner = _STRUCTURES[name][1]
        if len(parts) == t.lanes:
            part = t.with_lanes(inner)
            parts = [self.pack(part, parts[i : i + inner]) for i in range(0, len(parts), inner)]
        return wrapped(f"{name}{{", parts, "}")

    def splat(self, t: DType, x: Code) -> Code:
        return call("__half2half2" if t.kind == "float" else "__bfloat162bfloat162", x)

    def vector_function(self, name: str, t: DType, args: Sequence[Code]) -> Code | None:
        return call(f"__h{name}2", *args) if _is_half(t) and name in ("fma", "abs") else None

    # Tensor maps

    def tensor_maps(self, func: Func) -> tuple[TensorMap, ...]:
        found: tuple[TensorMap, ...] = func.attrs.get(MAPS, ()) if self.aligned else ()
        if found:
            self.wide_params = True
            self.require("tile loads")
        return found

    def map_parameter(self, name: str) -> str:
        return f"const __grid_constant__ TensorMap {name}"

    def begin_loads(
        self, barriers: str, count: int, warps: int, maps: Sequence[str]
    ) -> Iterable[str]:
        first = "(threadIdx.x | threadIdx.y | threadIdx.z) == 0"
        announced = (f"{NAME}.announce(&{name});" for name in maps)
        return (f"TileLoads<{count}, {warps}> {NAME}({barriers}, {first});", *announced)

    def free_copies(self) -> str:
        return f"{NAME}.free();"

    # The frame

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        const = "" if written else "const "
        return f"{const}{self.storage_name(buffer.dtype, 'global')}* __restrict__ {name}"

    def signature(
        self, symbol: str, params: Sequence[str], block: tuple[int, int, int] | None
    ) -> str:
        bounds = f"__launch_bounds__({math.prod(block)}) " if block else ""
        return wrapped(f'extern "C" __global__ void {bounds}{symbol}(', params, ")")

    def begin(self) -> Iterable[str]:
        if not overlaps(self.arch):
            return ()
        self.require("follow")
        return ("follow_previous_kernel();",)

    def axis(self, tag: str, uniform: bool = False) -> str:
        if uniform and tag in ("threadIdx.y", "threadIdx.z"):
            return f"__shfl_sync(0xffffffffu, (int){tag}, 0)"
        return f"(int){tag}"

    def unroll(self) -> Iterable[str]:
        return ("#pragma unroll",)

    def keep(self) -> Iterable[str]:
        return ("#pragma unroll 1",)


def _is_half(t: DType) -> bool:
    return t.is_float and t.bits == 16


#: Helper functions, by the name that the text uses; they round towards minus infinity.
_DIVISION = """static __device__ __forceinline__ {t} floordiv{s}({t} a, {t} b) {{
  const {t} q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}}
"""
_MODULO = """static __device__ __forceinline__ {t} floormod{s}({t} a, {t} b) {{
  const {t} r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}}
"""


def prelude(needs: set[str]) -> str:
    """Headers, types and functions that a text relies on."""
    parts = [f"#include <{name}>" for name in sorted(needs) if name.endswith(".h")]
    structures = [n.removeprefix("struct ") for n in needs if n.startswith("struct ")]
    parts += [structure(name) for name in sorted(structures)]
    if "follow" in needs:
        parts.append(_FOLLOW)
    if "load_where" in needs:
        parts.append(_LOAD_WHERE)
    if "tile loads" in needs:
        parts.append(TILE_LOADS)
    if "swizzled_address" in needs:
        parts.append(SWIZZLED_ADDRESS)
    if "bounds" in needs:
        parts.append(_BOUND.format(name="at_least", ptx="max", sign="<"))
        parts.append(_BOUND.format(name="at_most", ptx="min", sign=">"))
    parts += [text for name, text in TEXTS.items() if name in needs]
    for suffix, t in (("", "int"), ("64", "long long")):
        if f"floordiv{suffix}" in needs:
            parts.append(_DIVISION.format(t=t, s=suffix))
        if f"floormod{suffix}" in needs:
            parts.append(_MODULO.format(t=t, s=suffix))
    return "\n".join(parts) + "\n\n" if parts else ""
