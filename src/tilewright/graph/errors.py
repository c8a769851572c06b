"""What may be wrong with a model."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import TilewrightError


class ModelError(TilewrightError):
    """A model, or an array given to one, that cannot be run; the message says why."""


class NeedsData(ModelError):
    """A graph cannot be made without knowing a value; ``value`` is a node or an input."""

    def __init__(self, problem: str, value: Any) -> None:
        super().__init__(problem)
        self.value = value
