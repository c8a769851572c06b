"""Where and how results are kept: scopes, strides, bounds, double and rolling buffers."""

from __future__ import annotations

from typing import Any

from tilewright.ir.buffer import known_scope, scopes_instead
from tilewright.ir.errors import LanguageError, user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import as_condition
from tilewright.schedule.stage import Stage
from tilewright.te.operation import PlaceholderOp


def set_scope(stage: Stage, scope: str) -> Stage:
    """Keep the outputs of ``stage`` in ``scope``, one of :data:`~tilewright.ir.buffer.SCOPES`.

    Raises :class:`ScheduleError` for another name, and for placeholders and outputs of the
    program, which live in global memory.
    """
    known = known_scope(scope)
    if known is None:
        raise stage.error(f"unknown scope {scope!r}", mend=scopes_instead())
    if is_argument(stage) and known != "global":
        raise stage.error(
            f"set_scope: an argument or output of the program cannot be in {scope} memory",
            mend="Use s.cache_read or s.cache_write for a copy there",
        )
    stage.scope = known
    stage.lines["set_scope"] = user_location()
    return stage


def storage_align(stage: Stage, axis: IterVar, factor: int, offset: int) -> None:
    """Pad the storage so that the stride of dimension ``axis`` is ``k * factor + offset``.

    An odd ``offset`` takes shared memory columns into different banks. ``axis`` is one of
    ``op.axis``. Raises :class:`ScheduleError` for any other, for factors below one, and for
    arguments and outputs of the program, which lie as the caller has them.
    """
    place = _dimension(stage, axis, "storage_align")
    if not _positive(factor) or not isinstance(offset, int) or offset < 0:
        raise stage.error(
            f"storage_align: no stride is a multiple of {factor!r} plus {offset!r}",
            axis,
            "Give a positive factor, and an offset that is not negative",
        )
    if is_argument(stage):
        raise stage.error(
            "storage_align: the tensor is an argument or output, which lies as the caller has it",
            axis,
            "Use s.cache_read or s.cache_write for a copy whose storage can be padded",
        )
    if stage.swizzled:
        raise stage.error(
            f"storage_align: the rows are swizzled by {stage.swizzled} bytes, without gaps",
            axis,
            "Leave out one of them: either keeps columns out of one bank",
        )
    stage.alignments[place] = (factor, offset)


def align_bounds(stage: Stage, axis: IterVar, factor: int, offset: int = 0) -> None:
    """Compute, where the stage is attached, whole groups of ``factor`` elements along ``axis``.

    The interval that the consumers need is widened until it starts at an index that is ``offset``
    modulo ``factor`` and is a multiple of ``factor`` long, so that its loop divides into aligned
    vectors. Elements outside of the tensor are left undefined. ``axis`` is one of ``op.axis``.
    Raises :class:`ScheduleError` for any other, and for factors below one.
    """
    place = _dimension(stage, axis, "align_bounds")
    if not _positive(factor) or not isinstance(offset, int):
        raise stage.error(
            f"align_bounds: there are no groups of {factor!r} elements at offset {offset!r}",
            axis,
            "Give a positive factor and an integer offset",
        )
    stage.bounds_alignments[place] = (factor, offset % factor)


def pipeline(
    stage: Stage, stages: int, over: IterVar | None = None, name: str = "pipeline",
    producer: bool = False,
) -> None:  # fmt: skip
    """Compute what ``stage`` gives ``stages - 1`` iterations before it is used; needs compute_at.

    In each iteration of the axis that it is computed at, one of ``stages`` copies of its memory is
    read while another one is filled. Registers and fragments are chosen by constants: the loop over
    the axis is unrolled by ``stages``.

    The pipeline runs empty where the loop of that axis ends, and begins again where it is entered
    again. With ``over``, the axis of a serial loop further out, it does not until that one ends:
    the last iterations fill copies for the first of the next time. This is for buffers in memory;
    how often the loops inside of ``over`` run must be known.

    With ``producer``, a warp of its own, beside the threads that the schedule binds, asks for the
    boxes that :func:`~tilewright.target.instructions.tma_load.tma_load` copies, all of the kernel:
    it waits for copies that are free, and the others for boxes alone. They are never in one barrier
    with it, so that warps may be as far apart as there are copies.

    Raises :class:`ScheduleError` for a placeholder, an output of the program, and fewer than two
    stages.
    """
    if is_argument(stage):
        raise stage.error(
            f"{name}: the stage is an argument or output of the program",
            mend=f"Use s.cache_read or s.cache_write, and {name} the copy",
        )
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 2:
        raise stage.error(
            f"pipeline: {stages!r} stages leave nothing to be computed ahead",
            mend="Give the number of copies of its memory, 2 or more",
        )
    stage.pipelined, stage.pipelined_by, stage.pipelined_over = stages, name, over
    stage.produced = producer
    stage.lines["pipeline"] = user_location()


def double_buffer(stage: Stage) -> None:
    """Compute the next tile of ``stage`` while this one is being used: a :func:`pipeline` of two.

    Raises :class:`ScheduleError` for a placeholder and for an output of the program.
    """
    pipeline(stage, 2, name="double_buffer")


def rolling_buffer(stage: Stage, ahead: int = 0) -> None:
    """Keep, from one iteration of the axis that ``stage`` is computed at to the next, what both
    need, and compute only what is new; needs compute_at.

    The axis is to be serial or unrolled, and each iteration to need that number of rows more, in
    one dimension, than the one before. The buffer holds the rows of all iterations; of registers,
    with the axis unrolled, no more are in use than one iteration needs. With ``ahead``, what is
    new in an iteration is computed that number of iterations earlier: what it loads is on its way
    meanwhile.

    Raises :class:`ScheduleError` for a placeholder, for an output of the program, and where
    ``ahead`` is no number of iterations.
    """
    if not isinstance(ahead, int) or isinstance(ahead, bool) or ahead < 0:
        raise stage.error(
            f"rolling_buffer: ahead={ahead!r} is no number of iterations",
            mend="Give 0, or how many iterations earlier to load",
        )
    if is_argument(stage):
        raise stage.error(
            "rolling_buffer: the stage is an argument or output of the program",
            mend="Use s.cache_read or s.cache_write, and roll the copy",
        )
    stage.rolling, stage.ahead = True, ahead
    stage.lines["rolling_buffer"] = user_location()


def set_store_predicate(stage: Stage, predicate: Any) -> None:
    """Store the result only where ``predicate``, of thread axes, holds.

    Raises :class:`ScheduleError` for what is no condition.
    """
    try:
        stage.store_predicate = as_condition(predicate)
    except LanguageError:
        raise stage.error(
            f"set_store_predicate takes a condition, got {predicate!r}",
            mend="Write it as thread.var.equal(0)",
        ) from None


def is_argument(stage: Stage) -> bool:
    """Whether the caller passes what the stage stands for: an input, or an output."""
    return isinstance(stage.op, PlaceholderOp) or stage.op in stage.schedule.outputs


def _positive(factor: Any) -> bool:
    return isinstance(factor, int) and not isinstance(factor, bool) and factor >= 1


def _dimension(stage: Stage, axis: Any, primitive: str) -> int:
    for position, own in enumerate(stage.op.axis):
        if own is axis:
            return position
    names = ", ".join(a.name for a in stage.op.axis) or "none"
    raise stage.error(
        f"{primitive} takes an axis of the declaration, one of op.axis",
        axis if isinstance(axis, IterVar) else None,
        f"They are {names}",
    )
