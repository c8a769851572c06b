"""How gradients by the filter are cut into products of rows of dy and rows of x.

For one channel, a row of dy and a row of x have a product, reduced over the images,
``P[i, j] = sum(dy[n, oh, i] * x[n, r, j] for n)``. Its diagonals are what both rows add to one row
of the filter's gradient, that with ``kh = r - oh + padding``: ``dw[kh, kw]`` is the sum of
``P[ow, ow + kw - padding]``. So products whose rows are as far apart add up first, and diagonals
are summed once in the end.

An instruction has room for ``taps`` rows of dy, one below the other. As oh goes down by one, the
rows of x that it meets stand ``taps`` apart, so that each pair of rows meets once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.topi.columns import number

#: Outputs along dy that an instruction has, and images that it sums over.
ROWS, DEPTH = 64, 16


@dataclass(frozen=True)
class RowProductTile:
    """A warpgroup multiplies ``together`` rows of x; a block has ``groups`` warpgroups and copies
    the rows of ``images`` images for ``steps`` positions of dy at once, ``stages - 1`` times
    ahead."""

    together: int = 4
    groups: int = 4
    images: int = 16
    steps: int = 34
    stages: int = 2


@dataclass(frozen=True)
class RowProducts:
    """How a gradient by the filter, of stride 1 down the image, is cut into products.

    Parameters
    ----------
    images : how many are staged at once, a multiple of :data:`DEPTH`.
    steps : at how many positions of the rows of dy, a multiple of ``taps``.
    together : rows of x that one instruction multiplies.
    groups : how many groups of threads have rows of x of their own, a block's.
    """

    problem: Any
    images: int
    steps: int
    together: int
    groups: int

    @property
    def width(self) -> int:
        """Columns of a row of dy with what fills it up: a power of two."""
        return _power(self.problem.out_image[1])

    @property
    def columns(self) -> int:
        """Columns of a row of x with what fills it up: a power of two."""
        return _power(self.problem.image[1])

    @property
    def taps(self) -> int:
        """Rows of dy of one instruction."""
        return ROWS // self.width

    @property
    def positions(self) -> int:
        """Positions of the rows of dy that meet the image."""
        down: int = self.problem.out_image[0]
        return down + self.taps - 1

    @property
    def turns(self) -> int:
        """How often rows are staged for all positions."""
        return -(-self.positions // self.steps)

    @property
    def rows(self) -> int:
        """Rows of x of a block, each ``taps`` below the last; the filter's rows are that number
        times ``taps``, or fewer."""
        return self.together * self.groups

    @property
    def blocks(self) -> int:
        """Blocks that have all rows of the filter between them."""
        high: int = self.problem.kernel[0]
        return -(-high // (self.rows * self.taps))

    @property
    def above(self) -> int:
        """Rows of zeros above x and below it, so that the rows of an instruction may stand out."""
        return (self.together - 1) * self.taps

    @property
    def staged(self) -> Any:
        """Elements of x and dy, and of zeros around them, that are staged at once."""
        x = -(-(self.steps + self.rows * self.taps) // self.taps) * self.taps
        dy = self.steps + self.taps - 1
        limit = self.problem.image[0] + 2 * self.above + self.taps
        return number(self.images * (np.minimum(x, limit) * self.columns + dy * self.width))


def row_cut(p: Any, tile: RowProductTile) -> RowProducts:
    """How a problem is cut for a tile."""
    return RowProducts(p, tile.images, tile.steps, tile.together, tile.groups)


def _power(extent: int) -> int:
    """The power of two from 8 on that has room for ``extent``."""
    return max(8, 1 << (extent - 1).bit_length())
