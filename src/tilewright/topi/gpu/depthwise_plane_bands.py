"""Depthwise convolution in 16 bits on tensor cores, channels first, of planes by bands of filters.

The products of :mod:`~tilewright.topi.nn.depthwise_plane_bands`. A block has some channels, and
goes through tiles of their images; what a tile sees, halo and padding included, comes to shared
memory as one box, by TMA, while the tile before it is computed. A warp has the bands of a channel's
filter in registers, reads a row of all its strips at once, and adds it to all rows of results that
see it. Results go through shared memory, so that they are stored in chunks of 16 bytes.

Where rows are no multiples of 16 bytes, or short, threads copy what a tile sees chunk by chunk
instead, in the background too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import copy_async, load_pairs, mma_bf16, mma_f16, tma_load
from tilewright.topi.columns import number
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.staging import share_rows
from tilewright.topi.nn.depthwise_plane_bands import (
    CHUNK,
    OUTPUTS,
    PLACE,
    READ,
    PlaneBandCut,
    PlaneBandStages,
    depthwise_plane_bands,
    element_of,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag, too_small
from tilewright.topi.pieces.tiling import bind_all, extent_of
from tilewright.topi.stages import image_axes, scheduled

_MULTIPLY = {"float16": mma_f16, "bfloat16": mma_bf16}
#: Threads of a warp, rows of a product, and bytes of an element.
_LANES, _ROWS, _SIZE = 32, 16, 2
_POWERS = (1, 2, 4, 8, 16)


PlaneBandDeclaration = CutDeclaration[PlaneBandCut, PlaneBandStages]


@dataclass(frozen=True)
class PlaneBandTile:
    """A warp computes ``rows`` rows of results of each of ``strips`` strips, one below the other,
    and of them ``groups`` times eight columns; of as many images as make sixteen strips by
    groups. A block has ``down`` by ``across`` warps on the image for each of ``channels`` channels,
    and goes through ``turns`` tiles, from image to image. ``stages`` tiles are in shared memory,
    copied as boxes (``boxed``) or in chunks."""

    rows: int = 7
    strips: int = 8
    groups: int = 1
    down: int = 1
    across: int = 7
    channels: int = 1
    turns: int = 1
    stages: int = 1
    boxed: int = flag()

    @property
    def matrix(self) -> tuple[int, int, int]:
        """The rows of a product: images, strips, groups."""
        return _ROWS // (self.strips * self.groups), self.strips, self.groups

    @property
    def size(self) -> tuple[int, int, int]:
        """Rows, columns and channels of results of a tile."""
        high, wide = self.rows * self.strips * self.down, OUTPUTS * self.groups * self.across
        return high, wide, self.channels


def band_cut(p: Conv, tile: PlaneBandTile) -> PlaneBandCut:
    """How a problem is cut for a tile: as many chunks of 16 bytes are from one row to the next as
    let the fewest threads conflict in a bank."""
    bare = PlaneBandCut(p, tile.rows, tile.matrix, tile.size)
    strides = np.asarray(-(-bare.wide // CHUNK))[..., None] + np.arange(4)
    found = [
        row_conflicts(replace(bare, row_stride=n * CHUNK)) for n in np.moveaxis(strides, -1, 0)
    ]
    row_stride = np.argmin(found, axis=0) + strides[..., 0]
    return replace(bare, row_stride=number(row_stride * CHUNK))


def row_conflicts(cut: PlaneBandCut) -> Any:
    """Times that a warp takes turns at the banks, for four rows that it reads at once, 32 bytes of
    each."""
    _, channels, high, row_stride = (np.asarray(n)[..., None] for n in cut.box)
    strips, groups = (np.asarray(n)[..., None] for n in cut.matrix[1:])
    row = np.arange(_ROWS // 2)
    image, strip = row // groups // strips, row // groups % strips
    line = image * channels * high + strip * np.asarray(cut.rows)[..., None] * cut.stride[0]
    # Outputs of a group are as many as a chunk has.
    at = line * row_stride + row % groups * cut.stride[1] * CHUNK
    chunks = np.stack([at, at + CHUNK], axis=-1).reshape(*at.shape[:-1], 2, _ROWS // 2)
    return bank_conflicts(chunks * _SIZE, _SIZE * CHUNK).max(axis=-1)


def declare_plane_bands(p: Conv, tile: PlaneBandTile, batch: Any = None) -> PlaneBandDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`. Raises
    :class:`LanguageError` for one that is not of 16 bits, of one filter a channel, and a forward
    pass or a gradient by the input with stride 1; and where the parameters of ``tile`` are too
    small, or its strips and groups are no powers of two, or more than a product has rows."""
    if why := too_small(tile):
        raise LanguageError(f"{tile}: {why}")
    if tile.strips not in _POWERS or tile.groups not in _POWERS[: 5 - _POWERS.index(tile.strips)]:
        raise LanguageError(
            f"{tile}: strips by groups are the rows of a product, powers of two that make 1 to "
            f"{_ROWS}, not {tile.strips} by {tile.groups}"
        )
    strides = p.pass_ == "forward" or (p.pass_ == "dgrad" and p.stride == (1, 1))
    if p.dtype not in _MULTIPLY or p.multiplier > 1 or not strides:
        raise LanguageError(
            f"{p} has no products with bands: they are of float16 or bfloat16, of one filter a "
            "channel, and of forward passes, or gradients by the input with stride 1"
        )
    return declare_images(band_cut(p, tile), depthwise_plane_bands, batch, element_of)


