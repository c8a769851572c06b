"""Convolutions in strips of rows of results, for which each row of the image is read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.topi.nn.convolved import Convolved


@dataclass(frozen=True)
class Strips(Convolved):
    """A problem cut into products, of which each row of the image is read once for several rows of
    results.

    Parameters
    ----------
    rows : output rows, one below the other, that a row of the input is read for at once.
    matrix : what the rows of a product count: images; strips of ``rows`` output rows, one below the
        other; groups of output columns, one beside the other.
    tile : rows and columns of results, and what else there is in a tile.
    """

    rows: int
    matrix: tuple[int, int, int]
    tile: tuple[int, ...]

    @property
    def seen_rows(self) -> int:
        """Rows of the input that ``rows`` of results see."""
        return self.sees(0, self.rows)

    @property
    def read(self) -> range:
        """Those of :attr:`seen_rows` that are multiplied: where a tile is as high as the image, not
        the padding above and below it."""
        if self.tile[0] > self.rows or self.result[0] > self.rows:
            return range(self.seen_rows)
        first = self.before[0]
        return range(max(first, 0), min(first + self.image[0], self.seen_rows))

    @property
    def met(self) -> int:
        """Pairs of a row of results and a row of the input, read for it, that it sees."""
        (sh, _), (dh, _), read = self.stride, self.dilation, self.read
        return sum(
            i * sh + di * dh in read for i in range(self.rows) for di in range(self.kernel[0])
        )

    def meets(self, r: Any, row: Any) -> tuple[list[Any], Any]:
        """The conditions under which row ``r`` of the input is one that row ``row`` of results
        sees, and with which row of the filter."""
        below, dh = r - row * self.stride[0], self.dilation[0]
        joined = [below >= 0, below <= (self.kernel[0] - 1) * dh]
        if (self.read.start, self.read.stop) != (0, self.seen_rows):
            joined += [r >= self.read.start, r < self.read.stop]
        if dh == 1:
            return joined, below
        return [*joined, te.floormod(below, dh).equal(0)], te.floordiv(below, dh)
