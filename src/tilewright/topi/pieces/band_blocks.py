"""What blocks of a GPU have of products with banded matrices: filters, and results."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.pieces.band_cuts import BLOCK, Bands
from tilewright.topi.pieces.band_tiles import BandTile
from tilewright.topi.pieces.bands import Products
from tilewright.topi.pieces.tiling import bind, bind_all


def fill(
    s: Schedule, made: Products, cut: Bands, threads: Sequence[IterVar], at: tuple[Stage, IterVar]
) -> None:
    """Rows of the filter in shared memory, and matrices where images share them, by all threads of
    a block, ``at`` a loop of a stage."""
    for tensor, vector in ((made.taps, 1), (made.matrix, 8))[: cut.images]:
        stage = s[tensor]
        stage.compute_at(*at)
        *axes, last = stage.op.axis
        vectors, lane = stage.split(last, factor=vector)
        step = bind_all(stage, stage.fuse(*axes, vectors), threads)
        if vector > 1:
            stage.vectorize(lane)
        else:
            stage.unroll(step)  # so that the filter is loaded at once


def store(
    out: Stage, cut: Bands, tile: BandTile, threads: Sequence[IterVar]
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
