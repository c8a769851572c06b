"""Where a stage is computed: the loops of other stages around it, and the memory that follows."""

from __future__ import annotations

from typing import TypeAlias

from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Attachment, Stage

#: Loops of stages.
_Loops: TypeAlias = list[tuple[Stage, IterVar]]


def thread_rank(tag: str) -> int:
    """0 for axes of blocks, 1 for axes of threads in a block, virtual ones included."""
    return 0 if tag.startswith("blockIdx") else 1


def enclosing_loops(stage: Stage, at: Attachment | None = None) -> list[tuple[Stage, IterVar]]:
    """The loops of other stages that a stage is computed inside of, the innermost first; or those
    of another place, ``at`` which it is kept."""
    found: list[tuple[Stage, IterVar]] = []
    at = at or stage.attachment
    while at.kind == "at":
        assert at.stage is not None
        assert at.axis is not None
        place = attach_place(stage, at)
        found += [(at.stage, leaf) for leaf in reversed(at.stage.leaf_iter_vars[: place + 1])]
        stage, at = at.stage, at.stage.attachment
    return found


class Nesting:
    """The loops of threads around the stages of a schedule. What was found for one is kept for
    those inside of it, so that all of them take time by the number of stages."""

    def __init__(self) -> None:
        self._known: dict[Stage, tuple[_Loops, _Loops]] = {}

    def threads(self, stage: Stage) -> _Loops:
        """Those of :func:`enclosing_loops` that are bound to threads."""
        return self._found(stage)[0]

    def all_threads(self, stage: Stage) -> _Loops:
        """With the threads of reductions, which go around all of the loops of their stage, wherever
        they stand among them."""
        around, beside = self._found(stage)
        return around + beside

    def default_scope(self, stage: Stage) -> str:
        """Where nothing is said, the memory of the innermost threads around the stage."""
        rank = -1
        for parent, leaf in self.threads(stage):
            thread = parent.marks[leaf].thread
            assert thread is not None
            rank = max(rank, thread_rank(thread.tag))
        return {-1: "global", 0: "shared", 1: "local"}[rank]

    def _found(self, stage: Stage) -> tuple[_Loops, _Loops]:
        waiting: list[tuple[Stage, Stage]] = []
        while stage not in self._known and stage.attachment.kind == "at":
            assert stage.attachment.stage is not None
            waiting.append((stage, stage.attachment.stage))
            stage = stage.attachment.stage
        around, beside = self._known.get(stage, ([], []))
        for inner, outer in reversed(waiting):
            leaves, place = outer.leaf_iter_vars, attach_place(inner, inner.attachment)
            bound = {leaf for leaf, mark in outer.marks.items() if mark.thread is not None}
            around = [(outer, x) for x in reversed(leaves[: place + 1]) if x in bound] + around
            if any(leaf.kind == "reduce" for leaf in leaves[: place + 1]):
                late = [x for x in leaves[place + 1 :] if x in bound and x.kind == "reduce"]
                beside = [(outer, x) for x in late] + beside
            self._known[inner] = around, beside
        return around, beside


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
