"""Bounds inference: which part of every stage has to be computed where it is attached.

For a stage at the root that is all of it. For one attached at an axis of a consumer it is what the
loops inside that axis read, as an interval in each dimension: the loops outside are fixed, those
inside range over their extents. A tile of 16 output rows of a convolution with stride 2 and three
taps needs ``2 * 15 + 2 + 1 = 33`` input rows, from row ``32 * h.outer`` on.

A thread that shares the memory of a stage with others needs what all of them need: axes bound to
threadIdx count as inside for shared memory, and those bound to blockIdx as well for global memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add
from tilewright.ir.visit import exprs
from tilewright.lower.attached import default_scope, loops_of_threads_around
from tilewright.lower.needed import needed, union
from tilewright.lower.rolling import check_sources, rolling
from tilewright.schedule.relations import pass_extents, pass_values
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage


@dataclass
class Domain:
    """The part of a stage that is computed, and its loops.

    ``mins`` and ``shape`` give the interval in each dimension of the outputs; ``extents`` those of
    every axis; ``values`` the value of every axis as an expression of the loop variables, and
    ``variables`` those of the leaves.
    """

    mins: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    extents: dict[IterVar, Expr]
    values: dict[IterVar, Expr]
    variables: dict[IterVar, Var]

    @property
    def mapping(self) -> dict[Expr, Expr]:
        """From the variables of the declaration's axes to their values."""
        return {axis.var: value for axis, value in self.values.items()}


@dataclass
class Bounds:
    """What bounds inference found, by stage."""

    schedule: Schedule
    analyzer: Analyzer = field(default_factory=Analyzer)
    domains: dict[Stage, Domain] = field(default_factory=dict)
    # of rolling stages, what is computed before the loop, and the interval that is kept
    warm: dict[Stage, Domain] = field(default_factory=dict)
    kept: dict[Stage, tuple[tuple[Expr, ...], tuple[Expr, ...]]] = field(default_factory=dict)
    rolls: dict[Stage, Expr] = field(default_factory=dict)  # the iterations that add something
    scopes: dict[Stage, str] = field(default_factory=dict)
    threads: dict[Var, Expr] = field(default_factory=dict)  # the extents of thread axes
    users: dict[IterVar, Stage] = field(default_factory=dict)
    renamed: dict[tuple[Stage, IterVar], Var] = field(default_factory=dict)

    def loop_var(self, stage: Stage, leaf: IterVar) -> Var:
        """The variable of a leaf's loop: that of the thread axis where it is bound to one.

        Stages that reduce over the same axis have loops of their own, which may nest; so do those
        that are bound to the same virtual thread.
        """
        mark = stage.marks.get(leaf)
        if mark is not None and mark.thread is not None:
            if mark.thread.tag != "vthread":
                return mark.thread.var
            leaf = mark.thread
        if self.users.setdefault(leaf, stage) is stage:
            return leaf.var
        return self.renamed.setdefault((stage, leaf), Var.make(leaf.name, leaf.var.dtype))


def infer_bounds(schedule: Schedule) -> Bounds:
    """The domain of every stage of a normalized schedule.

    Raises :class:`LoweringError` where a stage is attached where its consumers do not need it.
    """
    bounds = Bounds(schedule)
    _bind_symbols(bounds)
    for stage in reversed(schedule.stages):
        bounds.scopes[stage] = stage.scope or default_scope(stage)
        mins, shape = needed(bounds, stage)
        bounds.domains[stage] = _domain(bounds, stage, mins, shape)
        if stage.rolling:
            _roll(bounds, stage)
    return bounds


