"""partition: what a stage makes, in parts along an axis, each a stage of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright.ir.expr import Expr, IntImm, Reduce, Var
from tilewright.ir.expr import load as read_at
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, const, if_then_else, sub
from tilewright.ir.visit import substitute
from tilewright.schedule.cache import make_operation, replace_output
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor


def partition(s: Schedule, tensor: Tensor, axis: IterVar, points: Sequence[int]) -> list[Tensor]:
    """Compute ``tensor`` in parts along ``axis``, which begin at 0 and at each of ``points``.

    ``T[i] = A[i]`` of eight elements becomes, with ``points`` of 2, ``T0[i] = A[i]`` of two and
    ``T2[i] = A[i + 2]`` of six, and ``T[i] = T2[i - 2] if i >= 2 else T0[i]``, which is to be
    inlined: what reads ``T`` where loops are unrolled then reads one of them. Each of the parts,
    which are returned, has loops of its own, so that vectors may be as wide as what they load is
    aligned, and lies in the scope of ``tensor``. The stage of ``tensor`` keeps its axes.

    Raises :class:`ScheduleError` where that is a sum, has several results or was scheduled already,
    where ``axis`` is none of its own or has no constant extent, and where ``points`` do not rise
    within it.
    """
    stage = s[tensor]
    op = stage.op
    if not isinstance(op, ComputeOp) or len(op.outputs) != 1 or isinstance(op.body[0], Reduce):
        raise stage.error(
            "partition: the stage does not make its elements one by one",
            mend="Use s.reindex or s.cache_read first, whose copy has parts; of a sum, s.rfactor",
        )
    stage.unused("partition")
    if stage.relations or stage.marks:
        raise stage.error(
            "partition: the stage was already scheduled",
            mend="Call partition first, and schedule the parts that it makes",
        )
    extent = _extent(stage, op, axis)
    ends = [0, *points, extent]
    whole = all(type(p) is int for p in points)
    if not points or not whole or any(a >= b for a, b in pairwise(ends)):
        raise stage.error(
            f"partition: parts do not begin at {list(points)}",
            axis,
            f"Give integers that rise, above 0 and below {extent}",
        )
    place, made = op.axis.index(axis), list[Tensor]()
    own: dict[Any, Expr] = {a: a.var for a in op.axis}
    value: Expr | None = None
    for first, end in pairwise(ends):
        part = _part(op, place, first, end - first)
        kept = Stage(s, part)
        kept.scope = stage.scope
        s.add(kept, before=s[made[-1]] if made else stage)  # as the choice names them
        made.append(part.outputs[0])
        read = read_at(made[-1].buffer, tuple({**own, axis: sub(axis.var, first)}.values()))
        value = read if value is None else if_then_else(axis.var >= first, read, value)
    assert value is not None
    derived = op.derive((value,))
    stage.op = derived
    replace_output(s, op, derived)
    return made


def _extent(stage: Stage, op: ComputeOp, axis: IterVar) -> int:
    if axis in op.axis and axis.dom is not None and isinstance(axis.dom.extent, IntImm):
        return axis.dom.extent.value
    known = [a.name for a in op.axis if a.dom is not None and isinstance(a.dom.extent, IntImm)]
    raise stage.error(
        "partition: it goes along an axis of the declaration that has a constant extent",
        axis if isinstance(axis, IterVar) else None,
        f"Such axes are {', '.join(known) or 'none'}",
    )


def _part(op: ComputeOp, place: int, first: int, extent: int) -> ComputeOp:
    """An operation that makes some of the elements."""
    axes = []
    for k, axis in enumerate(op.axis):
        assert axis.dom is not None
        dom = Range.from_extent(0, const(extent, axis.var.dtype)) if k == place else axis.dom
        axes.append(IterVar(dom, Var.make(axis.name, axis.var.dtype), axis.kind))
    at: dict[Var, Expr] = {old.var: new.var for old, new in zip(op.axis, axes, strict=True)}
    at[op.axis[place].var] = add(axes[place].var, first)
    return make_operation(f"{op.name}.from{first}", tuple(axes), (substitute(op.body[0], at),))
