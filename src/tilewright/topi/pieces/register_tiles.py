"""Tiles of results that threads of a GPU sum in registers, by what lies last in memory.

All say ``own``, what a thread computes of the last three dimensions, and ``threads``, those of a
block along them, of which the last are neighbours; ``scaled``, results for each number of the
filter that a thread has in registers; and ``keeps``, whether it has the filter there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tilewright.topi.pieces.loop_order import WHOLE


@dataclass(frozen=True)
class StripTile:
    """A thread computes ``rows`` by ``vector`` pixels, a block ``threads_y`` by ``threads_x`` of
    these strips in each of ``channels`` channels. The taps of ``taps`` filter rows are written out,
    and their input is loaded at once; where ``by_row`` is not
    :data:`~tilewright.topi.pieces.loop_order.WHOLE`, those of all."""

    rows: int = 4
    vector: int = 4
    threads_y: int = 4
    threads_x: int = 32
    channels: int = 1
    taps: int = 3
    by_row: int = WHOLE

    keeps: ClassVar[int] = 0

    @property
    def own(self) -> tuple[int, int, int]:
        return 1, self.rows, self.vector

    @property
    def threads(self) -> tuple[int, int, int]:
        return self.channels, self.threads_y, self.threads_x

    @property
    def scaled(self) -> int:
        return self.rows * self.vector


@dataclass(frozen=True)
class PixelTile:
    """A thread computes ``rows`` by ``columns`` pixels of ``vector`` channels, a block
    ``threads_z`` strips of rows by ``threads_y`` of columns of ``threads_x`` vectors of channels.
    The taps of ``taps`` filter rows are written out, and their input is loaded at once; where
    ``by_row`` is not :data:`~tilewright.topi.pieces.loop_order.WHOLE` those of all, for one row of
    outputs after another. With ``keeps`` (1 or 0) a thread keeps the filter of its channels in
    registers."""

    rows: int = 2
    columns: int = 4
    vector: int = 4
    threads_y: int = 4
    threads_x: int = 32
    taps: int = 3
    by_row: int = WHOLE
    threads_z: int = 1
    keeps: int = 0

    @property
    def own(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.vector

    @property
    def threads(self) -> tuple[int, int, int]:
        return self.threads_z, self.threads_y, self.threads_x

    @property
    def scaled(self) -> int:
        return self.rows * self.columns if self.keeps else 0


@dataclass(frozen=True)
class PlaneTile:
    """A block computes ``planes`` planes, a thread ``rows`` by ``columns`` pixels of one.
    ``by_row`` is as in :class:`StripTile`."""

    planes: int = 8
    rows: int = 7
    columns: int = 7
    by_row: int = WHOLE

    @property
    def scaled(self) -> int:
        return self.rows * self.columns


RegisterTile: TypeAlias = StripTile | PixelTile
