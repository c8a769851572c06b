"""Vectors in CUDA C++: types that one access moves, and arithmetic on pairs of 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.codegen.c_like_dialect import Dialect
from tilewright.codegen.c_like_text import UNARY, Code, call, code, wrapped
from tilewright.codegen.cuda_bytes import WORDS, is_byte, of_byte
from tilewright.codegen.cuda_halves import ARITHMETIC, HEADERS
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import FLOAT8, DType

#: Vectors that CUDA has, by element type and lanes; the last of each is 16 bytes or the longest.
_VECTORS: dict[str, dict[int, str]] = {
    "float32": {2: "float2", 4: "float4"},
    "float64": {2: "double2"},
    "int8": WORDS,
    "uint8": WORDS,
    "int16": {2: "short2", 4: "short4", 8: "short8"},
    "uint16": {2: "ushort2", 4: "ushort4", 8: "ushort8"},
    "int32": {2: "int2", 4: "int4"},
    "uint32": {2: "uint2", 4: "uint4"},
    "int64": {2: "longlong2"},
    "uint64": {2: "ulonglong2"},
    "float16": {2: "half2", 4: "half4", 8: "half8"},
    "bfloat16": {2: "__nv_bfloat162", 4: "bfloat4", 8: "bfloat8"},
}
_VECTORS |= dict.fromkeys(FLOAT8, _VECTORS["uint8"])

#: Those of them that are structures of ours: (type of a part, its lanes, parts).
_STRUCTURES: dict[str, tuple[str, int, int]] = {
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

#: The names of them all, and of functions that move them.
VECTOR_NAMES = frozenset(
    [name for of_type in _VECTORS.values() for name in of_type.values()]
    + [f"{verb}_{name}" for name in _MOVED_AS for verb in ("load", "store")]
)


def structure(name: str) -> str:
    """The definition of one of our vector types."""
    part, lanes, count = _STRUCTURES[name]
    size = lanes * count * 2
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


class CudaVectors(Dialect):
    """The part of CUDA C++ that deals with several elements at once.

    ``aligned`` and ``wide_params`` are as in
    :class:`~tilewright.codegen.cuda_dialect.CudaDialect`.
    """

    aligned: bool
    wide_params: bool

    def width(self, t: DType) -> int:
        return 2 if is_half(t) else 4 if is_byte(t) else 1

    def chunk(self, buffer: Buffer, lanes: int, aligned: Callable[[int], bool]) -> int:
        t = buffer.dtype
        if t.element not in _VECTORS:
            return 1
        if buffer.scope == "local":  # registers: only what one operator takes
            width = self.width(t)
            return width if lanes % width == 0 and aligned(width) else 1
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
        header = HEADERS.get(t.element)
        if header:
            self.require(header)
        if name in _STRUCTURES:
            self.require(f"struct {name}")
        return name

    def load_vector(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, aligned: bool = False
    ) -> Code:
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if vector in _MOVED_AS:
            return call(f"load_{vector}", pointer)
        return code(f"*(const {vector}*){pointer}", UNARY)

    def load_vector_where(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, condition: Code,
        other: Code | None = None,
    ) -> Code | None:  # fmt: skip
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if buffer.scope == "local":
            return None
        self.require("load_where")
        bits = WORDS[lanes * 2] if buffer.dtype.bytes == 2 else vector
        if other is not None:
            return call(f"load_where_or<{vector}, {bits}>", condition, pointer, other)
        if bits == vector:
            return call(f"load_where<{vector}>", condition, pointer)
        return call(f"load_where_as<{vector}, {bits}>", condition, pointer)

    def store_vector(
        self,
        buffer: Buffer,
        name: str,
        offset: Code,
        lanes: int,
        value: Code,
        aligned: bool = False,
    ) -> str:
        pointer, vector = self.pointer(name, offset), self.vector_name(buffer.dtype, lanes)
        if vector in _MOVED_AS:
            return f"store_{vector}({pointer}, {value});"
        return f"*({vector}*){pointer} = {value};"

    def part(self, text: str, t: DType, lanes: int, index: int, width: int) -> Code:
        if is_byte(t):
            word = text if lanes <= 4 else f"{text}.{'xyzw'[index // 4]}"
            if width == min(lanes, 4):
                return code(word)
            name = self.type_name(t.with_lanes(width))
            shift = index % 4 * 8
            return code(f"({name})({word} >> {shift})" if shift else f"({name}){word}", UNARY)
        name = self.vector_name(t, lanes)
        if name in _STRUCTURES:
            inner = _STRUCTURES[name][1]
            text = f"{text}.{'xyzw'[index // inner]}"
            if width == inner:
                return code(text)
            index %= inner
        return code(f"{text}.{'xyzw'[index]}")

    def cast_part(self, to: DType, text: str, t: DType, lanes: int, index: int) -> Code | None:
        """The upper bfloat16 of a register is a float32 but for its other half. Of four bytes the
        first is converted where it is, by an instruction of a low rate beside which others go on;
        the others would have to be taken out before."""
        if lanes > 1 and index % 4 and (name := of_byte(to, t)):
            self.require(name)
            k = index % 4
            return call(f"{name}<{k}>", self.part(text, t, lanes, index - k, min(lanes, 4)))
        if t.element != "bfloat16" or to != "float32" or lanes == 1 or index % 2 == 0:
            return None
        self.require("upper_bfloat16")
        pair = code(text) if lanes == 2 else self.part(text, t, lanes, index - 1, 2)
        return call("upper_bfloat16", pair)

    def pack(self, t: DType, parts: Sequence[Code]) -> Code:
        if is_byte(t):
            return self._words(t, parts)
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

    def _words(self, t: DType, parts: Sequence[Code]) -> Code:
        """Bytes, pairs or words of them as a vector."""
        width = t.lanes // len(parts)
        if width == 1:
            self.require("bytes_of")
            each = [parts[i : i + 4] for i in range(0, len(parts), 4)]
            parts = [wrapped("bytes_of(", four, ")") for four in each]
        elif width == 2:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [code(f"({low} | (unsigned int)({high}) << 16)") for low, high in pairs]
        if len(parts) == 1:
            return parts[0]
        return wrapped(f"{self.vector_name(t.element, t.lanes)}{{", parts, "}")

    def pack_nearest(self, t: DType, name: str, parts: Sequence[Code]) -> Code:
        self.require(name)
        words = [wrapped(f"{name}(", parts[i : i + 4], ")") for i in range(0, len(parts), 4)]
        if len(words) == 1:
            return words[0]
        return wrapped(f"{self.vector_name(t.element, t.lanes)}{{", words, "}")

    def splat(self, t: DType, x: Code) -> Code:
        if is_byte(t):
            return self.pack(t, [x] * t.lanes)
        return call("__half2half2" if t.kind == "float" else "__bfloat162bfloat162", x)

    def vector_function(self, name: str, t: DType, args: Sequence[Code]) -> Code | None:
        if not is_half(t) or name not in ("fma", "abs"):
            return None
        self.require(ARITHMETIC)
        return call(f"__h{name}2", *args)


def is_half(t: DType) -> bool:
    """Whether it is a float of 16 bits."""
    return t.is_float and t.bits == 16
