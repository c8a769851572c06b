"""What schedules of float32 products with Toeplitz matrices have in common.

The sums of one row of taps (:mod:`~tilewright.topi.nn.toeplitz_sums`) are products of fragments.
The elements of a matrix are taps, in shared memory: a thread takes them from there into registers,
and as neighbours in a matrix are one tap, it needs ten or so for all blocks of 8 by 8 of a row. The
image is taken apart in registers, once for all rows of outputs that it meets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.devices import STATIC_SHARED
from tilewright.target.instructions import mma_tf32
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, ToeplitzStages
from tilewright.topi.nn.toeplitz_sums import is_split

#: Threads of a warp; rows and columns of the results of an instruction, and what it sums over.
LANES, ROWS, COLUMNS, DEPTH = 32, 16, 8, 8
#: Bytes of shared memory that rows of taps may take.
SHARED = STATIC_SHARED
#: Warps that a large GPU executes at a time, of as many registers as these need.
_AT_A_TIME = 1056
#: Registers of a thread that fragments may take, and rows of taps that a warp loads at once.
_REGISTERS, _AT_ONCE = 192, 8


def tap_bytes(cut: Toeplitz, rows: int) -> int:
    """Of rows of taps between zeros, in shared memory."""
    last = (cut.columns - 1) * cut.stride[1]
    return rows * (cut.depth + last) * 4 * (2 if is_split(cut.problem) else 1)


def fits(cut: Toeplitz, rows: int, sums: int, ahead: int, apart: int, kept: int = 0) -> bool:
    """Whether rows of taps, and fragments, have room where they are to lie.

    Parameters
    ----------
    sums, ahead, apart : tiles of 16 that a warp sums, of rows of an image that it has loaded ahead,
        and of those that it has taken apart.
    kept : matrices that the compiler keeps for the next row of the image.
    """
    parts = 2 if is_split(cut.problem) else 1
    held = (sums + 1) * cut.columns // 2 + (ahead + parts * apart) * cut.depth // 2
    held += (1 + kept) * parts * (cut.depth + cut.columns) // 4
    return held <= _REGISTERS and tap_bytes(cut, rows) <= SHARED


def idle(warps: int) -> float:
    """How many times longer a GPU takes because the last of ``warps`` warps are alone."""
    return max(1.0, math.ceil(warps / _AT_A_TIME) * _AT_A_TIME / warps)


def multiply(
    s: Schedule,
    made: ToeplitzStages,
    sums: Stage,
    along: int,
    tile: IterVar,
    matrices: IterVar,
    parts: IterVar,
) -> None:
    """Schedule all that the sums add up.

    Parameters
    ----------
    sums : the stage of the sums, in fragments.
    along : the axis of the results, of its four, that the rows of instructions go along.
    tile : the loop of ``sums`` in which the sums of one row of taps are computed, of one tile.
    matrices, parts : the loops in which matrices are gathered, and the image is taken apart.
    """
    rows = s[made.rows]
    rows.set_scope("fragment")
    rows.compute_at(sums, tile)
    axes = list(rows.op.axis)
    term, j = rows.op.reduce_axis
    tiles, row = rows.split(axes.pop(along), factor=ROWS)
    pair, w = rows.split(axes.pop(2), factor=COLUMNS)
    quarter, side = rows.split(w, factor=2)
    chunk, j = rows.split(j, factor=DEPTH)
    thread, low = rows.split(j, factor=2)
    rows.reorder(*axes, term, chunk, tiles, pair, row, quarter, side, low, thread)
    rows.unroll(term, chunk, tiles, pair)
    rows.tensorize(row, mma_tf32)

    gathered = s[made.matrices]
    gathered.set_scope("fragment")
    gathered.compute_at(sums, matrices)
    gathered.unroll(*gathered.op.axis[:-2])
    apart = s[made.parts]
    apart.set_scope("fragment")
    apart.compute_at(sums, parts)
    apart.unroll(apart.op.axis[0])


def fill(stage: Stage, at: tuple[Stage, IterVar], threads: Sequence[tuple[str, int]]) -> None:
    """Fill shared memory with rows of taps, each by the threads of a warp, ``at`` a loop.

    Others than those along x take turns at the rows, with ``threads`` by tag and extent.
    """
    stage.set_scope("shared")
    stage.compute_at(*at)
    part, a, b, e, column = stage.op.axis
    row = stage.fuse(a, b, e)
    for tag, extent in threads:
        row, own = stage.split(row, factor=extent)
        stage.bind(own, te.thread_axis((0, extent), tag))
    few, row = stage.split(row, factor=_AT_ONCE)
    column, x = stage.split(column, factor=LANES)
    stage.bind(x, te.thread_axis((0, LANES), "threadIdx.x"))
    stage.reorder(few, row, column, x, part)
    stage.unroll(row, column, part)
