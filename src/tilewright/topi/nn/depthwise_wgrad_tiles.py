"""The gradient of a depthwise convolution by its filter as sums over tiles of images.

A tile is of some rows of x, in some images, with the columns that some columns of dy see, and of
the rows of dy that see any of these rows: every product belongs to one tile. What of a tile lies
outside of an image is zero, so that no sum has conditions, but for those of small images, which are
known when a kernel is compiled. Stride and dilation are 1.

There are three steps: ``own`` sums, over the tiles of a chunk, what lies in one part of each tile;
``parts`` sums these over the parts, and ``sums`` over the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class GradientTiles:
    """How a problem, in NHWC, is cut.

    Parameters
    ----------
    images, down, across : the parts of a tile along each dimension.
    rows, columns : rows of x and columns of dy of a part, which is of one image.
    lanes, vector : vectors of neighbouring channels of a tile, and channels of one.
    chunks : of tiles; every ``chunks``-th tile belongs to the same.
    """

    problem: Problem
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
    def height(self) -> int:
        """Rows of x of a tile."""
        return self.down * self.rows

    @property
    def width(self) -> int:
        """Columns of dy of a tile."""
        return self.across * self.columns

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        p = self.problem
        return -(-p.height // self.height), -(-p.out_image[1] // self.width)

    @property
    def x_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of x: images, rows, columns, channels."""
        seen = self.width + self.problem.kernel_w - 1
        return self.images, self.height, seen, self.channels

    @property
    def dy_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of dy: images, rows, columns, channels."""
        seen = self.height + self.problem.kernel_h - 1
        return self.images, seen, self.width, self.channels

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
    (kh, kw), (top, left, *_) = p.kernel, p.padding
    batch = data.shape[0]
    steps = t.steps(batch)
    channels = -(-p.channels // t.channels) * t.channels
    down, across = t.grid

    def tiles(image: Tensor, shape: tuple[int, ...], above: int, before: int, name: str) -> Tensor:
        """Tiles that begin so many rows above and columns before those of x and dy."""
        _, height, width, _ = image.shape
        zero = te.const(0, image.dtype)

        def element(tile: Any, i: Any, row: Any, column: Any, c: Any) -> Any:
            n = tile // (down * across) * t.images + i
            h = tile // across % down * t.height + row - above
            w = tile % across * t.width + column - before
            inside = te.all(n < batch, h >= 0, h < height, w >= 0, w < width, c < p.channels)
            return te.if_then_else(inside, image[n, h, w, c], zero)

        made: Tensor = te.compute(
            (steps * t.chunks, *shape[:-1], channels), element, name=name,
            varargs_names=["tile", "i", "row", "column", "c"],
        )  # fmt: skip
        return made

    # Row y of dy sees row y + ky - top of x.
    x = tiles(data, t.x_tile, 0, left, "XTiles")
    dy = tiles(grad, t.dy_tile, kh - 1 - top, 0, "DyTiles")
    step = te.reduce_axis((0, steps), name="step")
    row = te.reduce_axis((0, t.rows), name="row")
    column = te.reduce_axis((0, t.columns), name="column")

    def summed(
        chunk: Any, group: Any, i: Any, d: Any, a: Any, ky: Any, kx: Any, lane: Any, v: Any
    ) -> Any:
        tile, r, w = step * t.chunks + chunk, d * t.rows + row, a * t.columns + column
        c = (group * t.lanes + lane) * t.vector + v
        seen = x[tile, i, r, w + kx, c].astype(p.accumulate)
        back = dy[tile, i, r + (kh - 1) - ky, w, c].astype(p.accumulate)
        # Of parts that begin where images do it is known which products are none.
        where = []
        if t.height == t.rows >= p.height:
            y = row - ky + top
            where += [row < p.height, y >= 0, y < p.out_image[0]]
        if t.width == t.columns >= p.out_image[1]:
            seen_column = column + kx - left
            where += [column < p.out_image[1], seen_column >= 0, seen_column < p.width]
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
