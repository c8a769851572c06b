"""The gradient of a convolution of each channel by its filter, as sums over tiles of images.

A tile is of some rows of x, in some images, with the columns that some columns of dy see, and of
the rows of dy that see any of these rows: every product belongs to one tile. Where the stride
leaves rows out it is of some rows of dy instead, with the rows of x that these see. What of a tile
lies outside of an image is zero, so that no sum has conditions, but for those of small images,
which are known when a kernel is compiled. The dilation is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.topi.columns import number
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile


@dataclass(frozen=True)
class GradientTiles:
    """How ``tile`` cuts a problem of windows, with channels last."""

    problem: Any
    tile: GradientPixelTile

    @property
    def sees(self) -> bool:
        """Whether each row of dy has the rows of x that it sees, or each of x those that see it."""
        return bool(self.problem.stride[0] > 1)

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        p = self.problem
        rows = p.out_image[0] if self.sees else p.height
        return -(-rows // self.tile.height), -(-p.out_image[1] // self.tile.width)

    @property
    def step(self) -> int:
        """Rows of x from one of ``rows`` to the next."""
        return self.problem.stride[0] if self.sees else 1

    def x_part(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of x for ``rows`` rows and ``columns`` columns."""
        p = self.problem
        down = (rows - 1) * self.step + p.kernel_h if self.sees else rows
        return down, (columns - 1) * p.stride[1] + p.kernel_w

    def dy_part(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of dy for ``rows`` rows and ``columns`` columns."""
        return rows + (0 if self.sees else self.problem.kernel_h - 1), columns

    @property
    def x_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of x: images, rows, columns, channels."""
        t = self.tile
        return t.images, *self.x_part(t.height, t.width), t.channels

    @property
    def dy_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of dy: images, rows, columns, channels."""
        t = self.tile
        return t.images, *self.dy_part(t.height, t.width), t.channels

    def products(self, k: int) -> Any:
        """Along a dimension of one image, pairs of a row (or column) of dy and one of the filter
        that see one of x, if a part has the whole image and some pair does; else 0."""
        p, t = self.problem, self.tile
        part, tile = ((t.rows, t.height), (t.columns, t.width))[k]
        seen = np.arange(p.out_image[k])[:, None] * p.stride[k] + np.arange(p.kernel[k])
        pairs = (seen >= p.padding[k]) & (seen < p.padding[k] + p.image[k])
        return number(np.where((part == tile) & (self.grid[k] == 1), pairs.sum(), 0))

    def steps(self, batch: Any) -> Any:
        """Tiles of a chunk."""
        (down, across), t = self.grid, self.tile
        return (-(-batch // t.images) * (down * across) + t.chunks - 1) // t.chunks
