"""What schedules of products with diagonals have in common, channels last.

A block goes down the image tile by tile, and on to the next image; what a tile sees comes to shared
memory as one box, by TMA, while the tile before it is computed. A warp has some pixels and eight
channels of a tile, and the diagonals of its filters in registers. Results go through shared memory,
so that they are stored in pieces of 16 bytes, one next to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.depthwise_diagonal import CHANNELS, Cut, DiagonalStages
from tilewright.topi.nn.images import Images
from tilewright.topi.stages import image_axes, scheduled

#: Declares the products of an image with the diagonals of a filter.
Products: TypeAlias = Callable[[Any, Tensor, Tensor], DiagonalStages]
_LANES = 32


@dataclass(frozen=True)
class DiagonalTile:
    """A warp computes ``rows`` rows of the columns of one product, of 8 channels; a block has
    ``down`` by ``across`` warps on the image for each of ``eights`` times 8 channels, and goes
    through ``turns`` tiles, one below the other, of each of ``images`` images. ``stages`` tiles are
    in shared memory."""

    rows: int = 8
    down: int = 1
    across: int = 1
    eights: int = 4
    turns: int = 1
    stages: int = 1
    images: int = 1

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.eights * CHANNELS

    @property
    def swizzle(self) -> int:
        """By how many bytes pixels in shared memory are swizzled; see :func:`swizzle_of`."""
        return swizzle_of(self.eights)

    def whole(self, columns: int) -> tuple[int, int, int]:
        """Rows, columns and channels that a block computes, from ``columns`` of one product."""
        return self.rows * self.down * self.turns, columns * self.across, self.channels


@dataclass(frozen=True)
class DiagonalDeclaration(Declaration):
    """A problem as products with diagonals, cut as ``cut`` says."""

    cut: Cut
    stages: DiagonalStages


def swizzle_of(eights: int) -> int:
    """By how many bytes pixels of so many eights of channels are swizzled, so that eight neighbours
    meet no bank twice; those of odd eights meet none anyway."""
    return 2 * CHANNELS * eights if eights in (2, 4, 8) else 0


def declare_cut(cut: Cut, products: Products, batch: Any = None) -> DiagonalDeclaration:
    """The program of a problem, cut into ``products``; ``batch`` as in :func:`declare`."""
    p = cut.problem
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    made = products(cut, image, filter)
    sums = Images(p.layout).compute(
        image.shape[0], p.result_channels, cut.result,
        lambda n, c, at: made.sum[n, at[0], at[1], c], "Sums",
    )  # fmt: skip
    result = finished(p, sums, inputs)
    return DiagonalDeclaration(p, inputs, result, made.sum, made.image, None, cut, made)


@dataclass(frozen=True)
class Blocks:
    """A schedule of everything but the products, and of the order of a warp's results: ``results``
    has the axes ``row`` and ``pixel`` of a warp, and ``channel`` among its eight; ``sums`` and
    ``pixels`` are to be ordered."""

    schedule: Schedule
    results: Stage
    row: IterVar
    pixel: IterVar
    channel: IterVar
    sums: Stage
    pixels: Stage


def begin_blocks(d: DiagonalDeclaration, tile: DiagonalTile) -> Blocks:
    """The blocks of a problem that was declared with the same ``tile``."""
    cut, made, layout = d.cut, d.stages, d.problem.layout
    s = scheduled(d.output, made.image, made.pixels, made.diagonals, made.sum)
    staged = s.cache_write(d.output, "shared")
    out, results, sums = s[d.output], s[staged], s[made.sum]
    warps, columns = tile.down * tile.across, cut.columns * tile.across
    tz, ty, tx = (
        te.thread_axis((0, extent), f"threadIdx.{name}")
        for extent, name in ((warps, "z"), (tile.eights, "y"), (_LANES, "x"))
    )

    n, c, h, w = image_axes(out, layout)
    many, n = out.split(n, factor=tile.images)
    cb, c = out.split(c, factor=tile.channels)
    wb, w = out.split(w, factor=columns)
    h, row = out.split(h, factor=tile.rows * tile.down)
    hb, turn = out.split(h, factor=tile.turns)
    c, lane = out.split(c, factor=CHANNELS)
    out.reorder(many, hb, wb, cb, n, turn, row, w, c, lane)
    block = out.fuse(many, hb, wb, cb)
    turn = out.fuse(n, turn)
    out.bind(block, te.thread_axis("blockIdx.x"))
    rest, x = out.split(out.fuse(row, w, c), factor=_LANES)
    rest, y = out.split(rest, factor=tile.eights)
    _, z = out.split(rest, factor=warps)
    for axis, thread in ((z, tz), (y, ty), (x, tx)):
        out.bind(axis, thread)
    out.vectorize(lane)

    results.compute_at(out, turn)
    n, c, h, w = image_axes(results, layout)
    results.storage_align(w, 2 * CHANNELS, CHANNELS)  # so that pixels meet no bank twice
    for axis, extent in ((h, tile.rows), (w, cut.columns), (c, CHANNELS)):
        results.align_bounds(axis, extent)
    eight, c = results.split(c, factor=CHANNELS)
    across, pixel = results.split(w, factor=cut.columns)
    down, row = results.split(h, factor=tile.rows)
    results.reorder(n, down, across, eight, row, pixel, c)
    results.bind(results.fuse(down, across), tz)
    results.bind(eight, ty)
    results.unroll(row)

    sums.set_scope("fragment")
    sums.compute_at(results, eight)
    n, height, w, channels = sums.op.axis
    for axis, extent in ((height, tile.rows), (w, cut.columns), (channels, CHANNELS)):
        sums.align_bounds(axis, extent)

    diagonals = s[made.diagonals]
    diagonals.set_scope("fragment")
    diagonals.compute_at(out, block)
    diagonals.bind(diagonals.op.axis[0], ty)
    for axis in diagonals.op.axis[1:]:
        diagonals.unroll(axis)

    pixels = s[made.pixels]
    pixels.set_scope("fragment")

    box = s[made.image]
    box.set_scope("shared")
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    if tile.swizzle:
        box.swizzle(tile.swizzle)
    extents = (1, *cut.seen(tile.rows * tile.down, columns), tile.channels)
    box.tensorize(box.op.axis[0], tma_load(extents, d.problem.dtype, swizzle=tile.swizzle))
    return Blocks(s, results, row, pixel, c, sums, pixels)
