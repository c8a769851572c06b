"""Sums over windows of an image in registers of a thread, and what they load."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te.operation import Operation
from tilewright.topi.pieces.reads import windows_of
from tilewright.topi.pieces.register_tiles import PlaneTile, RegisterTile
from tilewright.topi.stages import Stages, tap_axes


def form(p: Any, tile: RegisterTile | PlaneTile) -> str:
    """Which declaration of a problem of windows a tile is of: where a number of the filter is
    multiplied more often than there are taps, these are scaled instead of the results."""
    return "scaled" if tile.scaled > math.prod(p.kernel) else "windows"


def sum_windows(st: Stages, rows: int | None = None) -> IterVar:
    """The loops of a sum whose results, and the taps of ``rows`` rows of the filter, are written
    out. Returns the loop over rows, or over parts of ``rows``."""
    sums, d = st.sums, st.declaration
    n, *axes = sums.op.axis
    if d.channels_last:  # phases of strided gradients are outside of their pixels
        axes = [*axes[d.rank : -1], *axes[: d.rank], axes[-1]]
    before, di, dj = tap_axes(sums, d.rank)
    taps, inner = [di], [dj, *axes]
    if rows is not None:
        taps = [*sums.split(di, factor=rows)]
    sums.reorder(n, *before, *taps, *inner)
    sums.unroll(*before, taps[-1], *inner)
    return taps[0]


def load_vectors(loads: Stage, vector: int, first: int = 0) -> None:
    """Loads in vectors along the last dimension, aligned to where ``first`` is."""
    *outer, last = loads.op.axis
    loads.align_bounds(last, vector, first)
    vectors, lane = loads.split(last, factor=vector)
    loads.unroll(*outer, vectors)
    if vector > 1:
        loads.vectorize(lane)


def load_whole(loads: Stage, vectors: bool) -> None:
    """Loads of all that a thread has of the last dimension, as one vector or each by itself."""
    *outer, last = loads.op.axis
    loads.unroll(*outer)
    (loads.vectorize if vectors else loads.unroll)(last)


def keep_row_of_taps(s: Schedule, sums: Stage, reduction: Operation) -> None:
    """Of what windows read, a row of taps for all of a tile is computed once, in registers, where
    windows that overlap would compute and load it for each of their taps."""
    read = windows_of(reduction)
    if read is None:
        return
    *_, row, tap = sums.op.reduce_axis
    kept = s[s.cache_read(read, "local", [sums.op])]
    kept.compute_at(sums, row)
    sums.unroll(tap)
    load_whole(kept, vectors=True)


def extent(tensor: Any) -> int:
    """Of the last dimension."""
    return int(tensor.shape[-1])
