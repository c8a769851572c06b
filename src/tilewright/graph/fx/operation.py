"""A node of a graph of ATen operators while it is converted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant
from tilewright.graph.operation import Making
from tilewright.graph.value import Operand, Value

#: The version of ONNX's operators that ATen's are said in, where they say it best.
_OPSET = 21


@dataclass(frozen=True)
class Operation(Making):
    """A call of an operator.

    Attributes
    ----------
    arguments : all of its schema by name, with defaults; tensors as values, types as texts.
    dtype : of its first result.
    strides : of its first operand, where that is a tensor and they are known.
    device : the kind of device of its first result.
    """

    arguments: Mapping[str, Any]
    dtype: str
    strides: tuple[int, ...] | None = None
    device: str = "cpu"

    def __getitem__(self, name: str) -> Any:
        """An argument; None where the schema has none of this name."""
        return self.arguments.get(name)

    @property
    def x(self) -> Value:
        """The argument ``self``, which is a tensor."""
        found = self["self"]
        if not isinstance(found, Value):
            raise self.error("its first operand is no tensor")
        return found

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Dimensions that an argument lists, counted from the front; all where it lists none."""
        found = self[name]
        listed = [found] if isinstance(found, int) else found
        return tuple(sorted({self.axis(d, rank) for d in listed or range(rank)})) if rank else ()

    def operand(self, x: Any, dtype: str = "") -> Operand:
        """A tensor or a number as an operand of a type, by default that of the result."""
        dtype = dtype or self.dtype
        if isinstance(x, Value):
            return cast(x, dtype)
        is_float = "float" in dtype
        if not math.isfinite(x) or dtype == "bool":
            return constant(x, dtype)
        return float(x) if is_float else int(x)

    def value(self, x: Any, dtype: str = "") -> Value:
        """The same, of a number a tensor without dimensions."""
        found = self.operand(x, dtype)
        return found if isinstance(found, Value) else constant(found, dtype or self.dtype)

    def onnx(self, kind: str, *operands: Any, outputs: int = 1, **attributes: Any) -> Any:
        """What ONNX's operator of this name makes; lists of integers among operands are tensors."""
        from tilewright.graph.onnx.convert import CONVERTERS
        from tilewright.graph.onnx.operation import Operation as OnnxOperation

        given = tuple(
            x if x is None or isinstance(x, Value) else constant(x, "int64") for x in operands
        )
        made = OnnxOperation(self.kind, self.name, _OPSET, given, attributes, outputs)
        return CONVERTERS[kind](made)


def common_type(*operands: Any) -> str:
    """The type in which tensors and numbers are compared."""
    kinds = [np.dtype(x.dtype) for x in operands if isinstance(x, Value)]
    found = functools.reduce(np.promote_types, kinds)
    if found.kind in "iub" and any(isinstance(x, float) for x in operands):
        return "float32"
    return "int64" if found.kind == "b" and len(kinds) < len(operands) else str(found)


#: How a call becomes values: one, or as many as it has results; None for one that it does not make.
Converter = Callable[[Operation], "Value | tuple[Value | None, ...]"]
