"""How gradients by the filter are cut into bands of products of rows, channels first.

Sixteen rows of x and eight rows of dy, moved by one column of the filter, are two matrices whose
product sums over columns: it has the products of every one of the rows with every other. Those as
far apart as the filter is high are wanted, a band of diagonals, of which each belongs to one row of
the filter. As many matrices of dy as the filter has columns, all of the same pixels, meet the same
matrix of x.

A tile has ``blocks`` times eight rows of dy, each of ``columns`` columns, and the rows and columns
of x that these see; zeros lie where there is no image.

With a stride of two, taps an even number of rows apart see the even rows of x or the odd ones, and
so it is with columns. Each of these phases is an image of which every row is seen: its rows make
matrices of their own, and a column of the filter meets the columns of one phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Rows of dy in a matrix; those of x are twice as many. Threads that share the columns of a row.
ROWS, SHARES = 8, 4
#: Columns that one instruction sums over.
DEPTH = 16


@dataclass(frozen=True)
class RowBandTile:
    """A warp takes ``blocks`` times 8 rows of ``columns`` columns at once, and loads them ``stages
    - 1`` times ahead; a block has ``warps`` of them, and ``chunks`` blocks share the tiles of a
    channel."""

    blocks: int = 2
    columns: int = 32
    warps: int = 8
    stages: int = 1
    chunks: int = 12


@dataclass(frozen=True)
class RowBands:
    """How a problem, in NCHW, is cut.

    Parameters
    ----------
    blocks : times :data:`ROWS` rows of dy of a tile.
    columns : of a phase of x, of a tile: a multiple of :data:`DEPTH`, and a power of two.
    """

    problem: Any
    blocks: int
    columns: int

    @property
    def rows(self) -> int:
        """Rows of dy of a tile."""
        return ROWS * self.blocks

    @property
    def share(self) -> int:
        """Neighbours of a row that a thread has."""
        return self.columns // SHARES

    @property
    def around(self) -> tuple[int, int]:
        """Columns of dy before and behind those of x that these meet, rounded up to even ones."""
        p = self.problem
        ends = (0, p.kernel_w - 1)
        first, last = ((kw * p.dilation[1] - p.padding[1]) // p.stride[1] for kw in ends)
        left, right = (max(0, -(-n // 2) * 2) for n in (last, -first))
        return left, right

    @property
    def points(self) -> list[int]:
        """Where, of what a thread has of a row of dy, its share begins and what is behind that."""
        left, right = self.around
        return [*([left] if left else []), *([left + self.share] if right else [])]

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down dy and across the phases of x."""
        (height, _), (_, width) = self.problem.out_image, self.problem.image
        width = -(-width // self.problem.stride[1])
        return -(-height // self.rows), -(-width // self.columns)


def row_bands(p: Any, tile: RowBandTile) -> RowBands:
    """How a problem is cut for a tile."""
    return RowBands(p, tile.blocks, tile.columns)