def _roll(bounds: Bounds, stage: Stage) -> None:
    at, whole = stage.attachment, bounds.domains[stage]
    if at.kind != "at" or at.stage is None or at.axis is None:
        raise stage.contradiction(
            "rolling_buffer: the stage is not computed in a loop of another",
            mend="Use compute_at, or do without rolling_buffer",
            where=stage.lines["rolling_buffer"],
        )
    var, extent = bounds.loop_var(at.stage, at.axis), bounds.domains[at.stage].extents[at.axis]
    found = rolling(bounds.analyzer, stage, at.axis, var, extent, (whole.mins, whole.shape))
    if found is not None:
        names = {tensor.buffer for tensor in stage.op.inputs}
        check_sources(stage, [s for s in bounds.schedule.stages if names & _made(s)])
        bounds.domains[stage] = _domain(bounds, stage, *found.next)
        bounds.warm[stage] = _domain(bounds, stage, *found.warm, fresh=True)
        bounds.kept[stage] = found.kept
        bounds.rolls[stage] = var < found.last


def _made(stage: Stage) -> set[Buffer]:
    return {tensor.buffer for tensor in stage.op.outputs}


def _bind_symbols(bounds: Bounds) -> None:
    for stage in bounds.schedule.stages:
        for tensor in stage.op.outputs:
            for extent in tensor.shape:
                for e in exprs(extent):
                    if isinstance(e, Var):
                        bounds.analyzer.bind(e, 1, None)


def _domain(
    bounds: Bounds,
    stage: Stage,
    mins: tuple[Expr, ...],
    shape: tuple[Expr, ...],
    fresh: bool = False,
) -> Domain:
    """The domain of an interval; with ``fresh``, its loops have variables of their own."""
    analyzer, op = bounds.analyzer, stage.op
    extents: dict[IterVar, Expr] = dict(zip(op.axis, shape, strict=False))
    starts: dict[IterVar, Expr] = dict(zip(op.axis, mins, strict=False))
    for axis in op.reduce_axis:
        assert axis.dom is not None
        extents[axis], starts[axis] = axis.dom.extent, axis.dom.min
    pass_extents(stage.relations, extents, analyzer.simplify)
    variables = {}
    for leaf in stage.leaf_iter_vars:
        mark = stage.marks.get(leaf)
        if fresh and (mark is None or mark.thread is None):
            variables[leaf] = Var.make(f"{leaf.name}.warm", leaf.var.dtype)
            analyzer.bind(variables[leaf], 0, extents[leaf])
        else:
            _bind_loop(bounds, stage, leaf, extents[leaf])
            variables[leaf] = bounds.loop_var(stage, leaf)
    values: dict[IterVar, Expr] = dict(variables)
    pass_values(stage.relations, extents, values)
    for axis, start in starts.items():
        values[axis] = analyzer.simplify(add(start, values[axis]))
    return Domain(mins, shape, extents, values, variables)


def _bind_loop(bounds: Bounds, stage: Stage, leaf: IterVar, extent: Expr) -> None:
    mark = stage.marks.get(leaf)
    thread = mark.thread if mark is not None else None
    if mark is None or thread is None:
        bounds.analyzer.bind(bounds.loop_var(stage, leaf), 0, extent)
        return
    if thread.dom is not None and not bounds.analyzer.prove(thread.dom.extent.equal(extent)):
        raise stage.contradiction(
            f"the axis has {extent} iterations, but is bound to {thread.tag} of extent "
            f"{thread.dom.extent}",
            leaf,
            f"Split the axis by {thread.dom.extent}, or leave out the extent of the thread axis",
            mark.where,
        )
    for parent, around in loops_of_threads_around(stage):
        other = parent.marks[around].thread
        if other is None or other.tag != thread.tag:
            continue
        threads = bounds.domains[parent].extents[around]
        if thread.tag != "vthread" and not bounds.analyzer.prove(extent <= threads):
            raise stage.contradiction(
                f"the axis has {extent} iterations for {thread.tag}, but the stage is computed at "
                f"an axis of {parent.name!r} inside of a loop over {threads} of it",
                leaf,
                f"Split the axis by {threads}, or bind it to another thread axis",
                mark.where,
            )
    # One thread axis may carry loops of several stages: it has as many threads as the longest.
    widest = union(bounds.analyzer, bounds.threads.get(thread.var), extent, smaller=False)
    bounds.threads[thread.var] = widest
    bounds.analyzer.bind(thread.var, 0, widest)
