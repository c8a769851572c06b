"""The gradient of a depthwise convolution by its filter in 16 bits on tensor cores, channels first.

The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_bands`. Each warp goes through the tiles of a
chunk of one channel: it loads rows of x and of dy straight into the registers where instructions
want them, moves those of dy by the columns of the filter there, and keeps all sums in registers. In
the end a block adds up what its warps have, in a fixed order, and a second kernel the chunks, where
there are several.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.cut import CutDeclaration, declare_sums
from tilewright.topi.nn.depthwise_wgrad_bands import (
    ROWS,
    Bands,
    BandSums,
    depthwise_wgrad_bands,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.chunk_sums import chunk_stage
from tilewright.topi.stages import scheduled

_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
_LANES = 32


BandDeclaration = CutDeclaration[Bands, BandSums]


@dataclass(frozen=True)
class BandTile:
    """A warp takes ``blocks`` times 8 rows of ``columns`` columns at once, and loads them ``stages
    - 1`` times ahead; a block has ``warps`` of them, and ``chunks`` blocks share the tiles of a
    channel."""

    blocks: int = 2
    columns: int = 32
    warps: int = 8
    stages: int = 1
    chunks: int = 12


def declare_bands(p: Conv, tile: BandTile, batch: Any = None) -> BandDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = Bands(p, tile.blocks, tile.columns, tile.warps, tile.chunks)
    return declare_sums(cut, depthwise_wgrad_bands, batch)


def schedule_bands(d: BandDeclaration, tile: BandTile = BandTile()) -> Schedule:
    """The schedule of what :func:`declare_bands` makes of a problem with the same ``tile``."""
    p, cut, made = d.problem, d.cut, d.stages
    kept = (made.x, made.pairs, *made.dy, made.moved, made.products, made.parts, made.sums)
    s = scheduled(d.output, *kept)
    chunks = chunk_stage(s, d, made.parts)
    fragments = s.cache_write(made.products, "fragment")
    parts, given, products = chunks.stage, s[made.products], s[fragments]
    ty = te.thread_axis((0, cut.warps), "threadIdx.y")
    tx = te.thread_axis((0, _LANES), "threadIdx.x")

    parts.reorder(*chunks.outer, chunks.channel, chunks.row, chunks.column)
    block = parts.fuse(*chunks.outer, chunks.channel)
    parts.bind(block, te.thread_axis("blockIdx.x"))
    taps = parts.fuse(chunks.row, chunks.column)
    _, tap = parts.split(taps, factor=_LANES * cut.warps)
    y, x = parts.split(tap, factor=_LANES)
    parts.bind(y, ty)
    parts.bind(x, tx)
    chunks.keep_at(x)
    own = s[chunks.total]
    own.unroll(own.op.reduce_axis[-1])  # so that shared memory is read at once

    given.set_scope("shared")
    given.compute_at(parts, block)
    given.bind(given.op.axis[2], ty)

    products.compute_at(parts, block)
    chunk, c, warp, kw, down, half, i, j = products.op.axis
    for axis, extent in ((half, 2), (i, ROWS), (j, ROWS)):
        products.align_bounds(axis, extent)  # also where a filter of one row asks for one half
    step, row, column = products.op.reduce_axis
    thread, column = products.split(column, factor=cut.share)
    deep, column = products.split(column, factor=4)
    high, low = products.split(column, factor=2)
    products.reorder(chunk, c, warp, step, row, kw, down, deep, half, i, j, high, thread, low)
    products.bind(warp, ty)
    products.unroll(row, kw, down, deep)
    products.tensorize(half, _INSTRUCTIONS[p.dtype])

    for tensor, at in ((made.pairs, down), (made.moved, kw)):
        stage = s[tensor]
        stage.set_scope("fragment")
        stage.compute_at(products, at)
        stage.unroll(*stage.op.axis[3:])
    # Rows begin at multiples of what vectors divide their widths.
    dy = [(tensor, p.out_image[1], cut.share) for tensor in made.dy]
    for tensor, width, share in ((made.x, p.image[1], cut.share * p.stride[1]), *dy):
        stage = s[tensor]
        stage.set_scope("fragment")
        stage.compute_at(products, step)
        column = stage.op.axis[-1]
        vector, lane = stage.split(column, factor=gcd(width, share, int(tensor.shape[-1]), 8))
        stage.unroll(vector)
        stage.vectorize(lane)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s
