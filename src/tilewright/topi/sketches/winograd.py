"""Winograd's minimal filtering on a CPU, fused: a block of tiles stays in the second-level cache.

A task transforms some tiles of the image, all channels of them. Then, some filters at a time, it
multiplies the matrices of all points in registers, as
:mod:`~tilewright.topi.sketches.flat_windows` does with vectors across channels, and transforms the
sums into results. What is transformed is written out, in vectors of channels, along one dimension
after the other. The filter is transformed ahead of the tasks, once where it is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn.winograd import WinogradDeclaration
from tilewright.topi.pieces.vector_products import multiply, store_tiles
from tilewright.topi.stages import scheduled, space_axes


@dataclass(frozen=True)
class WinogradTile:
    """Tiles of ``results`` by ``results``, 2 or 4, of which a task takes ``tiles`` neighbours, and
    of the filters one of ``parts``. Products are summed in registers, of ``rows`` tiles of the
    image and ``vectors`` vectors of ``lanes`` filters."""

    results: int = 4
    rows: int = 7
    vectors: int = 2
    lanes: int = 16
    tiles: int = 28
    parts: int = 1

    @property
    def channels(self) -> int:
        """Channels of the result in a tile of registers."""
        return self.vectors * self.lanes


def form(p: object, tile: WinogradTile) -> str:
    """The declaration of a tile."""
    return f"winograd{tile.results}"


def schedule_winograd(d: WinogradDeclaration, tile: WinogradTile) -> Schedule:
    """The schedule of a declaration with as many results in a tile."""
    last = bool(d.problem.channels_last)
    image, filters = (d.turned, d.pixels, d.image_rows, d.image), (d.taps, d.filter_rows, d.filter)
    results = (d.sum, d.sum_rows, None if last else d.result)
    s = scheduled(d.output, *image, *filters, *results)
    acc = s.cache_write(d.sum, "local")
    out, sums, lanes = s[d.output], s[d.sum], tile.lanes

    n, c, h, w = space_axes(out, d.problem.layout)
    h, row = out.split(h, factor=d.results)
    w, column = out.split(w, factor=d.results)
    c, f = out.split(c, factor=tile.channels)
    part, c = out.split(c, nparts=tile.parts)
    out.reorder(n, h, w, part, c, f, row, column)
    at = out.fuse(n, h, w)
    block, at = out.split(at, factor=tile.tiles)
    out.reorder(part, block, c, at)  # what a thread reads of the filter stays in its cache
    task = out.fuse(part, block)
    out.parallel(task)
    if last:
        vector, lane = out.split(f, factor=lanes)
        out.reorder(vector, row, column, lane)
        out.unroll(row, column)
        out.vectorize(lane)
        s[d.sum_rows].compute_at(out, vector)
    else:
        s[d.result].compute_at(out, c)
        s[d.sum_rows].compute_at(s[d.result], _transform(s[d.result], 1, lanes))
    _transform(s[d.sum_rows], 1, lanes, "local")

    sums.compute_at(out, c)
    s[acc].compute_at(sums, store_tiles(sums, True, tile, tile.channels))
    multiply(s[acc], False, lanes)

    s[d.image].compute_at(out, task)
    vector = _transform(s[d.image], 0, lanes)
    s[d.pixels].compute_at(s[d.image], vector)
    _transform(s[d.pixels], 1, lanes, "local")
    s[d.image_rows].compute_at(s[d.image], vector)
    _transform(s[d.image_rows], 1, lanes, "local")
    if d.turned is not None:
        turned = s[d.turned]
        *_, row, column, channel = turned.op.axis
        channel, line = turned.split(channel, factor=lanes)
        turned.reorder(channel, column, line)
        turned.parallel(turned.fuse(turned.op.axis[0], row))

    filter, taps = s[d.filter], s[d.taps]
    s[d.filter_rows].compute_at(filter, _transform(filter, 1, lanes, by_row=True))
    _transform(s[d.filter_rows], 2, lanes, by_row=True)
    filter.parallel(filter.op.axis[0])
    taps.compute_at(filter, filter.op.axis[0])
    f, row, column, c, g = taps.op.axis
    if last:  # turned a line of the caches at a time
        c, line = taps.split(c, factor=lanes)
        taps.reorder(f, row, column, c, g, line)
    else:
        taps.reorder(f, g, c, row, column)
    return s


def _transform(
    stage: Stage, first: int, lanes: int, scope: str = "", by_row: bool = False
) -> IterVar:
    """A stage of which the axes ``first`` and the next are those of a transform: written out in
    vectors of the last axis. Returns the loop over vectors, or where rows of the transform are
    computed one after the other, so that few streams are written at a time, that over rows."""
    *axes, channel = stage.op.axis
    if scope:
        stage.set_scope(scope)
    stage.align_bounds(channel, lanes)
    vector, lane = stage.split(channel, factor=lanes)
    row, column = axes[first : first + 2]
    outer, *others = [a for a in axes if a not in (row, column)]
    if by_row:
        stage.reorder(outer, row, *others, vector, column, lane)
    else:
        stage.reorder(outer, *others, vector, row, column, lane)
    stage.unroll(row, column)
    stage.vectorize(lane)
    return row if by_row else vector
