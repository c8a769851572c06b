"""The tiles of products of boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Threads of a warpgroup, and rows of its matrix.
LANES, ROWS = 128, 64


def columns_of(channels: int) -> int:
    """Columns of an instruction that a number of channels is multiplied by: the largest power of
    two that divides them.

    >>> columns_of(96)
    32
    """
    return channels & -channels


@dataclass(frozen=True)
class BoxProductTile:
    """A block computes a box of ``images`` by ``rows`` by ``columns`` results, powers of two, of
    which each 64 are a warpgroup's, with ``channels`` of the result; or what one of ``splits``
    parts of the steps adds to them, or several ``boxes`` of them one after the other."""

    images: int = 2
    rows: int = 8
    columns: int = 8
    channels: int = 128
    stages: int = 3
    splits: int = 1
    boxes: int = 1

    @property
    def box(self) -> tuple[int, int, int]:
        return self.images, self.rows, self.columns

    @property
    def groups(self) -> int:
        """Warpgroups."""
        return math.prod(self.box) // ROWS

    @property
    def of_groups(self) -> tuple[int, int, int]:
        """The part of a box that is a warpgroup's: its outermost dimensions are shared out."""
        left, found = self.groups, []
        for extent in self.box:
            parts = min(left, extent)
            left //= parts
            found.append(extent // parts)
        return found[0], found[1], found[2]


@dataclass(frozen=True)
class BoxGradientTile:
    """A block computes ``filters`` by ``channels`` of a tap, from one of ``splits`` parts of the
    pixels; each 64 filters are a warpgroup's."""

    filters: int = 128
    channels: int = 128
    stages: int = 3
    splits: int = 1