def schedule_plane_bands(
    d: PlaneBandDeclaration, tile: PlaneBandTile = PlaneBandTile()
) -> Schedule:
    """The schedule of what :func:`declare_plane_bands` makes with the same ``tile``."""
    made, layout = d.stages, d.problem.layout
    s = scheduled(d.output, made.image, made.pixels, made.bands, made.sum)
    staged = s.cache_write(d.output, "shared")
    out, results = s[d.output], s[staged]
    extents = (tile.down * tile.across, tile.channels, _LANES)
    threads = [
        te.thread_axis((0, extent), f"threadIdx.{name}")
        for extent, name in zip(extents, "zyx", strict=True)
    ]
    block, turn = _store(out, d, tile, threads)
    results.compute_at(out, turn)
    channel = _share_out(results, layout, tile, threads)
    _multiply(s, d, (results, channel))
    bands = s[made.bands]
    bands.set_scope("fragment")
    bands.compute_at(out, block)
    bands.bind(bands.op.axis[0], threads[1])
    bands.unroll(*bands.op.axis[1:])
    image = s[made.image]
    image.set_scope("shared")
    image.compute_at(out, turn)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    image.align_bounds(image.op.axis[-1], d.cut.row_stride)
    if tile.boxed:
        image.tensorize(image.op.axis[-4], tma_load(d.cut.box, d.problem.dtype))
    else:
        _copy_chunks(image, d, threads)
    return s


def _copy_chunks(image: Stage, d: PlaneBandDeclaration, threads: list[IterVar]) -> None:
    """What a tile sees, in chunks as long as rows begin at multiples of, which neighbouring threads
    copy side by side."""
    *_, images_per_mma, channel, row, column = image.op.axis
    column, lane = image.split(column, factor=d.cut.chunk)
    image.tensorize(lane, copy_async(d.cut.chunk, d.problem.dtype))
    image.reorder(images_per_mma, channel, row, column)
    columns = d.cut.row_stride // d.cut.chunk
    bind_all(image, share_rows(image, row, column, columns, extent_of(*threads)), threads)


def _store(
    out: Stage,
    d: PlaneBandDeclaration,
    tile: PlaneBandTile,
    threads: list[IterVar],
) -> tuple[IterVar, IterVar]:
    """Whole rows, in chunks of 16 bytes that neighbouring threads store side by side. Returns the
    loops over blocks and over their tiles."""
    high, wide, channels = tile.size
    n, c, h, w = image_axes(out, d.problem.layout)
    n, image = out.split(n, factor=tile.matrix[0])
    cb, c = out.split(c, factor=channels)
    wb, w = out.split(w, factor=wide)
    hb, row = out.split(h, factor=high)
    out.reorder(n, hb, wb, cb, image, c, row, w)
    tiles, turn = out.split(out.fuse(n, hb, wb), factor=tile.turns)
    out.reorder(tiles, cb, turn)
    block = out.fuse(tiles, cb)
    out.bind(block, te.thread_axis("blockIdx.x"))
    stored = gcd(CHUNK, d.problem.result_image[1])
    w, lane = out.split(w, factor=stored)
    bind_all(out, share_rows(out, row, w, wide // stored, extent_of(*threads)), threads)
    out.vectorize(lane)
    return block, turn


def _share_out(results: Stage, layout: str, tile: PlaneBandTile, threads: list[IterVar]) -> IterVar:
    """The results of a tile among warps, as their sums lie. Returns the loop over channels."""
    image, c, row, w = image_axes(results, layout)
    images_per_mma, strips, groups = tile.matrix
    for axis, extent in ((image, images_per_mma), (row, tile.rows * strips), (w, OUTPUTS * groups)):
        results.align_bounds(axis, extent)
    w, output = results.split(w, factor=OUTPUTS)
    output, low = results.split(output, factor=2)
    across, group = results.split(w, factor=groups)
    h, row = results.split(row, factor=tile.rows)
    down, strip = results.split(h, factor=strips)
    results.reorder(down, across, c, row, image, strip, group, output, low)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(c, threads[1])
    results.unroll(row)
    results.vectorize(low)
    return c


def _multiply(s: Schedule, d: PlaneBandDeclaration, at: tuple[Stage, IterVar]) -> None:
    """Sums, ``at`` a loop of a stage, row by row of what the image has, which is read once."""
    cut, made, kind = d.cut, d.stages, d.problem.dtype
    sums = s[made.sum]
    sums.set_scope("fragment")
    sums.compute_at(*at)
    *_, line, image, strip, group, output = sums.op.axis
    r, part, place, pair, low = sums.op.reduce_axis
    sums.reorder(r, part, line, image, strip, group, output, pair, place, low)
    sums.unroll(r, part, line)
    sums.tensorize(image, _MULTIPLY[kind])

    pixels = s[made.pixels]
    pixels.set_scope("fragment")
    pixels.compute_at(sums, part)
    *_, image, _, _, place, pair, _ = pixels.op.axis
    pixels.tensorize(image, load_pairs(cut.matrix, PLACE[0], READ // 2, kind))
