"""What may be wrong with a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.ir.errors import TilewrightError


class ModelError(TilewrightError):
    """A model, or an array given to one, that cannot be run; the message says why."""


class NeedsData(ModelError):
    """A graph cannot be made without knowing a value; ``value`` is a node or an input."""

    def __init__(self, problem: str, value: Any) -> None:
        super().__init__(problem)
        self.value = value


@contextmanager
def in_memory(what: str) -> Iterator[None]:
    """Say in words that something does not fit into memory: a model asks for what it likes."""
    try:
        yield
    except MemoryError as error:
        raise ModelError(f"{what} needs more memory than there is: {error}") from error
