"""Sums over windows on a GPU, in registers: nothing but a filter is in shared memory.

Each thread computes a tile of neighbouring pixels; of images of three dimensions, of one plane, for
which it sums over those that windows see. With columns last in memory it reads the rows that it
needs as aligned vectors straight into registers; neighbours read the same sectors again, from the
first-level cache. With channels last it has a vector of neighbouring ones, and its neighbour the
next, so that every access is of whole lines; the filter of a block's channels is brought into
shared memory once. A row of the input that a thread loaded serves all outputs whose windows hold
it.

A gradient with strides is of phases, each with taps of its own; they are interleaved as results are
stored. A tile is summed tap by tap, or one row of outputs after another, from the top down
(:mod:`~tilewright.topi.pieces.loop_order`). A row of the input is then forgotten after the last
output that needs it, so that long strips of large filters fit into registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.counts import Counts, declared, elements, image_extents
from tilewright.topi.pieces.loop_order import place_loads, rolls
from tilewright.topi.pieces.register_tiles import RegisterTile
from tilewright.topi.pieces.shared_filter import share_filter
from tilewright.topi.pieces.tiling import bind, extent_of
from tilewright.topi.pieces.windows import extent, load_vectors, load_whole, sum_windows
from tilewright.topi.problem import Problem
from tilewright.topi.stages import Stages, begin, plane_axes


@dataclass(frozen=True)
class _Nest:
    """The result's loops: over blocks, over the last of their threads, over rows of a thread."""

    block: IterVar
    thread: IterVar
    row: IterVar


def schedule_registers(d: Declaration, tile: RegisterTile) -> Schedule:
    """The schedule of sums over windows; the tile is one for what lies last in memory."""
    st = begin(d)
    s, sums = st.schedule, st.sums
    # What is kept is converted once; bytes are, too, which cost as much in registers one by one.
    once = rolls(tile.by_row) or d.source.dtype.endswith("int8")
    kind = str(st.sum.dtype) if once else None
    data = s.cache_read(d.source, "local", [st.sum], kind)
    if st.padded is not None:
        st.padded.compute_inline()
    nest = _tile(st, tile)
    sums.compute_at(st.out, nest.row if tile.by_row else nest.thread)
    high = d.window[-2]
    taps = high if tile.by_row else min(tile.taps, high)
    rows = sum_windows(st, taps)

    loads, vector = s[data], tile.own[-1]
    place_loads(loads, tile.by_row, st.out, nest.row, nest.thread, sums, rows)
    if not d.channels_last:
        load_vectors(loads, 1 if extent(d.image) % vector else vector, d.first_column)
        return s
    load_whole(loads, extent(d.image) == extent(d.output) and extent(d.output) % vector == 0)
    filter, kept = share_filter(st, tile.threads, kind, bool(tile.keeps))
    if taps < -(-high // d.phases[-2]):
        filter.compute_at(sums, rows)  # of large filters some rows at a time
    else:
        filter.compute_at(st.out, nest.block)
    if kept is not None:
        kept.compute_at(st.out, nest.thread)
    return s


def register_counts(p: Problem, tile: RegisterTile) -> Counts:
    """Of :func:`schedule_registers`. Taps that a phase lacks count as computed; filters that a
    result sums over count as copied once, where parts of their rows are copied with each."""
    d = declared(p, "windows")
    n, *extents = image_extents(d)
    together = _together(d)
    units = [-(-e // k) for e, k in zip(extents, together, strict=True)]
    own = [min(k, u) for k, u in zip(tile.own, units, strict=True)]
    tiles = [-(-u // k) for u, k in zip(units, tile.own, strict=True)]
    if not d.channels_last:
        n, tiles[0] = 1, n * tiles[0]
    *grid, last = (-(-many // k) for many, k in zip(tiles, tile.threads, strict=True))
    blocks, threads = n * math.prod(grid) * last, math.prod(tile.threads)
    multiplies = blocks * threads * math.prod((*own, *together)) * extent_of(*d.sum.op.reduce_axis)
    copied = n * math.prod(grid) * elements(d.weights) if d.channels_last else 0
    return Counts(blocks, threads, multiplies, copied, elements(d.output))


def _together(d: Declaration) -> tuple[int, int, int]:
    """Along the last three dimensions, results that are computed from the same part of the
    image: a thread has all of them."""
    down, across = d.phases[-2:]
    return (down, across, 1) if d.channels_last else (d.filters, down, across)


def _tile(st: Stages, tile: RegisterTile) -> _Nest:
    """The result among blocks, threads, and what a thread has of it."""
    d, out = st.declaration, st.out
    n, c, h, w = plane_axes(out, d.layout)
    at, grid = (0, [h, w, c]) if d.channels_last else (1, [c, h, w])
    own, threads = list(grid), list(grid)
    whole = [k * together for k, together in zip(tile.own, _together(d), strict=True)]

    def share(k: int) -> None:
        grid[k], threads[k] = out.split(grid[k], factor=tile.threads[k])

    for k in (2, 1, 0) if d.channels_last else (0, 2, 1):
        grid[k], own[k] = out.split(grid[k], factor=whole[k])
        if d.channels_last:
            share(k)
    *before, last = own
    row, phase = out.split(before[at], factor=d.phases[-2])
    inner, first = [row, *before[:at], phase, *before[at + 1 :]], [n]
    out.reorder(n, *grid, *(threads if d.channels_last else ()), *inner, last)
    if not d.channels_last:  # channels of all images are alike
        first, grid[0] = [], out.fuse(n, grid[0])
        for k in (1, 2, 0):
            share(k)
        out.reorder(*grid, *threads)
    block = bind(out, out.fuse(*first, *grid), *threads)
    out.unroll(*inner)
    (out.unroll if extent(d.output) % whole[-1] else out.vectorize)(last)
    return _Nest(block, threads[-1], row)
