"""The gradient of a depthwise convolution by its filter from bands of products of rows, channels
first, one after another.

Sixteen rows of x and eight rows of dy, moved by one column of the filter, are two matrices whose
product sums over columns: it has the products of every one of the rows with every other. Those as
far apart as the filter is high are wanted, a band of diagonals, of which each belongs to one row of
the filter. As many matrices of dy as the filter has columns, all of the same pixels, meet the same
matrix of x.

A tile has ``blocks`` times eight rows of dy, each of ``columns`` columns, and the rows and columns
of x that these see; zeros lie where there is no image. What is not finite in x counts also where it
meets zeros alone, before or behind a row of dy.

With a stride of two, taps an even number of rows apart see the even rows of x or the odd ones, and
so it is with columns. Each of these phases is an image of which every row is seen: its rows make
matrices of their own, and a column of the filter meets the columns of one phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.operators.conv import Conv

#: Rows of dy in a matrix; those of x are twice as many. Threads that share the columns of a row.
ROWS, SHARES = 8, 4
#: Columns that one instruction sums over.
DEPTH = 16


@dataclass(frozen=True)
class Bands:
    """How a problem, in NCHW, is cut.

    Parameters
    ----------
    blocks : times :data:`ROWS` rows of dy of a tile.
    columns : of a phase of x, of a tile: a multiple of :data:`DEPTH`, and a power of two.
    warps : tiles, one after the other, that a block goes through at once.
    chunks : of such groups of tiles; every ``chunks``-th group belongs to the same.
    """

    problem: Conv
    blocks: int
    columns: int
    warps: int
    chunks: int

    @property
    def share(self) -> int:
        """Neighbours of a row that a thread has."""
        return self.columns // SHARES

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
        first, last = (self.column(kw)[0] for kw in (0, self.problem.kernel_w - 1))
        left, right = (max(0, -(-n // 2) * 2) for n in (last, -first))
        return left, right

    def row(self, kh: Any) -> tuple[Any, Any]:
        """By how many rows what a row of dy meets with a row of the filter is further down in a
        phase of x, and in which one."""
        return _divided(kh * self.problem.dilation[0], self.problem.stride[0])

    def column(self, kw: Any) -> tuple[Any, Any]:
        """The same of columns, to the right."""
        p = self.problem
        return _divided(kw * p.dilation[1] - p.padding[1], p.stride[1])

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down dy and across the phases of x."""
        (height, _), (_, width) = self.problem.out_image, self.problem.image
        width = -(-width // self.problem.stride[1])
        return -(-height // (ROWS * self.blocks)), -(-width // self.columns)

    def steps(self, batch: Any) -> Any:
        """Groups of tiles of a chunk."""
        down, across = self.grid
        together = self.chunks * self.warps
        return (batch * (down * across) + together - 1) // together


@dataclass(frozen=True)
class BandSums:
    """The stages: ``x`` (tile, channel, phase, row, column); rows of it that a column of the filter
    meets, in ``pairs`` of eight (KW, tile, channel, block, phase, half, row, column); parts of
    ``dy`` (tile, channel, row, thread, column); as a column of the filter meets them, ``moved``
    (KW, tile, channel, block, row, column); their ``products`` (chunk, channel, warp, KW, phase,
    half, row of x, row of dy); the ``parts`` of the filter (chunk, KH, KW, channel) that are sums
    of their diagonals; and ``sums`` of these."""

    x: Tensor
    pairs: Tensor
    dy: list[Tensor]
    moved: Tensor
    products: Tensor
    parts: Tensor
    sums: Tensor


#: An element of a tile: of dy of (tile, channel, row, column), the last two from where it begins;
#: of x of (tile, channel, phase of rows, row, column).
OfDy: TypeAlias = Callable[[Any, Any, Any, Any], Any]
OfX: TypeAlias = Callable[[Any, Any, Any, Any, Any], Any]


def depthwise_wgrad_bands(t: Bands, data: Tensor, grad: Tensor) -> BandSums:
    """The stages of a gradient by the filter in NCHW."""
    top, (down, across) = t.problem.padding[0], t.grid
    sh, sw = t.problem.stride

    def place(tile: Any) -> tuple[Any, Any, Any]:
        return (
            te.floordiv(tile, down * across),
            te.floormod(te.floordiv(tile, across), down) * (ROWS * t.blocks),
            te.floormod(tile, across) * t.columns,
        )

    def of_x(tile: Any, c: Any, phase: Any, row: Any, column: Any) -> Any:
        n, h, w = place(tile)
        at = (h + row) * sh + phase - top, w * sw + column
        return inside(data, n, te.floordiv(c, t.problem.multiplier), *at)

    def of_dy(tile: Any, c: Any, row: Any, column: Any) -> Any:
        n, h, w = place(tile)
        return inside(grad, n, c, h + row, w + column)

    return band_sums(t, t.steps(data.shape[0]), of_x, of_dy)


def band_sums(t: Bands, steps: Any, of_x: OfX, of_dy: OfDy) -> BandSums:
    """The stages from elements of tiles on, which lie one after another, ``t.warps`` at once, in
    every one of the steps of all chunks."""
    p, (sh, sw) = t.problem, t.problem.stride
    tall, tiles = ROWS * t.blocks, steps * (t.chunks * t.warps)
    x = te.compute(
        (tiles, p.out_channels, sh, tall + ROWS, t.columns * sw), of_x, name="BandOfX",
        varargs_names=["tile", "c", "phase", "row", "column"],
    )  # fmt: skip

    def pair_of_x(
        kw: Any, tile: Any, c: Any, block: Any, down: Any, half: Any, row: Any, column: Any
    ) -> Any:
        rows = tile, c, down, (block + half) * ROWS + row
        value = x[(*rows, column * sw)]
        for across in range(1, sw):
            value = te.if_then_else(
                t.column(kw)[1].equal(across), x[(*rows, column * sw + across)], value
            )
        return value

    pairs = te.compute(
        (p.kernel_w, tiles, p.out_channels, t.blocks, sh, 2, ROWS, t.columns), pair_of_x,
        name="PairsOfX",
        varargs_names=["kw", "tile", "c", "block", "down", "half", "row", "column"],
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
        at = at - t.column(kw)[0]
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

    def product(
        chunk: Any, c: Any, warp: Any, kw: Any, down: Any, half: Any, i: Any, j: Any
    ) -> Any:
        tile = (step * t.chunks + chunk) * t.warps + warp
        seen = pairs[kw, tile, c, block, down, half, i, column].astype(p.accumulate)
        own = te.floordiv(column, t.share), te.floormod(column, t.share)
        back = moved[(kw, tile, c, block, j, *own)].astype(p.accumulate)
        return te.sum(seen * back, axis=[step, block, column])

    products = te.compute(
        (t.chunks, p.out_channels, t.warps, p.kernel_w, sh, 2, ROWS, ROWS), product,
        name="Products", varargs_names=["chunk", "c", "warp", "kw", "down", "half", "i", "j"],
    )  # fmt: skip
    warp, j = te.reduce_axis((0, t.warps), name="warp"), te.reduce_axis((0, ROWS), name="j")

    def diagonal(chunk: Any, kh: Any, kw: Any, c: Any) -> Any:
        apart, down = t.row(kh)
        at = (down, te.floordiv(j + apart, ROWS), te.floormod(j + apart, ROWS), j)
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


def _divided(n: Any, by: int) -> tuple[Any, Any]:
    """Quotient and remainder of an integer or of an index."""
    return divmod(n, by) if isinstance(n, int) else (te.floordiv(n, by), te.floormod(n, by))


def inside(image: Tensor, n: Any, c: Any, h: Any, w: Any) -> Any:
    """An element of an image, or zero where there is none."""
    batch, _, height, width = image.shape
    there = te.all(n < batch, h >= 0, h < height, w >= 0, w < width)
    return te.if_then_else(there, image[n, c, h, w], te.const(0, image.dtype))
