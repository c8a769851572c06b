"""``tvm.te.schedule``'s steps of lowering: ranges of axes, and loops."""

from __future__ import annotations

from typing import Any

from tilewright.ir.stmt import Stmt
from tilewright.lower.build.bounds import infer_bounds
from tilewright.lower.build.schedule_to_func import schedule_to_func
from tilewright.schedule import Schedule
from tilewright.te import Range


def infer_bound(s: Schedule) -> dict[Any, Range]:
    """By axis its range, as TVM's ``schedule.InferBound`` gives them: those of loops from 0."""
    bounds = infer_bounds(s.normalize())
    found: dict[Any, Range] = {}
    for stage, domain in bounds.domains.items():
        for axis, extent in domain.extents.items():
            start = domain.starts.get(axis, 0) if axis in stage.leaf_iter_vars else 0
            found[axis] = Range.from_extent(domain.starts.get(axis, start), extent)
        for mark in stage.marks.values():
            if mark.thread is not None:
                extents = [domain.extents[a] for a, m in stage.marks.items() if m is mark]
                found[mark.thread] = Range.from_extent(0, extents[0])
    return found


def schedule_ops(s: Schedule, bounds: Any = None, debug_keep_trivial_loop: bool = False) -> Stmt:
    """The loops of a schedule, as TVM's ``schedule.ScheduleOps``."""
    return schedule_to_func(s, (), partial=True).body
