"""Depthwise convolution in 16 bits on tensor cores, channels last.

The products of :mod:`~tilewright.topi.nn.depthwise_diagonal`. A block goes down the image tile by
tile; what a tile sees comes to shared memory as one box, by TMA, while the tile before it is
computed. A warp has 16 columns and 8 channels of a tile: it keeps the diagonals of its filters in
registers, and loads a row of pixels, as each pair of taps sees it, from shared memory once for all
output rows that it adds to. Results go through shared memory, so that they are stored in pieces of
16 bytes, one next to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, create_schedule
from tilewright.target.instructions import (
    ldmatrix_a_blocks_bf16,
    ldmatrix_a_blocks_f16,
    mma_bf16,
    mma_f16,
    tma_load,
)
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.depthwise_diagonal import (
    CHANNELS,
    PIXELS,
    Diagonal,
    DiagonalStages,
    depthwise_diagonal,
)
from tilewright.topi.nn.images import Images
from tilewright.topi.problem import Problem
from tilewright.topi.stages import image_axes

_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_a_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_a_blocks_bf16),
}
_LANES = 32


@dataclass(frozen=True)
class DiagonalTile:
    """A warp computes ``rows`` by 16 pixels of 8 channels; a block has ``down`` by ``across`` warps
    on the image for each of ``eights`` times 8 channels, and goes through ``turns`` tiles, one
    below the other, of which ``stages`` are in shared memory."""

    rows: int = 8
    down: int = 1
    across: int = 2
    eights: int = 3
    turns: int = 1
    stages: int = 1

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.eights * CHANNELS

    @property
    def swizzle(self) -> int:
        """By how many bytes pixels in shared memory are swizzled, so that eight neighbours meet no
        bank twice; as many channels as that are odd eights meet none anyway."""
        return 2 * self.channels if self.eights in (2, 4, 8) else 0


@dataclass(frozen=True)
class DiagonalDeclaration(Declaration):
    """A problem as products with diagonals, cut as ``cut`` says."""

    cut: Diagonal
    stages: DiagonalStages


def declare_diagonal(p: Problem, tile: DiagonalTile, batch: Any = None) -> Declaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    cut = cut_of(p, tile)
    made = depthwise_diagonal(cut, image, filter)
    sums = Images(p.layout).compute(
        image.shape[0], p.result_channels, cut.result,
        lambda n, c, at: made.sum[n, at[0], at[1], c], "Sums",
    )  # fmt: skip
    result = finished(p, sums, inputs)
    return DiagonalDeclaration(p, inputs, result, made.sum, made.image, None, cut, made)


def cut_of(p: Problem, tile: DiagonalTile) -> Diagonal:
    """How a problem is cut for a tile."""
    whole = (tile.rows * tile.down * tile.turns, PIXELS * tile.across, tile.channels)
    return Diagonal(p, tile.rows, whole)


def schedule_diagonal(d: Declaration, tile: DiagonalTile = DiagonalTile()) -> Schedule:
    """The schedule of what :func:`declare_diagonal` makes of a problem with the same ``tile``."""
    assert isinstance(d, DiagonalDeclaration)
    multiply, load = _INSTRUCTIONS[d.problem.dtype]
    cut, made = d.cut, d.stages
    s = create_schedule(d.output.op)
    kept = {t.op for t in (made.image, made.pixels, made.diagonals, made.sum, d.output)}
    for stage in s.stages:
        if stage.op not in kept and stage.op.axis:
            stage.compute_inline()
    staged = s.cache_write(d.output, "shared")
    out, results, sums = s[d.output], s[staged], s[made.sum]
    threads = [
        te.thread_axis((0, extent), f"threadIdx.{name}")
        for extent, name in ((tile.down * tile.across, "z"), (tile.eights, "y"), (_LANES, "x"))
    ]

    n, c, h, w = image_axes(out, d.problem.layout)
    cb, c = out.split(c, factor=tile.channels)
    wb, w = out.split(w, factor=PIXELS * tile.across)
    h, row = out.split(h, factor=tile.rows * tile.down)
    hb, turn = out.split(h, factor=tile.turns)
    c, lane = out.split(c, factor=CHANNELS)
    out.reorder(n, hb, wb, cb, turn, row, w, c, lane)
    block = out.fuse(n, hb, wb, cb)
    out.bind(block, te.thread_axis("blockIdx.x"))
    rest, x = out.split(out.fuse(row, w, c), factor=_LANES)
    rest, y = out.split(rest, factor=tile.eights)
    _, z = out.split(rest, factor=tile.down * tile.across)
    for axis, thread in zip((z, y, x), threads, strict=True):
        out.bind(axis, thread)
    out.vectorize(lane)

    results.compute_at(out, turn)
    n, c, h, w = image_axes(results, d.problem.layout)
    results.storage_align(w, 2 * CHANNELS, CHANNELS)  # so that pixels meet no bank twice
    for axis, extent in ((h, tile.rows), (w, PIXELS), (c, CHANNELS)):
        results.align_bounds(axis, extent)
    c, lane = results.split(c, factor=2)
    eight, four = results.split(c, factor=CHANNELS // 2)
    across, pixel = results.split(w, factor=PIXELS)
    down, row = results.split(h, factor=tile.rows)
    results.reorder(n, down, across, eight, row, pixel, four, lane)
    results.bind(results.fuse(down, across), threads[0])
    results.bind(eight, threads[1])
    results.unroll(row)
    results.vectorize(lane)

    sums.set_scope("fragment")
    sums.compute_at(results, eight)
    n, h, w, c = sums.op.axis
    r, q, tap, ci = sums.op.reduce_axis
    for axis, extent in ((h, tile.rows), (w, PIXELS), (c, CHANNELS)):
        sums.align_bounds(axis, extent)
    c, cj = sums.split(c, factor=CHANNELS)
    w, pixel = sums.split(w, factor=PIXELS)
    sums.reorder(n, c, w, r, q, h, pixel, cj, tap, ci)
    for axis in (r, q, h):
        sums.unroll(axis)
    sums.tensorize(pixel, multiply)

    diagonals = s[made.diagonals]
    diagonals.set_scope("fragment")
    diagonals.compute_at(out, block)
    diagonals.bind(diagonals.op.axis[0], threads[1])
    for axis in diagonals.op.axis[1:-2]:
        diagonals.unroll(axis)

    pixels = s[made.pixels]
    pixels.set_scope("fragment")
    pixels.compute_at(sums, q)
    n, row, w, e, q, tap, ci = pixels.op.axis
    w, eight = pixels.split(w, factor=8)
    w, half = pixels.split(w, factor=2)
    pixels.reorder(n, row, w, e, q, half, eight, tap, ci)
    pixels.tensorize(half, load)

    box = s[made.image]
    box.set_scope("shared")
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    if tile.swizzle:
        box.swizzle(tile.swizzle)
    seen = cut.seen(tile.rows * tile.down, PIXELS * tile.across)
    extents = (1, *seen, tile.channels)
    box.tensorize(box.op.axis[0], tma_load(extents, d.problem.dtype, swizzle=tile.swizzle))
    return s
