"""Depthwise convolution as products of rows of planes with bands of the filter, channels first.

Sixteen pixels next to one another in a row are a row of a matrix A. A row of a channel's filter
makes a matrix B: its columns are eight outputs next to one another, and hold the taps where the
pixel is in the output's window, and zeros elsewhere. A times B is what the filter's row adds to
eight outputs, for all rows of A, which may be rows of different strips of a plane, of different
columns, and of different images. Of five taps 40 in 128 products count, of nine 72.

A row of an image is read once for all rows of results that see it. What is not finite in the image
spreads to the eight outputs of a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.strips import Strips

#: Outputs and pixels of a product; a pixel's number is that of four places in a row, and in a place
#: that of two pairs of two, so that a thread reads four pixels at once.
OUTPUTS, PIXELS, PLACE = 8, 16, (4, 2, 2)
#: Columns of 16 bits that a thread reads at once, and those of 16 bytes.
READ, CHUNK = 4, 8


@dataclass(frozen=True)
class PlaneBandCut(Strips):
    """How a problem, in NCHW, is cut into products of rows with bands.

    ``matrix`` are the rows of A: images; strips; groups of :data:`OUTPUTS` columns. ``tile`` are
    rows, columns and channels of results of as many images, of which channels divide the problem's
    and whole rows and columns are computed: multiples of those of ``matrix``.

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
        return -(-(self.lead + self.sees(1, OUTPUTS)) // PIXELS)

    @property
    def wide(self) -> int:
        """Columns of the image in a tile that are read, at least."""
        last = (self.tile[1] - OUTPUTS) * self.stride[1] + self.margin - self.lead
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


@dataclass(frozen=True)
class PlaneBandStages:
    """The stages: the ``image`` in tiles; its ``pixels`` as products read them; the ``bands`` of
    the filter; and the ``sum`` of products."""

    image: Tensor
    pixels: Tensor
    bands: Tensor
    sum: Tensor


def depthwise_plane_bands(t: PlaneBandCut, image: Tensor, filter: Tensor) -> PlaneBandStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NCHW, of one
    filter a channel.

    ``image`` is (tiles: of images, along channels, down, across; image, channel, row, column).
    ``pixels`` is (the same tiles; channel, blocks of strips and of groups, row, part; a product's
    images, strips, groups, places, pairs, pixels of a pair), and ``bands`` (channels, rows, parts,
    places, pairs, pixels of a pair, outputs).
    """
    p, (sh, sw), (dh, _), (top, left) = t.problem, t.stride, t.dilation, t.before
    (deep, strips, groups), (high, wide, lots) = t.matrix, t.tile
    batch, (height, width) = image.shape[0], t.image
    grid = ((batch + deep - 1) // deep, *t.grid)
    parts_of = (lots, high // (strips * t.rows), wide // (groups * OUTPUTS))

    def element(n: Any, e: Any, down: Any, across: Any, i: Any, c: Any, row: Any, at: Any) -> Any:
        h = down * (high * sh) + row - top
        w = across * (wide * sw) + at - (left + t.margin)
        inside = [h >= 0, h < height, w >= 0, w < width]
        inside += [n * deep + i < batch] if deep > 1 else []
        read = image[n * deep + i, e * lots + c, h, w]
        return te.if_then_else(te.all(*inside), read, te.const(0, image.dtype))

    tiles = te.compute(
        (*grid, *t.box), element, name="ImageTiles",
        varargs_names=["n", "e", "down", "across", "i", "c", "row", "column"],
    )  # fmt: skip

    def pixel(*index: Any) -> Any:
        place, (c, h, w, row, part, i, strip, group, *at) = index[:4], index[4:]
        down = (h * strips + strip) * (t.rows * sh) + row
        across = (w * groups + group) * (OUTPUTS * sw) + part * PIXELS + (t.margin - t.lead)
        return tiles[(*place, i, c, down, across + _number(at))]

    shape = (*parts_of, t.seen_rows, t.parts, *t.matrix, *PLACE)
    pixels = te.compute((*grid, *shape), pixel, name="Pixels")

    def band(c: Any, di: Any, part: Any, *at: Any) -> Any:
        *place, output = at
        far = part * PIXELS + _number(place) - t.lead - output * sw
        where, (kh, kw) = t.tap(di * dh, far)
        return te.if_then_else(te.all(*where), filter[c, 0, kh, kw], te.const(0, p.dtype))

    bands = te.compute((p.channels, t.kernel[0], t.parts, *PLACE, OUTPUTS), band, name="Bands")
    r, part = te.reduce_axis((0, t.seen_rows), "r"), te.reduce_axis((0, t.parts), "part")
    place = [te.reduce_axis((0, n), f"q{k}") for k, n in enumerate(PLACE)]

    def product(*index: Any) -> Any:
        at, (c, h, w, row, i, strip, group, output) = index[:4], index[4:]
        joined, di = t.meets(r, row)
        x = pixels[(*at, c, h, w, r, part, i, strip, group, *place)]
        f = bands[(at[1] * lots + c, di, part, *place, output)]
        return te.sum(
            x.astype(p.accumulate) * f.astype(p.accumulate),
            axis=[r, part, *place],
            where=te.all(*joined),
        )

    total = te.compute(
        (*grid, *parts_of, t.rows, *t.matrix, OUTPUTS), product, name="BandSum",
        varargs_names=[
            "n", "e", "down", "across", "c", "h", "w", "row", "i", "strip", "group", "output",
        ],
    )  # fmt: skip
    return PlaneBandStages(tiles, pixels, bands, total)


def _number(at: Any) -> Any:
    """That of a pixel in its product."""
    place, pair, low = at
    return place * READ + pair * 2 + low


def element_of(t: PlaneBandCut, total: Tensor, n: Any, c: Any, h: Any, w: Any) -> Any:
    """The sum of an output, of what :func:`depthwise_plane_bands` calls ``sum``."""
    (deep, strips, groups), (high, wide, lots) = t.matrix, t.tile
    row, column = h % high, w % wide
    return total[
        n // deep, c // lots, h // high, w // wide,
        c % lots, row // (strips * t.rows), column // (groups * OUTPUTS), row % t.rows,
        n % deep, row % (strips * t.rows) // t.rows, column % (groups * OUTPUTS) // OUTPUTS,
        column % OUTPUTS,
    ]  # fmt: skip
