"""How images are cut into products of two channels side by side, channels last.

Eight pixels, or four, next to one another in a row, of two channels, are a row of a matrix A. A row
of a filter, for two channels, makes a matrix B: its columns are four outputs next to one another,
of two channels, and hold the taps of that channel where the pixel is in the output's window, and
zeros elsewhere. A times B is what the filter's row adds to four outputs
of two channels, for all rows of A. Of five taps nearly every third product counts.

Channels last, two channels of a pixel are one word of memory, so that words are operands as they
lie there. Rows of A may come from different rows and columns of an image, and from different
images.

Every other element of B is zero for its channel. Sparse MMAs skip them: of eight
outputs next to one another, sixteen pixels are then multiplied with the taps of their own channel.
Of seven taps, seven in sixteen of these products count, where seven in 24 do of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.topi.pieces.strip_tiles import PAIR_OUTPUTS, SPARSE_OUTPUTS, PairTile
from tilewright.topi.pieces.strips import Strips

#: Pixels of a product that skips zeros.
_SPARSE_PIXELS = 16


@dataclass(frozen=True)
class PairCut(Strips):
    """How a problem is cut into products of pairs of channels.

    ``matrix`` are the rows of A, or where zeros are skipped the places of a product: images;
    strips; groups of ``outputs`` output columns. ``tile`` are rows, columns and channels of
    results, of which whole ones are computed: multiples of those of ``matrix`` and of ``pairs``.

    Parameters
    ----------
    pairs : pairs of channels that are read together.
    outputs : of a product, next to one another: four, or eight to skip what is zero.
    """

    pairs: int
    outputs: int = PAIR_OUTPUTS

    @property
    def sparse(self) -> bool:
        """Whether products are only of pixels with the taps of their channel."""
        return self.outputs == SPARSE_OUTPUTS

    @property
    def seen_columns(self) -> int:
        """Columns of the input that the outputs of a product see."""
        return self.sees(1, self.outputs)

    @property
    def pixels(self) -> int:
        """Pixels of a product: of those that skip nothing eight, or four where fewer are then read
        that no output sees."""
        if self.sparse:
            return _SPARSE_PIXELS
        return 4 if -(-self.seen_columns // 4) % 2 else 8

    @property
    def parts(self) -> int:
        """Products that go over what the outputs of one see."""
        return -(-self.seen_columns // self.pixels)

    def seen(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the input that are read for those of results."""
        last = (columns - self.outputs) * self.stride[1]
        return self.sees(0, rows), last + self.parts * self.pixels


def pair_cut(p: Any, tile: PairTile) -> PairCut:
    """How a problem is cut for a tile."""
    return PairCut(p, tile.rows, tile.matrix, tile.size, tile.pairs, tile.outputs)


def check(tile: PairTile) -> None:
    """Raises :class:`LanguageError` where the strips and groups of ``tile`` are more than a product
    has rows."""
    if not 1 <= tile.strips * tile.groups <= tile.places:
        raise LanguageError(
            f"{tile}: strips by groups are the rows of a product, 1 to {tile.places}, not "
            f"{tile.strips * tile.groups}"
        )
