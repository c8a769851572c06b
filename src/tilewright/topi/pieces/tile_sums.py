"""The sums over tiles of :mod:`~tilewright.topi.pieces.gradient_tiles` as stages.

There are three steps: ``own`` sums, over the tiles of a chunk, what lies in one part of each tile;
``parts`` sums these over the parts, and ``sums`` over the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.cut import CutDeclaration, declare_sums
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.image_tiles import ImageTiles
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile


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


TileDeclaration = CutDeclaration[GradientTiles, TileSums]


def declare_tile_sums(p: Any, tile: GradientPixelTile, batch: Any = None) -> TileDeclaration:
    """The program of a problem of windows, cut as ``tile`` says; ``batch`` as in
    :func:`~tilewright.topi.declare.declare`."""
    return declare_sums(GradientTiles(p, tile), tile_sums, batch)


def tile_sums(cut: GradientTiles, data: Tensor, grad: Tensor) -> TileSums:
    """The stages of a gradient by the filter in NHWC, one filter a channel."""
    p, t = cut.problem, cut.tile
    (kh, kw), (sh, sw), (top, left, *_) = p.kernel, p.stride, p.padding
    (oh, ow), sees = p.out_image, cut.sees
    steps = cut.steps(data.shape[0])
    channels = -(-p.channels // t.channels) * t.channels
    images = ImageTiles(steps * t.chunks, cut.grid, t.images, channels)

    # Row y of dy sees row y * sh + ky - top of x.
    above = 0 if sees else kh - 1
    apart = t.height * cut.step, t.width * sw
    x = images.of(data, cut.x_tile[1:3], apart, (top if sees else 0, left), "XTiles")
    apart = t.height, t.width
    dy = images.of(grad, cut.dy_tile[1:3], apart, (0 if sees else above - top, 0), "DyTiles")
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
        if cut.products(0):
            y, h = (row, row * sh + ky - top) if sees else (row - ky + top, row)
            where += [y >= 0, y < oh, h >= 0, h < p.height]
        if cut.products(1):
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
