"""Calls of models of which NumPy computes the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.signature import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewright.graph.model import Model
    from tilewright.graph.value import Value


class Tail(Protocol):
    """What is computed of the outputs of a first half."""

    def run(self, given: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of the model that the first half lacks."""


@runtime_checkable
class Divisible(Protocol):
    """A source of models whose end depends on data."""

    def halves(self, inputs: Sequence[Value]) -> tuple[Source, Tail] | None:
        """A source of what is compiled, and what follows; None where that is no small end."""


class Late:
    """A model in two halves: ``head`` is compiled, ``tail`` computed by NumPy."""

    def __init__(self, head: Model, tail: Tail, names: Sequence[str]) -> None:
        self.head, self.tail, self.names = head, tail, tuple(names)

    def clone(self) -> Late:
        """With memory of its own."""
        return Late(self.head.clone(), self.tail, self.names)

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, as new arrays of NumPy's, or those of ``outputs``, which have to be
        of the shape that there is this time."""
        there = self.head.run(inputs).items()
        made = {name: x if isinstance(x, np.ndarray) else x.numpy() for name, x in there}
        found = made | self.tail.run(made)
        return {name: _into(name, found[name], outputs.get(name)) for name in self.names}


def _into(name: str, found: np.ndarray[Any, Any], place: Any) -> Any:
    if place is None:
        return found
    if not isinstance(place, np.ndarray) or place.shape != found.shape:
        raise ModelError(
            f"the output {name} is {list(found.shape)} this time, as the data says: take a new "
            "array, or give one of NumPy's of that shape"
        )
    np.copyto(place, found)
    return place


def divided(
    source: Source, values: Sequence[Value], half: Callable[[Source], Model]
) -> Late | None:
    """A model whose shapes depend on data in two halves; None where it cannot be."""
    found = source.halves(values) if isinstance(source, Divisible) else None
    if found is None:
        return None
    head, tail = found
    return Late(half(head), tail, source.outputs)
