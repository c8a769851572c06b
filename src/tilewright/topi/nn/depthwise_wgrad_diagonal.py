"""The gradient of a depthwise convolution by its filter from the diagonals of products of matrices,
channels last.

Eight channels of dy at sixteen pixels of a row, and the same channels of x as two neighbouring taps
of the filter see them from there, are two matrices; their product, summed over the pixels, has for
each of both taps eight by eight channels, of which only the diagonal is wanted. One in eight of the
products counts; tensor cores have so many more that it pays where arithmetic binds, and 16-bit
numbers need no conversion.

A tile has some rows and columns of dy with the rows and columns of x that these see; zeros lie
where there is no image. The sums go over the rows of x of a tile: a row counts for a row of the
filter through the row of dy that it meets there. What is not finite in x counts also where it
meets zeros alone, behind the last row or column of dy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.image_tiles import ImageTiles
from tilewright.topi.problem import Problem

#: Pixels and channels of a product, and taps of it.
PIXELS, CHANNELS, TAPS = 16, 8, 2


@dataclass(frozen=True)
class DiagonalGradient:
    """How a problem, in NHWC, is cut.

    Parameters
    ----------
    rows : of dy, which a row of x is loaded for at once; even.
    down, across : parts of a tile, of ``rows`` by :data:`PIXELS` pixels of dy.
    eights : times :data:`CHANNELS` channels of a tile.
    chunks : of tiles; every ``chunks``-th tile belongs to the same.
    """

    problem: Problem
    rows: int
    down: int
    across: int
    eights: int
    chunks: int

    @property
    def pairs(self) -> int:
        """Pairs of taps of a row of the filter, the last with one too many where they are odd."""
        return -(-self.problem.kernel[1] // TAPS)

    @property
    def channels(self) -> int:
        """Channels of a tile."""
        return self.eights * CHANNELS

    @property
    def dy_part(self) -> tuple[int, int]:
        """Rows and columns of dy of a tile."""
        return self.rows * self.down, PIXELS * self.across

    @property
    def x_part(self) -> tuple[int, int]:
        """Rows and columns of x of a tile."""
        return self.seen(0, self.dy_part[0]), self.seen(1, self.dy_part[1])

    def seen(self, d: int, extent: int) -> int:
        """Rows (0) or columns (1) of x that so many of dy see."""
        p, taps = self.problem, (self.problem.kernel[0], self.pairs * TAPS)
        return (extent - 1) * p.stride[d] + (taps[d] - 1) * p.dilation[d] + 1

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        (height, width), (rows, columns) = self.problem.out_image, self.dy_part
        return -(-height // rows), -(-width // columns)

    def steps(self, batch: Any) -> Any:
        """Tiles of a chunk."""
        down, across = self.grid
        return (batch * (down * across) + self.chunks - 1) // self.chunks


@dataclass(frozen=True)
class DiagonalSums:
    """The stages: tiles of ``x`` and ``dy``, (tile, 1, row, column, channel); ``pixels`` of x as
    pairs of taps see them, (tile, row, column of dy, eights of channels, pairs, taps, channels);
    ``products``, (chunk, eights of channels, down, across, KH, pairs, taps, channels, channels);
    their diagonals ``parts``, (chunk, KH, KW, channel); ``sums`` of these, (C, 1, KH, KW)."""

    x: Tensor
    dy: Tensor
    pixels: Tensor
    products: Tensor
    parts: Tensor
    sums: Tensor


def depthwise_wgrad_diagonal(t: DiagonalGradient, data: Tensor, grad: Tensor) -> DiagonalSums:
    """The stages of a gradient by the filter in NHWC, one filter a channel."""
    p = t.problem
    (kh, kw), (sh, sw), (dh, dw) = p.kernel, p.stride, p.dilation
    steps = t.steps(data.shape[0])
    eights = -(-p.channels // t.channels) * t.eights
    cut = ImageTiles(steps * t.chunks, t.grid, 1, eights * CHANNELS)
    rows, columns = t.dy_part
    x = cut.of(data, t.x_part, (rows * sh, columns * sw), p.padding[:2], "XTiles")
    dy = cut.of(grad, t.dy_part, t.dy_part, (0, 0), "DyTiles")

    pixels = te.compute(
        (steps * t.chunks, t.x_part[0], columns, eights, t.pairs, TAPS, CHANNELS),
        lambda tile, row, w, e, q, tap, ci: x[
            tile, 0, row, w * sw + (q * TAPS + tap) * dw, e * CHANNELS + ci
        ],
        name="Pixels", varargs_names=["tile", "row", "w", "e", "q", "tap", "ci"],
    )  # fmt: skip

    step = te.reduce_axis((0, steps), name="step")
    r, w = te.reduce_axis((0, t.seen(0, t.rows)), name="r"), te.reduce_axis((0, PIXELS), name="w")

    def product(
        chunk: Any, e: Any, d: Any, a: Any, ky: Any, q: Any, tap: Any, ci: Any, cj: Any
    ) -> Any:
        tile, column, below = step * t.chunks + chunk, a * PIXELS + w, r - ky * dh
        met = [below >= 0, below <= (t.rows - 1) * sh]
        h = below
        if sh > 1:
            met.append(te.floormod(below, sh).equal(0))
            h = te.floordiv(below, sh)
        seen = pixels[tile, d * (t.rows * sh) + r, column, e, q, tap, ci].astype(p.accumulate)
        back = dy[tile, 0, d * t.rows + h, column, e * CHANNELS + cj].astype(p.accumulate)
        return te.sum(seen * back, axis=[step, r, w], where=te.all(*met))

    products = te.compute(
        (t.chunks, eights, t.down, t.across, kh, t.pairs, TAPS, CHANNELS, CHANNELS), product,
        name="Products", varargs_names=["chunk", "e", "d", "a", "ky", "q", "tap", "ci", "cj"],
    )  # fmt: skip
    d, a = (
        te.reduce_axis((0, t.down), name="d"),
        te.reduce_axis((0, t.across), name="a"),
    )

    def diagonal(chunk: Any, ky: Any, kx: Any, c: Any) -> Any:
        e, own = c // CHANNELS, c % CHANNELS
        return te.sum(products[chunk, e, d, a, ky, kx // TAPS, kx % TAPS, own, own], axis=[d, a])

    parts = te.compute((t.chunks, kh, kw, eights * CHANNELS), diagonal, name="ChunkSums")
    chunk = te.reduce_axis((0, t.chunks), name="chunk")
    sums = te.compute(
        p.filter_shape,
        lambda c, m, ky, kx: te.sum(parts[chunk, ky, kx, c + m], axis=chunk),
        name="Sums",
    )
    return DiagonalSums(x, dy, pixels, products, parts, sums)
