"""normalize: inlined stages disappear into their consumers."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import cast
from tilewright.ir.visit import BottomUp, substitute
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp, ExternOp, Operation


def normalize(schedule: Schedule) -> Schedule:
    """A copy of ``schedule`` in which no stage is inlined; the original stays as it is."""
    copy = Schedule.__new__(Schedule)
    copy.outputs, copy.stages, copy._by_buffer = list(schedule.outputs), [], {}
    copy._readers = ([], {})
    inlined: dict[Buffer, tuple[tuple[IterVar, ...], Expr]] = {}
    for stage in schedule.stages:
        if stage.attachment.kind == "inline" and isinstance(stage.op, ComputeOp):
            for tensor, value in zip(stage.op.outputs, stage.op.body, strict=True):
                inlined[tensor.buffer] = (stage.op.axis, value)
    inline = _Inline(inlined)
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
            clone.attachment = Attachment("at", parent, at.axis, at.where)
    return copy


class _Inline(BottomUp):
    """Puts the values of inlined stages in place of what is read of them.

    A value is put in as it was declared and then treated as the rest, so that a chain of stages is
    gone through once, whatever its length.
    """

    def __init__(self, inlined: dict[Buffer, tuple[tuple[IterVar, ...], Expr]]) -> None:
        super().__init__()
        self.inlined = inlined

    def expanded(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in self.inlined:
            return None
        axes, body = self.inlined[e.buffer]
        # An axis keeps its type whatever the type of the index in its place, say one from memory.
        mapping = {a.var: cast(a.var.dtype, i) for a, i in zip(axes, e.indices, strict=True)}
        found: Expr = substitute(body, mapping)
        return found


def _clone(stage: Stage, schedule: Schedule, op: Operation) -> Stage:
    made = Stage.__new__(Stage)
    made.__dict__.update(stage.__dict__)
    made.schedule = schedule
    made.op = op
    made.leaf_iter_vars = list(stage.leaf_iter_vars)
    made.relations = list(stage.relations)
    return made
