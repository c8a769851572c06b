"""Products of a warp's rows on tensor cores whose results stay in registers, and what rows have in
common there."""

from __future__ import annotations

from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor

#: Rows and depth of an instruction, its columns, and the threads that share a row.
ROWS, COLUMNS, SHARING = 16, 8, 4


def hold(s: Schedule, reader: Stage, at: IterVar, *tensors: Tensor) -> None:
    """Keep tensors in the registers of a warp."""
    for tensor in tensors:
        s[tensor].set_scope("fragment")
        s[tensor].compute_at(reader, at)


def multiply(sums: Stage, instruction: Any, step: int = 0) -> list[IterVar]:
    """A product of the matrices of a warp; returns the loops over its sum, over steps if there are
    some, and over 16 of one."""
    b, h, i, j = sums.op.axis
    sums.align_bounds(j, COLUMNS)
    io, i = sums.split(i, factor=ROWS)
    outer: list[IterVar] = []
    k = sums.op.reduce_axis[0]
    if step:
        turn, k = sums.split(k, factor=step)
        outer.append(turn)
    part, k = sums.split(k, factor=ROWS)
    jo, j = sums.split(j, factor=COLUMNS)
    sums.reorder(b, h, *outer, part, jo, io, i, j, k)
    sums.unroll(part, jo, io)
    sums.tensorize(i, instruction)
    return [*outer, part]


def reduce_rows(s: Schedule, tensor: Tensor, reader: Stage, at: IterVar) -> None:
    """A reduction of rows: each of four threads reduces what it has, then they combine."""
    made, _ = _shared(s, tensor, s[tensor].op.reduce_axis[0])
    hold(s, reader, at, *made)


def update_rows(s: Schedule, tensor: Tensor, total: Stage, at: IterVar, step: int) -> None:
    """The same, along with the steps ``at`` of a sum that reads it."""
    turn, j = s[tensor].split(s[tensor].op.reduce_axis[0], factor=step)
    made, (turn, _) = _shared(s, tensor, j, turn)
    hold(s, total, at, *made)
    s[tensor].rolling_update(turn, total, at)


def sum_rows_with(
    s: Schedule, tensor: Tensor, reader: Stage, at: IterVar, other: Stage, loop: IterVar, step: int
) -> None:
    """The same, in the steps ``loop`` of another sum; threads combine what they have after it."""
    _, j = s[tensor].split(s[tensor].op.reduce_axis[0], factor=step)
    made, _ = _shared(s, tensor, j)
    hold(s, reader, at, *made)
    s[made[0]].compute_with(s[made[0]].op.reduce_axis[0], other, loop)


def _shared(
    s: Schedule, tensor: Tensor, j: IterVar, *kept: IterVar
) -> tuple[list[Tensor], list[IterVar]]:
    """A reduction of rows over the columns ``j`` of a step, for every one of other loops that are
    ``kept``: of every second column of a thread, as a chain is as slow as it is long, of all of a
    thread, and of all threads. Returns these stages, and the loops of the last."""
    stage = s[tensor]
    _, j = stage.split(j, factor=COLUMNS)
    thread, _ = stage.split(j, nparts=SHARING)
    parts: Tensor = s.rfactor(tensor, [*kept, thread], tensor.ndim)
    chains: Tensor = s.rfactor(parts, s[parts].op.reduce_axis[-1], parts.ndim)
    s[parts].unroll(*s[parts].op.reduce_axis)
    b, h, row, *others, pair = s[chains].op.axis
    *turn, octet = s[chains].op.reduce_axis
    s[chains].reorder(b, h, row, *others, *turn, octet, pair)
    s[chains].unroll(octet, pair)
    return [chains, parts, tensor], list(stage.op.reduce_axis)


def by_columns(stage: Stage) -> None:
    """The loops of what is made of scores: those of the instruction outside."""
    *others, row, column = stage.op.axis
    outer, inner = stage.split(column, factor=COLUMNS)
    stage.reorder(*others, outer, row, inner)
    stage.unroll(outer)
    if dtype(str(stage.op.outputs[0].dtype)).bytes == 2:  # two are rounded at once
        stage.vectorize(stage.split(inner, factor=2)[1])


def load_tiles(s: Schedule, tensor: Tensor, sums: Stage, part: IterVar, instruction: Any) -> None:
    """The right factor of a product from shared memory, in tiles of 16 by 16."""
    stage = s[s.cache_read(tensor, "fragment", [sums.op.outputs[0]])]
    stage.compute_at(sums, part)
    *_, x, y = stage.op.axis
    stage.align_bounds(y, ROWS)
    xo, x = stage.split(x, factor=ROWS)
    yo, y = stage.split(y, factor=ROWS)
    stage.reorder(xo, yo, x, y)
    stage.unroll(xo, yo)
    stage.tensorize(x, instruction)
