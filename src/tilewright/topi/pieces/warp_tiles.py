"""The tiles of products by warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.target.devices import WARP


@dataclass(frozen=True)
class WarpProductTile:
    """A block computes ``pixels`` results that follow one another, by ``channels`` of them, of
    which each warp has ``own`` channels of one of ``parts`` of the results. A step sums ``depth``
    channels, or fewer, and is loaded ``stages - 1`` steps ahead."""

    pixels: int = 128
    channels: int = 128
    own: int = 64
    parts: int = 4
    depth: int = 64
    stages: int = 3

    rows: ClassVar[int] = 1
    columns: ClassVar[int] = 1
    boxes: ClassVar[int] = 1
    turned: ClassVar[int] = 0
    lanes: ClassVar[int] = WARP
    boxes_to: ClassVar[int] = 1
    filters_to: ClassVar[int] = 1
    staged: ClassVar[int] = 0
    stores: ClassVar[int] = 0

    @property
    def images(self) -> int:
        """Results are images of a pixel each."""
        return self.pixels

    @property
    def box(self) -> tuple[int, int, int]:
        return self.pixels, 1, 1

    @property
    def groups(self) -> int:
        """Warps."""
        return self.parts * (self.channels // self.own)

    @property
    def of_groups(self) -> tuple[int, int, int]:
        """The part of the results that is a warp's."""
        return self.pixels // self.parts, 1, 1

    @property
    def own_channels(self) -> int:
        """Channels that are a warp's."""
        return self.own
