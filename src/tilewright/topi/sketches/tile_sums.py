"""Sums over images on Hopper, channels last, of which there are few, from tiles in shared memory.

The sums of :mod:`~tilewright.topi.pieces.tile_sums`. A block has some channels and goes through the
tiles of a chunk, which TMA brings to shared memory, zeros around images included, so that no thread
computes addresses or looks at borders. A thread has neighbouring channels of one part of each tile:
it goes down the rows of x and keeps in registers, converted, the rows of dy that see one of them;
or, where the stride leaves rows out, down those of dy, and keeps the rows of x that one of them
sees. What its threads have summed a block adds up in shared memory, in a fixed order, and so does a
second kernel with the chunks, where there are several.
"""

from __future__ import annotations

from math import prod

from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.chunk_sums import add_in_block, chunk_blocks, chunk_stage
from tilewright.topi.pieces.counts import Counts
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile
from tilewright.topi.pieces.tile_sums import as_tile_sums
from tilewright.topi.pieces.tiling import thread_axes
from tilewright.topi.pieces.windows import load_whole
from tilewright.topi.problem import Problem
from tilewright.topi.stages import scheduled


def schedule_tile_sums(d: Declaration, tile: GradientPixelTile = GradientPixelTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a gradient by the filter in NHWC
    whose dilation is 1, one filter a channel."""
    cut, s = GradientTiles(d.problem, tile), scheduled(d.output, d.sum)
    kind = str(d.sum.dtype)
    made = as_tile_sums(s, d, cut)
    s[d.sum].compute_inline()
    chunks = chunk_stage(s, d, made.total, tile.chunks)
    pixels = [s.cache_read(t, "local", [made.own], kind) for t in (made.x, made.dy)]
    threads = thread_axes(*tile.threads)
    block, ky = add_in_block(chunks, tile.channels, threads)
    given, sums = s[made.kept], s[made.own]
    given.compute_at(chunks.stage, ky)
    sums.compute_at(chunks.stage, block)
    step, row, column = sums.op.reduce_axis
    for stage in (given, sums):
        *_, i, down, across, ky, kx, lane, v = stage.op.axis
        over = [step, row, column] if stage is sums else []
        stage.reorder(i, down, across, lane, *over, ky, kx, v)
        for axis, thread in zip((stage.fuse(i, down), across, lane), threads, strict=True):
            stage.bind(axis, thread)
        stage.unroll(*over[1:], ky, kx, v)

    for tensor in pixels:
        s[tensor].compute_at(sums, row)
        load_whole(s[tensor], True)
    # Each row of dy sees as many rows of x as the filter has.
    s[pixels[0 if cut.sees else 1]].rolling_buffer()
    for tensor, shape in ((made.x, cut.x_tile), (made.dy, cut.dy_tile)):
        stage = s[tensor]
        stage.compute_at(sums, step)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        # A box is whole, though of small images less is read.
        own = stage.op.axis[3:]
        for axis, extent in zip(own, shape, strict=True):
            stage.align_bounds(axis, extent)
        stage.tensorize(own[0], tma_load(shape, str(tensor.dtype)))
    return s


def tile_counts(p: Problem, tile: GradientPixelTile) -> Counts:
    """Of :func:`schedule_tile_sums`, of both kernels."""
    cut = GradientTiles(p, tile)
    results, taps = prod(p.result.shape), prod(cut.problem.kernel)
    groups, steps = -(-cut.problem.channels // tile.channels), cut.steps(cut.problem.batch)
    blocks, threads = tile.chunks * groups, prod(tile.threads)
    sums = blocks * threads * taps * tile.vector
    boxes = blocks * steps * (prod(cut.x_tile) + prod(cut.dy_tile))
    whole = tile.chunks == 1
    return Counts(
        blocks + (0 if whole else chunk_blocks(results)), threads,
        sums * steps * tile.rows * tile.columns, boxes + sums,
        results + (0 if whole else blocks * tile.channels * taps),
    )  # fmt: skip
