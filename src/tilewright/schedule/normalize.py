"""normalize: inlined stages disappear into their consumers."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import cast
from tilewright.ir.visit import loads, rewrite_exprs, substitute
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp, ExternOp, Operation


def normalize(schedule: Schedule) -> Schedule:
    """A copy of ``schedule`` in which no stage is inlined; the original stays as it is."""
    copy = Schedule.__new__(Schedule)
    copy.outputs, copy.stages, copy._by_buffer = list(schedule.outputs), [], {}
    inlined: dict[Buffer, tuple[tuple[IterVar, ...], Expr]] = {}
    clones: dict[Stage, Stage] = {}
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, ComputeOp):
            body = tuple(_inline(e, inlined) for e in op.body)
            if any(a is not b for a, b in zip(body, op.body, strict=True)):
                op = op.derive(body)
                copy.outputs = [op if o is stage.op else o for o in copy.outputs]
        elif isinstance(op, ExternOp) and any(t.buffer in inlined for t in op.reads):
            raise stage.contradiction(
                "an extern stage reads its inputs from memory, but one of them is inlined",
                mend="Leave out compute_inline for the inputs of extern stages",
            )
        if stage.attachment.kind == "inline" and isinstance(op, ComputeOp):
            for tensor, value in zip(op.outputs, op.body, strict=True):
                inlined[tensor.buffer] = (op.axis, value)
            continue
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


def _inline(e: Expr, inlined: dict[Buffer, tuple[tuple[IterVar, ...], Expr]]) -> Expr:
    if not inlined or all(read.buffer not in inlined for read in loads(e)):
        return e

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in inlined:
            return None
        axes, body = inlined[node.buffer]
        # An axis keeps its type whatever the type of the index in its place, say one from memory.
        mapping = {a.var: cast(a.var.dtype, i) for a, i in zip(axes, node.indices, strict=True)}
        found: Expr = substitute(body, mapping)
        return found

    found: Expr = rewrite_exprs(e, rule)
    return found


def _clone(stage: Stage, schedule: Schedule, op: Operation) -> Stage:
    made = Stage.__new__(Stage)
    made.__dict__.update(stage.__dict__)
    made.schedule = schedule
    made.op = op
    made.leaf_iter_vars = list(stage.leaf_iter_vars)
    made.relations = list(stage.relations)
    return made
