"""A problem as tensor expressions: what a schedule is made of."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.te import Tensor
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Declared:
    """A problem as tensors.

    Attributes
    ----------
    inputs : the placeholders by name, as :meth:`~tilewright.topi.problem.Problem.inputs` has them.
    output : the result.
    """

    problem: Problem
    inputs: dict[str, Tensor]
    output: Tensor

    @property
    def args(self) -> list[Tensor]:
        """The inputs and the output, in calling order."""
        return [*self.inputs.values(), self.output]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name."""
        return self.problem.shapes()
