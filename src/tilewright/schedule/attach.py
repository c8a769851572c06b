"""compute_at, compute_inline, compute_root: where a stage is computed."""

from __future__ import annotations

from tilewright.ir.errors import user_location
from tilewright.ir.expr import Reduce
from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp, ExternOp, PlaceholderOp
from tilewright.te.scan import ScanOp


def compute_at(stage: Stage, parent: Stage, axis: IterVar) -> None:
    """Compute, in every iteration of ``axis`` of ``parent``, the part of ``stage`` it needs.

    Raises :class:`ScheduleError` where ``axis`` is no loop of ``parent``, where ``parent`` does
    not depend on ``stage``, or where ``stage`` is a placeholder, an output, or ``parent`` itself.
    """
    _check_computable(stage, "compute_at")
    if not isinstance(parent, Stage):
        raise stage.error(
            f"compute_at takes a stage and an axis of it, got {parent!r}",
            mend="Write s[A].compute_at(s[B], axis)",
        )
    if parent is stage:
        raise stage.error(
            "compute_at: a stage cannot be computed inside itself",
            mend="Compute a stage at one of its consumers",
        )
    if stage.op in stage.schedule.outputs:
        raise stage.error(
            "compute_at: the stage is an output, which is computed at the root",
            mend="Compute its producers at it, or use s.cache_write and attach the copy",
        )
    if parent.attachment.kind == "inline":
        raise stage.error(
            f"compute_at: stage {parent.name!r} is inlined ({parent.attachment.where}) and has no "
            "loops",
            axis if isinstance(axis, IterVar) else None,
            "Compute it at a consumer that has loops",
        )
    parent.leaf(axis, "compute_at")
    if not depends(parent, stage):
        raise stage.error(
            f"compute_at: {parent.name} does not read {stage.name}, directly or through others",
            axis,
            "Compute a stage at one of its consumers",
        )
    _attach(stage, Attachment("at", parent, axis, user_location()))


def compute_inline(stage: Stage) -> None:
    """Put the expression of ``stage`` in place of every read of it.

    Raises :class:`ScheduleError` where it is a reduction, a placeholder, an extern or an output.
    """
    _check_computable(stage, "compute_inline")
    if not isinstance(stage.op, ComputeOp):
        raise stage.error(
            "compute_inline: an extern stage has no expression to put in place of reads",
            mend="Leave it at the root",
        )
    if isinstance(stage.op.body[0], Reduce):
        raise stage.error(
            "compute_inline: a reduction cannot be inlined",
            mend="Use compute_at, with set_scope('local') to keep it in registers",
        )
    if stage.op in stage.schedule.outputs:
        raise stage.error(
            "compute_inline: the stage is an output, which is stored",
            mend="Inline its producers into it, or do not list it in create_schedule",
        )
    _attach(stage, Attachment("inline", where=user_location()))


def compute_root(stage: Stage) -> None:
    """Compute the whole of ``stage`` before its consumers, which is the default; in every step of
    a scan where it is computed of its state."""
    _attach(stage, Attachment("root", where=user_location()))
    for other in stage.schedule.stages:
        if isinstance(other.op, ScanOp) and stage.op in other.op.steps():
            _attach(stage, Attachment("at", other, other.op.scan_axis, user_location()))


def _attach(stage: Stage, at: Attachment) -> None:
    stage.attachment, stage.rolls_along, stage.beside = at, None, None


def _check_computable(stage: Stage, primitive: str) -> None:
    if isinstance(stage.op, PlaceholderOp):
        raise stage.error(
            f"{primitive}: the stage is a placeholder, which is not computed",
            mend="Use s.cache_read to stage an argument through another memory",
        )
    if isinstance(stage.op, ExternOp) and primitive == "compute_at":
        raise stage.error(
            "compute_at: an extern stage is computed whole, at the root",
            mend="Attach the stages that read it or that it reads",
        )


def depends(consumer: Stage, producer: Stage) -> bool:
    """Whether ``consumer`` reads ``producer``, directly or through others."""
    seen: set[Stage] = set()
    pending = [producer]
    while pending:
        for reader in producer.schedule.consumers(pending.pop()):
            if reader is consumer:
                return True
            if reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return False
