"""Tiles of results that are products of strips of an image with bands of filters in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tilewright.topi.parameters import flag

#: Rows of a product of a warp, which are images by strips by groups; channels that are a pair;
#: outputs next to one another of a product of planes, and of pairs of channels, where zeros are
#: multiplied and where they are skipped.
PRODUCT_ROWS, CHANNELS = 16, 2
PLANE_OUTPUTS, PAIR_OUTPUTS, SPARSE_OUTPUTS = 8, 4, 8
#: By how many bytes pixels may be swizzled.
_SWIZZLES = (32, 64, 128)


@dataclass(frozen=True)
class PlaneBandTile:
    """A warp computes ``rows`` rows of results of each of ``strips`` strips, one below the other,
    and of them ``groups`` times eight columns; of as many images as make sixteen strips by
    groups. A block has ``down`` by ``across`` warps on the image for each of ``channels`` channels,
    and goes through ``turns`` tiles, from image to image. ``stages`` tiles are in shared memory,
    copied as boxes (``boxed``) or in chunks."""

    rows: int = 7
    strips: int = 8
    groups: int = 1
    down: int = 1
    across: int = 7
    channels: int = 1
    turns: int = 1
    stages: int = 1
    boxed: int = flag()

    #: Outputs next to one another of a product; channels of a warp; rows of an image in shared
    #: memory are not swizzled.
    outputs: ClassVar[int] = PLANE_OUTPUTS
    own: ClassVar[int] = 1
    swizzle: ClassVar[int] = 0

    @property
    def lots(self) -> int:
        """Warps next to one another, of which each has channels of its own."""
        return self.channels

    @property
    def matrix(self) -> tuple[int, int, int]:
        """The rows of a product: images, strips, groups."""
        return PRODUCT_ROWS // (self.strips * self.groups), self.strips, self.groups

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, columns and channels of results of a tile."""
        wide = PLANE_OUTPUTS * self.groups * self.across
        return self.rows * self.strips * self.down, wide, self.channels


@dataclass(frozen=True)
class PairTile:
    """A warp computes, of ``pairs`` pairs of channels, ``rows`` rows of results of each of
    ``strips`` strips, one below the other, and of them ``groups`` times four columns; of as many
    images that they make sixteen strips by groups. A block has ``down`` by ``across`` warps on the
    image for each of ``lots`` lots of channels, and goes through ``turns`` tiles, from image to
    image. ``stages`` tiles are in shared memory."""

    rows: int = 4
    strips: int = 4
    groups: int = 4
    pairs: int = 4
    down: int = 1
    across: int = 1
    lots: int = 4
    turns: int = 1
    stages: int = 1

    #: Outputs next to one another of a product, and its rows.
    outputs: ClassVar[int] = PAIR_OUTPUTS
    places: ClassVar[int] = PRODUCT_ROWS
    #: What a tile sees is copied as a box.
    boxed: ClassVar[int] = 1

    @property
    def matrix(self) -> tuple[int, int, int]:
        """The rows of a product: images, strips, groups."""
        return self.images_per_mma, self.strips, self.groups

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, columns and channels of results of a tile."""
        return self.high, self.wide, self.channels

    @property
    def own(self) -> int:
        """Channels of a warp."""
        return self.pairs * CHANNELS

    @property
    def images_per_mma(self) -> int:
        """Images of a tile."""
        return self.places // (self.strips * self.groups)

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lots * self.own

    @property
    def high(self) -> int:
        """Rows of results of a tile."""
        return self.rows * self.strips * self.down

    @property
    def wide(self) -> int:
        """Columns of results of a tile."""
        return self.outputs * self.groups * self.across

    @property
    def swizzle(self) -> int:
        """By how many bytes pixels in shared memory are swizzled, so that neighbours meet no bank
        twice; 0 where they are not as long as a swizzled row."""
        row = CHANNELS * self.channels
        return row * sum(row == n for n in _SWIZZLES)


@dataclass(frozen=True)
class SparsePairTile(PairTile):
    """The same by products that skip zeros: of ``groups`` times eight columns, and of as many
    images that they make eight strips by groups."""

    strips: int = 2

    outputs: ClassVar[int] = SPARSE_OUTPUTS
    places: ClassVar[int] = 8


#: Tiles of one schedule, channels first or last.
StripProductTile: TypeAlias = PlaneBandTile | PairTile | SparsePairTile
