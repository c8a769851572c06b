"""Sums over images on a GPU, of which there are few: a reduction in three steps.

Each thread sums tiles of pixels of two images over some rows of the result, in registers. The
threads that share a sum add up theirs by warp shuffles (columns last in memory) or through shared
memory (channels last), and a block writes one partial sum for each of its results. A second kernel
adds the partial sums of a result in order, so that it is the same in every run. With columns last,
blocks of one chunk write the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.chunk_sums import add_chunks, chunk_blocks
from tilewright.topi.pieces.counts import Counts, declared, elements
from tilewright.topi.pieces.reduction_tiles import ReductionTile
from tilewright.topi.pieces.tiling import bind, extent_of
from tilewright.topi.pieces.windows import extent, load_vectors, load_whole
from tilewright.topi.problem import Problem
from tilewright.topi.stages import Stages, begin


@dataclass(frozen=True)
class _Sums:
    """The sums ``total`` of a chunk, over ``lane``, of what each thread has in ``own``: parts of
    ``chunk``, which blocks make, or it itself, of whose axes those before a tap's are ``outer``."""

    stages: Stages
    chunk: Stage
    outer: tuple[IterVar, ...]
    total: Stage
    lane: IterVar
    own: Tensor


def schedule_reductions(d: Declaration, tile: ReductionTile = ReductionTile()) -> Schedule:
    """The schedule of sums over all pixels. A group of threads is of one channel; with channels
    last of a vector of them, and neighbouring threads are of neighbouring ones."""
    last = d.channels_last
    sums = _split(d, tile, tile.chunks == 1 and not last)
    s, stage, outer = sums.stages.schedule, sums.chunk, sums.outer
    axes = list(stage.op.axis[len(outer) :])
    taps, channels = (axes[:-1], axes[-1:]) if last else (axes[2:], axes[:2])
    *rows, dj = taps if d.rank > 1 else stage.split(taps[0], nparts=1)
    to, ti = stage.split(stage.fuse(*rows), factor=min(tile.taps, _rows(d)))
    if last:
        c, vector = stage.split(channels[0], factor=tile.vector)
        inner = [ti, dj, vector]
    else:
        stage.reorder(*outer, *channels, to, ti, dj)
        c, inner = stage.fuse(*channels), [ti, dj]
    c, group = stage.split(c, factor=tile.threads)
    blocks = [to, c] if last else [c, to]
    stage.reorder(*outer, *blocks, group, *inner)
    group_tag, lane_tag = ("threadIdx.x", "threadIdx.y")[:: 1 if last else -1]
    bind(stage, stage.fuse(*outer, *blocks))
    stage.bind(group, te.thread_axis(group_tag))
    sums.total.bind(sums.lane, te.thread_axis(lane_tag))
    stage.unroll(*inner)
    if sums.total is not stage:
        sums.total.compute_at(stage, dj)
    turn = _own_sums(sums, group, lane_tag)

    alike = extent(d.image) == extent(d.weights)  # of channels, where these are last
    for read in (d.source, d.weights):
        loads = s[s.cache_read(read, "local", [sums.own])]
        loads.compute_at(s[sums.own], turn)
        width = extent(d.weights if read is d.weights else d.image)
        if last:
            load_whole(loads, width % tile.vector == 0 and alike)
        else:
            wide = tile.columns if width % tile.columns == 0 else 1
            load_vectors(loads, wide, d.first_column if read is d.source else 0)
    if outer:
        add_chunks(sums.stages.out, sums.stages.sums, shared=tile.lanes > 1)
    return s


def _split(d: Declaration, tile: ReductionTile, whole: bool) -> _Sums:
    """The sum as three: in a thread, among the threads of a group, over the chunks; as two where
    one chunk is the ``whole`` of it."""
    st = begin(d)
    s, sums = st.schedule, st.sums
    b, *space = sums.op.reduce_axis
    *planes, oi, oj = space if d.rank > 1 else sums.split(space[0], nparts=1)
    b = sums.fuse(b, *planes)
    oi, row = sums.split(oi, factor=tile.rows)
    oj, column = sums.split(oj, factor=tile.columns)
    sums.reorder(b, oi, oj, row, column)
    turns, lane = sums.split(sums.fuse(b, oi, oj), factor=tile.lanes)
    total = st.sum
    if not whole:
        chunk, _ = sums.split(turns, nparts=tile.chunks)
        total = s.rfactor(st.sum, chunk, 0)
        lane = [a for a in s[total].leaf_iter_vars if a.kind == "reduce"][1]
    own = s.rfactor(total, lane, 0)
    if st.padded is not None:
        st.padded.compute_inline()
    stage = st.out if whole else s[total]
    outer = () if whole else (stage.op.axis[0],)
    return _Sums(st, stage, outer, s[total], s[total].op.reduce_axis[0], own)


def _rows(d: Declaration) -> int:
    """Rows of the filter, of all of its planes."""
    return math.prod(d.window[:-1])


def _own_sums(sums: _Sums, at: IterVar, tag: str) -> IterVar:
    """Schedule the sums of a thread; returns the loop over its tiles."""
    own = sums.stages.schedule[sums.own]
    own.set_scope("local")
    own.compute_at(sums.chunk, at)
    turn, row, column = (a for a in own.leaf_iter_vars if a.kind == "reduce")
    thread, *data = own.op.axis
    own.reorder(thread, turn, row, column, *data)
    own.bind(thread, te.thread_axis(tag))
    own.unroll(row, column, *data)
    return turn


def reduction_counts(p: Problem, tile: ReductionTile) -> Counts:
    """Of :func:`schedule_reductions`, of both kernels."""
    d = declared(p, "windows")
    extents = [extent_of(a) for a in d.sum.op.reduce_axis]
    *images, high, wide = extents if d.rank > 1 else (extents[0], 1, extents[1])
    tiles = math.prod(images) * -(-high // tile.rows) * -(-wide // tile.columns)
    turns = -(-tiles // (tile.lanes * tile.chunks))
    taps, results = min(tile.taps, _rows(d)), elements(d.output)
    vector = tile.vector if d.channels_last else 1
    channels = -(-results // math.prod(d.window) // vector)
    blocks = tile.chunks * -(-channels // tile.threads) * -(-_rows(d) // taps)
    threads = tile.threads * tile.lanes
    own = min(tile.rows, high) * min(tile.columns, wide) * taps * d.window[-1] * vector
    whole = tile.chunks == 1 and not d.channels_last
    return Counts(
        blocks + (0 if whole else chunk_blocks(results)), threads, blocks * threads * turns * own,
        0, results * (1 if whole else tile.chunks + 1),
    )  # fmt: skip
