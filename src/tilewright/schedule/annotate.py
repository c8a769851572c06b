"""parallel, vectorize, unroll, pragma: how the iterations of a loop are carried out."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind
from tilewright.schedule.stage import Stage

#: Pragmas that code generation and lowering know.
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit", "trim", "partition", "import_llvm")


def annotate(stage: Stage, axis: IterVar, kind: ForKind) -> None:
    """Carry out the loop in parallel (threads of a CPU), as a vector, or unrolled.

    Raises :class:`ScheduleError` where the loop is already marked otherwise, and where a
    reduction would run in parallel or as a vector: its iterations depend on one another.
    """
    stage.leaf(axis, kind.value)
    mark = stage.mark(axis)
    if mark.kind not in (ForKind.SERIAL, kind):
        bound = f"bound to {mark.thread.tag}" if mark.thread is not None else mark.kind.value
        raise stage.error(f"{kind.value}: the axis is already {bound}", axis)
    if axis.kind == "reduce" and kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
        raise stage.error(
            f"{kind.value}: the iterations of a reduction depend on one another",
            axis,
            "Use rfactor on it first, or mark a data axis",
        )
    mark.kind, mark.where = kind, user_location()


def pragma(stage: Stage, axis: IterVar, key: str, value: Any) -> None:
    """Attach a pragma to a loop: ``auto_unroll_max_step`` (unroll loops inside whose product of
    extents is at most the value), ``unroll_explicit`` (write unrolled loops out), ``trim`` and
    ``partition`` (False switches that pass off for the loop).

    Raises :class:`ScheduleError` for a key that nothing knows.
    """
    stage.leaf(axis, "pragma")
    if key not in PRAGMAS:
        raise stage.error(f"unknown pragma {key!r}", axis, f"The pragmas are {', '.join(PRAGMAS)}")
    stage.mark(axis).pragmas[key] = True if value is None else value
