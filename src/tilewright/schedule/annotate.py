"""parallel, vectorize, unroll, pragma: how the iterations of a loop are carried out."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.ir.errors import user_location
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind, Pragma
from tilewright.schedule.stage import Stage

_PRIMITIVES = {
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorize",
    ForKind.UNROLLED: "unroll",
}


#: TVM's pragmas that say how its threads and its debugger work, which are others here.
_HINTS = (
    "parallel_launch_point",
    "parallel_stride_pattern",
    "parallel_barrier_when_finish",
    "debug_skip_region",
)


def annotate(stage: Stage, axis: IterVar, kind: ForKind) -> None:
    """Carry out the loop in parallel (threads of a CPU), as a vector, or unrolled.

    Raises :class:`ScheduleError` where the loop is already marked otherwise, and where a
    reduction would run in parallel or as a vector: its iterations depend on one another.
    """
    name = _PRIMITIVES[kind]
    stage.leaf(axis, name)
    mark = stage.mark(axis)
    if mark.kind not in (ForKind.SERIAL, kind) or mark.instruction is not None:
        raise stage.error(
            f"{name}: the axis is already {mark.said}",
            axis,
            f"Split the axis, and {name} one of its parts",
        )
    if axis.kind == "reduce" and kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
        raise stage.error(
            f"{name}: the iterations of a reduction depend on one another",
            axis,
            "Use rfactor on it first, or mark a data axis",
        )
    mark.kind, mark.where = kind, user_location()


def pragma(stage: Stage, axis: IterVar, key: str, value: Any) -> None:
    """Attach a pragma to a loop: ``auto_unroll_max_step`` (unroll loops inside whose product of
    extents is at most the value; of 1, LLVM does not unroll the loop, either), ``unroll_explicit``
    (write unrolled loops out), ``trim`` and ``partition`` (False switches that pass off for the
    loop, and True divides it for a guard of any share of its work), ``stream_stores`` (whole
    vectors of the result go past the caches: a hint, which targets other than x86 CPUs leave out),
    ``descending`` (the first block or thread along the axis to which the loop is bound has the last
    iteration: blocks begin in their order, and those that take longest should be first),
    ``import_llvm`` (LLVM IR as text, whose functions ``te.call_extern`` finds on target "llvm").

    Raises :class:`ScheduleError` for a key that nothing knows, and where the number of steps is
    none.
    """
    stage.leaf(axis, "pragma")
    if key in _HINTS:
        return
    if key not in tuple(Pragma):
        raise stage.error(f"unknown pragma {key!r}", axis, f"The pragmas are {', '.join(Pragma)}")
    if key == Pragma.AUTO_UNROLL_MAX_STEP:
        try:
            value = operator.index(value)
        except TypeError:
            raise stage.error(
                f"pragma {key} takes a number of steps, got {value!r}", axis, "Give an integer"
            ) from None
    stage.mark(axis).pragmas[Pragma(key)] = True if value is None else value
