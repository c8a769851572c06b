"""What the states of scans are in memory: the outputs, the first rows and the updates in one.

A schedule keeps the tensors of a scan apart, so that the graph of its stages has no cycle; here
they become one buffer.
"""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Load
from tilewright.ir.stmt import Allocate, For, ForKind, If, Remark, Seq, Stmt, Store, seq
from tilewright.ir.visit import Rewriter, Steps, replace_buffers
from tilewright.schedule.relations import Split, descended, made, parents
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.scan import ScanOp


def scans(schedule: Schedule) -> list[tuple[Stage, ScanOp]]:
    """The stages of recurrences, checked: their steps are loops in order, outside of all others,
    and what is computed of a state is computed in the step. States of different shapes have loops
    of their own in there.

    Raises :class:`LoweringError` where that is not so.
    """
    found = [(s, s.op) for s in schedule.stages if isinstance(s.op, ScanOp)]
    for stage, op in found:
        steps = [op.scan_axis]
        for relation in stage.relations:
            if isinstance(relation, Split) and relation.parent in steps:
                at = steps.index(relation.parent)
                steps[at : at + 1] = [relation.outer, relation.inner]
        for place, axis in enumerate(steps):
            if place >= len(stage.leaf_iter_vars) or stage.leaf_iter_vars[place] is not axis:
                raise stage.contradiction(
                    "the steps of a scan are its outermost loops, in their order",
                    axis,
                    "Leave the scan axis out of fuse, and in front in reorder",
                )
            mark = stage.marks.get(axis)
            if mark is not None and mark.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
                raise stage.contradiction(
                    f"the steps of a scan depend on one another, but the loop is {mark.said}",
                    axis,
                    "Mark another axis",
                    mark.where,
                )
        if op.apart:
            _check_apart(stage, op)
        again = set(op.steps())
        for other in schedule.stages:
            if other.op in again and not _inside(other, stage):
                raise other.contradiction(
                    f"it is computed of a state of {op.name!r}, but not in its steps",
                    mend=f"Leave it where it is, or attach it to a stage in the steps of {op.name}",
                    where=other.attachment.where,
                )
    return found


def _check_apart(stage: Stage, op: ScanOp) -> None:
    """Loops of one state have nothing to do with those of another."""
    if stage.attachment.kind == "at":
        raise stage.contradiction(
            "its states have different shapes, of which one part is no part of the others",
            stage.attachment.axis,
            "Leave it at the root",
            stage.attachment.where,
        )
    loops = [descended(stage.relations, own) for own in op.apart]
    for relation in stage.relations:
        if not any(own.issuperset(parents(relation)) for own in loops):
            raise stage.contradiction(
                "one axis is made of axes of states of different shapes",
                made(relation)[0],
                "Fuse and skew axes of one state",
                relation.where,
            )
    shared = set.intersection(*loops)
    for other in stage.schedule.stages:
        at = other.attachment
        if at.kind == "at" and at.stage is stage and at.axis not in shared:
            raise other.contradiction(
                f"it is computed in the loop of one state of {op.name!r}, but in every step all "
                "of them are computed, one after the other",
                at.axis,
                f"Compute it at a loop of the steps of {op.name}, or of one of its updates",
                at.where,
            )


def _inside(stage: Stage, scan: Stage) -> bool:
    at: Stage | None = stage
    while at is not None:
        if at is scan:
            return True
        at = at.attachment.stage
    return False


def in_place(schedule: Schedule, found: list[tuple[Stage, ScanOp]]) -> dict[Buffer, Buffer]:
    """By buffer of the first rows, of an update and of a state, the output that it becomes."""
    made: dict[Buffer, Buffer] = {}
    for stage, op in found:
        body = {e.buffer: k for k, e in enumerate(op.body) if isinstance(e, Load)}
        for k, (first, state) in enumerate(zip(op.inits, op.states, strict=True)):
            out = op.outputs[k].buffer
            made[state.buffer] = out
            own = schedule.stage_of(first.buffer)
            if own is not None and own.scope in ("", "global") and own.op not in schedule.outputs:
                made[first.buffer] = out
            else:
                raise LoweringError(
                    f"the first rows {first.name!r} of the scan {op.name!r} are inlined, an "
                    "output, or kept in other memory",
                    stage=stage.name,
                    where=op.where,
                    mend="Leave them as they are: they are stored in the output itself",
                )
            for buffer, number in body.items():
                update = schedule.stage_of(buffer)
                if number == k and update is not None and update.scope in ("", "global"):
                    if [s for s in schedule.consumers(update) if s is not stage]:
                        continue
                    made[buffer] = out
    return made


def unite(body: Stmt, same: dict[Buffer, Buffer], parts: dict[Buffer, Buffer]) -> Stmt:
    """The program in which those buffers are one, without the copies of it onto itself."""
    renamed = {old: parts.get(new, new) for old, new in same.items()}
    made: Stmt | None = _Copies(set(renamed.values())).stmt(replace_buffers(body, renamed))
    assert made is not None
    return made


class _Copies(Rewriter):
    """Leaves out stores of what is there, and the loops around nothing."""

    def __init__(self, buffers: set[Buffer]) -> None:
        self.buffers = buffers

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Store(buffer, indices, Load(read, same, None)) if (
                buffer in self.buffers and read is buffer and indices == same
            ):
                return Seq(())
        s = yield from super().steps(s)
        match s:
            case For(body=Seq(())) | If(then=Seq(()), orelse=None) | Remark(body=Seq(())):
                return Seq(())
            case Allocate(body=Seq(())):
                return Seq(())
            case Seq(stmts):
                return seq(*(x for x in stmts if not (isinstance(x, Seq) and not x.stmts)))
        return s
