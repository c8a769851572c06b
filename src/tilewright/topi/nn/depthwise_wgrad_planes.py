"""The gradient of a depthwise convolution by its filter as sums over tiles of planes, channels
first.

A tile is of some rows of x, of some channels in some images, with the columns that some columns of
dy see, and of the rows of dy that see any of these rows: every product belongs to one tile. What of
it lies outside of an image is zero, so that no sum has conditions. The stride and the dilation
are 1.

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
class GradientPlanes:
    """How a problem, in NCHW, is cut.

    Parameters
    ----------
    images, channels, down, across : the parts of a tile along each dimension.
    rows, columns : of x and of dy, of a part.
    chunks : of tiles; every ``chunks``-th tile belongs to the same.
    pitch : elements of a row of x and of dy in a tile, at least what is needed.
    margin : columns by which a tile of x begins before the first one that its dy sees.
    """

    problem: Problem
    images: int
    channels: int
    down: int
    across: int
    rows: int
    columns: int
    chunks: int
    pitch: tuple[int, int]
    margin: int

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        p, (height, width) = self.problem, self.size
        return -(-p.height // height), -(-p.out_image[1] // width)

    @property
    def size(self) -> tuple[int, int]:
        """Rows of x and columns of dy of a tile."""
        return self.down * self.rows, self.across * self.columns

    @property
    def groups(self) -> int:
        """Tiles for all channels."""
        return -(-self.problem.channels // self.channels)

    @property
    def x_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of x: images, channels, rows, columns."""
        return self.images, self.channels, self.size[0], self.pitch[0]

    @property
    def dy_tile(self) -> tuple[int, int, int, int]:
        """The shape of a tile of dy: images, channels, rows, columns."""
        rows = self.size[0] + self.problem.kernel_h - 1
        return self.images, self.channels, rows, self.pitch[1]

    def steps(self, batch: Any) -> Any:
        """Tiles of a chunk."""
        down, across = self.grid
        return (-(-batch // self.images) * (down * across) + self.chunks - 1) // self.chunks


@dataclass(frozen=True)
class PlaneSums:
    """The stages: tiles of x and of dy, (tile, image, channel, row, column); ``own``, (chunk, group
    of channels, image, channel, down, across, KH, KW); ``parts``, (chunk, KH, KW, channel);
    ``sums``, (C, 1, KH, KW). Channels of all but the last are those of whole tiles."""

    x: Tensor
    dy: Tensor
    own: Tensor
    parts: Tensor
    sums: Tensor


def depthwise_wgrad_planes(t: GradientPlanes, data: Tensor, grad: Tensor) -> PlaneSums:
    """The stages of a gradient by the filter in NCHW, one filter a channel."""
    p = t.problem
    (kh, kw), (top, left) = p.kernel, p.padding[:2]
    steps = t.steps(data.shape[0])
    # Row y of dy sees row y + ky - top of x.
    x = _tiles(t, data, t.x_tile, (0, -left - t.margin), "XPlanes")
    dy = _tiles(t, grad, t.dy_tile, (top - (kh - 1), 0), "DyPlanes")
    step, row, column = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in ((steps, "step"), (t.rows, "row"), (t.columns, "column"))
    )

    def summed(chunk: Any, group: Any, i: Any, c: Any, d: Any, a: Any, ky: Any, kx: Any) -> Any:
        tile, r, w = step * t.chunks + chunk, d * t.rows + row, a * t.columns + column
        channel = group * t.channels + c
        seen = x[tile, i, channel, r, w + kx + t.margin].astype(p.accumulate)
        back = dy[tile, i, channel, r + (kh - 1) - ky, w].astype(p.accumulate)
        return te.sum(seen * back, axis=[step, row, column])

    own = te.compute(
        (t.chunks, t.groups, t.images, t.channels, t.down, t.across, kh, kw), summed,
        name="OwnSums", varargs_names=["chunk", "group", "i", "c", "d", "a", "ky", "kx"],
    )  # fmt: skip
    i, d, a = (
        te.reduce_axis((0, n), name=name)
        for n, name in ((t.images, "i"), (t.down, "d"), (t.across, "a"))
    )

    def added(chunk: Any, ky: Any, kx: Any, c: Any) -> Any:
        group, channel = c // t.channels, c % t.channels
        return te.sum(own[chunk, group, i, channel, d, a, ky, kx], axis=[i, d, a])

    parts = te.compute((t.chunks, kh, kw, t.groups * t.channels), added, name="ChunkSums")
    chunk = te.reduce_axis((0, t.chunks), name="chunk")
    sums = te.compute(
        p.filter_shape,
        lambda c, m, ky, kx: te.sum(parts[chunk, ky, kx, c + m], axis=chunk),
        name="Sums",
    )
    return PlaneSums(x, dy, own, parts, sums)


def _tiles(
    t: GradientPlanes, image: Tensor, shape: tuple[int, ...], first: tuple[int, int], name: str
) -> Tensor:
    """Tiles of ``image``, each ``first`` rows and columns from where it begins."""
    (down, across), (high, wide) = t.grid, t.size
    batch, own, height, width = image.shape
    zero = te.const(0, image.dtype)

    def element(tile: Any, i: Any, c: Any, row: Any, column: Any) -> Any:
        n = tile // (down * across) * t.images + i
        h = tile // across % down * high + row + first[0]
        w = tile % across * wide + column + first[1]
        inside = te.all(n < batch, c < own, h >= 0, h < height, w >= 0, w < width)
        return te.if_then_else(inside, image[n, c, h, w], zero)

    images, _, rows, columns = shape
    count = t.steps(batch) * t.chunks
    made: Tensor = te.compute(
        (count, images, t.groups * t.channels, rows, columns), element, name=name,
        varargs_names=["tile", "i", "c", "row", "column"],
    )  # fmt: skip
    return made
