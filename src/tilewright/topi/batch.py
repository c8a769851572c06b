"""Batches whose size a call decides: one kernel for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: The least power of two with another step above it.
_HALVED = 16


@dataclass(frozen=True)
class Batch:
    """What of a problem a call decides: the first extents of some ``inputs``.

    ``count`` is the least of these in the problem, which is what is expected of calls; others are
    multiples of it. A kernel is right for any count for which it has room for its offsets.
    """

    count: int
    inputs: tuple[str, ...]

    @staticmethod
    def of(shapes: dict[str, tuple[int, ...]], names: Iterable[str], images: int) -> Batch | None:
        """That of inputs of some ``shapes``, those of ``names`` whose first extent is a number of
        ``images``; None where there are none, or no count that all are multiples of.

        >>> Batch.of({"a0": (8, 3), "a1": (3,), "a2": (16, 3)}, ["a0", "a1", "a2"], 8)
        Batch(count=8, inputs=('a0', 'a2'))
        """
        firsts = {n: shapes[n][0] for n in names if shapes[n] and shapes[n][0] % images == 0}
        count = min(firsts.values(), default=1)
        alike = firsts and all(first % count == 0 for first in firsts.values())
        return Batch(count, tuple(firsts)) if alike else None

    def shape(self, name: str, shape: tuple[int, ...], count: Any) -> tuple[Any, ...]:
        """The shape of an input, or of a "result" that has one of such a batch, where the count is
        another one, or a variable."""
        if name not in self.inputs:
            return shape
        each = shape[0] // self.count
        return (count if each == 1 else count * each, *shape[1:])


def expected_of(images: int) -> int:
    """How many images tiles are chosen for that take ``images``: the nearest power of two, or half
    as many more than one of 16 or more, as SMs are then full, and what they do in vain counts.

    >>> [expected_of(n) for n in (1, 2, 3, 5, 6, 12, 20, 48, 65, 100)]
    [1, 2, 4, 4, 8, 16, 24, 48, 64, 96]
    """
    low = 1 << images.bit_length() - 1
    found = (low, 2 * low, *([low * 3 // 2] if low >= _HALVED else []))
    return min(found, key=lambda n: max(n / images, images / n))
