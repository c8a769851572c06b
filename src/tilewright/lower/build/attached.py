"""Where a stage is computed: the loops of other stages around it, and the memory that follows."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Attachment, Stage


def thread_rank(tag: str) -> int:
    """0 for axes of blocks, 1 for axes of threads in a block, virtual ones included."""
    return 0 if tag.startswith("blockIdx") else 1


def default_scope(stage: Stage) -> str:
    """Where nothing is said, the memory of the innermost threads that the stage is inside of."""
    rank = -1
    for parent, leaf in enclosing_loops(stage):
        mark = parent.marks.get(leaf)
        if mark is not None and mark.thread is not None:
            rank = max(rank, thread_rank(mark.thread.tag))
    return {-1: "global", 0: "shared", 1: "local"}[rank]


def enclosing_loops(stage: Stage) -> list[tuple[Stage, IterVar]]:
    """The loops of other stages that a stage is computed inside of, the innermost first."""
    found: list[tuple[Stage, IterVar]] = []
    at = stage.attachment
    while at.kind == "at":
        assert at.stage is not None
        assert at.axis is not None
        place = attach_place(stage, at)
        found += [(at.stage, leaf) for leaf in reversed(at.stage.leaf_iter_vars[: place + 1])]
        stage, at = at.stage, at.stage.attachment
    return found


def loops_of_threads_around(stage: Stage) -> list[tuple[Stage, IterVar]]:
    """As :func:`enclosing_loops`, those that are bound to threads only. Of a reduction across
    threads these go around all of its loops, wherever they stand among them."""
    found = list(enclosing_loops(stage))
    at = stage.attachment
    while at.kind == "at":
        assert at.stage is not None
        leaves, place = at.stage.leaf_iter_vars, attach_place(stage, at)
        if any(leaf.kind == "reduce" for leaf in leaves[: place + 1]):
            found += [(at.stage, x) for x in leaves[place + 1 :] if x.kind == "reduce"]
        stage, at = at.stage, at.stage.attachment
    marks = [(parent, leaf, parent.marks.get(leaf)) for parent, leaf in found]
    return [(p, leaf) for p, leaf, mark in marks if mark is not None and mark.thread is not None]


def attach_place(stage: Stage, at: Attachment) -> int:
    """The position, among the loops of the stage it is computed at, of the axis it is computed at.

    Raises :class:`LoweringError` where that is no loop any more.
    """
    assert at.stage is not None
    assert at.axis is not None
    for position, leaf in enumerate(at.stage.leaf_iter_vars):
        if leaf is at.axis:
            return position
    leaves = ", ".join(a.name for a in at.stage.leaf_iter_vars) or "none"
    raise stage.contradiction(
        f"it is computed at an axis of stage {at.stage.name!r} that was split or fused afterwards",
        at.axis,
        f"Compute it at one of the loops that there are now: {leaves}",
        at.where,
    )
