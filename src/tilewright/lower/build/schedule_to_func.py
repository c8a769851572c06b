"""Loops: a schedule becomes one function over buffers.

Every stage becomes a nest of its leaf axes around a store
(:mod:`~tilewright.lower.build.stage_nest`); an attached stage stands in the body of the loop that
it is attached to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import const, is_const, sub
from tilewright.ir.stmt import Allocate, FillAhead, For, ForKind, If, Produce, Stmt, seq
from tilewright.ir.visit import Rewriter, Steps, replace_buffers, run, substitute
from tilewright.lower.build.bounds import Bounds, infer_bounds
from tilewright.lower.build.check_arguments import check_params, check_variables
from tilewright.lower.build.declared_reads import declared_in_bounds
from tilewright.lower.build.names_apart import names_apart
from tilewright.lower.build.recurrences import in_place, scans, unite
from tilewright.lower.build.rolling_updates import updated
from tilewright.lower.build.scan_nest import ScanNest
from tilewright.lower.build.stage_nest import StageNest
from tilewright.lower.build.storage_align import aligned_strides
from tilewright.lower.build.swizzled_layout import swizzled_layout
from tilewright.lower.build.thread_nest import ThreadNest, reduces_by_threads
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp, ExternOp, PlaceholderOp
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import Tensor


def schedule_to_func(
    schedule: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: Mapping[Any, Buffer] | None = None,
    partial: bool = False,
) -> Func:
    """The program of a schedule over ``args``: tensors, buffers and symbolic variables.

    ``binds`` are other buffers for those of some arguments, say with strides of their own, and
    buffers of one element that hold the values of variables that are no integers. With
    ``partial`` an output that is not among ``args`` is memory of the program's own, and an input
    that is not among them is left open, for programs to look at.

    Raises :class:`LoweringError` where an input or output of the schedule is missing in ``args``,
    and where stages are attached or bound in ways that contradict each other.
    """
    args, normal = schedule.resolved(args), schedule.normalize()
    params = tuple(a.buffer if isinstance(a, Tensor) else a for a in args)
    recurrences = scans(normal)
    same = in_place(normal, recurrences)
    check_params(
        normal, params, args, {s.buffer for _, op in recurrences for s in op.states}, partial,
        frozenset(binds or ()),
    )  # fmt: skip
    bounds = infer_bounds(normal)
    nests = Nests(bounds, {*params, *same})
    body = nests.program()
    if same:
        body = unite(body, same, {old: part for old, (part, _) in nests.parts.items()})
    if binds:
        scalars = {v: b for v, b in binds.items() if isinstance(v, Var)}
        body = replace_buffers(body, {b: o for b, o in binds.items() if b not in scalars})
        body = substitute(body, {v: Load(b, (const(0),), None) for v, b in scalars.items()})
        params = tuple(binds.get(p, p) for p in params)
    if not partial:
        check_variables(body, params)
    return Func(name, *names_apart(params, body))


class _Views(Rewriter):
    """Reads of a stage's full tensor become reads of the part that is kept."""

    def __init__(self, parts: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]]) -> None:
        self.parts = parts

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in self.parts:
            part, mins = self.parts[e.buffer]
            indices = tuple(sub(self.expr(i), m) for i, m in zip(e.indices, mins, strict=True))
            if part.scope in (
                "local",
                "fragment",
            ):  # no index of threads shall stand where there is no choice
                indices = tuple(
                    const(0) if is_const(extent, 1) else i
                    for i, extent in zip(indices, part.shape, strict=True)
                )
            return Load(part, indices, e.predicate)
        return super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        return self.parts[b][0] if b in self.parts else b


