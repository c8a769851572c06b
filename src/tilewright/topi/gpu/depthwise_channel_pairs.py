"""Depthwise convolution in 16 bits on tensor cores, channels last, by pairs of channels.

The products of :mod:`~tilewright.topi.nn.depthwise_channel_pairs`. A block goes from tile to
tile, and on to the next image; what a tile sees comes to shared memory as one box, by TMA, while
the tile before it is computed. A warp has the bands of the filters of some channels in
registers, or where products skip zeros their taps; it reads what a row of the image is for all rows
of a product at once, sixteen or eight of them, for several pairs of channels, and adds it to all
rows of results that see it. Results go through shared memory,
so that they are stored in chunks of 16 bytes, one next to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import (
    load_pairs,
    mma_bf16,
    mma_bf16_8,
    mma_f16,
    mma_f16_8,
    mma_pairs_bf16,
    mma_pairs_f16,
    tma_load,
)
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.nn.depthwise_channel_pairs import (
    CHANNELS,
    OUTPUTS,
    SPARSE_OUTPUTS,
    PairCut,
    PairStages,
    depthwise_channel_pairs,
    element_of,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import image_axes, scheduled

#: By type and pixels of a product.
_MULTIPLY = {
    ("float16", 4): mma_f16_8, ("float16", 8): mma_f16, ("float16", 16): mma_pairs_f16,
    ("bfloat16", 4): mma_bf16_8, ("bfloat16", 8): mma_bf16, ("bfloat16", 16): mma_pairs_bf16,
}  # fmt: skip
#: Threads of a warp; elements of 16 bits that a thread stores at once.
_LANES, _STORED = 32, 8
#: By how many bytes pixels may be swizzled.
_SWIZZLES = (32, 64, 128)


PairDeclaration = CutDeclaration[PairCut, PairStages]


@dataclass(frozen=True)
class PairTile:
    """A warp computes, of ``pairs`` pairs of channels, ``rows`` rows of results of each of
    ``strips`` strips, one below the other, and of them ``groups`` times four columns; of as many
    images that they make sixteen strips by groups. A block has ``down`` by ``across`` warps on the
    image for each of ``lots`` lots of channels, and goes through ``turns`` tiles, from image to
    image. ``stages`` tiles are in shared memory."""

    rows: int = 4
    strips: int = 4
    groups: int = 4
    pairs: int = 4
    down: int = 1
    across: int = 1
    lots: int = 4
    turns: int = 1
    stages: int = 1

    #: Outputs next to one another of a product; its rows: images, by strips, by groups.
    outputs: ClassVar[int] = OUTPUTS
    matrix: ClassVar[int] = 16

    @property
    def own(self) -> int:
        """Channels of a warp."""
        return self.pairs * CHANNELS

    @property
    def images_per_mma(self) -> int:
        """Images of a tile."""
        return self.matrix // (self.strips * self.groups)

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lots * self.own

    @property
    def high(self) -> int:
        """Rows of results of a tile."""
        return self.rows * self.strips * self.down

    @property
    def wide(self) -> int:
        """Columns of results of a tile."""
        return self.outputs * self.groups * self.across

    @property
    def swizzle(self) -> int:
        """By how many bytes pixels in shared memory are swizzled, so that neighbours meet no bank
        twice; 0 where they are not as long as a swizzled row."""
        row = CHANNELS * self.channels
        return row * sum(row == n for n in _SWIZZLES)


@dataclass(frozen=True)
class SparsePairTile(PairTile):
    """The same by products that skip zeros: of ``groups`` times eight columns, and of as many
    images that they make eight strips by groups."""

    strips: int = 2

    outputs: ClassVar[int] = SPARSE_OUTPUTS
    matrix: ClassVar[int] = 8


def pair_cut(p: Conv, tile: PairTile) -> PairCut:
    """How a problem is cut for a tile."""
    matrix = (tile.images_per_mma, tile.strips, tile.groups)
    size = (tile.high, tile.wide, tile.channels)
    return PairCut(p, tile.rows, matrix, size, tile.pairs, tile.outputs)


def declare_channel_pairs(p: Conv, tile: PairTile, batch: Any = None) -> PairDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`. Raises
    :class:`LanguageError` where the strips and groups of ``tile`` are more than a product has rows.
    """
    if not 1 <= tile.strips * tile.groups <= tile.matrix:
        raise LanguageError(
            f"{tile}: strips by groups are the rows of a product, 1 to {tile.matrix}, not "
            f"{tile.strips * tile.groups}"
        )
    return declare_images(pair_cut(p, tile), depthwise_channel_pairs, batch, element_of)


def schedule_channel_pairs(d: PairDeclaration, tile: PairTile = PairTile()) -> Schedule:
    """The schedule of what :func:`declare_channel_pairs` makes of a problem with the same
    ``tile``."""
    made, layout = d.stages, d.problem.layout
    filters = [made.taps, *([] if made.bands is None else [made.bands])]
    s = scheduled(d.output, made.image, made.pixels, *filters, made.sum)
    staged = s.cache_write(d.output, "shared")
    out, results = s[d.output], s[staged]
    threads = [
        te.thread_axis((0, extent), f"threadIdx.{name}")
        for extent, name in ((tile.down * tile.across, "z"), (tile.lots, "y"), (_LANES, "x"))
    ]
    block, turn = _store(out, layout, tile, threads)
    results.compute_at(out, turn)
    lot = _share_out(results, layout, tile, threads)
    _multiply(s, d, tile, (results, lot))
    _hold_filters(s, made, (out, block), threads[1])
    _copy_boxes(s, d, tile, (out, turn))
    return s


