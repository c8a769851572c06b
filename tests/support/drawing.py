"""Programs written line by line: the text is what is drawn, executed as it grows.

A program that fails is printed as the lines that make it, ready to be kept as a test.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

from hypothesis import strategies as st

from tilewright import te

T = TypeVar("T")


class Text:
    """Lines of Python and the variables that they have made."""

    def __init__(self, base: Text | None = None) -> None:
        self.lines: list[str] = list(base.lines) if base else []
        self.names: dict[str, Any] = dict(base.names) if base else {"te": te, "reduce": reduce}
        self._count = 0

    def do(self, line: str) -> None:
        """Append a line and execute it."""
        self.lines.append(line)
        exec(compile(line, "<drawn>", "exec"), self.names)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        while True:
            self._count += 1
            if f"{stem}{self._count}" not in self.names:
                return f"{stem}{self._count}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


@functools.cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Dice:
    """Choices drawn by hypothesis, which shrinks them to the first and the smallest."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return low if low >= high else self._draw(_integers(low, high))

    def pick(self, values: Sequence[T]) -> T:
        """One of ``values``."""
        return values[self.number(0, len(values) - 1)]

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred cases."""
        return self.number(0, 99) >= 100 - percent

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """``values`` in some order."""
        rest, made = list(values), []
        while rest:
            made.append(rest.pop(self.number(0, len(rest) - 1)))
        return made

    def some(self, values: Sequence[T], percent: int) -> list[T]:
        """Each of ``values`` with that chance."""
        return [v for v in values if self.chance(percent)]


class Seeded(Dice):
    """Choices that one integer decides; ``rolled`` are their distances from the smallest ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rolled: list[int] = []

    def number(self, low: int, high: int) -> int:
        if low >= high:
            return low
        self.rolled.append(self._random.randint(0, high - low))
        return low + self.rolled[-1]


class Replayed(Dice):
    """The choices of a list, brought into range, and then the smallest ones."""

    def __init__(self, rolled: Sequence[int]) -> None:
        self._rest = iter(rolled)
        self.rolled: list[int] = []

    def number(self, low: int, high: int) -> int:
        if low >= high:
            return low
        self.rolled.append(min(next(self._rest, 0), high - low))
        return low + self.rolled[-1]