class Nests:
    """The nests of all stages, and the buffers between them."""

    def __init__(self, bounds: Bounds, params: set[Any]) -> None:
        self.bounds, self.params = bounds, params
        self.schedule = bounds.schedule
        self.pipelined_over = {s.pipelined_over for s in self.schedule.stages}
        self.parts: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
        self.attached: dict[tuple[Stage, IterVar], list[Stage]] = {}
        for stage in self.schedule.stages:
            at = stage.attachment
            if at.kind == "at" and at.stage is not None and at.axis is not None:
                self.attached.setdefault((at.stage, at.axis), []).append(stage)
            if not isinstance(stage.op, PlaceholderOp):
                self._make_buffers(stage)
        self.views = _Views(self.parts)
        self.within: dict[Stage, bool] = {}
        self.stages: dict[Stage, StageNest] = {}
        self.warm: dict[Stage, StageNest] = {}  # of rolling stages, what is computed before
        for stage in self.schedule.stages:  # producers before their consumers
            if isinstance(stage.op, ComputeOp):
                nest: type[StageNest] = ThreadNest if reduces_by_threads(stage) else StageNest
                if stage in bounds.warm:
                    self.warm[stage] = nest(self, stage, bounds.warm[stage])
                if isinstance(stage.op, ScanOp) and stage.op.apart:
                    nest = ScanNest
                with bounds.analyzer.assume(bounds.rolls.get(stage, const(True))):
                    self.stages[stage] = nest(self, stage, bounds.domains[stage])

    def read_within(self, stage: Stage) -> bool:
        """Whether other stages read a stage within its tensor, as they are declared."""
        if stage not in self.within:
            made = {t.buffer for t in stage.op.outputs}
            readers = [consumer.op for consumer in self.schedule.consumers(stage)]
            self.within[stage] = all(
                declared_in_bounds(op, made) for op in readers if isinstance(op, ComputeOp)
            )
        return self.within[stage]

    def complete(self, stage: Stage) -> bool:
        """Whether every element of what is kept of a stage is computed, in the loop and before."""
        parts = (self.stages.get(stage), self.warm.get(stage))
        return all(nest.complete for nest in parts if nest is not None)

    def program(self) -> Stmt:
        """The root: every stage that is computed there, in order, and the buffers between."""
        nests: list[Stmt] = []
        buffers: list[Buffer] = []
        for stage in self.schedule.stages:
            if isinstance(stage.op, PlaceholderOp) or stage.attachment.kind == "at":
                continue
            nests += [self.begin(other) for other in self.beside(stage)]
            nests.append(run(self.produce(stage)))
            for tensor in (t for x in (stage, *self.beside(stage)) for t in x.op.outputs):
                if tensor.buffer not in self.params:
                    buffers.append(self.parts[tensor.buffer][0])
        body = seq(*nests)
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return body

    def _make_buffers(self, stage: Stage) -> None:
        domain = self.bounds.domains[stage]
        kept_mins, kept = self.bounds.kept.get(stage, (domain.mins, domain.shape))
        for tensor in stage.op.outputs:
            old = tensor.buffer
            layout, align = None, 0
            if stage.alignments:
                layout = Layout(aligned_strides(kept, stage.alignments))
            elif stage.swizzled:
                layout, align = swizzled_layout(stage, kept, self.bounds.scopes[stage])
            shape = kept if stage.op.axis else old.shape
            mins = kept_mins if stage.op.axis else tuple(const(0) for _ in shape)
            if old in self.params or isinstance(stage.op, ScanOp):
                # whole, also where a part of it is computed at a time
                new, mins = old, tuple(const(0) for _ in old.shape)
            else:
                new = Buffer(old.name, shape, old.dtype, self.bounds.scopes[stage], layout, align)
            self.parts[old] = (new, mins)

    def produce(self, stage: Stage, warm: bool = False) -> Steps:
        """What computes a stage, or of a rolling one what comes before, marked with its name. As
        stages nest as deep as there are any, :func:`run` carries it out."""
        op = stage.op
        if isinstance(op, ExternOp):
            body: Stmt = self.views.stmt(op.body)
        else:
            body = yield (self.warm if warm else self.stages)[stage].build()
        for thread in reversed(stage.env):
            assert thread.dom is not None
            body = For(thread.var, const(0), thread.dom.extent, ForKind.THREAD, body, thread.tag)
        if stage.pipelined:
            filled = self.parts[op.outputs[0].buffer][0]
            over = stage.pipelined_over
            body = FillAhead(filled, stage.pipelined, over, body, stage.produced)
        return Produce(stage.name, body)

    def inside(self, stage: Stage, leaf: IterVar, body: Stmt) -> Steps:
        """``body`` of the loop ``leaf`` of ``stage``, after the stages that are attached there."""
        for producer in reversed(self.attached.get((stage, leaf), [])):
            if producer.rolls_along is not None:
                made = yield self.produce(producer)
                rolls = producer.beside is None
                body = updated(self, stage, producer, made, body) if rolls else seq(made, body)
                continue
            if producer not in self.warm:
                made = yield self.produce(producer)
                body = self._allocated(producer, seq(made, body))
                for other in self.beside(producer):
                    body = self._allocated(other, seq(self.begin(other), body))
                continue
            adds, analyzer = self.bounds.rolls[producer], self.bounds.analyzer
            with analyzer.assume(adds):
                made = yield self.produce(producer)
            body = seq(made if analyzer.prove(adds) else If(adds, made), body)
        return body

    def around(self, stage: Stage, leaf: IterVar, loop: Stmt) -> Steps:
        """The loop ``leaf`` of ``stage``, after what rolling stages compute before it, and where
        rolling updates begin."""
        for producer in reversed(self.attached.get((stage, leaf), [])):
            if producer in self.warm:
                made = yield self.produce(producer, warm=True)
                loop = self._allocated(producer, seq(made, loop))
            elif producer.rolls_along is not None and producer.beside is None:
                loop = self._allocated(producer, seq(self.begin(producer), loop))
        return loop

    def beside(self, stage: Stage) -> list[Stage]:
        """The reductions that are computed with one."""
        return [other for other in self.schedule.stages if other.beside is stage]

    def begin(self, stage: Stage) -> Stmt:
        """Where a reduction begins that goes along with the loop of another one."""
        return Produce(stage.name, self.stages[stage].begin())

    def _allocated(self, stage: Stage, body: Stmt) -> Stmt:
        for tensor in stage.op.outputs:
            if tensor.buffer not in self.params:
                body = Allocate(self.parts[tensor.buffer][0], body)
        return body
