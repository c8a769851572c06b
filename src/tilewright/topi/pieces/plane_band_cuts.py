"""How planes are cut into products of rows with bands of the filter, channels first.

Sixteen pixels next to one another in a row are a row of a matrix A. A row of a channel's filter
makes a matrix B: its columns are eight outputs next to one another, and hold the taps where the
pixel is in the output's window, and zeros elsewhere. A times B is what the filter's row adds to
eight outputs, for all rows of A, which may be rows of different strips of a plane, of different
columns, and of different images. Of five taps 40 in 128 products count, of nine 72.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from tilewright.ir.errors import LanguageError
from tilewright.topi.columns import number
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.parameters import too_small
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PRODUCT_ROWS, PlaneBandTile
from tilewright.topi.pieces.strips import Strips

#: Pixels of a product; columns of 16 bits that a thread reads at once, and those of 16 bytes.
PIXELS, READ, CHUNK = 16, 4, 8
_SIZE, _POWERS = 2, (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class PlaneBandCut(Strips):
    """How a problem, in NCHW, is cut into products of rows with bands.

    ``matrix`` are the rows of A: images; strips; groups of eight columns. ``tile`` are rows,
    columns and channels of results of as many images, of which channels divide the problem's and
    whole rows and columns are computed: multiples of those of ``matrix``.

    Parameters
    ----------
    row_stride : elements of a row of the image in a tile, at least what results see.
    """

    row_stride: int = 0

    @property
    def chunk(self) -> int:
        """Columns that rows of the image begin at multiples of, of 16 bytes at most."""
        return gcd(CHUNK, self.image[1])

    @property
    def margin(self) -> int:
        """Columns of a tile of the image before the first one that its results see: tiles begin
        where chunks do, and where threads can read."""
        return -self.before[1] % max(self.chunk, READ)

    @property
    def lead(self) -> int:
        """Pixels of a product before the first one that its outputs see."""
        return self.margin % READ

    @property
    def parts(self) -> int:
        """Products that go over what the outputs of one see."""
        return -(-(self.lead + self.sees(1, PLANE_OUTPUTS)) // PIXELS)

    @property
    def wide(self) -> int:
        """Columns of the image in a tile that are read, at least."""
        last = (self.tile[1] - PLANE_OUTPUTS) * self.stride[1] + self.margin - self.lead
        return last + self.parts * PIXELS

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along channels, down and across an image."""
        extents = (self.problem.channels, *self.result)
        sizes = (self.tile[2], *self.tile[:2])
        along, down, across = (-(-n // size) for n, size in zip(extents, sizes, strict=True))
        return along, down, across

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Images, channels, rows and columns of the image in a tile."""
        return self.matrix[0], self.tile[2], self.sees(0, self.tile[0]), self.row_stride


def band_cut(p: Any, tile: PlaneBandTile) -> PlaneBandCut:
    """How a problem is cut for a tile: as many chunks of 16 bytes are from one row to the next as
    let the fewest threads conflict in a bank."""
    bare = PlaneBandCut(p, tile.rows, tile.matrix, tile.size)
    strides = np.asarray(-(-bare.wide // CHUNK))[..., None] + np.arange(4)
    found = [
        row_conflicts(replace(bare, row_stride=n * CHUNK)) for n in np.moveaxis(strides, -1, 0)
    ]
    row_stride = np.argmin(found, axis=0) + strides[..., 0]
    return replace(bare, row_stride=number(row_stride * CHUNK))


def row_conflicts(cut: PlaneBandCut) -> Any:
    """Times that a warp takes turns at the banks, for four rows that it reads at once, 32 bytes of
    each."""
    _, channels, high, row_stride = (np.asarray(n)[..., None] for n in cut.box)
    strips, groups = (np.asarray(n)[..., None] for n in cut.matrix[1:])
    row = np.arange(PRODUCT_ROWS // 2)
    image, strip = row // groups // strips, row // groups % strips
    line = image * channels * high + strip * np.asarray(cut.rows)[..., None] * cut.stride[0]
    # Outputs of a group are as many as a chunk has.
    at = line * row_stride + row % groups * cut.stride[1] * CHUNK
    chunks = np.stack([at, at + CHUNK], axis=-1).reshape(*at.shape[:-1], 2, PRODUCT_ROWS // 2)
    return bank_conflicts(chunks * _SIZE, _SIZE * CHUNK).max(axis=-1)


def check(p: Any, tile: PlaneBandTile) -> None:
    """Raises :class:`LanguageError` for a problem that is not of 16 bits, of one filter a channel,
    and a forward pass or a gradient by the input with stride 1; and where the parameters of
    ``tile`` are too small, or its strips and groups are no powers of two, or more than a product
    has rows."""
    if why := too_small(tile):
        raise LanguageError(f"{tile}: {why}")
    if tile.strips not in _POWERS or tile.groups not in _POWERS[: 5 - _POWERS.index(tile.strips)]:
        raise LanguageError(
            f"{tile}: strips by groups are the rows of a product, powers of two that make 1 to "
            f"{PRODUCT_ROWS}, not {tile.strips} by {tile.groups}"
        )
    strides = p.pass_ == "forward" or (p.pass_ == "dgrad" and p.stride == (1, 1))
    if p.dtype not in ("float16", "bfloat16") or p.multiplier > 1 or not strides:
        raise LanguageError(
            f"{p} has no products with bands: they are of float16 or bfloat16, of one filter a "
            "channel, and of forward passes, or gradients by the input with stride 1"
        )
