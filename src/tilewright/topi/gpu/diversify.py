"""The tiles that are tried, of those that are predicted to be fast."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def diversify(
    tiles: Iterable[tuple[float, T]], variant: Callable[[T], Hashable], count: int
) -> tuple[T, ...]:
    """At most ``count`` of ``tiles``, which come with a guess at their times, each once: first the
    best of each ``variant``, up to half of them, as a guess may be wrong of a whole variant, then
    the others.

    >>> diversify([(2.0, "ab"), (1.0, "aa"), (3.0, "ba"), (1.5, "ac")], lambda t: t[0], 4)
    ('aa', 'ba', 'ac', 'ab')
    """
    first: list[T] = []
    others: list[T] = []
    variants: set[Hashable] = set()
    for _, tile in sorted(tiles, key=lambda pair: pair[0]):
        (others if variant(tile) in variants else first).append(tile)
        variants.add(variant(tile))
    half = count // 2
    return tuple(dict.fromkeys(first[:half] + others + first[half:]))[:count]
