"""Depthwise convolution as products of matrices in tiles of 16 by 16: the filter is unrolled.

For one channel and one row of the filter, ``y[oh, ow] += x[oh + kh - top, j] * T[j, ow]``, where T
is a banded (Toeplitz) matrix of taps, ``T[j, o] = filter[kh, j - o * stride + padding]``. A tile of
the sums has 16 columns of outputs, and for its rows 16 rows of an image, or fewer rows of more
images: ``line`` is the number of a row in what is made of ``images`` images by laying their rows
side by side. So the lines that a tile reads for one row of the filter follow each other in memory,
and the tile for the next row begins ``images`` lines later. Products take pairs of columns j; of T,
pairs of the filter's taps, the last one first, are stored, of which any 16 that follow each other
are two of its rows. A matrix is a view of these, whose rows overlap.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated. What is not
finite in the image spreads to results ``rows`` and ``columns`` around that no tap joins to it, as
it is multiplied with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import or_zero
from tilewright.topi.operators.conv import Conv

#: Rows and columns of a tile of sums, and the columns of the image that one product takes.
SIDE, DEPTH = 16, 32


@dataclass(frozen=True)
class TiledToeplitz(Convolved):
    """How a problem is cut into groups of tiles.

    Parameters
    ----------
    rows, columns : the outputs of a group, of each image; ``rows * images`` and ``columns`` are
        multiples of 16. The stride of columns is 1 or 2.
    images : how many images share a tile: a divisor of 16, and 1 or 16 where rows have a stride.
    channels : how many channels are computed, or a multiple.
    """

    problem: Conv
    rows: int
    columns: int
    images: int
    channels: int = 1

    @staticmethod
    def of(p: Conv, down: int, across: int, images: int, channels: int = 1) -> TiledToeplitz:
        """Groups of ``down`` by ``across`` tiles."""
        return TiledToeplitz(p, SIDE // images * down, SIDE * across, images, channels)

    @property
    def tiles(self) -> tuple[int, int]:
        """Groups down and across an image."""
        h, w = self.result
        return -(-h // self.rows), -(-w // self.columns)

    @property
    def _whole(self) -> bool:
        """Whether a group has whole rows of outputs."""
        return self.result[1] <= self.columns

    @property
    def first(self) -> int:
        """The image's column that the products of a group begin with, from that of its first
        output: where its window begins, or where a group has whole rows, where the image does."""
        return 0 if self._whole else -self.before[1]

    @property
    def depth(self) -> int:
        """Columns of the image that the products of a group take, a multiple of 32."""
        reach = (self.kernel[1] - 1) * self.dilation[1] - self.before[1] - self.first
        seen = (self.columns - 1) * self.stride[1] + reach + 1
        seen = min(seen, self.image[1]) if self._whole else seen
        return max(1, -(-seen // DEPTH)) * DEPTH

    @property
    def tile_rows(self) -> int:
        """Rows of each of the images in a tile."""
        return SIDE // self.images

    @property
    def lead(self) -> int:
        """Rows above the image that are stored: those of groups that begin there."""
        return max(0, min(self.before[0], (self.rows - 1) * self.stride[0]))

    @property
    def stored_rows(self) -> int:
        """Rows of an image that are stored, with the padding that groups read."""
        last = (self.tiles[0] * self.rows - 1) * self.stride[0] - self.before[0]
        last += (self.kernel[0] - 1) * self.dilation[0]
        return self.lead + 1 + min(last, self.image[0] - 1 + (self.rows - 1) * self.stride[0])

    @property
    def stored_columns(self) -> int:
        """Columns of an image that are stored; rows begin at multiples of 64 bytes."""
        seen = (self.tiles[1] - 1) * self.columns * self.stride[1] + self.depth
        return -(-seen // DEPTH) * DEPTH

    @property
    def last(self) -> int:
        """The number of the pair in the first two rows of T, at the group's first output. From two
        rows to the next two it is ``2 / stride`` less, from an output to the next one more."""
        return (self.depth // 2 - 1) * 2 // self.stride[1]

    @property
    def pairs(self) -> int:
        """Pairs of taps of a row of the filter, zeros around them included; whole vectors."""
        return -(-(self.columns + self.last) // SIDE) * SIDE

    @property
    def reach(self) -> int:
        """Taps of a row of the filter that pairs are made of, zeros around them included."""
        return self.stride[1] * (self.pairs - 1) + 2

    def column(self, at: Any) -> Any:
        """How far from the left edge of a window the tap number ``at`` of :attr:`reach` is."""
        zeros = self.stride[1] * (self.pairs - 1 - self.last)
        return at - zeros + self.first + self.before[1]


@dataclass(frozen=True)
class TileStages:
    """The stages: ``image`` is the padded image in lines, ``taps`` are rows of the filter between
    zeros, ``pairs`` their pairs, ``rows`` those of the matrices of a group, two and two. ``left``
    and ``right`` are views of these, the factors of the products, ``sum`` the products, all in
    tiles."""

    image: Tensor
    taps: Tensor
    pairs: Tensor
    rows: Tensor
    left: Tensor
    right: Tensor
    sum: Tensor


def depthwise_tiles(t: TiledToeplitz, image: Tensor, filter: Tensor) -> TileStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NCHW.

    ``sum`` has (batch / images, channels, tiles down, tiles across, 16, 16).
    """
    p, (sh, sw), (top, _) = t.problem, t.stride, t.before
    (height, width), (kernel, step), g = t.image, (t.kernel[0], t.dilation[0]), t.images
    turned = p.pass_ == "dgrad"
    m = 1 if turned else p.multiplier
    batch, channels = image.shape[0], -(-p.result_channels // t.channels) * t.channels
    groups = (batch + g - 1) // g

    def pixel(b: Any, c: Any, line: Any, w: Any) -> Any:
        n, h, x = b * g + line % g, line // g - t.lead, w + t.first
        inside = [h >= 0, h < height, x >= 0, x < width, c < image.shape[1]]
        inside += [n < batch] if g > 1 else []
        return or_zero(inside, image[n, c, h, x])

    padded = te.compute(
        (groups, -(-channels // m), t.stored_rows * g, t.stored_columns), pixel,
        name="PaddedImage", varargs_names=["b", "c", "line", "w"],
    )  # fmt: skip

    def tap(c: Any, e: Any, at: Any) -> Any:
        # In the order of memory, whichever end of a row a window begins with.
        where, (kh, kw) = t.tap(e * step, t.column(t.reach - 1 - at if turned else at))
        return or_zero([c < p.result_channels, *where], filter[c // m, c % m, kh, kw])

    taps = te.compute(
        (channels, kernel, t.reach), tap, name="TapRows", varargs_names=["c", "e", "at"]
    )
    pairs = te.compute(
        (channels, kernel, t.pairs, 2),
        lambda c, e, v, k: taps[c, e, v + 1 - k if turned else (t.pairs - 1 - v) * sw + k],
        name="TapPairs",
    )
    down, across = t.rows // t.tile_rows, t.columns // SIDE
    tiles = t.tiles[0] * down, t.tiles[1] * across

    def line(tile: Any, q: Any, r: Any) -> Any:
        first = (tile * t.tile_rows * sh + q * step + t.lead - top) * g
        return first + r * (sh if g == 1 else 1)

    left = te.compute(
        (groups, channels, tiles[0], kernel, SIDE, t.stored_columns),
        lambda b, c, tile, q, r, j: padded[b, c // m, line(tile, q, r), j],
        name="ImageTile",
    )
    # Rows of the matrices of all tiles across: from one to the next they are 8 * sw rows apart.
    later = (across - 1) * (SIDE // 2) * sw
    rows = te.compute(
        (channels, kernel, t.depth // 2 + later, SIDE, 2),
        lambda c, q, s, w, k: pairs[c, q, w + (later - s) * (2 // sw) + t.last, k],
        name="FilterRows", varargs_names=["c", "q", "s", "w", "k"],
    )  # fmt: skip
    right = te.compute(
        (channels, kernel, across, t.depth // 2, SIDE, 2),
        lambda c, q, strip, s, w, k: rows[c, q, s + later - strip * (SIDE // 2) * sw, w, k],
        name="FilterTile",
    )
    q = te.reduce_axis((0, kernel), name="q")
    s, k = te.reduce_axis((0, t.depth // 2), name="s"), te.reduce_axis((0, 2), name="k")

    def total(b: Any, c: Any, tile: Any, strip: Any, r: Any, w: Any) -> Any:
        row = tile // down * (t.rows * sh) + q * step - top  # of the image, the group's first
        column = strip // across * (t.columns * sw)
        seen = column + s // SIDE * DEPTH + t.first
        where = [row + (t.rows - 1) * sh >= 0, row < height, seen + DEPTH > 0, seen < width]
        x = left[b, c, tile, q, r, column + s * 2 + k].astype(p.accumulate)
        y = right[c, q, strip % across, s, w, k].astype(p.accumulate)
        return te.sum(x * y, axis=[q, s, k], where=te.all(*where))

    sums = te.compute(
        (groups, channels, *tiles, SIDE, SIDE), total, name="TileSums", tag="toeplitz",
        varargs_names=["b", "c", "tile", "strip", "r", "w"],
    )  # fmt: skip
    return TileStages(padded, taps, pairs, rows, left, right, sums)
