"""The gradient of a depthwise convolution by its filter from bands of products of rows, channels
first, one after another.

Sixteen rows of x and eight rows of dy, moved by one column of the filter, are two matrices whose
product sums over columns: it has the products of every one of the rows with every other. Those as
far apart as the filter is high are wanted, a band of diagonals, of which each belongs to one row of
the filter. As many matrices of dy as the filter has columns, all of the same pixels, meet the same
matrix of x.

A tile has ``blocks`` times eight rows of dy, each of ``columns`` columns of x, and the rows and
columns that these see; zeros lie where there is no image. What is not finite in x counts also where
it meets zeros alone, before or behind a row of dy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.problem import Problem

#: Rows of dy in a matrix; those of x are twice as many. Threads that share the columns of a row.
ROWS, SHARES = 8, 4
#: Columns that one instruction sums over.
DEPTH = 16


@dataclass(frozen=True)
class Bands:
    """How a problem, in NCHW with stride 1, is cut.

    Parameters
    ----------
    blocks : times :data:`ROWS` rows of dy of a tile.
    columns : of x, of a tile: a multiple of :data:`DEPTH`, and a power of two.
    warps : tiles, one after the other, that a block goes through at once.
    chunks : of such groups of tiles; every ``chunks``-th group belongs to the same.
    """

    problem: Problem
    blocks: int
    columns: int
    warps: int
    chunks: int

    @property
    def share(self) -> int:
        """Neighbours of a row that a thread has."""
        return self.columns // SHARES

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from the first tap of the filter to its last one."""
        kernel, dilation = self.problem.kernel, self.problem.dilation
        return (kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1]

    @property
    def parts(self) -> list[tuple[int, int, str]]:
        """What a thread has of a row of dy: its share as of x, and what stands before and behind
        that, as the first column from that of x, their number, which is even, and a name."""
        left, right = self.around
        found = [(-left, left, "Left"), (0, self.share, "Middle"), (self.share, right, "Right")]
        return [(first, count, f"{name}OfDy") for first, count, name in found if count]

    @property
    def around(self) -> tuple[int, int]:
        """Columns of dy before and behind those of x that these meet, rounded up to even ones."""
        before = self.problem.padding[1]
        left, right = (max(0, -(-n // 2) * 2) for n in (self.reach[1] - before, before))
        return left, right

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down dy and across x."""
        (height, _), (_, width) = self.problem.out_image, self.problem.image
        return -(-height // (ROWS * self.blocks)), -(-width // self.columns)

    def steps(self, batch: Any) -> Any:
        """Groups of tiles of a chunk."""
        down, across = self.grid
        together = self.chunks * self.warps
        return (batch * (down * across) + together - 1) // together


@dataclass(frozen=True)
class BandSums:
    """The stages: ``x`` (tile, channel, row, column) and its rows in ``pairs`` of eight (tile,
    channel, block, half, row, column); parts of ``dy`` (tile, channel, row, thread, column); as a
    column of the filter meets them, ``moved`` (KW, tile, channel, block, row, column); their
    ``products`` (chunk, channel, warp, KW, half, row of x, row of dy); the ``parts`` of the
    filter (chunk, KH, KW, channel) that are sums of their diagonals; and ``sums`` of these."""

    x: Tensor
    pairs: Tensor
    dy: list[Tensor]
    moved: Tensor
    products: Tensor
    parts: Tensor
    sums: Tensor


#: An element of a tile: of (tile, channel, row, column), the last two from where it begins.
Element = Callable[[Any, Any, Any, Any], Any]


def depthwise_wgrad_bands(t: Bands, data: Tensor, grad: Tensor) -> BandSums:
    """The stages of a gradient by the filter in NCHW, with stride 1."""
    top, (down, across) = t.problem.padding[0], t.grid

    def place(tile: Any) -> tuple[Any, Any, Any]:
        return (
            te.floordiv(tile, down * across),
            te.floormod(te.floordiv(tile, across), down) * (ROWS * t.blocks),
            te.floormod(tile, across) * t.columns,
        )

    def of_x(tile: Any, c: Any, row: Any, column: Any) -> Any:
        n, h, w = place(tile)
        return inside(data, n, te.floordiv(c, t.problem.multiplier), h + row - top, w + column)

    def of_dy(tile: Any, c: Any, row: Any, column: Any) -> Any:
        n, h, w = place(tile)
        return inside(grad, n, c, h + row, w + column)

    return band_sums(t, t.steps(data.shape[0]), of_x, of_dy)


def band_sums(t: Bands, steps: Any, of_x: Element, of_dy: Element) -> BandSums:
    """The stages from elements of tiles on, which lie one after another, ``t.warps`` at once, in
    every one of so many steps of all chunks."""
    p, before = t.problem, t.problem.padding[1]
    tall, tiles = ROWS * t.blocks, steps * (t.chunks * t.warps)
    x = te.compute(
        (tiles, p.out_channels, tall + ROWS, t.columns), of_x, name="BandOfX",
        varargs_names=["tile", "c", "row", "column"],
    )  # fmt: skip
    pairs = te.compute(
        (tiles, p.out_channels, t.blocks, 2, ROWS, t.columns),
        lambda tile, c, block, half, row, column: x[
            tile, c, (block + half) * ROWS + row, column
        ],
        name="PairsOfX", varargs_names=["tile", "c", "block", "half", "row", "column"],
    )  # fmt: skip

    def part_of_dy(first: int, count: int, name: str) -> Tensor:
        def element(tile: Any, c: Any, row: Any, q: Any, at: Any) -> Any:
            return of_dy(tile, c, row, q * t.share + at + first)

        made: Tensor = te.compute(
            (tiles, p.out_channels, tall, SHARES, count), element, name=name,
            varargs_names=["tile", "c", "row", "q", "at"],
        )  # fmt: skip
        return made

    dy = [part_of_dy(first, count, name) for first, count, name in t.parts]

    def moved_dy(kw: Any, tile: Any, c: Any, block: Any, row: Any, q: Any, at: Any) -> Any:
        at = at + before - kw * p.dilation[1]
        (start, _, _), *others = t.parts
        value = dy[0][tile, c, block * ROWS + row, q, at - start]
        for (start, _, _), part in zip(others, dy[1:], strict=True):
            own = part[tile, c, block * ROWS + row, q, at - start]
            value = te.if_then_else(at >= start, own, value)
        return value

    moved = te.compute(
        (p.kernel_w, tiles, p.out_channels, t.blocks, ROWS, SHARES, t.share), moved_dy,
        name="MovedDy", varargs_names=["kw", "tile", "c", "block", "row", "q", "at"],
    )  # fmt: skip

    step, block, column = (
        te.reduce_axis((0, extent), name=name)
        for name, extent in (("step", steps), ("block", t.blocks), ("column", t.columns))
    )

    def product(chunk: Any, c: Any, warp: Any, kw: Any, half: Any, i: Any, j: Any) -> Any:
        tile = (step * t.chunks + chunk) * t.warps + warp
        seen = pairs[tile, c, block, half, i, column].astype(p.accumulate)
        own = te.floordiv(column, t.share), te.floormod(column, t.share)
        back = moved[(kw, tile, c, block, j, *own)].astype(p.accumulate)
        return te.sum(seen * back, axis=[step, block, column])

    products = te.compute(
        (t.chunks, p.out_channels, t.warps, p.kernel_w, 2, ROWS, ROWS), product,
        name="Products", varargs_names=["chunk", "c", "warp", "kw", "half", "i", "j"],
    )  # fmt: skip
    warp, j = te.reduce_axis((0, t.warps), name="warp"), te.reduce_axis((0, ROWS), name="j")

    def diagonal(chunk: Any, kh: Any, kw: Any, c: Any) -> Any:
        row = j + kh * p.dilation[0]
        at = (te.floordiv(row, ROWS), te.floormod(row, ROWS), j)
        return te.sum(products[(chunk, c, warp, kw, *at)], axis=[warp, j])

    parts = te.compute(
        (t.chunks, p.kernel_h, p.kernel_w, p.out_channels), diagonal, name="ChunkSums"
    )
    chunk = te.reduce_axis((0, t.chunks), name="chunk")
    sums = te.compute(
        p.filter_shape,
        lambda c, m, kh, kw: te.sum(parts[chunk, kh, kw, c * p.multiplier + m], axis=chunk),
        name="Sums",
    )
    return BandSums(x, pairs, dy, moved, products, parts, sums)


def inside(image: Tensor, n: Any, c: Any, h: Any, w: Any) -> Any:
    """An element of an image, or zero where there is none."""
    batch, _, height, width = image.shape
    there = te.all(n < batch, h >= 0, h < height, w >= 0, w < width)
    return te.if_then_else(there, image[n, c, h, w], te.const(0, image.dtype))
