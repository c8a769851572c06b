"""bind: the iterations of a loop are the threads of a GPU."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind
from tilewright.schedule.stage import Stage


def bind(stage: Stage, axis: IterVar, thread: IterVar) -> None:
    """Carry out the iterations of ``axis`` by the blocks or threads along ``thread``.

    Raises :class:`ScheduleError` where ``thread`` was not made by ``te.thread_axis``, or one of
    the two is bound already, or ``axis`` is vectorized, unrolled or parallel.
    """
    stage.leaf(axis, "bind")
    if not isinstance(thread, IterVar) or thread.kind != "thread":
        raise stage.error(f"bind takes an axis made by te.thread_axis, got {thread!r}", axis)
    mark = stage.mark(axis)
    if mark.thread is not None:
        raise stage.error(f"bind: the axis is already bound to {mark.thread.tag}", axis)
    if mark.kind is not ForKind.SERIAL:
        raise stage.error(f"bind: the axis is already {mark.kind.value}", axis)
    for other, other_mark in stage.marks.items():
        bound = other_mark.thread
        if bound is not None and bound.tag == thread.tag and thread.tag != "vthread":
            raise stage.error(
                f"bind: {thread.tag} already carries axis {other.name} of this stage",
                axis,
                "Fuse the two axes first, or bind this one to another thread axis",
            )
    if axis.kind == "reduce" and not thread.tag.startswith("threadIdx"):
        raise stage.error(
            f"bind: a reduction cannot be spread over {thread.tag}",
            axis,
            "Bind it to threadIdx, or use rfactor to turn it into a data axis",
        )
    mark.thread, mark.where = thread, user_location()
    mark.kind = ForKind.VTHREAD if thread.tag == "vthread" else ForKind.THREAD


def env_threads(stage: Stage, threads: Any) -> None:
    """Launch ``threads``, axes with extents, around all loops of the stage.

    Raises :class:`ScheduleError` where one of them has no extent.
    """
    found = tuple(threads) if isinstance(threads, (list, tuple)) else (threads,)
    for thread in found:
        if not isinstance(thread, IterVar) or thread.kind != "thread" or thread.dom is None:
            raise stage.error(
                f"env_threads takes thread axes with extents, got {thread!r}",
                mend='Make them as te.thread_axis((0, 32), "threadIdx.x")',
            )
    stage.env = found
