"""The tiles that are tried, of those that are thought to be fast."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def varied(
    tiles: Iterable[tuple[float, T]], way: Callable[[T], Hashable], count: int
) -> tuple[T, ...]:
    """At most ``count`` of ``tiles``, which come with a guess at their times, each once: first the
    best of each ``way`` to cut a problem, up to half of them, as a guess may be wrong of a whole
    way, then the others.

    >>> varied([(2.0, "ab"), (1.0, "aa"), (3.0, "ba"), (1.5, "ac")], lambda t: t[0], 4)
    ('aa', 'ba', 'ac', 'ab')
    """
    first: list[T] = []
    others: list[T] = []
    ways: set[Hashable] = set()
    for _, tile in sorted(tiles, key=lambda pair: pair[0]):
        (others if way(tile) in ways else first).append(tile)
        ways.add(way(tile))
    half = count // 2
    return tuple(dict.fromkeys(first[:half] + others + first[half:]))[:count]
