"""Depthwise convolution in 16 bits on tensor cores, channels last.

The products of :mod:`~tilewright.topi.nn.depthwise_diagonal`, in the blocks of
:mod:`~tilewright.topi.gpu.diagonal_blocks`. A warp loads a row of 16 pixels, as each pair of taps
sees it, from shared memory once for all output rows that it adds to.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    ldmatrix_a_blocks_bf16,
    ldmatrix_a_blocks_f16,
    mma_bf16,
    mma_f16,
)
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.diagonal_blocks import (
    DiagonalDeclaration,
    DiagonalTile,
    begin_blocks,
    declare_cut,
)
from tilewright.topi.nn.depthwise_diagonal import CHANNELS, PIXELS, Diagonal, depthwise_diagonal
from tilewright.topi.problem import Problem

_INSTRUCTIONS = {
    "float16": (mma_f16, ldmatrix_a_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_a_blocks_bf16),
}


def declare_diagonal(p: Problem, tile: DiagonalTile, batch: Any = None) -> DiagonalDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_cut(diagonal_cut(p, tile), depthwise_diagonal, batch)


def diagonal_cut(p: Problem, tile: DiagonalTile) -> Diagonal:
    """How a problem is cut for a tile."""
    return Diagonal(p, tile.rows, tile.whole(PIXELS))


def schedule_diagonal(d: Declaration, tile: DiagonalTile = DiagonalTile()) -> Schedule:
    """The schedule of what :func:`declare_diagonal` makes of a problem with the same ``tile``."""
    assert isinstance(d, DiagonalDeclaration)
    multiply, load = _INSTRUCTIONS[d.problem.dtype]
    blocks = begin_blocks(d, tile)
    results, sums, pixels = blocks.results, blocks.sums, blocks.pixels

    four, lane = results.split(blocks.channel, factor=2)
    results.reorder(blocks.row, blocks.pixel, four, lane)
    results.vectorize(lane)

    n, h, w, c = sums.op.axis
    r, q, tap, ci = sums.op.reduce_axis
    c, cj = sums.split(c, factor=CHANNELS)
    w, pixel = sums.split(w, factor=PIXELS)
    sums.reorder(n, c, w, r, q, h, pixel, cj, tap, ci)
    for axis in (r, q, h):
        sums.unroll(axis)
    sums.tensorize(pixel, multiply)

    pixels.compute_at(sums, q)
    n, row, w, e, q, tap, ci = pixels.op.axis
    w, eight = pixels.split(w, factor=8)
    w, half = pixels.split(w, factor=2)
    pixels.reorder(n, row, w, e, q, half, eight, tap, ci)
    pixels.tensorize(half, load)
    return blocks.schedule
