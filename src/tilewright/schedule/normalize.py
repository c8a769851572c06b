"""normalize: inlined stages disappear into their consumers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.arith.spans import type_span
from tilewright.arith.widths import Widths
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, LetExpr, Load, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import cast
from tilewright.ir.visit import BottomUp, exprs, substitute
from tilewright.schedule.attach import depends
from tilewright.schedule.relations import descended
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp, ExternOp, Operation


def normalize(schedule: Schedule) -> Schedule:
    """A copy of ``schedule`` in which no stage is inlined; the original stays as it is."""
    copy = Schedule.__new__(Schedule)
    copy.outputs, copy.stages, copy._by_buffer = list(schedule.outputs), [], {}
    copy._readers, copy.moved = ([], {}), schedule.moved
    copy.separators = dict(schedule.separators)
    inlined: dict[Buffer, tuple[tuple[IterVar, ...], Expr]] = {}
    for stage in schedule.stages:
        if stage.attachment.kind == "inline" and isinstance(stage.op, ComputeOp):
            for tensor, value in zip(stage.op.outputs, stage.op.body, strict=True):
                inlined[tensor.buffer] = (stage.op.axis, value)
    inline = _Inline({buffer: _Inlined(*value) for buffer, value in inlined.items()})
    clones: dict[Stage, Stage] = {}
    for stage in schedule.stages:
        op = stage.op
        if stage.attachment.kind == "inline" and isinstance(op, ComputeOp):
            continue
        if inlined and isinstance(op, ComputeOp):
            body = tuple(map(inline.expr, op.body))
            if any(a is not b for a, b in zip(body, op.body, strict=True)):
                op = op.derive(body)
                copy.outputs = [op if o is stage.op else o for o in copy.outputs]
        elif isinstance(op, ExternOp) and any(t.buffer in inlined for t in op.reads):
            raise stage.contradiction(
                "an extern stage reads its inputs from memory, but one of them is inlined",
                mend="Leave out compute_inline for the inputs of extern stages",
            )
        clone = _clone(stage, copy, op)
        clones[stage] = clone
        copy.add(clone)
    for clone in clones.values():
        at = clone.attachment
        if at.kind == "at":
            assert at.stage is not None
            parent = clones.get(at.stage)
            if parent is None:
                raise clone.contradiction(
                    f"compute_at: stage {at.stage.name!r}, at whose axis it is computed, is "
                    f"inlined ({at.stage.attachment.where})",
                    at.axis,
                    "Compute it at a consumer that has loops",
                    at.where,
                )
            clone.attachment = Attachment("at", parent, _innermost(parent, at.axis), at.where)
            if clone.beside is not None:
                clone.beside = parent
                _in_order(copy, clone, parent)
    return copy


def _in_order(s: Schedule, stage: Stage, parent: Stage) -> None:
    """Put ``stage`` and what it reads before ``parent``, with which it is computed, and what reads
    it behind that one."""
    place = s.stages.index(parent)
    first, last = s.stages[:place], s.stages[place + 1 :]
    made = [x for x in last if x is stage or depends(stage, x)]
    read = [x for x in first if depends(x, stage)]
    first = [x for x in first if x not in read]
    s.stages = [*first, *made, parent, *read, *(x for x in last if x not in made)]


def _innermost(parent: Stage, axis: IterVar | None) -> IterVar | None:
    """The loop that ``axis`` is, or the innermost of those that it was made into since a stage was
    attached to it."""
    if axis is None:
        return None
    axes = descended(parent.relations, [axis])
    leaves = [leaf for leaf in parent.leaf_iter_vars if leaf in axes]
    return leaves[-1] if leaves else axis


class _Inline(BottomUp):
    """Puts the values of inlined stages in place of what is read of them.

    A value is put in as it was declared and then treated as the rest, so that a chain of stages is
    gone through once, whatever its length.
    """

    def __init__(self, inlined: dict[Buffer, _Inlined]) -> None:
        super().__init__()
        self.inlined = inlined

    def expanded(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in self.inlined:
            return None
        value = self.inlined[e.buffer]
        # An axis keeps its type whatever the type of the index in its place, say one from memory.
        mapping = {a.var: cast(a.var.dtype, i) for a, i in zip(value.axes, e.indices, strict=True)}
        exact = all(index.exact for index in mapping.values())
        found: Expr = substitute(value.body if exact else value.wide, mapping)
        return found


@dataclass(frozen=True)
class _Inlined:
    """What an inlined stage computes of its axes."""

    axes: tuple[IterVar, ...]
    body: Expr

    @cached_property
    def wide(self) -> Expr:
        """The same for indices that are data, of which arithmetic wraps around in its type: in 64
        bits where that of axes, which are integers without end, might leave 32."""
        widths = Widths("that inlines a stage")
        for part in exprs(self.body):
            if isinstance(part, Var) and part.exact and part.dtype.is_int:
                widths.learn(part, type_span(part.dtype))
        for axis in self.axes:
            if axis.dom is not None:
                low, extent = widths.span(axis.dom.min), widths.span(axis.dom.extent)
                widths.learn(axis.var, (low[0], max(low[0], low[1] + extent[1] - 1)))
        _OperandsFirst(widths).expr(self.body)
        return widths.expr(self.body)


class _OperandsFirst(BottomUp):
    """Lets operands be rewritten before what reads them, so that height takes no stack."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self.widths = widths

    def given(self, e: Expr) -> Expr | None:
        return e if isinstance(e, LetExpr) else None  # below it, ranges are others

    def made(self, old: Expr, new: Expr) -> Expr:
        self.widths.expr(old)
        return old


def _clone(stage: Stage, schedule: Schedule, op: Operation) -> Stage:
    made = Stage.__new__(Stage)
    made.__dict__.update(stage.__dict__)
    made.schedule = schedule
    made.op = op
    made.leaf_iter_vars = list(stage.leaf_iter_vars)
    made.relations = list(stage.relations)
    return made
