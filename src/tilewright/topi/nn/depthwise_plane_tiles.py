"""Depthwise convolution in tiles of planes, channels first, cut out of the image with all they see.

A tile is of some channels of an image, of some rows and columns of results, with the rows and
columns of the image that these see. What of it lies outside of the image is zero, so that no sum
has conditions. Its rows begin where TMA reads best, and are as long as threads that
read them together like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved


@dataclass(frozen=True)
class PlaneCut(Convolved):
    """How a problem, in NCHW, is cut.

    Parameters
    ----------
    size : channels, rows and columns of results of a tile; its channels divide the problem's.
    row_stride : elements of a row of the image in a tile, at least what results see.
    margin : columns by which a tile begins before the first one that its results see.
    """

    size: tuple[int, int, int]
    row_stride: int
    margin: int

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along channels, down and across an image."""
        extents = (self.problem.result_channels, *self.result)
        along, down, across = (-(-n // t) for n, t in zip(extents, self.size, strict=True))
        return along, down, across

    @property
    def box(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the image in a tile."""
        return self.size[0], self.sees(0, self.size[1]), self.row_stride


@dataclass(frozen=True)
class PlaneTiles:
    """The stages: ``image``, (N, tiles along channels, down and across, channel, row, column), and
    the ``sum`` alike."""

    image: Tensor
    sum: Tensor


def depthwise_plane_tiles(t: PlaneCut, image: Tensor, filter: Tensor) -> PlaneTiles:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NCHW, of one
    filter a channel."""
    p, (channels, high, wide), zero = t.problem, t.size, te.const(0, image.dtype)
    (sh, sw), (dh, dw), (top, left) = t.stride, t.dilation, t.before
    batch, (height, width) = image.shape[0], t.image

    def pixel(n: Any, e: Any, down: Any, across: Any, c: Any, row: Any, column: Any) -> Any:
        h = down * (high * sh) + row - top
        w = across * (wide * sw) + column - (left + t.margin)
        inside = te.all(h >= 0, h < height, w >= 0, w < width)
        return te.if_then_else(inside, image[n, e * channels + c, h, w], zero)

    tiles = te.compute(
        (batch, *t.grid, *t.box), pixel, name="ImageTiles",
        varargs_names=["n", "e", "down", "across", "c", "row", "column"],
    )  # fmt: skip
    di, dj = (te.reduce_axis((0, k), name=n) for k, n in zip(t.kernel, ("di", "dj"), strict=True))
    _, tap = t.tap(di * dh, dj * dw)

    def total(n: Any, e: Any, down: Any, across: Any, c: Any, h: Any, w: Any) -> Any:
        x = tiles[n, e, down, across, c, h * sh + di * dh, w * sw + dj * dw + t.margin]
        y = filter[(e * channels + c, 0, *tap)]
        return te.sum(x.astype(p.accumulate) * y.astype(p.accumulate), axis=[di, dj])

    sums = te.compute(
        (batch, *t.grid, *t.size), total, name="TileSums",
        varargs_names=["n", "e", "down", "across", "c", "h", "w"],
    )  # fmt: skip
    return PlaneTiles(tiles, sums)


def element_of(t: PlaneCut, total: Tensor, n: Any, c: Any, h: Any, w: Any) -> Any:
    """The sum of an output, of what :func:`depthwise_plane_tiles` calls ``sum``."""
    channels, high, wide = t.size
    return total[
        n, c // channels, h // high, w // wide, c % channels, h % high, w % wide
    ]  # fmt: skip
