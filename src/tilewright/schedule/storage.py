"""set_scope, storage_align, align_bounds, double_buffer: where and how results are kept."""

from __future__ import annotations

from typing import Any

from tilewright.ir.buffer import SCOPES
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import as_condition
from tilewright.schedule.stage import Stage
from tilewright.te.operation import PlaceholderOp


def set_scope(stage: Stage, scope: str) -> Stage:
    """Keep the outputs of ``stage`` in ``scope``: "global", "shared", "warp" or "local".

    Raises :class:`ScheduleError` for another name, and for placeholders and outputs of the
    program, which live in global memory.
    """
    if scope not in SCOPES:
        raise stage.error(f"unknown scope {scope!r}", mend=f"The scopes are {', '.join(SCOPES)}")
    fixed = isinstance(stage.op, PlaceholderOp) or stage.op in stage.schedule.outputs
    if fixed and scope != "global":
        raise stage.error(
            f"set_scope: an argument or output of the program cannot be in {scope} memory",
            mend="Use s.cache_read or s.cache_write for a copy there",
        )
    stage.scope = scope
    return stage


def storage_align(stage: Stage, axis: IterVar, factor: int, offset: int) -> None:
    """Pad the storage so that the stride of dimension ``axis`` is ``k * factor + offset``.

    An odd ``offset`` takes shared memory columns into different banks. ``axis`` is one of
    ``op.axis``. Raises :class:`ScheduleError` for any other, and for factors below one.
    """
    positions = [k for k, a in enumerate(stage.op.axis) if a is axis]
    if not positions:
        raise stage.error("storage_align takes an axis of the declaration, one of op.axis")
    if factor < 1 or offset < 0:
        raise stage.error(f"storage_align: no stride is a multiple of {factor} plus {offset}", axis)
    stage.alignments[positions[0]] = (factor, offset)


def align_bounds(stage: Stage, axis: IterVar, factor: int, offset: int = 0) -> None:
    """Compute, where the stage is attached, whole groups of ``factor`` elements along ``axis``.

    The interval that the consumers need is widened until it starts at an index that is ``offset``
    modulo ``factor`` and is a multiple of ``factor`` long, so that its loop divides into aligned
    vectors. Elements outside of the tensor are left undefined. ``axis`` is one of ``op.axis``.
    Raises :class:`ScheduleError` for any other, and for factors below one.
    """
    positions = [k for k, a in enumerate(stage.op.axis) if a is axis]
    if not positions:
        raise stage.error("align_bounds takes an axis of the declaration, one of op.axis")
    if factor < 1:
        raise stage.error(f"align_bounds: a group of {factor} elements is empty", axis)
    stage.bounds_alignments[positions[0]] = (factor, offset % factor)


def double_buffer(stage: Stage) -> None:
    """Compute the next tile of ``stage`` while this one is being used; needs compute_at.

    Raises :class:`ScheduleError` for a placeholder and for an output of the program.
    """
    if isinstance(stage.op, PlaceholderOp) or stage.op in stage.schedule.outputs:
        raise stage.error("double_buffer: the stage is an argument or output of the program")
    stage.double_buffered = True


def set_store_predicate(stage: Stage, predicate: Any) -> None:
    """Store the result only where ``predicate``, of thread axes, holds."""
    stage.store_predicate = as_condition(predicate)
