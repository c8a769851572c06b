"""Products of a warpgroup's rows by wgmma, one after another, whose results stay in registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load, wgmma
from tilewright.te import Tensor
from tilewright.topi.pieces.warp_rows import COLUMNS

#: Rows of a warpgroup, elements of a row that are swizzled together, and threads.
GROUP_ROWS, ROW, LANES = 64, 64, 128
#: What an instruction sums, and 16-bit numbers of a chunk.
_DEEP, _CHUNK = 16, 8


def multiply_rows(
    sums: Stage, outer: Sequence[IterVar], k: IterVar, dtype: str, right: str, columns: int
) -> None:
    """A product of the matrices of a warpgroup, the last two axes of ``sums``. Neighbours of the
    right factor are those along "k", with the left one in shared memory too, or those along "j",
    its columns."""
    *others, i, j = sums.op.axis
    sums.align_bounds(j, columns)
    part, k = sums.split(k, factor=_DEEP)
    rows, across = [i], list(sums.split(j, factor=COLUMNS))
    left, swizzles = "registers", (0, 2 * ROW)
    if right == "j":
        across = [*sums.split(across[0], factor=ROW // COLUMNS), across[1]]
    else:
        # Not in registers: ptxas 13.0 gives rows, and what is made of this product, the same ones,
        # where they have as many, though rows are needed in the next step.
        rows, left, swizzles = list(sums.split(i, factor=COLUMNS)), "k", (2 * ROW, 2 * ROW)
    sums.reorder(*others, *outer, part, *rows, *across, *sums.split(k, factor=_CHUNK))
    sums.unroll(part)
    sums.tensorize(rows[0], wgmma(columns, dtype, left, right, swizzles))


def bring_rows(
    s: Schedule, tensor: Tensor, sums: Tensor, reader: Stage, at: IterVar, rows: int,
    stages: int = 1,
) -> None:  # fmt: skip
    """Copy rows of a factor to shared memory, ahead."""
    stage = s[s.cache_read(tensor, "shared", [sums])]
    s[tensor].compute_inline()
    hold_rows(stage, reader, at, rows)
    if stages > 1:
        stage.pipeline(stages)


def hold_rows(stage: Stage, reader: Stage, at: IterVar, rows: int) -> None:
    """Rows of a matrix in shared memory by TMA, swizzled."""
    stage.set_scope("shared")
    stage.transform_layout(lambda *outer, j, e: (*outer, e // ROW, j, e % ROW))
    stage.compute_at(reader, at)
    stage.swizzle(2 * ROW)
    kind = str(stage.op.outputs[0].dtype)
    stage.tensorize(stage.op.axis[-2], tma_load((rows, ROW), kind, swizzle=2 * ROW))
