"""C99: headers, the 16-bit floats as their bits, loops shared among OpenMP's threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.codegen.c_like_dialect import Dialect, Launch
from tilewright.codegen.c_like_text import Code, call
from tilewright.codegen.total_integers import total_functions
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype

_FLOAT32 = dtype("float32")
_NAMES = {"float16": "half", "bfloat16": "bfloat"}
#: Integers with functions for minima and maxima; narrower ones are int32 in C.
_EXTREMA = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64"), ""), "float32": " || a != a",
    "float64": " || a != a",
}  # fmt: skip


def is_narrow(t: DType) -> bool:
    """Whether C has no arithmetic on it."""
    return t.is_float and t.bits == 16


class CDialect(Dialect):
    """C99 as any compiler takes it; OpenMP's pragmas are remarks to those without."""

    kind = "c"
    reserved = Dialect.reserved | frozenset(
        """malloc free abort memcpy memset allocate popcount32 popcount64 bits_of_float32
        bits_of_float64 float_of_bits32 float_of_bits64 half_to_float
        float_to_half bfloat_to_float float_to_bfloat round_to_odd bool true false j0 j1 jn y0 y1
        yn gamma index""".split()
        + [f"{name}_{t}" for name in ("min", "max") for t in _EXTREMA]
    )
    types: ClassVar[dict[str, str]] = {
        **Dialect.types, "float16": "uint16_t", "bfloat16": "uint16_t"
    }  # fmt: skip

    def binary(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        if not is_narrow(t):
            return super().binary(node, t, a, b)
        found = super().binary(node, _FLOAT32, self._wide(t, a), self._wide(t, b))
        return found if issubclass(node, E.Compare) else self._short(t, found)

    def negate(self, t: DType, a: Code) -> Code:
        if is_narrow(t):
            return self._short(t, super().negate(_FLOAT32, self._wide(t, a)))
        return super().negate(t, a)

    def extremum(self, name: str, t: DType, a: Code, b: Code) -> Code:
        """``a < b ? a : b``, or a function of operands that choose themselves: each stands twice in
        a choice, and a text must not double with every level."""
        if not t.is_float and "?" not in a + b:
            return super().extremum(name, t, a, b)
        function = f"{name}_{t if t.bits >= 32 else 'int32'}"
        self.require(function)
        return call(function, a, b)

    def _wide(self, t: DType, x: Code) -> Code:
        name = f"{_NAMES[t]}_to_float"
        self.require(name)
        return call(name, x)

    def _short(self, t: DType, x: Code) -> Code:
        name = f"float_to_{_NAMES[t]}"
        self.require(name)
        return call(name, x)

    def cast(self, to: DType, source: DType, x: Code) -> Code:
        if is_narrow(source):
            if source == to:
                return x
            return (
                self.cast(to, _FLOAT32, self._wide(source, x))
                if to != _FLOAT32
                else self._wide(source, x)
            )
        if is_narrow(to):
            exact = source == _FLOAT32 or source.is_bool or source.bits <= 16
            if not exact:
                self.require("round_to_odd")
                x = call("round_to_odd", x)
            return self._short(to, x)
        return super().cast(to, source, x)

    def function(self, name: str, t: DType, args: Sequence[Code]) -> Code:
        if is_narrow(t):
            wide = [self._wide(t, a) for a in args]
            found = self.function(name, _FLOAT32, wide)
            return found if name == "isnan" else self._short(t, found)
        return super().function(name, t, args)

    def popcount(self, t: DType, x: Code) -> Code:
        bits = 64 if t.bits == 64 else 32
        self.require(f"popcount{bits}")
        unsigned = dtype(f"uint{t.bits}")
        return call(f"popcount{bits}", x if t is unsigned else self.plain_cast(unsigned, x))

    def signature(self, symbol: str, params: Sequence[str], launch: Launch) -> str:
        lines = ",\n    ".join(params)
        return f"static void {symbol}(\n    {lines})" if params else f"static void {symbol}(void)"


_DIVISION = """static inline {t} floordiv{s}({t} a, {t} b) {{
  const {t} q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}}
static inline {t} floormod{s}({t} a, {t} b) {{
  const {t} r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}}
"""
_EXTREMUM = """static inline {c} {name}_{t}({c} a, {c} b) {{
  return a {sign} b{nan} ? a : b;
}}
"""
_BITS = """static inline {to} {name}({source} x) {{
  {to} result;
  memcpy(&result, &x, sizeof result);
  return result;
}}
"""
_HELPERS = (
    total_functions("static inline ", ("int32_t", "int64_t", "uint32_t", "uint64_t"))
    | {
        f"{name}_{t}": _EXTREMUM.format(name=name, t=t, c=CDialect.types[t], sign=sign, nan=nan)
        for name, sign in (("min", "<"), ("max", ">"))
        for t, nan in _EXTREMA.items()
    }
    | {
        "allocate": """static void* allocate(size_t bytes) { return malloc(bytes ? bytes : 1); }
""",
        "floordiv": _DIVISION.format(t="int32_t", s=""),
        "floordiv64": _DIVISION.format(t="int64_t", s="64"),
        "popcount32": """static inline int popcount32(uint32_t x) {
  int count = 0;
  for (; x; x &= x - 1) ++count;
  return count;
}
""",
        "popcount64": """static inline int popcount64(uint64_t x) {
  int count = 0;
  for (; x; x &= x - 1) ++count;
  return count;
}
""",
        **{
            f"{name}{bits}": _BITS.format(name=f"{name}{bits}", to=to, source=source)
            for bits, real in ((32, "float"), (64, "double"))
            for name, to, source in (
                ("bits_of_float", f"uint{bits}_t", real),
                ("float_of_bits", real, f"uint{bits}_t"),
            )
        },
        "bfloat_to_float": """static inline float bfloat_to_float(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}
""",
        "float_to_bfloat": """static inline uint16_t float_to_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return (uint16_t)((bits | 0x400000u) >> 16);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
""",
        "half_to_float": """static inline float half_to_float(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = (uint32_t)(x & 0x7fffu) << 13;
  uint32_t bits = size + (112u << 23);
  float result;
  if (size >= 0x7c00u << 13) bits = size + (224u << 23);
  if (size < 1u << 23) { /* a denormal: give it an exponent, then subtract what that added */
    bits = size + (113u << 23);
    memcpy(&result, &bits, 4);
    result -= 6.103515625e-05f;
    memcpy(&bits, &result, 4);
  }
  bits |= sign;
  memcpy(&result, &bits, 4);
  return result;
}
""",
        "float_to_half": """static inline uint16_t float_to_half(float x) {
  uint32_t bits, sign;
  memcpy(&bits, &x, 4);
  sign = bits & 0x80000000u;
  bits ^= sign;
  if (bits >= 143u << 23) {
    bits = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (bits < 113u << 23) { /* a denormal: the float adder rounds at its last bit */
    float size;
    memcpy(&size, &bits, 4);
    size += 0.5f;
    memcpy(&bits, &size, 4);
    bits -= 0x3f000000u;
  } else {
    bits = (bits - (112u << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  }
  return (uint16_t)(bits | sign >> 16);
}
""",
        "round_to_odd": """/* Rounding this to 16 bits gives what rounding x at once would. */
static inline float round_to_odd(double x) {
  float nearest = (float)x;
  uint32_t bits;
  memcpy(&bits, &nearest, 4);
  if (nearest == x || x != x) return nearest;
  if (fabs((double)nearest) > fabs(x)) --bits;
  bits |= 1u;
  memcpy(&nearest, &bits, 4);
  return nearest;
}
""",
    }
)
_HEADERS = ("math.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h")


def prelude(needs: set[str]) -> str:
    """Headers and functions that a text relies on."""
    wanted = {name.replace("floormod", "floordiv") for name in needs}
    parts = "\n".join(text for name, text in _HELPERS.items() if name in wanted)
    includes = "".join(f"#include <{name}>\n" for name in _HEADERS)
    return f"{includes}\n{parts}\n" if parts else f"{includes}\n"
