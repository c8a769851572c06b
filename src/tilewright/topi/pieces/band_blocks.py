"""What blocks of a GPU have of products with banded matrices: filters, and results."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.band_cuts import BLOCK, Bands
from tilewright.topi.pieces.band_tiles import GradientTile, ImageTile
from tilewright.topi.pieces.bands import Products
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, spread

#: Threads of a block that add chunks.
ADDERS = 128


def fill(s: Schedule, made: Products, cut: Bands, threads: Sequence[IterVar]) -> None:
    """Rows of the filter in shared memory, and matrices where images share them, by all threads of
    a block."""
    for tensor, vector in ((made.taps, 1), (made.matrix, 8))[: cut.images]:
        stage = s[tensor]
        *axes, last = stage.op.axis
        vectors, lane = stage.split(last, factor=vector)
        step = bind_all(stage, stage.fuse(*axes, vectors), threads)
        if vector > 1:
            stage.vectorize(lane)
        else:
            stage.unroll(step)  # so that the filter is loaded at once


def store(
    out: Stage, cut: Bands, tile: ImageTile, threads: Sequence[IterVar]
) -> tuple[IterVar, IterVar]:
    """The result among blocks and warps. Returns the loops over a block's channels and over its
    warps."""
    n, c, h, w = out.op.axis
    c, channel = out.split(c, factor=tile.channels)
    many, n = out.split(n, factor=cut.images * tile.teams)
    team, n = out.split(n, nparts=tile.teams)
    down, row = out.split(h, factor=cut.rows)
    turn, group = out.split(down, factor=tile.groups)
    below, turn = out.split(turn, factor=tile.turns)
    across, w = out.split(w, factor=cut.columns)
    block, w = out.split(w, factor=BLOCK if cut.terms else cut.columns)
    vector, lane = out.split(w, factor=gcd(cut.result[1], cut.share))
    out.reorder(many, c, below, across, channel, team, turn, group, n, row, block, vector, lane)
    bind(out, out.fuse(many, c, below, across))
    out.bind(team, threads[0])
    out.bind(group, threads[1])
    out.vectorize(lane)
    return channel, group


def store_chunks(
    s: Schedule, d: Declaration, sums: Tensor, cut: Bands, tile: GradientTile, teams: IterVar
) -> tuple[Tensor, Stage, IterVar]:
    """The gradient by a filter among blocks and warps: as whole tiles of taps of each chunk, which
    a second kernel adds, or of one chunk as it is. Returns the sums of a warp, what it stores, and
    the loop over its warps."""
    if tile.chunks > 1:
        out = s[sums]
        out.set_scope("global")
        sums = s.cache_write(sums, "fragment")
        chunk, c, m, down, h, across, *own, w = out.op.axis
        block, team = out.split(chunk, factor=extent_of(teams))
        first = [block, c, m]
        thread = spread(s[d.output], s[d.output].op.axis, ADDERS)
        if d.sum is not d.output:
            s[d.sum].set_scope("local")
            s[d.sum].compute_at(s[d.output], thread)
    else:
        out = s[d.output]
        c, m, h, w = out.op.axis
        c, team = out.split(out.fuse(c, m), factor=1)
        down, h = out.split(h, factor=cut.rows)
        across, w = out.split(w, factor=cut.columns)
        *own, w = out.split(w, factor=BLOCK) if cut.terms else (w,)
        first = [c]
    vector, lane = out.split(w, factor=gcd(cut.share, 4))
    out.reorder(*first, down, across, team, h, *own, vector, lane)
    bind(out, out.fuse(*first, down, across))
    out.bind(team, teams)
    out.vectorize(lane)
    return sums, out, team
