"""How windows are cut into products with banded matrices: rows and columns of tiles, and what they
see of an image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.topi.nn.convolved import Convolved

#: Columns of the image that an instruction sums over, those that a thread loads with three others,
#: 16 bytes each, and what tiles begin at a multiple of.
_DEPTH, _CHUNK, _VECTOR = 16, 32, 8


@dataclass(frozen=True)
class Bands(Convolved):
    """How windows are cut into products, in 16 bits: of ``images`` images (one: of rows of one), a
    product has ``rows`` by ``columns`` results of each."""

    images: int
    rows: int
    columns: int

    @cached_property
    def whole(self) -> bool:
        """Whether a tile has whole rows: columns in the padding are then never multiplied."""
        return self.result[1] <= self.columns

    @cached_property
    def seen(self) -> int:
        """Columns that a tile sees."""
        seen = self.sees(1, self.columns)
        if self.whole:
            return max(1, min(seen - self.before[1], self.image[1]))
        return seen + self.first

    @cached_property
    def chunk(self) -> int:
        """Columns that four threads load at once."""
        return _CHUNK if self.seen > _DEPTH else _DEPTH

    @cached_property
    def depth(self) -> int:
        """Columns that a tile sums over."""
        return -(-self.seen // self.chunk) * self.chunk

    @cached_property
    def first(self) -> int:
        """How many columns before its first a window begins, so that chunks begin where vectors
        do."""
        return -self.before[1] % (self.chunk if self.whole else _VECTOR)

    @cached_property
    def steps(self) -> int:
        """Rows of one phase of the stride that a tile sees, where a product has several images."""
        return -(-self.sees(0, self.rows) // self.stride[0])

    @property
    def taps(self) -> int:
        """A row of what the image is convolved with, between zeros."""
        return self.depth + (self.columns - 1) * self.stride[1]

    @cached_property
    def matrices(self) -> int:
        """Those of a filter, with those of zeros, in the same case."""
        return self.stride[0] * (self.steps + self.rows - 1)

    @cached_property
    def matrix_bytes(self) -> int:
        """Of the matrices, and of the rows of the filter between zeros, of 16 bits."""
        return 2 * self.matrices * (self.depth * self.columns + self.taps)

    def met(self, tile: int) -> int:
        """Rows of the image that a tile, the ``tile``-th from above, meets; where it has rows of
        one image, of the filter that meet some of it."""
        (sh, _), (step, _), height = self.stride, self.dilation, self.image[0]
        first, seen = tile * self.rows * sh - self.before[0], self.sees(0, self.rows)
        if self.images > 1:
            one = step if self.rows == 1 else 1  # between the taps of one row there are none
            return len(range(-(min(0, first) // one) * one, min(height - first, seen), one))
        last = first + (self.rows - 1) * sh
        rows = range(0, self.kernel[0] * step, step)
        return sum(last + row >= 0 and first + row < height for row in rows)

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        h, w = self.result
        return -(-h // self.rows), -(-w // self.columns)

    @property
    def share(self) -> int:
        """Neighbouring results of a thread."""
        return self.columns // 4


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

    @cached_property
    def first(self) -> int:
        """As of others; where a tile has whole rows, boxes begin where these do, too."""
        return -self.before[1] % max(self.chunk, self.box) if self.whole else super().first

    @cached_property
    def block_rows(self) -> int:
        """Rows of results of all groups."""
        return self.rows * self.groups

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image, those of whole blocks."""
        h, w = self.result
        return -(-h // self.block_rows) * self.groups, -(-w // self.columns)

    @cached_property
    def lead(self) -> int:
        """Rows of one phase before those that a block sees, such that the rows that are staged at
        once begin with the image's first: padding costs no stage that it shares."""
        return -(self.before[0] // self.stride[0]) % self.staged if self.staged else 0

    @cached_property
    def block_steps(self) -> int:
        """Rows of one phase of the stride that all groups see, in whole stages."""
        count = self.lead + self.steps - self.rows + self.block_rows
        return -(-count // self.staged) * self.staged if self.staged else count

    @cached_property
    def staged_columns(self) -> int:
        """Columns of the image that all tiles across see."""
        seen = (self.tiles[1] - 1) * self.columns * self.stride[1] + self.depth
        return -(-seen // self.box) * self.box if self.box else seen
