"""Attention on a CPU: the scores of some rows stay in the caches from product to product.

A task takes some rows of one head. It turns the head's keys once, so that vectors lie across keys,
and then for a block of rows multiplies them with all keys, a tile of registers at a time, makes
powers of these scores, and sums values in vectors across a value's elements. Scores of a block are
written and read where the first or the second cache has them; no others are ever stored.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn.attention import AttentionDeclaration
from tilewright.topi.pieces.attention import AttentionTile
from tilewright.topi.pieces.sums import reduce_in_lanes
from tilewright.topi.stages import scheduled


def schedule_attention(d: AttentionDeclaration, tile: AttentionTile) -> Schedule:
    """The schedule of :func:`declare_vectors`."""
    assert d.total is not None
    lanes = tile.lanes
    narrow = (d.q, d.v) if d.problem.dtype != d.problem.accumulate else ()
    s = scheduled(d.output, *narrow, d.k, d.scores, d.masked, d.largest, d.powers, d.total, d.share,
                  d.weighted)  # fmt: skip
    out, turned, masked = s[d.output], s[d.k], s[d.masked]
    turned.transform_layout(lambda b, h, j, e: (b, h, e, j))

    axes = list(out.op.axis)
    b, h, i, e = axes if d.problem.layout == "BHSD" else (axes[0], axes[2], axes[1], axes[3])
    block, row = out.split(i, factor=tile.block)
    part, block = out.split(block, nparts=tile.parts)
    row, own = out.split(row, factor=tile.rows)
    panel, e = out.split(e, factor=tile.across * lanes)
    vector, lane = out.split(e, factor=lanes)
    out.reorder(b, h, part, block, row, panel, own, vector, lane)
    task = out.fuse(b, h, part)
    out.parallel(task)
    out.unroll(own, vector)
    out.vectorize(lane)

    turned.compute_at(out, task)
    *_, depth, key = turned.op.axis
    key, lane = turned.split(key, factor=lanes)
    turned.reorder(key, depth, lane)  # lines of the caches are read as long as they are there
    turned.vectorize(lane)

    for tensor, at in zip(narrow, (block, task), strict=False):  # converted once
        s[tensor].compute_at(out, at)
        _vectors(s[tensor], s[tensor].op.axis[-1], lanes)

    masked.compute_at(out, block)
    b, h, i, j = masked.op.axis
    i, own = masked.split(i, factor=tile.rows)
    j, vector = masked.split(j, factor=tile.vectors * lanes)
    vector, lane = masked.split(vector, factor=lanes)
    masked.reorder(b, h, j, i, own, vector, lane)
    masked.unroll(own, vector)
    masked.vectorize(lane)
    _multiply(s[d.scores], masked, i, lanes)

    powers = s[d.powers]
    powers.compute_at(out, block)
    s[d.share].compute_at(out, block)
    _vectors(powers, powers.op.axis[-1], lanes)
    for tensor in (d.largest, d.total):
        stage = s[tensor]
        stage.compute_at(out, block)
        (axis,), row = stage.op.reduce_axis, stage.op.axis[-1]
        reduce_in_lanes(s, tensor, axis, lanes, stage, row)
    _multiply(s[d.weighted], out, panel, lanes)
    return s


def _multiply(sums: Stage, reader: Stage, at: IterVar, lanes: int) -> None:
    """Sums of a tile in registers, with vectors along their last axis."""
    sums.set_scope("local")
    sums.compute_at(reader, at)
    b, h, row, column = sums.op.axis
    vector, lane = sums.split(column, factor=lanes)
    sums.reorder(b, h, *sums.op.reduce_axis, row, vector, lane)
    sums.unroll(row, vector)
    sums.vectorize(lane)


def _vectors(stage: Stage, axis: IterVar, lanes: int) -> None:
    _, lane = stage.split(axis, factor=lanes)
    stage.vectorize(lane)
