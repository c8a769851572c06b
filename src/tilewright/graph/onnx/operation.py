"""A node of an ONNX model while it is converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.errors import NeedsData
from tilewright.graph.onnx.narrow import Narrow
from tilewright.graph.operation import Making
from tilewright.graph.value import Constant, Value


@dataclass(frozen=True)
class Operation(Making):
    """A node with its operands.

    Attributes
    ----------
    opset : the version of the operator set that the model is written in.
    inputs : the operands; None where one is left out.
    attributes : in Python's types, tensors as arrays.
    outputs : how many results are asked for.
    narrow : of each operand the type that it is of, where graphs hold that in a wider one.
    result : that of the results.
    """

    opset: int
    inputs: tuple[Value | None, ...]
    attributes: dict[str, Any]
    outputs: int = 1
    narrow: tuple[Narrow | None, ...] = ()
    result: Narrow | None = None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where it is left out."""
        return self.attributes.get(name, default)

    def has(self, k: int) -> bool:
        """Whether operand ``k`` is given."""
        return k < len(self.inputs) and self.inputs[k] is not None

    def __getitem__(self, k: int) -> Value:
        """Operand ``k``; raises :class:`ModelError` where it is left out."""
        found = self.inputs[k] if k < len(self.inputs) else None
        if found is None:
            raise self.error(f"operand {k} is missing")
        return found

    @property
    def operands(self) -> list[Value]:
        """Those that are given."""
        return [x for x in self.inputs if x is not None]

    def array(self, k: int, what: str) -> np.ndarray[Any, Any]:
        """An operand that must be known; raises :class:`ModelError` where it depends on data."""
        found = self[k]
        if not isinstance(found, Constant):
            raise NeedsData(
                f"{self.kind} {self.name}: its {what} depends on the data of the model's inputs",
                found,
            )
        return found.array

    def integers(self, k: int, what: str) -> tuple[int, ...]:
        """An operand that must be known, as integers."""
        return tuple(int(x) for x in self.array(k, what).reshape(-1))

    def listed(self, name: str, k: int, since: int) -> tuple[int, ...] | None:
        """Integers that are an attribute, and from opset ``since`` on operand ``k``; None where
        they are left out."""
        if self.opset < since or (not self.has(k) and name in self.attributes):
            found = self.attribute(name)
            return None if found is None else tuple(int(x) for x in found)
        return self.integers(k, name) if self.has(k) else None


#: How a node becomes values of a graph: one, or as many as it has outputs.
Converter = Callable[[Operation], "Value | tuple[Value, ...]"]
