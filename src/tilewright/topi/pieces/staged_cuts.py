"""How windows are cut into products of images that lie in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.topi.once import once
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import StagedTile


@dataclass(frozen=True)
class StagedBands(Bands):
    """How windows are cut into products of images that lie in shared memory.

    Parameters
    ----------
    groups : tiles of ``rows`` rows, one below the other, that share what is staged.
    staged : rows of one phase of the stride that are staged at once, 0 for whole images.
    box : columns of an image in one row of what is staged, 0 for blocks of 8 by 8.
    """

    groups: int = 1
    staged: int = 4
    box: int = 0

    @once
    def first(self) -> int:
        """As of others; where a tile has whole rows, boxes begin where these do, too."""
        return -self.before[1] % max(self.chunk, self.box) if self.whole else super().first

    @property
    def together(self) -> int:
        """Rows of one phase that are one loop."""
        return max(1, self.staged)

    @once
    def block_rows(self) -> int:
        """Rows of results of all groups."""
        return self.rows * self.groups

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image, those of whole blocks."""
        h, w = self.result
        return -(-h // self.block_rows) * self.groups, -(-w // self.columns)

    @once
    def lead(self) -> int:
        """Rows of one phase before those that a block sees, such that the rows that are staged at
        once begin with the image's first: padding costs no stage that it shares."""
        return -(self.before[0] // self.stride[0]) % self.staged if self.staged else 0

    @once
    def block_steps(self) -> int:
        """Rows of one phase of the stride that all groups see, in whole stages."""
        count = self.lead + self.steps - self.rows + self.block_rows
        return -(-count // self.staged) * self.staged if self.staged else count

    @once
    def staged_columns(self) -> int:
        """Columns of the image that all tiles across see."""
        seen = (self.tiles[1] - 1) * self.columns * self.stride[1] + self.depth
        return -(-seen // self.box) * self.box if self.box else seen


def staged_bands(p: Any, tile: StagedTile) -> StagedBands:
    """How a problem is cut for a tile."""
    return StagedBands(p, *tile.product, tile.groups, tile.staged, tile.box)
