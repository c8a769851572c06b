"""The gradient of a depthwise convolution by its filter as sums over tiles of images.

A tile is of some rows of x, in some images, with the columns that some columns of dy see, and of
the rows of dy that see any of these rows: every product belongs to one tile. Where the stride
leaves rows out it is of some rows of dy instead, with the rows of x that these see. What of a tile
lies outside of an image is zero, so that no sum has conditions, but for those of small images,
which are known when a kernel is compiled. The dilation is 1.

There are three steps: ``own`` sums, over the tiles of a chunk, what lies in one part of each tile;
``parts`` sums these over the parts, and ``sums`` over the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.columns import number
from tilewright.topi.nn.image_tiles import ImageTiles
from tilewright.topi.operators.conv import Conv


@dataclass(frozen=True)
class GradientTiles:
    """How a problem, in NHWC, is cut.

    Parameters
    ----------
    images, down, across : the parts of a tile along each dimension.
    rows, columns : rows of x, or of dy where ``sees``, and columns of dy of a part, which is of one
        image.
    lanes, vector : vectors of neighbouring channels of a tile, and channels of one.
    chunks : of tiles; every ``chunks``-th tile belongs to the same.
    """

    problem: Conv
    images: int
    down: int
    across: int
    rows: int
    columns: int
    lanes: int
    vector: int
    chunks: int

    @property
    def channels(self) -> int:
        """Channels of a tile."""
        return self.lanes * self.vector

    @property
    def sees(self) -> bool:
        """Whether each row of dy has the rows of x that it sees, or each of x those that see it."""
        return self.problem.stride[0] > 1

    @property
    def height(self) -> int:
        """Rows of x of a tile, or of dy where it ``sees``."""
        return self.down * self.rows

    @property
    def width(self) -> int:
        """Columns of dy of a tile."""
        return self.across * self.columns

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        p = self.problem
        rows = p.out_image[0] if self.sees else p.height
        return -(-rows // self.height), -(-p.out_image[1] // self.width)

    @property
    def step(self) -> int:
        """Rows of x from one of ``rows`` to the next."""
        return self.problem.stride[0] if self.sees else 1

    def x_part(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of x for ``rows`` rows and ``columns`` columns."""
        p = self.problem
        down = (rows - 1) * self.step + p.kernel_h if self.sees else rows
        return down, (columns - 1) * p.stride[1] + p.kernel_w

    def dy_part(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of dy for ``rows`` rows and ``columns`` columns."""
        return rows + (0 if self.sees else self.problem.kernel_h - 1), columns

    @property
    def x_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of x: images, rows, columns, channels."""
        return self.images, *self.x_part(self.height, self.width), self.channels

    @property
    def dy_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of dy: images, rows, columns, channels."""
        return self.images, *self.dy_part(self.height, self.width), self.channels

    def products(self, k: int) -> Any:
        """Along a dimension of one image, pairs of a row (or column) of dy and one of the filter
        that see one of x, if a part has the whole image and some pair does; else 0."""
        p, part, tile = self.problem, (self.rows, self.columns)[k], (self.height, self.width)[k]
        seen = np.arange(p.out_image[k])[:, None] * p.stride[k] + np.arange(p.kernel[k])
        pairs = (seen >= p.padding[k]) & (seen < p.padding[k] + p.image[k])
        return number(np.where((part == tile) & (self.grid[k] == 1), pairs.sum(), 0))

    def steps(self, batch: Any) -> Any:
        """Tiles of a chunk."""
        down, across = self.grid
        return (-(-batch // self.images) * (down * across) + self.chunks - 1) // self.chunks


@dataclass(frozen=True)
class TileSums:
    """The stages: tiles of x and of dy, (tile, image, row, column, channel); ``own``, (chunk,
    group of channels, image, down, across, KH, KW, lane, vector); ``parts``, (chunk, KH, KW,
    channel); ``sums``, (C, 1, KH, KW). Channels of all but the last are those of whole tiles."""

    x: Tensor
    dy: Tensor
    own: Tensor
    parts: Tensor
    sums: Tensor


def depthwise_wgrad_tiles(t: GradientTiles, data: Tensor, grad: Tensor) -> TileSums:
    """The stages of a gradient by the filter in NHWC, one filter a channel."""
    p = t.problem
    (kh, kw), (sh, sw), (top, left, *_) = p.kernel, p.stride, p.padding
    (oh, ow), sees = p.out_image, t.sees
    steps = t.steps(data.shape[0])
    channels = -(-p.channels // t.channels) * t.channels
    cut = ImageTiles(steps * t.chunks, t.grid, t.images, channels)

    # Row y of dy sees row y * sh + ky - top of x.
    above = 0 if sees else kh - 1
    apart = t.height * t.step, t.width * sw
    x = cut.of(data, t.x_tile[1:3], apart, (top if sees else 0, left), "XTiles")
    apart = t.height, t.width
    dy = cut.of(grad, t.dy_tile[1:3], apart, (0 if sees else above - top, 0), "DyTiles")
    step = te.reduce_axis((0, steps), name="step")
    row = te.reduce_axis((0, t.rows), name="row")
    column = te.reduce_axis((0, t.columns), name="column")

    def summed(
        chunk: Any, group: Any, i: Any, d: Any, a: Any, ky: Any, kx: Any, lane: Any, v: Any
    ) -> Any:
        tile, r, w = step * t.chunks + chunk, d * t.rows + row, a * t.columns + column
        c = (group * t.lanes + lane) * t.vector + v
        at = (r * sh + ky, r) if sees else (r, r + above - ky)
        seen = x[tile, i, at[0], w * sw + kx, c].astype(p.accumulate)
        back = dy[tile, i, at[1], w, c].astype(p.accumulate)
        # Of parts that are whole images it is known which products are none.
        where = []
        if t.products(0):
            y, h = (row, row * sh + ky - top) if sees else (row - ky + top, row)
            where += [y >= 0, y < oh, h >= 0, h < p.height]
        if t.products(1):
            w = column * sw + kx - left
            where += [column < ow, w >= 0, w < p.width]
        return te.sum(
            seen * back, axis=[step, row, column], where=te.all(*where) if where else None
        )

    own = te.compute(
        (t.chunks, channels // t.channels, t.images, t.down, t.across, kh, kw, t.lanes, t.vector),
        summed, name="OwnSums",
    )  # fmt: skip
    over = [
        te.reduce_axis((0, n), name=name)
        for n, name in ((t.images, "i"), (t.down, "d"), (t.across, "a"))
    ]

    def added(chunk: Any, ky: Any, kx: Any, c: Any) -> Any:
        group, lane = c // t.channels, c // t.vector % t.lanes
        return te.sum(own[(chunk, group, *over, ky, kx, lane, c % t.vector)], axis=over)

    parts = te.compute((t.chunks, kh, kw, channels), added, name="ChunkSums")
    chunk = te.reduce_axis((0, t.chunks), name="chunk")
    sums = te.compute(
        p.filter_shape,
        lambda c, m, ky, kx: te.sum(parts[chunk, ky, kx, c + m], axis=chunk),
        name="Sums",
    )
    return TileSums(x, dy, own, parts, sums)
