"""Products of matrices on a CPU whose sums stay in registers: vectors of one factor times single
numbers of the other, a tile at a time."""

from __future__ import annotations

from typing import Protocol

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.pieces.tiling import extent_of

#: Taps whose products are written out.
_WRITTEN = 9


class VectorTile(Protocol):
    """Tiles of ``rows`` single numbers by ``vectors`` vectors of ``lanes``."""

    @property
    def rows(self) -> int: ...
    @property
    def vectors(self) -> int: ...
    @property
    def lanes(self) -> int: ...


def store_tiles(sums: Stage, across: bool, tile: VectorTile, step: int, phases: int = 1) -> IterVar:
    """Sums of ``step`` channels, tile by tile; returns the loop over tiles. Vectors lie along the
    last axis: ``across`` channels, or along pixels. With ``phases`` of channels they are all that
    there are, those of one phase after the other, written out."""
    n, g, *axes = sums.op.axis
    q, f = axes if across else reversed(axes)
    outer: list[IterVar] = []
    if phases > 1:
        phase, f = sums.split(f, nparts=phases)
        other, f = sums.split(f, factor=step)
        outer = [phase, other]
        sums.unroll(phase)
    else:
        sums.align_bounds(f, step)
    if across:
        q, row = sums.split(q, factor=tile.rows)
        vector, lane = sums.split(f, factor=tile.lanes)
    else:
        row = f
        q, vector = sums.split(q, factor=tile.vectors * tile.lanes)
        vector, lane = sums.split(vector, factor=tile.lanes)
    sums.reorder(n, g, *outer, q, row, vector, lane)
    sums.unroll(row, vector)
    sums.vectorize(lane)
    return q


def multiply(acc: Stage, taps_last: bool, lanes: int) -> IterVar:
    """The products of a tile, which stays in registers; innermost are taps, written out, or
    channels. Returns the loop around the tile."""
    n, g, row, vector, *others = acc.op.axis
    vector, lane = acc.split(vector, factor=lanes)
    reduced = list(acc.op.reduce_axis)
    around = reduced[-1]
    acc.reorder(n, g, *others, *reduced, row, vector, lane)
    acc.unroll(row, vector)
    acc.vectorize(lane)
    written = 1
    for axis in reversed(reduced[1:] if taps_last else []):
        written *= extent_of(axis)
        if written <= _WRITTEN:
            acc.unroll(axis)
    return around
