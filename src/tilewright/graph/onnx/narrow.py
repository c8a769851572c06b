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

    def of(self, n: Making, x: Value, saturate: bool = True) -> Value:
        """Numbers converted to it."""
        raise NotImplementedError


@dataclass(frozen=True)
class NarrowInt(Narrow):
    """Integers from ``low`` to ``high``; of others, the last bits."""

    low: int
    high: int

    def of(self, n: Making, x: Value, saturate: bool = True) -> Value:
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

    def of(self, n: Making, x: Value, saturate: bool = True) -> Value:
        """The nearest, ties to even; what is too large is the largest or, where it is not
        saturated, no number."""
        wide = cast(x, "float32")
        size = n("minimum", n("abs", wide), 4 * self.largest)
        bits = n("bitwise_and", n("reinterpret", size, dtype="int32"),
                 constant(0x7F800000, "int32"))  # fmt: skip
        power = n("reinterpret", bits, dtype="float32")  # of two, in which the number begins
        step = n("multiply", n("maximum", power, 2.0**self.least), 2.0**-self.mantissa)
        found = n("multiply", n("round", n("divide", size, step)), step)
        nothing = constant(self.nan, "float32")
        if saturate:
            found = n("minimum", found, self.largest)
        else:
            found = n("where", n("greater", found, self.largest), nothing, found)
        found = n("where", n("less", wide, 0.0), n("negative", found), found)
        return n("where", n("isnan", wide), nothing, found)


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
