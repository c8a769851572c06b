"""The tiles of gradients by the filter whose taps share what a block reads."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TapGradientTile:
    """A block computes ``filters`` by ``channels`` of all taps, from one of ``splits`` parts of the
    pixels, of which a step has a box of ``images`` by ``rows`` by ``columns``.

    ``warps_m`` by ``warps_n`` by ``warps_r`` by ``warps_t`` warps have parts of the filters, of the
    channels, and of the rows and columns of taps.
    """

    filters: int = 64
    channels: int = 64
    images: int = 1
    rows: int = 8
    columns: int = 8
    warps_m: int = 4
    warps_n: int = 1
    warps_r: int = 1
    warps_t: int = 1
    stages: int = 3
    splits: int = 1

    @property
    def box(self) -> tuple[int, int, int]:
        return self.images, self.rows, self.columns

    @property
    def pixels(self) -> int:
        """Pixels of a step."""
        return math.prod(self.box)

    @property
    def own(self) -> tuple[int, int]:
        """Filters and channels of a warp."""
        return self.filters // self.warps_m, self.channels // self.warps_n

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_r * self.warps_t
