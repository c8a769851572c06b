"""The tiles of warps whose taps share what a block reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.topi.pieces.block_tiles import OwnWarps

#: By how many elements a row of a filter is longer in shared memory than it is wide, so that no
#: bank is met twice.
APART = 8


@dataclass(frozen=True)
class TapGradientTile:
    """A block computes ``filters`` by ``channels`` of all taps, or of ``rows`` rows of them,
    from one of ``splits`` parts of the pixels.

    ``warps_m`` by ``warps_n`` by ``warps_r`` by ``warps_t`` warps have parts of the filters, of the
    channels, and of the rows and columns of taps. With a ``producer`` a warp of its own copies
    boxes.
    """

    filters: int = 64
    channels: int = 64
    warps_m: int = 4
    warps_n: int = 1
    warps_r: int = 1
    warps_t: int = 1
    stages: int = 3
    splits: int = 1
    rows: int = 0
    producer: int = 0

    @property
    def own(self) -> tuple[int, int]:
        """Filters and channels of a warp."""
        return self.filters // self.warps_m, self.channels // self.warps_n

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_r * self.warps_t


@dataclass(frozen=True)
class WarpBoxTile(OwnWarps):
    """A block computes ``boxes`` of ``images`` by ``rows`` by ``columns`` results, one after the
    other, with ``channels`` of them, of which each warp has ``own`` of a part of a box, one of
    ``parts``. With a ``producer`` a warp of its own copies boxes, and each of the others stores
    what it has computed."""

    images: int = 1
    rows: int = 8
    columns: int = 8
    channels: int = 64
    own: int = 16
    parts: int = 1
    stages: int = 2
    boxes: int = 1
    producer: int = 0

    @property
    def staged(self) -> int:
        """Channels that a warp stores at once; 0 where all threads store what a block has."""
        return self.own if self.producer else 0

    @property
    def box(self) -> tuple[int, int, int]:
        return self.images, self.rows, self.columns


def reads_turned(p: Any, eights: bool) -> bool:
    """Whether a filter lies in shared memory as it does in memory, channels of the result side by
    side, and warps turn it: that of a gradient by the input in groups that have whole 16 bytes, of
    which no products are of ``eights``; a warp has 16 channels of these or more."""
    return p.pass_ == "dgrad" and p.channels // p.groups % 8 == 0 and p.groups > 1 and not eights
