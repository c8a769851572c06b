"""Depthwise convolution of bfloat16 on a CPU, channels last, by AVX-512's dot products of pairs.

The stages are those of :mod:`~tilewright.topi.nn.depthwise_pairs`. A task takes one vector of
channels of an image, copies their pixels and taps in pairs, and sums tiles of outputs in registers,
two products at a time. Where a processor has no such instruction this is slow, though not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import dot_bf16, pairs_bf16
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.nn.depthwise_fast_fir import FastFir
from tilewright.topi.nn.depthwise_pairs import LANES, PairStages, depthwise_pairs
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag
from tilewright.topi.stages import scheduled

PairDeclaration = CutDeclaration[FastFir, PairStages]


@dataclass(frozen=True)
class PairTile:
    """``rows`` by ``columns`` sums of a vector of channels are held in registers, ``pairs`` pairs
    of columns of the filter are written out. Rows in the padding are left out one by one where
    ``exact`` is 1, else where none of a tile needs them."""

    rows: int = 4
    columns: int = 4
    pairs: int = 1
    exact: int = flag()


def declare_pairs(p: Conv, tile: PairTile, batch: Any = None) -> PairDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    group = (1 if tile.exact else tile.rows), tile.columns
    cut = FastFir.of(p, (0, 0), group, 2 * tile.pairs)
    return declare_images(
        cut, depthwise_pairs, batch, lambda _, total, n, c, h, w: total[n, h, w, c]
    )


def schedule_pairs(d: PairDeclaration, tile: PairTile = PairTile()) -> Schedule:
    """The schedule of what :func:`declare_pairs` makes of a problem with the same ``tile``."""
    made = d.stages
    kept = (made.image, made.image_pairs, made.filter, made.filter_pairs, made.sum)
    s = scheduled(d.output, *kept)
    out, sums = s[d.output], s[made.sum]
    n, c, (h, w) = Images(d.problem.layout).meaning(out.op.axis)
    h, row = out.split(h, factor=tile.rows)
    w, column = out.split(w, factor=tile.columns)
    c, lane = out.split(c, factor=LANES)
    out.reorder(n, c, w, h, row, column, lane)
    task = out.fuse(n, c)
    out.parallel(task)
    out.unroll(row)
    out.unroll(column)
    out.vectorize(lane)

    sums.set_scope("local")
    sums.compute_at(out, h)
    di, dj, side = sums.op.reduce_axis
    n, *space, c = sums.op.axis
    for axis, whole in zip(space, (tile.rows, tile.columns), strict=True):
        sums.align_bounds(axis, whole)
    sums.align_bounds(c, LANES)
    dj, pair = sums.split(dj, factor=tile.pairs)
    c, lane = sums.split(c, factor=LANES)
    sums.reorder(n, di, dj, pair, *space, c, lane, side)
    sums.unroll(pair, *space)
    sums.tensorize(lane, dot_bf16)

    for tensor in (made.image, made.filter):
        stage = s[tensor]
        stage.compute_at(out, task)
        lane = _lanes(stage, stage.op.axis[-1])
        stage.vectorize(lane)
    for tensor in (made.image_pairs, made.filter_pairs):
        stage = s[tensor]
        stage.compute_at(out, task)
        stage.tensorize(_lanes(stage, stage.op.axis[-2]), pairs_bf16)
    return s


def _lanes(stage: Stage, channels: Any) -> Any:
    """The lanes of whole vectors of the channels of a stage."""
    stage.align_bounds(channels, LANES)
    return stage.split(channels, factor=LANES)[1]
