"""Tiles of images that threads of a GPU sum over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReductionTile:
    """A thread goes over tiles of ``rows`` by ``columns`` pixels and sums ``taps`` rows of the
    filter, of ``vector`` channels where they lie side by side. ``lanes`` threads share a sum,
    ``threads`` such groups make a block, and ``chunks`` partial sums of each tap remain."""

    rows: int = 2
    columns: int = 4
    taps: int = 3
    vector: int = 1
    lanes: int = 32
    threads: int = 4
    chunks: int = 8


@dataclass(frozen=True)
class GradientPixelTile:
    """A thread sums over ``rows`` rows of x, of dy where the stride leaves rows out, by ``columns``
    columns of dy of ``vector`` neighbouring channels. A block has ``lanes`` such vectors of
    channels and tiles of ``images`` by ``down`` by ``across`` such parts, in ``stages`` copies.
    ``chunks`` blocks share the tiles of a group of channels: every ``chunks``-th is one's."""

    rows: int = 8
    columns: int = 4
    vector: int = 2
    lanes: int = 16
    images: int = 1
    down: int = 1
    across: int = 8
    stages: int = 2
    chunks: int = 32

    @property
    def threads(self) -> tuple[int, int, int]:
        """Of a block, of which the last are neighbours."""
        return self.images * self.down, self.across, self.lanes

    @property
    def channels(self) -> int:
        """Of a tile."""
        return self.lanes * self.vector

    @property
    def height(self) -> int:
        """Rows of a tile, those that ``rows`` are of."""
        return self.down * self.rows

    @property
    def width(self) -> int:
        """Columns of dy of a tile."""
        return self.across * self.columns
