"""The gradient of a depthwise convolution by its filter on a GPU: a reduction in three steps.

Each thread sums tiles of ``rows`` by ``columns`` pixels of dy over ``taps`` rows of the filter, in
registers. The threads that share a sum add up theirs by warp shuffles (channels first) or through
shared memory (channels last), and a block writes one partial sum for each of its taps. A second
kernel adds the ``chunks`` partial sums of a tap in order: the result is the same in every run. Of
one chunk, channels first, blocks write the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.stages import Stages, begin

#: Of the second kernel: taps of a block, and threads that share one.
_TAPS, _ADDERS = 32, 16


@dataclass(frozen=True)
class ReductionTile:
    """A thread goes over tiles of ``rows`` by ``columns`` pixels and sums ``taps`` rows of the
    filter, of ``vector`` channels where they lie side by side. ``lanes`` threads share a sum,
    ``threads`` such groups make a block, and ``chunks`` partial sums of each tap remain."""

    rows: int = 2
    columns: int = 4
    taps: int = 3
    vector: int = 1
    lanes: int = 32
    threads: int = 4
    chunks: int = 8


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


def schedule_reduction_planes(d: Declaration, tile: ReductionTile = ReductionTile()) -> Schedule:
    """The schedule for a gradient by the filter in NCHW or NCW; a group is of one channel."""
    sums = _split(d, tile, tile.chunks == 1)
    stage, p = sums.chunk, d.problem
    c, m, *taps = stage.op.axis[len(sums.outer) :]
    di, dj = taps if p.rank == 2 else stage.split(taps[0], nparts=1)
    to, ti = stage.split(di, factor=min(tile.taps, p.kernel_h))
    stage.reorder(*sums.outer, c, m, to, ti, dj)
    channel, y = stage.split(stage.fuse(c, m), factor=tile.threads)
    stage.reorder(*sums.outer, channel, to, y, ti)
    stage.bind(stage.fuse(*sums.outer, channel, to), te.thread_axis("blockIdx.x"))
    stage.bind(y, te.thread_axis("threadIdx.y"))
    sums.total.bind(sums.lane, te.thread_axis("threadIdx.x"))
    stage.unroll(ti, dj)
    if sums.total is not stage:
        sums.total.compute_at(stage, dj)
    turn = _own_sums(sums, y, "threadIdx.x")
    for read, length in ((d.source, p.width), (d.inputs["grad"], p.out_image[1])):
        loads = _loads(sums, read, turn)
        column = loads.op.axis[-1]
        wide = tile.columns if length % tile.columns == 0 else 1
        loads.align_bounds(column, wide, p.padding[1] if read is d.padded else 0)
        vectors, lane = loads.split(column, factor=wide)
        loads.unroll(*loads.op.axis[:-1], vectors)
        if wide > 1:
            loads.vectorize(lane)
    return _add_up(sums, tile) if sums.outer else sums.stages.schedule


def schedule_reduction_pixels(d: Declaration, tile: ReductionTile = ReductionTile()) -> Schedule:
    """The schedule for a gradient by the filter in NHWC or NWC; a group is of neighbouring
    channels, so that neighbouring threads read neighbouring ones."""
    sums = _split(d, tile)
    stage, p = sums.chunk, d.problem
    chunk, *taps, c = stage.op.axis
    di, dj = taps if p.rank == 2 else stage.split(taps[0], nparts=1)
    to, ti = stage.split(di, factor=min(tile.taps, p.kernel_h))
    c, vector = stage.split(c, factor=tile.vector)
    c, x = stage.split(c, factor=tile.threads)
    stage.reorder(chunk, to, c, x, ti, dj, vector, sums.lane)
    stage.bind(stage.fuse(chunk, to, c), te.thread_axis("blockIdx.x"))
    stage.bind(x, te.thread_axis("threadIdx.x"))
    stage.bind(sums.lane, te.thread_axis("threadIdx.y"))
    stage.unroll(ti, dj, vector)
    turn = _own_sums(sums, x, "threadIdx.y")
    for read, channels in ((d.source, p.channels), (d.inputs["grad"], p.out_channels)):
        loads = _loads(sums, read, turn)
        loads.unroll(*loads.op.axis[:-1])
        if channels % tile.vector == 0 and p.multiplier == 1:
            loads.vectorize(loads.op.axis[-1])
        else:
            loads.unroll(loads.op.axis[-1])
    return _add_up(sums, tile)


def _split(d: Declaration, tile: ReductionTile, whole: bool = False) -> _Sums:
    """The sum as three: in a thread, among the threads of a group, over the chunks; as two where
    one chunk is the ``whole`` of it."""
    st = begin(d)
    s, sums = st.schedule, st.sums
    axes = list(sums.op.reduce_axis)
    if d.problem.rank == 1:
        axes = [axes[0], *sums.split(axes[1], nparts=1)]
    b, oi, oj = axes
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


def _loads(sums: _Sums, read: Tensor, turn: IterVar) -> Stage:
    """The stage that brings what a tile needs of ``read`` into registers."""
    s = sums.stages.schedule
    loads = s[s.cache_read(read, "local", [sums.own])]
    loads.compute_at(s[sums.own], turn)
    return loads


def _add_up(sums: _Sums, tile: ReductionTile) -> Schedule:
    """The second kernel: some threads add the partial sums of a tap, and theirs in order; one
    thread where no sums are shared."""
    out, total = sums.stages.out, sums.stages.sums
    block, x = out.split(out.fuse(*out.op.axis), factor=_TAPS)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(x, te.thread_axis("threadIdx.x"))
    total.compute_at(out, x)
    if tile.lanes > 1:
        _, y = total.split(total.op.reduce_axis[0], factor=_ADDERS)
        total.bind(y, te.thread_axis("threadIdx.y"))
    return sums.stages.schedule
