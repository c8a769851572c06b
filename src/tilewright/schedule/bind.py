"""bind: the iterations of a loop are the threads of a GPU."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind
from tilewright.schedule.stage import Stage
from tilewright.te.operation import PlaceholderOp


def bind(stage: Stage, axis: IterVar, thread: IterVar) -> None:
    """Carry out the iterations of ``axis`` by the blocks or threads along ``thread``.

    Raises :class:`ScheduleError` where ``thread`` was not made by ``te.thread_axis``, or one of
    the two is bound already, or ``axis`` is vectorized, unrolled or parallel.
    """
    stage.leaf(axis, "bind")
    if not isinstance(thread, IterVar) or thread.kind != "thread":
        raise stage.error(
            f"bind takes an axis made by te.thread_axis, got {thread!r}",
            axis,
            'Make it as te.thread_axis("threadIdx.x")',
        )
    mark = stage.mark(axis)
    if mark.kind is not ForKind.SERIAL or mark.instruction is not None:
        raise stage.error(
            f"bind: the axis is already {mark.said}", axis, "Split the axis, and bind one part"
        )
    if any(env.tag == thread.tag for env in stage.env):
        raise stage.error(
            f"bind: env_threads launches {thread.tag} around all loops of this stage",
            axis,
            "Use bind or env_threads, not both",
        )
    for other, other_mark in stage.marks.items():
        bound = other_mark.thread
        if bound is None or bound.tag != thread.tag:
            continue
        if thread.tag != "vthread" or bound is thread:
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

    Every one of them computes the stage; what it stores in memory that they share is stored by the
    first of them.

    Raises :class:`ScheduleError` where one of them has no extent, is virtual, or carries an axis
    of the stage or another one of ``threads`` already.
    """
    found = tuple(threads) if isinstance(threads, (list, tuple)) else (threads,)
    for thread in found:
        if not isinstance(thread, IterVar) or thread.kind != "thread" or thread.dom is None:
            raise stage.error(
                f"env_threads takes thread axes with extents, got {thread!r}",
                mend='Make them as te.thread_axis((0, 32), "threadIdx.x")',
            )
        if thread.tag == "vthread":
            raise stage.error(
                "env_threads: virtual threads share the loops of an axis",
                mend="Bind an axis of the stage to them",
            )
    tags = [thread.tag for thread in found]
    tags += [mark.thread.tag for mark in stage.marks.values() if mark.thread is not None]
    for thread in found:
        if tags.count(thread.tag) > 1:
            raise stage.error(
                f"env_threads: {thread.tag} is in use in this stage already",
                mend="Use every thread axis once, by bind or by env_threads",
            )
    if isinstance(stage.op, PlaceholderOp):
        raise stage.error(
            "env_threads: the stage is a placeholder, which is not computed",
            mend="Use s.cache_read to stage an argument through another memory",
        )
    stage.env = found
    stage.lines["env_threads"] = user_location()
