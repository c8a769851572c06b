"""Depthwise convolution in 16 bits on tensor cores that skip zeros, channels last.

The products of :mod:`~tilewright.topi.nn.depthwise_sparse_diagonal`, in the blocks of
:mod:`~tilewright.topi.gpu.diagonal_blocks`. A warp loads four rows of 8 pixels, as each column of
the filter sees them, from shared memory once for all pairs of output rows that they add to.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    ldmatrix_b_quads_bf16,
    ldmatrix_b_quads_f16,
    mma_diagonal_bf16,
    mma_diagonal_f16,
)
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.diagonal_blocks import (
    DiagonalDeclaration,
    DiagonalTile,
    begin_blocks,
    declare_cut,
)
from tilewright.topi.nn.depthwise_diagonal import CHANNELS
from tilewright.topi.nn.depthwise_sparse_diagonal import (
    PAIR,
    PIXELS,
    SparseDiagonal,
    depthwise_sparse_diagonal,
)
from tilewright.topi.problem import Problem

_INSTRUCTIONS = {
    "float16": (mma_diagonal_f16, ldmatrix_b_quads_f16),
    "bfloat16": (mma_diagonal_bf16, ldmatrix_b_quads_bf16),
}


def declare_sparse(p: Problem, tile: DiagonalTile, batch: Any = None) -> DiagonalDeclaration:
    """The program of a problem, cut as ``tile`` says, its rows even; ``batch`` as in
    :func:`declare`."""
    return declare_cut(sparse_cut(p, tile), depthwise_sparse_diagonal, batch)


def sparse_cut(p: Problem, tile: DiagonalTile) -> SparseDiagonal:
    """How a problem is cut for a tile."""
    return SparseDiagonal(p, tile.rows, tile.whole(PIXELS))


def schedule_sparse(d: Declaration, tile: DiagonalTile = DiagonalTile()) -> Schedule:
    """The schedule of what :func:`declare_sparse` makes of a problem with the same ``tile``."""
    assert isinstance(d, DiagonalDeclaration)
    multiply, load = _INSTRUCTIONS[d.problem.dtype]
    blocks = begin_blocks(d, tile)
    sums, pixels = blocks.sums, blocks.pixels

    n, h, w, c = sums.op.axis
    q, kw, t, half = sums.op.reduce_axis
    c, own = sums.split(c, factor=CHANNELS)
    high, low = sums.split(own, factor=CHANNELS // 2)
    w, pixel = sums.split(w, factor=PIXELS)
    pair, o = sums.split(h, factor=PAIR)
    sums.reorder(n, c, w, q, kw, pair, o, high, low, pixel, t, half)
    for axis in (q, kw, pair):
        sums.unroll(axis)
    sums.tensorize(o, multiply)

    pixels.compute_at(sums, kw)
    n, down, q, w, e, kw, t, c = pixels.op.axis
    w, pixel = pixels.split(w, factor=PIXELS)
    pixels.reorder(n, down, q, w, e, kw, t, pixel, c)
    pixels.tensorize(t, load)
    return blocks.schedule
