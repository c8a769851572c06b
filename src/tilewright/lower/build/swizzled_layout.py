"""The layout of a stage whose rows are swizzled."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.buffer import Layout
from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.swizzle import pattern, swizzle_of
from tilewright.lower.build.storage_align import aligned_strides
from tilewright.schedule.stage import Stage


def swizzled_layout(stage: Stage, shape: Sequence[Expr], scope: str) -> tuple[Layout, int]:
    """Row-major strides under the swizzle, and what the memory begins at a multiple of, in bytes.

    ``shape`` is what is kept of the stage, in ``scope``.

    Raises :class:`LoweringError` where its rows are no multiple of the swizzle, or it is not in
    shared memory.
    """
    width, kind = stage.swizzled, stage.op.outputs[0].dtype
    where = stage.lines["swizzle"]
    if scope != "shared":
        raise stage.contradiction(
            f"swizzle: the stage is in {scope} memory, and rows are permuted in shared memory",
            mend="Keep it there, with set_scope('shared') or cache_read(..., 'shared', ...)",
            where=where,
        )
    row = shape[-1] if shape else None
    if not isinstance(row, IntImm) or row.value * kind.bytes % width:
        extent = "nothing" if row is None else f"{row} {kind}"
        raise stage.contradiction(
            f"swizzle: a row of what is kept of the stage is {extent}, which is no multiple of "
            f"{width} bytes",
            mend="Split the axes so that whole rows are needed, widen them with align_bounds(), "
            "take a smaller width, or put gaps between rows with storage_align()",
            where=where,
        )
    return Layout(aligned_strides(shape, {}), swizzle=swizzle_of(width, kind)), pattern(width)
