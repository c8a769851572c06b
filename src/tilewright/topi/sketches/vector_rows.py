"""Programs of rows on a CPU: normalisations, softmax, sums over the last dimensions.

A row is reduced in vectors along it, as often as the program does, and then what is made of these
sums is written: it stays in the first-level cache meanwhile. Each lane has its part of a reduction,
and halves of the lanes come together at the end of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.rows import reduced_rows
from tilewright.topi.pieces.sums import inline, reduce_in_lanes


@dataclass(frozen=True)
class VectorRowTile:
    """A task has ``rows``, reduced ``parts`` elements at a time and written ``lanes`` at a time."""

    rows: int = 8
    lanes: int = 16
    parts: int = 16


def schedule_vector_rows(d: Declared, t: VectorRowTile = VectorRowTile()) -> Schedule:
    """The schedule of a program that has :func:`~tilewright.topi.pieces.rows.reduced_rows`."""
    rows = reduced_rows(d.problem)
    assert rows is not None, d.problem
    found = inline(d.output)
    s, out = found.schedule, found.schedule[d.output]
    axes = list(out.op.axis)
    outer, inner = axes[: rows.rank], axes[rows.rank :]
    if not rows.whole:
        outer, inner = axes, []
    task, row = out.split(out.fuse(*outer), factor=t.rows)
    out.reorder(task, row, *inner)
    out.parallel(task)
    if inner:
        _, lane = out.split(out.fuse(*inner), factor=t.lanes)
        out.vectorize(lane)
    sums = [*found.before, *([found.last] if found.last is not None else [])]
    for tensor in sums:
        stage = s[tensor]
        stage.set_scope("local")
        stage.compute_at(out, row)
        reduce_in_lanes(s, tensor, stage.fuse(*stage.op.reduce_axis), t.parts, out, row)
    return s
