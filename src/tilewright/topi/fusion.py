"""What a schedule has to find in a program: the product of matrices, and what follows it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage, create_schedule
from tilewright.schedule.matmul import Matmul, Whole
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.nn.padding import static


@dataclass(frozen=True)
class Products:
    """A schedule of a program whose one reduction is a product of matrices, as ``matmul`` says."""

    schedule: Schedule
    matmul: Matmul

    def axes(self, out: Stage) -> tuple[IterVar, IterVar, IterVar]:
        """Of the stage of the output: the group, the row in it, and the column."""
        axes, found = list(out.op.axis), self.matmul
        columns = [axes[k] for k in found.across]
        rows = [axes[k] for k in found.rows]
        out.reorder(*rows, *columns)
        m = out.fuse(*rows) if len(rows) > 1 else rows[0]
        g, m = out.split(m, factor=found.height) if found.apart is None else (axes[found.apart], m)
        out.reorder(g, m, *columns)
        return g, m, out.fuse(*columns) if len(columns) > 1 else columns[0]

    def contiguous(self, output: Tensor) -> int:
        """Columns of a row that follow one another in memory."""
        behind = output.shape[max(self.matmul.rows) + 1 :]
        return math.prod(static(e, "the result") for e in behind)


def find_products(output: Tensor, whole: Whole, down: int = 1) -> Products:
    """A schedule of a program of one sum of products and what is fused to it, which is inlined: the
    sum as a product of matrices that are filled up to multiples of ``whole``.

    Raises :class:`ScheduleError` where there is no such sum, or another reduction beside it, and
    where tiles of as many rows, of which ``down`` threads or warps have a part each, would be of
    several groups.
    """
    s = create_schedule(output.op)
    computed = [x for x in s.stages if isinstance(x.op, ComputeOp)]
    sums = [x for x in computed if x.op.reduce_axis]
    if len(sums) != 1:
        raise ScheduleError(
            f"the schedule is for one sum of products, of {len(sums)} reductions",
            mend="Schedule the others by themselves",
        )
    total = sums[0].op.outputs[0]
    if total.ndim != output.ndim:
        raise ScheduleError("the result has other dimensions than the sum", stage=total.name)
    found = s.as_matmul(total, whole)
    height, rows = found.height, whole[0]
    within = found.groups > 1 and found.apart is None  # a dimension, that of rows
    if within and height % rows and (height > rows or down > 1):
        raise ScheduleError(
            f"a group of {height} output channels is no number of tiles of {rows} rows",
            stage=total.name,
            mend="Tile groups by a divisor of their output channels, or by more, undivided",
        )
    for stage in computed:
        if stage.op is not s.outputs[0]:
            stage.compute_inline()
    return Products(s, found)
