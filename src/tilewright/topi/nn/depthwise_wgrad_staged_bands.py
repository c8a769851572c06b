"""The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_bands` from tiles that are copied first.

The tiles that a block goes through at once are neighbours, in a rectangle of an image or in some
images, and are copied together, with the rows and columns around them and with zeros where there is
no image: rows that two tiles see come from memory once, and whoever reads them has no conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_wgrad_bands import (
    ROWS,
    Bands,
    BandSums,
    band_sums,
    inside,
)


@dataclass(frozen=True)
class StagedBands(Bands):
    """How a problem, in NCHW with stride 1 and one filter a channel, is cut.

    Parameters
    ----------
    images, down, across : the tiles that are copied together; ``warps`` is their number.
    pitch : elements of a row of x and of dy in such a copy, at least what is needed.
    margin : columns by which a copy of dy begins before the first one that its x meets.
    """

    images: int
    down: int
    across: int
    pitch: tuple[int, int]
    margin: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows of dy and columns of x of a copy."""
        return self.down * ROWS * self.blocks, self.across * self.columns

    @property
    def needed(self) -> tuple[int, int]:
        """Columns of x and of dy of a copy."""
        return self.size[1], self.margin + sum(self.around) + self.size[1]

    @property
    def x_tile(self) -> tuple[int, int, int, int]:
        """The shape of a copy of x: images, channels, rows, columns."""
        return self.images, 1, self.size[0] + ROWS, self.pitch[0]

    @property
    def dy_tile(self) -> tuple[int, int, int, int]:
        """The shape of a copy of dy: images, channels, rows, columns."""
        return self.images, 1, self.size[0], self.pitch[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Copies down dy and across x."""
        (height, width), p = self.size, self.problem
        return -(-p.out_image[0] // height), -(-p.image[1] // width)

    def steps(self, batch: Any) -> Any:
        """Copies of a chunk."""
        down, across = self.grid
        return (-(-batch // self.images) * (down * across) + self.chunks - 1) // self.chunks


@dataclass(frozen=True)
class StagedBandSums:
    """The stages: ``staged`` copies of x and of dy, (number, image, channel, row, column), and the
    ``sums`` from there on."""

    staged: tuple[Tensor, Tensor]
    sums: BandSums


def depthwise_wgrad_staged_bands(t: StagedBands, data: Tensor, grad: Tensor) -> StagedBandSums:
    """The stages of a gradient by the filter in NCHW, with stride 1 and one filter a channel."""
    p, (high, wide), (down, across) = t.problem, t.size, t.grid
    before, steps = t.around[0] + t.margin, t.steps(data.shape[0])

    def staged(image: Tensor, shape: tuple[int, ...], first: tuple[int, int], name: str) -> Tensor:
        def element(copy: Any, i: Any, c: Any, row: Any, column: Any) -> Any:
            n = te.floordiv(copy, down * across) * t.images + i
            h = te.floormod(te.floordiv(copy, across), down) * high + row + first[0]
            w = te.floormod(copy, across) * wide + column + first[1]
            return inside(image, n, c, h, w)

        count, (images, _, rows, columns) = steps * t.chunks, shape
        made: Tensor = te.compute(
            (count, images, p.channels, rows, columns), element, name=name,
            varargs_names=["copy", "i", "c", "row", "column"],
        )  # fmt: skip
        return made

    x = staged(data, t.x_tile, (-p.padding[0], 0), "XPlanes")
    dy = staged(grad, t.dy_tile, (0, -before), "DyPlanes")

    def of(tensor: Tensor, before: int) -> Any:
        def element(tile: Any, c: Any, row: Any, column: Any) -> Any:
            warp = te.floormod(tile, t.warps)
            i = te.floordiv(warp, t.down * t.across)
            d = te.floormod(te.floordiv(warp, t.across), t.down)
            h = d * (ROWS * t.blocks) + row
            w = te.floormod(warp, t.across) * t.columns + column + before
            return tensor[te.floordiv(tile, t.warps), i, c, h, w]

        return element

    return StagedBandSums((x, dy), band_sums(t, steps, of(x, 0), of(dy, before)))
