"""Products of 8-bit integers on a CPU, channels last: tiles of pixels by vectors of channels, in
registers, four products at a time (:mod:`~tilewright.topi.nn.byte_dots`).

A task takes rows of results of an image, whose windows it stores as bytes without a sign, and a
part of the channels. For some vectors of channels after the other it computes tile by tile, each
with its epilogue from registers. Where no other task needs the same part of the filter, it is
packed there, and still in a cache when it is read; a constant one is packed ahead of all calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import is_const
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import turned_words, vnni
from tilewright.topi.nn.byte_dots import LANES, DotDeclaration, constant
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: Fours of channels that are packed at once, of 16 filters.
_FOURS = 16
#: Bytes that are stored at once.
_BYTES = 64


@dataclass(frozen=True)
class ByteTile:
    """``rows`` neighbouring pixels by ``vectors`` of 16 channels are summed in registers. A task
    takes ``band`` rows of results, or tiles of pixels where windows are single pixels, and one of
    ``parts`` of the channels."""

    rows: int = 14
    vectors: int = 2
    band: int = 8
    parts: int = 1


def schedule_bytes(d: DotDeclaration, tile: ByteTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.byte_dots.declare_dots`."""
    s = scheduled(d.output, d.sum, d.stored, d.packed, d.above, d.halves)
    out = s[d.output]
    n, c, space = _axes(out, d)
    step = tile.vectors * LANES
    f, lane = out.split(c, factor=step)
    vector, lane = out.split(lane, factor=LANES)
    part, f = out.split(f, nparts=tile.parts)
    if d.flat:
        out.reorder(*n, *space, part, f, vector, lane)
        q = out.fuse(*space) if len(space) > 1 else space[0]
        at, row = out.split(q, factor=tile.rows)
        band, at = out.split(at, factor=tile.band)
        inner = [at]
    else:
        at, row = out.split(space[-1], factor=tile.rows)
        band, first = out.split(space[0], factor=tile.band) if space[:-1] else (at, at)
        inner = [first, *space[1:-1], at] if space[:-1] else []
    alone = extent_of(band) == 1 and is_const(d.stored.shape[0], 1)
    alone = alone and not constant(d.problem)
    task = [*n, band, part]
    out.reorder(*task, f, *inner, row, vector, lane)
    outer = out.fuse(*task)
    out.parallel(outer)
    out.unroll(row, vector)
    out.vectorize(lane)

    sums = s[d.sum]
    sums.set_scope("local")
    sums.compute_at(out, at if inner else f)
    *before, channel = sums.op.axis
    sums.align_bounds(before[-1], tile.rows)
    sums.align_bounds(channel, step)
    vector, lane = sums.split(channel, factor=LANES)
    *reduced, four, k = sums.op.reduce_axis
    sums.reorder(*before[:-1], *reduced, four, before[-1], vector, lane, k)
    sums.unroll(before[-1], vector)
    sums.tensorize(lane, vnni)

    stored = s[d.stored]
    stored.compute_at(out, outer)
    wide = next(w for w in (_BYTES, 32, 16, 8, 4) if extent_of(stored.op.axis[-1]) % w == 0)
    stored.vectorize(stored.split(stored.op.axis[-1], factor=wide)[1])
    _pack(s, d, out, f if alone else None)
    return s


def _axes(out: Stage, d: DotDeclaration) -> tuple[list[IterVar], IterVar, list[IterVar]]:
    """The axes of the result: of the batch, where there is one, of channels, of pixels."""
    if len(d.layout) == 2:
        row, column = out.op.axis
        return [], column, [row]
    n, c, space = Images(d.layout).meaning(out.op.axis)
    return [n], c, space


def _pack(s: Schedule, d: DotDeclaration, out: Stage, at: IterVar | None) -> None:
    """The filter, and what sums are too large by: in a task, or before all of them."""
    packed = s[d.packed]
    v, *taps, four, lane, k = packed.op.axis
    if d.by_words and extent_of(four) % _FOURS == 0:
        four, within = packed.split(four, factor=_FOURS)
        packed.reorder(v, *taps, four, within, lane, k)
        packed.tensorize(within, turned_words)
    for stage in (packed, *([] if d.above is None else [s[d.above]])):
        if at is not None:
            stage.compute_at(out, at)
        else:
            stage.parallel(stage.op.axis[0])
    if d.above is None or d.halves is None:
        return
    above = s[d.above]
    v, lane = above.op.axis
    *reduced, k = above.op.reduce_axis
    above.reorder(v, *reduced, lane, k)
    above.tensorize(lane, vnni)
    s[d.halves].compute_at(above, v)
