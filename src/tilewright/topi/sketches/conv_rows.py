"""A depthwise convolution whose pixels are normalised over their channels, in one kernel.

A group of threads has some pixels of a row of an image, all of their channels: neighbouring threads
have neighbouring vectors of channels, which they sum over windows in registers. What a row of taps
reads for all of a thread's pixels is loaded once. Results stay in registers for all reductions of
their pixel, as rows of :mod:`~tilewright.topi.sketches.rows` do. The filter is read where its taps
lie next to one another, as it is prepared.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn.conv_programs import ConvRows
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tiling import thread_axes
from tilewright.topi.stages import scheduled, tap_axes


@dataclass(frozen=True)
class ConvRowTile:
    """``lanes`` threads have ``columns`` pixels of a row, ``vector`` neighbouring channels each at
    a time; a block has ``groups`` of them."""

    columns: int = 2
    groups: int = 1
    lanes: int = 32
    vector: int = 4


def schedule_conv_rows(d: ConvRows, t: ConvRowTile = ConvRowTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.conv_programs.declare_rows`."""
    assert d.packed is not None
    s = scheduled(d.output, d.sum, d.packed, d.results, *d.totals)
    copy(s, (d.packed,))
    out, results, sums = s[d.output], s[d.results], s[d.sum]
    data, filter = (s.cache_read(t, "local", [d.sum]) for t in (d.source, d.packed))
    y, x = thread_axes(t.groups, t.lanes)
    n, h, w, c = out.op.axis
    w, pixel = out.split(w, factor=t.columns)
    thread, turn, lane = _share(out, c, x, t)
    block, group = out.split(out.fuse(n, h, w), factor=t.groups)
    out.reorder(block, group, thread, pixel, turn, lane)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(group, y)
    out.unroll(pixel)
    out.vectorize(lane)
    for tensor in d.totals:
        total = s[tensor]
        total.set_scope("local")
        total.compute_at(out, group)
        _, turn, lane = _share(total, total.op.reduce_axis[0], x, t)
        total.unroll(turn, lane)

    step = t.vector * t.lanes
    results.set_scope("local")
    *_, turn, thread, lane = results.transform_layout(
        lambda *i: (*i[:-1], i[-1] // step, i[-1] // t.vector % t.lanes, i[-1] % t.vector)
    )
    results.compute_at(out, group)
    results.reorder(thread, turn, *results.leaf_iter_vars[:3], lane)
    results.bind(thread, x)
    results.unroll(turn)
    results.vectorize(lane)
    sums.set_scope("local")
    sums.compute_at(results, turn)
    before, rows, taps = tap_axes(sums, d.rank)
    sums.reorder(*before, rows, taps, *sums.op.axis)
    sums.unroll(rows, taps, *sums.op.axis)
    for read in (data, filter):
        loads = s[read]
        loads.compute_at(sums, rows)
        *outer, last = loads.op.axis
        loads.unroll(*outer)
        loads.vectorize(last)
    return s


def _share(stage: Stage, c: IterVar, x: IterVar, t: ConvRowTile) -> list[IterVar]:
    """Channels among the threads of a group: the loops over these, a thread's vectors and one."""
    vector, lane = stage.split(c, factor=t.vector)
    turn, thread = stage.split(vector, factor=t.lanes)
    stage.reorder(thread, turn, lane)
    stage.bind(thread, x)
    stage.unroll(turn)
    return [thread, turn, lane]
