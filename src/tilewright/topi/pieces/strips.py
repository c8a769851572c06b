"""Convolutions in strips of rows of results, for which each row of the image is read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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
        first, last = self.read_rows
        return range(int(first), int(last))

    @property
    def read_rows(self) -> tuple[Any, Any]:
        """The first of :attr:`read` and the one behind the last, columns where the tile's are."""
        outside = (self.tile[0] > self.rows) | (self.result[0] > self.rows)
        end = np.minimum(self.before[0] + self.image[0], self.seen_rows)
        first = np.where(outside, 0, max(self.before[0], 0))
        last = np.where(outside, self.seen_rows, end)
        return first, np.maximum(first, last)

    @property
    def met(self) -> Any:
        """Pairs of a row of results and a row of the input, read for it, that it sees."""
        taps, sh = np.arange(self.kernel[0]) * self.dilation[0], self.stride[0]
        first, last = (
            np.clip(-((taps - end[..., None]) // sh), 0, np.asarray(self.rows)[..., None])
            for end in self.read_rows
        )
        return (last - first).sum(axis=-1)
