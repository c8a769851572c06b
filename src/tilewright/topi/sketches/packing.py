"""Windows over packed operands, for devices without shared memory: article 004's spatial packing.

Each work-item sums a tile of neighbouring pixels by vectors of neighbouring channels in registers.
For every vector of the filter that it reads it multiplies all pixels of its tile, of which a row of
taps needs few more. Small kernels pack the image and the filter beforehand
(:mod:`~tilewright.topi.nn.packed_windows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.packed_windows import PackedDeclaration
from tilewright.topi.parameters import flag
from tilewright.topi.pieces.tiling import bind, extent_of, spread
from tilewright.topi.stages import scheduled, space_axes

#: Work-items of a group that packs, or adds parts of sums.
_GROUP = 64


@dataclass(frozen=True)
class PackTile:
    """An item sums ``rows`` by ``columns`` pixels of ``vectors`` vectors of ``lanes`` channels. It
    reads ``depth`` channels of a pixel at once, and the taps of a row are written out with
    ``unroll``. A work-group has ``across`` items along channels and ``along`` of them along pixels.
    With ``kept`` what a step reads is put in registers first, as vectors. ``chunks`` items share
    the channels of a sum, which another kernel adds."""

    rows: int = 1
    columns: int = 4
    vectors: int = 1
    lanes: int = 4
    depth: int = 4
    across: int = 8
    along: int = 4
    unroll: int = flag()
    kept: int = flag()
    chunks: int = 1

    @property
    def channels(self) -> int:
        """Channels of the result in a tile."""
        return self.vectors * self.lanes


def schedule_packing(d: PackedDeclaration, tile: PackTile = PackTile()) -> Schedule:
    """The schedule of the declaration of :mod:`~tilewright.topi.nn.packed_windows`."""
    s = scheduled(d.output, d.sum, d.padded, d.packed)
    total, out = _parts(s, d, tile) if tile.chunks > 1 else (d.sum, s[d.output])
    read, sums = (d.padded, d.packed) if tile.kept else (), s[total]
    copies = [s.cache_read(t, "local", [total]) for t in read]
    sums.set_scope("local")

    item = _items(out, d, tile)
    sums.compute_at(out, item)
    *space, c = sums.op.axis[-1 - d.problem.rank :]
    channels, *taps = sums.op.reduce_axis
    c, lane = sums.split(c, factor=tile.lanes)
    step, channel = sums.split(channels, factor=tile.depth)
    before, inside = (taps[:-1], taps[-1:]) if tile.unroll else (taps, [])
    sums.reorder(step, *before, *inside, channel, *space, c, lane)
    sums.unroll(*inside, channel, *space, c)
    sums.vectorize(lane)
    places = (before[-1] if before else step, tile.depth), (channel, tile.lanes)
    for copy, (at, wide) in zip(copies, places, strict=False):
        s[copy].compute_at(sums, at)
        *others, axis = s[copy].op.axis
        s[copy].unroll(*others)
        _vectors(s[copy], axis, wide)
    _pack_image(s[d.padded], bool(d.problem.channels_last), tile)
    _pack_filter(s[d.packed], tile)
    return s


def _parts(s: Schedule, d: PackedDeclaration, tile: PackTile) -> tuple[Tensor, Stage]:
    """Parts of the sums over shares of the channels: what items sum of them, and the stage that
    stores them. Items of another kernel, whose neighbours have neighbouring channels, add them."""
    out, added = s[d.output], s[d.sum]
    chunk, _ = added.split(added.op.reduce_axis[0], nparts=tile.chunks)
    parts = s.rfactor(d.sum, chunk, 0)
    n, c, *space = space_axes(out, d.problem.layout)
    space[-1], lane = out.split(space[-1], factor=_columns(d, tile.lanes))
    out.reorder(n, *space, c, lane)
    out.vectorize(lane)
    added.set_scope("local")
    added.compute_at(out, spread(out, [n, *space, c], _GROUP))
    added.unroll(*added.op.axis, *added.op.reduce_axis)
    return s.cache_write(parts, "local"), s[parts]


def _columns(d: PackedDeclaration, most: int) -> int:
    """Columns of a vector of results, of at most as many: one where channels are last."""
    return 1 if d.problem.channels_last else gcd(most, Convolved(d.problem).result[-1])


def _items(out: Stage, d: PackedDeclaration, tile: PackTile) -> IterVar:
    """The result, or parts of sums, among work-items; returns the innermost loop over them."""
    last = bool(d.problem.channels_last) or tile.chunks > 1
    if tile.chunks > 1:
        chunk, n, *space, c = out.op.axis
        n = out.fuse(chunk, n)
    else:
        n, c, *space = space_axes(out, d.problem.layout)
    c, inner = out.split(c, factor=tile.channels)
    vector, lane = out.split(inner, factor=tile.lanes)
    within: list[IterVar] = []
    for k, many in zip(range(-1, -1 - len(space), -1), (tile.columns, tile.rows), strict=False):
        space[k], part = out.split(space[k], factor=many)
        within.insert(0, part)
    c, across = out.split(c, factor=tile.across)
    own = [*within, vector, lane] if last else [vector, lane, *within]
    out.reorder(c, n, *space, across, *own)
    rest, along = out.split(out.fuse(n, *space), factor=tile.along)
    bind(out, out.fuse(c, rest), along, across)
    if not last:
        own[-1:] = out.split(own[-1], factor=_columns(d, gcd(tile.columns, tile.lanes)))
    out.vectorize(own.pop())
    out.unroll(*own)
    return across


def _pack_image(padded: Stage, last: bool, tile: PackTile) -> None:
    """A block of channels of a pixel an item; where channels lie apart, neighbours take
    neighbouring pixels."""
    *others, c, column, channel = padded.op.axis
    if last:
        padded.reorder(*others, column, c)
    _vectors(padded, channel, tile.lanes)
    spread(padded, [*others, column, c] if last else [*others, c, column], _GROUP)


def _pack_filter(packed: Stage, tile: PackTile) -> None:
    """A tap of a block of filters an item, whose neighbours are so in memory; all taps where the
    items of a group take turns."""
    g, c, r, *taps, channel = packed.op.axis
    _vectors(packed, channel, tile.lanes)
    spread(packed, [g, c, r, *taps] if tile.kept else [g, c, r], _GROUP)


def _vectors(stage: Stage, axis: IterVar, lanes: int) -> None:
    """All of ``axis``, in vectors of at most ``lanes``."""
    vector, lane = stage.split(axis, factor=gcd(extent_of(axis), lanes))
    stage.unroll(vector)
    stage.vectorize(lane)
