"""Tiles of results that are products with banded matrices, by what multiplies them.

All say ``product``, the images, rows and columns of the results of a warp, or of a warpgroup, at
once; ``lanes``, its threads; ``groups`` and ``teams``, of which a block has as many down an image
and for other images; ``turns``, tiles that each goes through, from above down the image;
and ``channels``, those that a block goes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tilewright.topi.parameters import flag

#: Rows of an instruction of a warp, and of a warpgroup; threads of each.
ROWS, GROUP_ROWS, LANES, GROUP_LANES = 16, 64, 32, 128


@dataclass(frozen=True)
class RowTile:
    """A warp computes ``16 * tiles`` rows of ``columns`` results of one image; a block has
    ``groups`` of them down an image, for each of ``teams`` images. Rows of the image are loaded
    ``stages - 1`` rows of the filter ahead."""

    tiles: int = 2
    columns: int = 32
    groups: int = 1
    teams: int = 1
    stages: int = 2

    lanes: ClassVar[int] = LANES
    turns: ClassVar[int] = 1
    channels: ClassVar[int] = 1

    @property
    def product(self) -> tuple[int, int, int]:
        return 1, ROWS * self.tiles, self.columns


@dataclass(frozen=True)
class WarpTile:
    """A warp computes ``rows`` by ``columns`` results of 16 * ``images`` images at once, ``turns``
    times from above down the image; a block has ``groups`` of them down the image, for each of
    ``teams`` times as many images. Rows of the image are loaded ``stages - 1`` ahead."""

    rows: int = 2
    columns: int = 32
    images: int = 2
    groups: int = 2
    teams: int = 2
    turns: int = 4
    stages: int = 2

    lanes: ClassVar[int] = LANES
    channels: ClassVar[int] = 1

    @property
    def product(self) -> tuple[int, int, int]:
        return ROWS * self.images, self.rows, self.columns


@dataclass(frozen=True)
class ToeplitzTile:
    """A warpgroup computes ``rows`` by ``columns`` results of 64 images at once, ``turns`` times
    from above down the image; a block has ``groups`` of them. Rows of the image are loaded ``stages
    - 1`` ahead."""

    rows: int = 4
    columns: int = 32
    groups: int = 2
    turns: int = 4
    stages: int = 4

    lanes: ClassVar[int] = GROUP_LANES
    teams: ClassVar[int] = 1
    channels: ClassVar[int] = 1

    @property
    def product(self) -> tuple[int, int, int]:
        return GROUP_ROWS, self.rows, self.columns


@dataclass(frozen=True)
class StagedTile:
    """A warpgroup computes ``rows`` by ``columns`` results of 64 images at once, ``turns`` times
    down the image; a block has ``groups`` of them, and copies ``staged`` rows at once, ``stages -
    1`` times ahead, or, where that is 0, whole images. A block goes on with ``channels`` channels,
    one after the other, and copies rows of the next while it multiplies those of one. Where ``box``
    is not 0, ``box`` columns of all images are copied at once, by TMA."""

    rows: int = 4
    columns: int = 32
    groups: int = 2
    turns: int = 4
    staged: int = flag(4)
    stages: int = 3
    channels: int = 1
    box: int = 0

    lanes: ClassVar[int] = GROUP_LANES
    teams: ClassVar[int] = 1

    @property
    def product(self) -> tuple[int, int, int]:
        return GROUP_ROWS, self.rows, self.columns


@dataclass(frozen=True)
class GradientTile:
    """A warp sums ``16 * tiles`` rows of ``columns`` of a filter over every ``chunks``-th image; a
    block has ``teams`` chunks. Rows of an image are loaded ``stages - 1`` rows of dy ahead."""

    tiles: int = 2
    columns: int = 32
    chunks: int = 8
    teams: int = 4
    stages: int = 2

    lanes: ClassVar[int] = LANES
    groups: ClassVar[int] = 1

    @property
    def product(self) -> tuple[int, int, int]:
        return 1, ROWS * self.tiles, self.columns


#: Of results that are images, and of all.
ImageTile: TypeAlias = RowTile | WarpTile | ToeplitzTile | StagedTile
BandTile: TypeAlias = ImageTile | GradientTile
