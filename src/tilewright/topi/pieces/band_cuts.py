"""How windows are cut into products with banded matrices: rows and columns of tiles, and what they
see of an image."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.once import once

#: In 16 bits, columns of the image that an instruction sums over, and those that a thread loads
#: with three others, 16 bytes each; what tiles begin at a multiple of; and, in TF32, the rows and
#: columns of blocks of a matrix, which are multiplied one by one.
_DEPTH, _CHUNK, _VECTOR, BLOCK = 16, 32, 8, 8


@dataclass(frozen=True)
class Bands(Convolved):
    """How windows are cut into products: of ``images`` images (one: of rows of one), a product has
    ``rows`` by ``columns`` results of each."""

    images: int
    rows: int
    columns: int

    @once
    def terms(self) -> int:
        """Products of TF32 for one of a float32; 0 of others."""
        p = self.problem
        return 0 if p.dtype != "float32" else 1 if p.precision == "tf32" else 3

    @once
    def parts(self) -> int:
        """Numbers that stand for one of the image, or of what it is convolved with."""
        return 2 if self.terms == 3 else 1

    @once
    def whole(self) -> bool:
        """Whether a tile has whole rows: columns in the padding are then never multiplied."""
        return self.result[1] <= self.columns

    @once
    def seen(self) -> int:
        """Columns that a tile sees."""
        seen = self.sees(1, self.columns)
        if self.whole:
            return max(1, min(seen - self.before[1], self.image[1]))
        return seen + self.first

    @once
    def chunk(self) -> int:
        """Columns that four threads load at once."""
        if self.terms:
            return BLOCK
        return _CHUNK if self.seen > _DEPTH else _DEPTH

    @once
    def depth(self) -> int:
        """Columns that a tile sums over."""
        return -(-self.seen // self.chunk) * self.chunk

    @once
    def first(self) -> int:
        """How many columns before its first a window begins, so that chunks begin where vectors
        do."""
        return -self.before[1] % (self.chunk if self.whole else _VECTOR)

    @once
    def steps(self) -> int:
        """Rows of one phase of the stride that a tile sees, where a product has several images."""
        return -(-self.sees(0, self.rows) // self.stride[0])

    @property
    def taps(self) -> int:
        """A row of what the image is convolved with, between zeros."""
        return self.depth + (self.columns - 1) * self.stride[1]

    @once
    def matrices(self) -> int:
        """Those of a filter, with those of zeros, in the same case."""
        return self.stride[0] * (self.steps + self.rows - 1)

    @once
    def matrix_bytes(self) -> int:
        """Of the matrices, and of the rows of the filter between zeros, in 16 bits."""
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
        return 2 if self.terms else self.columns // 4

    @once
    def products(self) -> int:
        """Blocks of one matrix that have taps, which are all that is multiplied in TF32."""
        found, reach = 0, (self.kernel[1] - 1) * self.dilation[1]
        for j in range(0, self.depth, BLOCK):
            for w in range(0, self.columns, BLOCK):
                at = j + (self.before[1] if self.whole else -self.first) - w * self.stride[1]
                found += at + BLOCK - 1 >= 0 and at - (BLOCK - 1) * self.stride[1] <= reach
        return found

    @once
    def multiplied(self) -> int:
        """What is multiplied of one matrix: all of it, but in TF32 the blocks that have taps."""
        return self.products if self.terms else self.depth * self.columns
