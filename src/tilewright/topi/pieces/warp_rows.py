"""Products of a warp's rows on tensor cores whose results stay in registers, and what rows have in
common there."""

from __future__ import annotations

from typing import Any

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
    outer: list[IterVar] = []
    k = sums.op.reduce_axis[0]
    if step:
        turn, k = sums.split(k, factor=step)
        outer.append(turn)
    part, k = sums.split(k, factor=ROWS)
    jo, j = sums.split(j, factor=COLUMNS)
    sums.reorder(b, h, *outer, part, jo, i, j, k)
    sums.unroll(part, jo)
    sums.tensorize(i, instruction)
    return [*outer, part]


def reduce_rows(s: Schedule, tensor: Tensor, reader: Stage, at: IterVar, step: int = 0) -> None:
    """A reduction of rows: each of four threads reduces what it has, then they combine. With a
    ``step`` it goes along with the steps of a sum, its reader."""
    stage = s[tensor]
    j = stage.op.reduce_axis[0]
    if step:
        turn, j = stage.split(j, factor=step)
    _, j = stage.split(j, factor=COLUMNS)
    thread, _ = stage.split(j, nparts=SHARING)
    parts: Tensor = s.rfactor(tensor, (turn, thread) if step else thread, tensor.ndim)
    hold(s, reader, at, parts, tensor)
    if step:
        stage.rolling_update(stage.op.reduce_axis[0], reader, at)
    octet, pair = s[parts].op.reduce_axis
    s[parts].unroll(octet, pair)


def by_columns(stage: Stage) -> None:
    """The loops of what is made of scores: those of the instruction outside."""
    outer, inner = stage.split(stage.op.axis[-1], factor=COLUMNS)
    stage.reorder(*stage.op.axis[:2], outer, stage.op.axis[2], inner)
    stage.unroll(outer)


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
