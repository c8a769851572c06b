"""The tiles of products by warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.topi.pieces.block_tiles import OwnWarps


@dataclass(frozen=True)
class WarpProductTile(OwnWarps):
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
    staged: ClassVar[int] = 0

    @property
    def images(self) -> int:
        """Results are images of a pixel each."""
        return self.pixels

    @property
    def box(self) -> tuple[int, int, int]:
        return self.pixels, 1, 1
