"""ONNX's elements of less than a byte, and floats of 8 bits that the language lacks: numbers of a
wider type that are among those of the narrow one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant
from tilewright.graph.operation import Making
from tilewright.graph.value import Value


@dataclass(frozen=True)
class Narrow:
    """A type of elements under ONNX's name and that of ml_dtypes, its bits, and the type that they
    have in a graph."""

    name: str
    element: str
    bits: int
    carrier: str

    def of(self, n: Making, x: Value, saturate: bool = True, mode: str = "up") -> Value:
        """Numbers converted to it; ``mode`` is how powers of two are rounded to."""
        raise NotImplementedError


@dataclass(frozen=True)
class NarrowInt(Narrow):
    """Integers from ``low`` to ``high``; of others, the last bits."""

    low: int
    high: int

    def of(self, n: Making, x: Value, saturate: bool = True, mode: str = "up") -> Value:
        whole = n("subtract", cast(x, "int32"), self.low)
        kept = n("bitwise_and", whole, constant(self.high - self.low, "int32"))
        return cast(n("add", kept, self.low), self.carrier)

    def nearest(self, n: Making, x: Value) -> Value:
        """Integers brought between the bounds."""
        return cast(n("clip", x, low=self.low, high=self.high), self.carrier)


@dataclass(frozen=True)
class NarrowFloat(Narrow):
    """Floats of ``mantissa`` bits behind the first, normal from two to the power of ``least`` on,
    up to ``largest``; ``nan`` is what no number becomes."""

    mantissa: int
    least: int
    largest: float
    nan: float

    def of(self, n: Making, x: Value, saturate: bool = True, mode: str = "up") -> Value:
        """The nearest, ties to even; what is too large is the largest or, where it is not
        saturated, no number."""
        wide = cast(x, "float32")
        size = n("minimum", n("abs", wide), 4 * self.largest)
        power, _ = _power(n, size)
        step = n("multiply", n("maximum", power, 2.0**self.least), 2.0**-self.mantissa)
        found = n("multiply", n("round", n("divide", size, step)), step)
        nothing = constant(self.nan, "float32")
        if saturate:
            found = n("minimum", found, self.largest)
        else:
            found = n("where", n("greater", found, self.largest), nothing, found)
        found = n("where", n("less", wide, 0.0), n("negative", found), found)
        return n("where", n("isnan", wide), nothing, found)


@dataclass(frozen=True)
class NarrowPower(Narrow):
    """Powers of two from ``smallest`` to ``largest``, and no number."""

    smallest: float
    largest: float

    def of(self, n: Making, x: Value, saturate: bool = True, mode: str = "up") -> Value:
        """The power that is no smaller ("up"), no larger ("down"), or nearest, ties up."""
        if mode not in ("up", "down", "nearest"):
            raise n.error(f"there is no round_mode {mode!r}")
        size = n("abs", cast(x, "float32"))
        power, rest = _power(n, size)
        least = {"up": 1, "nearest": 1 << 22, "down": 1 << 23}[mode]
        more = n("greater_equal", rest, least)
        found = n("where", more, n("multiply", power, 2.0), power)
        nothing = constant(math.nan, "float32")
        if saturate:
            found = n("clip", found, low=self.smallest, high=self.largest)
        else:
            inside = n("logical_and", n("greater_equal", found, self.smallest),
                       n("less_equal", found, self.largest))  # fmt: skip
            found = n("where", inside, found, nothing)
        return n("where", n("isnan", size), nothing, found)


def _power(n: Making, size: Value) -> tuple[Value, Value]:
    """The power of two in which a float32 begins, and the bits behind it."""
    bits = n("reinterpret", size, dtype="int32")
    power, rest = (n("bitwise_and", bits, constant(m, "int32")) for m in (0x7F800000, 0x7FFFFF))
    return n("reinterpret", power, dtype="float32"), rest


_INTEGERS = [
    NarrowInt(f"{sign}int{bits}", f"{sign}int{bits}", bits, f"{sign}int8", low, low + 2**bits - 1)
    for bits in (4, 2)
    for sign, low in (("u", 0), ("", -(2 ** (bits - 1))))
]
#: By the number of ``TensorProto.DataType``.
NARROW: dict[int, Narrow] = {
    18: NarrowFloat("float8e4m3fnuz", "float8_e4m3fnuz", 8, "float32", 3, -7, 240.0, math.nan),
    20: NarrowFloat("float8e5m2fnuz", "float8_e5m2fnuz", 8, "float32", 2, -15, 57344.0, math.nan),
    23: NarrowFloat("float4e2m1", "float4_e2m1fn", 4, "float32", 1, 0, 6.0, 0.0),
    24: NarrowPower("float8e8m0", "float8_e8m0fnu", 8, "float32", 2.0**-127, 2.0**127),
    **dict(zip((21, 22, 25, 26), _INTEGERS, strict=True)),
}
#: Operators that move elements, or leave them as they are: their results are of the same type.
_MOVING = frozenset(
    """Concat Expand Flatten Gather GatherElements GatherND Identity Pad Reshape Slice SpaceToDepth
    Split Squeeze Tile Transpose Unsqueeze""".split()
)


def result_of(node: Any, operands: Sequence[Narrow | None]) -> Narrow | None:
    """The narrow type of a node's results, by those of its operands."""
    numbers = {a.name: a.i for a in node.attribute}
    if node.op_type == "Cast":
        return NARROW.get(numbers.get("to", 0))
    if node.op_type == "CastLike":
        return operands[1]
    if node.op_type == "QuantizeLinear":
        zero = operands[2] if len(operands) > 2 else None
        return zero or NARROW.get(numbers.get("output_dtype", 0))
    if node.op_type == "Constant":
        return NARROW.get(next((a.t.data_type for a in node.attribute if a.name == "value"), 0))
    return operands[0] if node.op_type in _MOVING and operands else None


def carried(array: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """The elements of a tensor of ONNX's type ``number`` in the type that they have in a graph."""
    kind = NARROW.get(number)
    return array if kind is None else array.astype(kind.carrier)