def _hold_filters(s: Schedule, made: PairStages, at: tuple[Stage, IterVar], warps: IterVar) -> None:
    """What products read of the filters of a warp's channels, in registers for all tiles."""
    held = s[made.taps if made.bands is None else made.bands]
    held.set_scope("fragment")
    held.compute_at(*at)
    held.bind(held.op.axis[0], warps)
    if made.bands is None:
        held.unroll(*held.op.axis[1:])
        return
    *rows, q, ci, output, cj = held.op.axis[1:]
    held.reorder(*rows, q, output, cj, ci)
    held.unroll(*rows, q, output, cj, ci)
    taps = s[made.taps]
    taps.set_scope("local")
    taps.compute_at(held, cj)  # read once for both channels of a pixel


def _store(
    out: Stage, layout: str, tile: PairTile, threads: list[IterVar]
) -> tuple[IterVar, IterVar]:
    """Whole pixels, in chunks of 16 bytes that neighbouring threads store side by side. Returns the
    loops over blocks and over their tiles."""
    tz, ty, tx = threads
    n, c, h, w = image_axes(out, layout)
    n, image = out.split(n, factor=tile.images_per_mma)
    cb, c = out.split(c, factor=tile.channels)
    wb, w = out.split(w, factor=tile.wide)
    hb, row = out.split(h, factor=tile.high)
    out.reorder(n, hb, wb, cb, image, row, w, c)
    tiles, turn = out.split(out.fuse(n, hb, wb), factor=tile.turns)
    out.reorder(tiles, cb, turn)
    block = out.fuse(tiles, cb)
    out.bind(block, te.thread_axis("blockIdx.x"))
    c, lane = out.split(c, factor=_STORED)
    rest, x = out.split(out.fuse(image, row, w, c), factor=_LANES)
    rest, y = out.split(rest, factor=tile.lots)
    _, z = out.split(rest, factor=tile.down * tile.across)
    for axis, thread in ((z, tz), (y, ty), (x, tx)):
        out.bind(axis, thread)
    out.vectorize(lane)
    return block, turn


def _share_out(results: Stage, layout: str, tile: PairTile, threads: list[IterVar]) -> IterVar:
    """The results of a tile among warps, as their sums lie. Returns the loop over lots of
    channels, in which a warp has all of its own."""
    image, c, row, w = image_axes(results, layout)
    results.storage_align(w, 2 * _STORED, _STORED)  # so that pixels meet no bank twice
    if tile.outputs == SPARSE_OUTPUTS:  # nor do strips, of which a thread's neighbours are
        results.storage_align(row, 8 * _STORED, _STORED * (1 + tile.rows % 2))
    extents = (tile.images_per_mma, tile.rows * tile.strips, tile.outputs * tile.groups, tile.own)
    for axis, extent in zip((image, row, w, c), extents, strict=True):
        results.align_bounds(axis, extent)
    lot, c = results.split(c, factor=tile.own)
    w, output = results.split(w, factor=tile.outputs)
    across, group = results.split(w, factor=tile.groups)
    h, row = results.split(row, factor=tile.rows)
    down, strip = results.split(h, factor=tile.strips)
    results.reorder(down, across, lot, row, image, strip, group, output, c)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(lot, threads[1])
    results.unroll(row)
    results.vectorize(c)
    return lot


def _multiply(s: Schedule, d: PairDeclaration, tile: PairTile, at: tuple[Stage, IterVar]) -> None:
    """Sums, ``at`` a loop of a stage, row by row of what the image has, which is read once."""
    cut, made, kind = d.cut, d.stages, d.problem.dtype
    sums = s[made.sum]
    sums.set_scope("fragment")
    sums.compute_at(*at)
    *_, pair, line, image, strips, group, output, cj = sums.op.axis
    r, part, *summed = sums.op.reduce_axis
    sums.reorder(r, part, pair, line, image, strips, group, output, cj, *summed)
    sums.unroll(r, part, pair, line)
    sums.tensorize(image, _MULTIPLY[kind, cut.pixels])

    pixels = s[made.pixels]
    pixels.set_scope("fragment")
    pixels.compute_at(sums, part)
    *_, image, strips, group, pair, q, c = pixels.op.axis
    pixels.reorder(image, strips, group, q, pair, c)
    pixels.tensorize(image, load_pairs(cut.matrix, cut.pixels, tile.pairs, kind))


def _copy_boxes(s: Schedule, d: PairDeclaration, tile: PairTile, at: tuple[Stage, IterVar]) -> None:
    """What a tile sees, ``at`` a loop of a stage, while the tiles before it are computed."""
    box = s[d.stages.image]
    box.set_scope("shared")
    box.compute_at(*at)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    if tile.swizzle:
        box.swizzle(tile.swizzle)
    seen = (tile.images_per_mma, *d.cut.seen(tile.high, tile.wide), tile.channels)
    box.tensorize(box.op.axis[0], tma_load(seen, d.problem.dtype, swizzle=tile.swizzle))
