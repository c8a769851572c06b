"""An operator of somebody else's graph, while it is converted to values of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.graph.builder import build
from tilewright.graph.errors import ModelError
from tilewright.graph.value import Operand, Value


@dataclass(frozen=True)
class Making:
    """What makes values under the name of an operation.

    Attributes
    ----------
    kind : the name of the operator where it comes from.
    name : of its first result.
    """

    kind: str
    name: str

    def __call__(self, operator: str, *operands: Operand, **attributes: Any) -> Value:
        """A value of the graph, under the name of this operation."""
        return build(operator, *operands, name=self.name, **attributes)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; raises :class:`ModelError` where there is none."""
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} of a tensor with {rank} dimensions")
        return axis % rank

    def error(self, problem: str) -> ModelError:
        """An error about this operation."""
        return ModelError(f"{self.kind} {self.name}: {problem}")
