"""Bounds inference: which part of every stage has to be computed where it is attached.

For a stage at the root that is all of it. For one attached at an axis of a consumer it is what the
loops inside that axis read, as an interval in each dimension: the loops outside are fixed, those
inside range over their extents. A tile of 16 output rows of a convolution with stride 2 and three
taps needs ``2 * 15 + 2 + 1 = 33`` input rows, from row ``32 * h.outer`` on.

A thread that shares the memory of a stage with others needs what all of them need: axes bound to
threadIdx count as inside for shared memory, and those bound to blockIdx as well for global memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add
from tilewright.ir.visit import exprs, free_vars, substitute, uses
from tilewright.lower.build.attached import Nesting, enclosing_loops
from tilewright.lower.build.required_region import required_region, shares, union
from tilewright.lower.build.rolling import check_sources, rolling
from tilewright.lower.build.rolling_updates import check_rolling_update
from tilewright.schedule.relations import Relation, children, parents, pass_extents, pass_values
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import PlaceholderOp


@dataclass
class Domain:
    """The part of a stage that is computed, and its loops.

    ``mins`` and ``shape`` give the interval in each dimension of the outputs; ``extents`` those of
    every axis, and ``starts`` the first value of those of the declaration; ``values`` the value of
    every axis as an expression of the loop variables, and ``variables`` those of the leaves.
    """

    mins: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    extents: dict[IterVar, Expr]
    starts: dict[IterVar, Expr]
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
    symbols: set[Var] = field(default_factory=set)  # extents that a call gives
    threads: dict[Var, Expr] = field(default_factory=dict)  # the extents of thread axes
    partial: dict[Var, Expr] = field(default_factory=dict)  # those of loops that may not run
    users: dict[IterVar, Stage] = field(default_factory=dict)
    renamed: dict[tuple[Stage, IterVar], Var] = field(default_factory=dict)
    nesting: Nesting = field(default_factory=Nesting)

    def loop_var(self, stage: Stage, leaf: IterVar) -> Var:
        """The variable of a leaf's loop: that of the thread axis where it is bound to one.

        Stages that reduce over the same axis have loops of their own, which may nest; so do those
        that are bound to the same virtual thread.
        """
        at = stage.attachment
        if leaf is stage.rolls_along and at.stage is not None and at.axis is not None:
            return self.loop_var(at.stage, at.axis)
        mark = stage.marks.get(leaf)
        if mark is not None and mark.thread is not None:
            if mark.thread.tag != "vthread":
                return mark.thread.var
            leaf = mark.thread
        if self.users.setdefault(leaf, stage) is stage:
            return leaf.var
        return self.renamed.setdefault((stage, leaf), Var.make(leaf.name, leaf.var.dtype))

    def bind(self, var: Var, extent: Expr) -> None:
        """Let ``var`` range over a loop. Outside of one that may have no iteration, nothing is to
        be concluded from its having a value: no more is said of ``var`` than its greatest value,
        and :meth:`inside` says the rest."""
        known = self.analyzer.bounds(extent)
        self.partial.pop(var, None)
        if known.lo is not None and known.lo >= 1 and self.symbols.issuperset(free_vars(extent)):
            self.analyzer.bind(var, 0, extent)
            return
        self.analyzer.bind(var, 0, known.hi and max(known.hi, 1))
        self.partial[var] = extent

    @contextmanager
    def inside(self, loops: Iterable[Var]) -> Iterator[None]:
        """What holds inside of ``loops``: that they have an iteration."""
        with ExitStack() as known:
            for var in loops:
                extent = self.partial.get(var)
                if extent is not None:
                    known.enter_context(self.analyzer.assume(var < extent))
            yield

    def around(self, stage: Stage, at: Attachment | None = None) -> list[Var]:
        """The variables of the loops of other stages that a stage is computed inside of, or kept
        ``at``; none where :meth:`inside` has nothing to say of any."""
        if not self.partial:
            return []
        return [self.domains[p].variables[leaf] for p, leaf in enclosing_loops(stage, at)]


def infer_bounds(schedule: Schedule) -> Bounds:
    """The domain of every stage of a normalized schedule.

    Raises :class:`LoweringError` where a stage is attached where its consumers do not need it.
    """
    bounds = Bounds(schedule)
    inputs = [stage.op for stage in schedule.stages if isinstance(stage.op, PlaceholderOp)]
    arrays = (t.buffer for op in (*inputs, *schedule.outputs) for t in op.outputs)
    bounds.symbols = bounds.analyzer.shapes(arrays)
    for stage in reversed(schedule.stages):
        bounds.scopes[stage] = stage.scope or bounds.nesting.default_scope(stage)
        mins, shape = required_region(bounds, stage)
        bounds.domains[stage] = _domain(bounds, stage, mins, shape)
        _check_turns(bounds, stage)
        if stage.rolling:
            _roll(bounds, stage)
        if stage.rolls_along is not None:
            check_rolling_update(bounds, stage, stage.rolls_along)
    return bounds


def _check_turns(bounds: Bounds, stage: Stage) -> None:
    """Threads that share the memory of a stage have to go round the loops that it is in together:
    else some are gone when their part of it is computed, and no barrier may stand in the loop."""
    tags: dict[Expr, str] = {}
    for parent, leaf in bounds.nesting.threads(stage):
        thread = parent.marks[leaf].thread
        if thread is not None and thread.tag.startswith("threadIdx"):
            if shares(bounds.scopes[stage], thread.tag):
                tags[thread.var] = thread.tag
    for parent, leaf in enclosing_loops(stage) if tags else ():
        extent = bounds.domains[parent].extents[leaf]
        tag = next((tags[e] for e in exprs(extent) if e in tags), "")
        if tag:
            raise stage.contradiction(
                f"it is computed inside of the loop over {leaf.name!r} of stage {parent.name!r}, "
                f"which runs {extent} times, not as often for all threads along {tag}, that share "
                f"its {bounds.scopes[stage]} memory",
                stage.attachment.axis,
                "Compute it outside of that loop, or in local memory with no axis bound to threads",
                stage.attachment.where,
            )


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
    variables: dict[IterVar, Var] = {}
    for leaf in stage.leaf_iter_vars:
        if fresh and not _on_threads(stage, leaf):
            variables[leaf] = Var.make(f"{leaf.name}.warm", leaf.var.dtype)
        else:
            variables[leaf] = bounds.loop_var(stage, leaf)
    own = {axis.var for axis in (*op.axis, *op.reduce_axis)}
    simplify = analyzer.simplify
    for axis in op.reduce_axis:
        assert axis.dom is not None
        low, extent = axis.dom.min, axis.dom.extent
        if uses(low, own) or uses(extent, own):  # by the values of the axes before it
            # Of a thread axis the analyzer knows the extent that other stages give it.
            simplify = Analyzer().simplify
            known = _known(stage, extents, starts, variables, simplify)
            low, extent = (simplify(substitute(e, known)) for e in (low, extent))
        extents[axis], starts[axis] = extent, low
    pass_extents(stage.relations, extents, simplify)
    _check_shared(bounds, stage, mins)
    outside = own | set(variables.values())  # of the loops so far
    for leaf, var in variables.items():
        if uses(extents[leaf], outside):
            raise _depends(stage, leaf, extents[leaf])
        outside.discard(var)
        if fresh and not _on_threads(stage, leaf):
            bounds.bind(var, extents[leaf])
        else:
            _bind_loop(bounds, stage, leaf, extents[leaf])
    values: dict[IterVar, Expr] = dict(variables)
    pass_values(stage.relations, extents, values)
    for axis, start in starts.items():
        values[axis] = analyzer.simplify(add(start, values[axis]))
    return Domain(mins, shape, extents, starts, values, variables)


def _check_shared(bounds: Bounds, stage: Stage, mins: tuple[Expr, ...]) -> None:
    """Threads that share a reduction have to compute the same elements."""
    for leaf in stage.leaf_iter_vars:
        mark = stage.marks.get(leaf)
        if mark is None or mark.thread is None or leaf.kind != "reduce":
            continue
        for parent, around in bounds.nesting.all_threads(stage):
            other = parent.marks[around].thread
            if other is None or other.tag != mark.thread.tag or other.tag == "vthread":
                continue
            if any(uses(e, {other.var}) for e in mins):
                raise stage.contradiction(
                    f"threads along {other.tag} share the reduction, but each computes elements of "
                    f"its own: the loop over {around.name!r} of {parent.name!r} around it is bound "
                    f"to {other.tag}, too",
                    leaf,
                    "Bind the reduction to another thread axis, or compute the stage outside of "
                    "that loop",
                    mark.where,
                )


def _known(
    stage: Stage,
    extents: dict[IterVar, Expr],
    starts: dict[IterVar, Expr],
    variables: dict[IterVar, Var],
    simplify: Callable[[Expr], Expr],
) -> dict[Expr, Expr]:
    """The values of the axes of the declaration whose ``extents`` and ``starts`` are known, as far
    as their loops tell."""
    found: dict[IterVar, Expr] = dict(variables)
    whole = dict(extents)
    done: list[Relation] = []
    for relation in stage.relations:
        if all(a in whole for a in parents(relation)):
            pass_extents([relation], whole, simplify)
            done.append(relation)
    for relation in reversed(done):
        if all(a in found for a in children(relation)):
            pass_values([relation], whole, found)
    values = ((axis, start, found.get(axis)) for axis, start in starts.items())
    return {a.var: simplify(add(lo, at)) for a, lo, at in values if at is not None}


def _on_threads(stage: Stage, leaf: IterVar) -> bool:
    mark = stage.marks.get(leaf)
    return mark is not None and mark.thread is not None


def _depends(stage: Stage, leaf: IterVar, extent: Expr) -> LoweringError:
    mark = stage.marks.get(leaf)
    return stage.contradiction(
        f"how often the loop over {leaf.name!r} runs, {extent}, depends on an axis whose loop does "
        "not stand around it",
        leaf,
        "Leave the axes that the domain of a reduction depends on outside of its loops, and do not "
        "fuse it with another one that it depends on",
        mark.where if mark is not None else "",
    )


def _bind_loop(bounds: Bounds, stage: Stage, leaf: IterVar, extent: Expr) -> None:
    mark = stage.marks.get(leaf)
    thread = mark.thread if mark is not None else None
    if mark is None or thread is None:
        bounds.bind(bounds.loop_var(stage, leaf), extent)
        return
    if thread.dom is not None and not bounds.analyzer.prove(thread.dom.extent.equal(extent)):
        raise stage.contradiction(
            f"the axis has {extent} iterations, but is bound to {thread.tag} of extent "
            f"{thread.dom.extent}",
            leaf,
            f"Split the axis by {thread.dom.extent}, or leave out the extent of the thread axis",
            mark.where,
        )
    for parent, around in bounds.nesting.all_threads(stage):
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
    bounds.bind(thread.var, widest)
