"""The gradient of a depthwise convolution by its filter in 16 bits on tensor cores, channels last.

The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_diagonal`. A block has some channels and goes
through the tiles of a chunk, which the copying unit brings to shared memory. A warp has eight
channels of one part of each tile and keeps the sums of all taps in registers: it loads rows of dy,
then one row of x after the other, each of which it multiplies with all rows of dy that see it. In
the end a block adds up what its warps have, in a fixed order, and a second kernel the chunks, where
there are several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    ldmatrix_a_trans_blocks_bf16,
    ldmatrix_a_trans_blocks_f16,
    ldmatrix_b_trans_blocks_bf16,
    ldmatrix_b_trans_blocks_f16,
    mma_bf16,
    mma_f16,
    tma_load,
)
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.gpu.chunk_sums import add_in_block, chunk_stage
from tilewright.topi.nn.depthwise_wgrad_diagonal import (
    CHANNELS,
    PIXELS,
    TAPS,
    DiagonalGradient,
    DiagonalSums,
    depthwise_wgrad_diagonal,
)
from tilewright.topi.problem import Problem
from tilewright.topi.stages import scheduled

#: The product, and the loads of x and dy.
_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_a_trans_blocks_f16, ldmatrix_b_trans_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_a_trans_blocks_bf16, ldmatrix_b_trans_blocks_bf16),
}
_LANES = 32


@dataclass(frozen=True)
class DiagonalGradientTile:
    """A warp sums over ``rows`` by 16 pixels of dy of 8 channels. A block has ``down`` by
    ``across`` such warps for each of ``eights`` times 8 channels, and tiles in ``stages`` copies.
    ``chunks`` blocks share the tiles of a group of channels."""

    rows: int = 8
    down: int = 1
    across: int = 2
    eights: int = 3
    stages: int = 2
    chunks: int = 32

    @property
    def swizzle(self) -> int:
        """By how many bytes pixels in shared memory are swizzled; see :func:`swizzle_of`."""
        return swizzle_of(self.eights)


@dataclass(frozen=True)
class DiagonalGradientDeclaration(Declaration):
    """A gradient by the filter from diagonals of products, cut as ``cut`` says."""

    cut: DiagonalGradient
    stages: DiagonalSums


def declare_diagonal_gradient(
    p: Problem, tile: DiagonalGradientTile, batch: Any = None
) -> DiagonalGradientDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    cut = gradient_cut(p, tile)
    made = depthwise_wgrad_diagonal(cut, inputs["data"], inputs["grad"])
    result = finished(p, made.sums, inputs)
    return DiagonalGradientDeclaration(p, inputs, result, made.sums, None, None, cut, made)


def gradient_cut(p: Problem, tile: DiagonalGradientTile) -> DiagonalGradient:
    """How ``tile`` cuts a problem."""
    return DiagonalGradient(p, tile.rows, tile.down, tile.across, tile.eights, tile.chunks)


def schedule_diagonal_gradient(
    d: Declaration, tile: DiagonalGradientTile = DiagonalGradientTile()
) -> Schedule:
    """The schedule of what :func:`declare_diagonal_gradient` makes with the same ``tile``."""
    assert isinstance(d, DiagonalGradientDeclaration)
    cut, made, kind = d.cut, d.stages, d.problem.dtype
    multiply, load_x, load_dy = _INSTRUCTIONS[kind]
    s = scheduled(d.output, made.x, made.dy, made.pixels, made.products, made.parts, made.sums)
    chunks = chunk_stage(s, d, made.parts)
    fragments = s.cache_write(made.products, "fragment")
    back = s.cache_read(made.dy, "fragment", [fragments])
    warps = tile.across * tile.eights
    tz, ty, tx = (
        te.thread_axis((0, extent), f"threadIdx.{name}")
        for extent, name in ((tile.down, "z"), (warps, "y"), (_LANES, "x"))
    )

    parts = chunks.stage
    threads = ((tz, tile.down), (ty, warps), (tx, _LANES))
    block, ky = add_in_block(chunks, cut.channels, threads)
    given = s[made.products]
    given.set_scope("shared")
    given.compute_at(parts, ky)

    sums = s[fragments]
    sums.compute_at(parts, block)
    step, r, w = sums.op.reduce_axis
    for stage in (given, sums):
        chunk, e, down, across, ky, q, tap, ci, cj = stage.op.axis
        stage.reorder(chunk, down, across, e, ky, q, tap, ci, cj)
        stage.bind(down, tz)
        stage.bind(stage.fuse(across, e), ty)
        if stage is sums:
            sums.align_bounds(tap, TAPS)  # both, also where a row of the filter has only one
            sums.reorder(step, r, q, ky, tap, ci, cj, w)
            for axis in (r, q, ky):
                sums.unroll(axis)
            sums.tensorize(tap, multiply)
        else:
            for axis in (q, tap):
                given.unroll(axis)

    seen = s[made.pixels]
    seen.set_scope("fragment")
    seen.compute_at(sums, q)
    tile_axis, row, w, e, q, tap, ci = seen.op.axis
    w, eight = seen.split(w, factor=8)
    w, half = seen.split(w, factor=2)
    seen.reorder(tile_axis, row, w, e, q, tap, ci, half, eight)
    seen.tensorize(tap, load_x)

    met = s[back]
    met.compute_at(sums, step)
    tile_axis, image, row, w, c = met.op.axis
    met.align_bounds(row, tile.rows)
    met.align_bounds(w, PIXELS)
    met.align_bounds(c, CHANNELS)
    row, other = met.split(row, factor=2)
    w, eight = met.split(w, factor=8)
    w, half = met.split(w, factor=2)
    e, c = met.split(c, factor=CHANNELS)
    met.reorder(tile_axis, image, e, w, row, other, c, half, eight)
    met.unroll(row)
    met.tensorize(other, load_dy)

    for tensor, size in ((made.x, cut.x_part), (made.dy, cut.dy_part)):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(sums, step)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        if tile.swizzle:
            stage.swizzle(tile.swizzle)
        box = tma_load((1, *size, cut.channels), kind, swizzle=tile.swizzle)
        stage.tensorize(stage.op.axis[1], box)
    return s


def swizzle_of(eights: int) -> int:
    """By how many bytes pixels of so many eights of channels are swizzled, so that eight neighbours
    meet no bank twice; those of odd eights meet none anyway."""
    return 2 * CHANNELS * eights if eights in (2, 4, 8) else 0
