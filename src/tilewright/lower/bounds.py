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
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add, ceildiv, const, floormod, maximum, minimum, mul, sub
from tilewright.ir.visit import exprs, substitute, uses
from tilewright.lower.rolling import check_sources, rolling
from tilewright.schedule.relations import Fuse, Split, pass_extents, pass_values
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp

_SCOPE_RANK = {"global": 0, "shared": 1, "warp": 2, "fragment": 2, "local": 3}


def thread_rank(tag: str) -> int:
    """0 for axes of blocks, 1 for axes of threads in a block, virtual ones included."""
    return 0 if tag.startswith("blockIdx") else 1


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
        mins, shape = _region(bounds, stage)
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


def default_scope(stage: Stage) -> str:
    """Where nothing is said, the memory of the innermost threads that the stage is inside of."""
    rank = -1
    for parent, leaf in enclosing_loops(stage):
        mark = parent.marks.get(leaf)
        if mark is not None and mark.thread is not None:
            rank = max(rank, thread_rank(mark.thread.tag))
    return {-1: "global", 0: "shared", 1: "local"}[rank]


def enclosing_loops(stage: Stage) -> list[tuple[Stage, IterVar]]:
    """The loops of other stages that a stage is computed inside of, the innermost first."""
    found: list[tuple[Stage, IterVar]] = []
    at = stage.attachment
    while at.kind == "at":
        assert at.stage is not None
        assert at.axis is not None
        place = attach_place(stage, at)
        found += [(at.stage, leaf) for leaf in reversed(at.stage.leaf_iter_vars[: place + 1])]
        stage, at = at.stage, at.stage.attachment
    return found


def attach_place(stage: Stage, at: Attachment) -> int:
    """The position, among the loops of the stage it is computed at, of the axis it is computed at.

    Raises :class:`LoweringError` where that is no loop any more.
    """
    assert at.stage is not None
    assert at.axis is not None
    for position, leaf in enumerate(at.stage.leaf_iter_vars):
        if leaf is at.axis:
            return position
    leaves = ", ".join(a.name for a in at.stage.leaf_iter_vars) or "none"
    raise stage.contradiction(
        f"it is computed at an axis of stage {at.stage.name!r} that was split or fused afterwards",
        at.axis,
        f"Compute it at one of the loops that there are now: {leaves}",
        at.where,
    )


def _region(bounds: Bounds, stage: Stage) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    shape = stage.op.outputs[0].shape
    whole = tuple(const(0) for _ in shape), shape
    if stage.attachment.kind != "at":
        return whole
    outputs = {tensor.buffer for tensor in stage.op.outputs}
    los: list[Expr | None] = [None] * len(shape)
    his: list[Expr | None] = [None] * len(shape)
    unbounded: set[int] = set()
    analyzer = bounds.analyzer
    for consumer, part in _parts(bounds, bounds.schedule.consumers(stage)):
        inside = _loops_between(bounds, stage, consumer, part)
        mapping = _ranging_values(bounds, consumer, part, inside)
        domain = {v: (const(0), analyzer.simplify(sub(extent, 1))) for v, extent in inside.items()}
        for read in _reads(consumer, outputs):
            for k, index in enumerate(read.indices):
                at = analyzer.simplify(substitute(index, mapping))
                lo, hi = analyzer.relax(at, domain)
                if any(uses(e, set(domain)) or _from_memory(e) for e in (lo, hi)):
                    unbounded.add(k)  # memory is read where the guards of the consumer hold
                    continue
                los[k] = _union(analyzer, los[k], lo, smaller=True)
                his[k] = _union(analyzer, his[k], hi, smaller=False)
    mins, extents = [], []
    for k, full in enumerate(shape):
        lo_k, hi_k = los[k], his[k]
        if k in unbounded or lo_k is None or hi_k is None:
            mins.append(const(0))
            extents.append(full)
            continue
        extent = analyzer.extent(lo_k, hi_k)
        if k in stage.bounds_alignments:
            lo_k, extent = _aligned(analyzer, lo_k, extent, *stage.bounds_alignments[k])
            mins.append(lo_k)
            extents.append(extent)
            continue
        if _covers(analyzer, extent, full) or not _usable(extent, full):
            mins.append(const(0))
            extents.append(full)
        else:
            mins.append(analyzer.simplify(lo_k))
            extents.append(extent)
    return tuple(mins), tuple(extents)


def _ranging_values(
    bounds: Bounds, stage: Stage, part: Domain, inside: dict[Var, Expr]
) -> dict[Expr, Expr]:
    """From the variables of the declaration's axes to their values, where ``inside`` range.

    An axis whose parts of a split all range, ranges itself: it has a variable of its own, added to
    ``inside``, where the parts, of which guards leave out some, would go too far.
    """
    analyzer = bounds.analyzer
    values: dict[IterVar, Expr] = dict(part.variables)
    whole = {leaf for leaf, var in part.variables.items() if var in inside}
    for relation in reversed(stage.relations):
        pass_values([relation], part.extents, values)
        if isinstance(relation, Fuse) and relation.fused in whole:
            whole |= {relation.outer, relation.inner}
        if isinstance(relation, Split) and {relation.outer, relation.inner} <= whole:
            parent, extents = relation.parent, part.extents
            whole.add(parent)
            product = mul(extents[relation.outer], extents[relation.inner])
            if not analyzer.prove(product.equal(extents[parent])):
                values[parent] = var = Var.make(parent.name, parent.var.dtype)
                analyzer.bind(var, 0, extents[parent])
                inside[var] = extents[parent]
    starts: dict[IterVar, Expr] = dict(zip(stage.op.axis, part.mins, strict=False))
    for axis in stage.op.reduce_axis:
        assert axis.dom is not None
        starts[axis] = axis.dom.min
    return {a.var: analyzer.simplify(add(start, values[a])) for a, start in starts.items()}


def _parts(bounds: Bounds, stages: list[Stage]) -> list[tuple[Stage, Domain]]:
    """Stages with what is computed of them: rolling ones in two parts."""
    found = [(stage, bounds.domains[stage]) for stage in stages]
    return found + [(stage, bounds.warm[stage]) for stage in stages if stage in bounds.warm]


def _from_memory(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in exprs(e))


def _aligned(
    analyzer: Analyzer, lo: Expr, extent: Expr, factor: int, offset: int
) -> tuple[Expr, Expr]:
    """The smallest interval of whole groups of ``factor`` around the one given."""
    beyond = analyzer.simplify(floormod(sub(lo, offset), factor))
    slack = beyond if isinstance(beyond, IntImm) else const(factor - 1)
    groups = ceildiv(add(extent, slack), factor)
    return analyzer.simplify(sub(lo, beyond)), analyzer.simplify(mul(groups, factor))


def _covers(analyzer: Analyzer, extent: Expr, full: Expr) -> bool:
    return bool(analyzer.prove(extent >= full))


def _usable(extent: Expr, full: Expr) -> bool:
    """A buffer needs an extent that does not change from one iteration to the next."""
    if isinstance(extent, IntImm):
        return True
    symbols = {e for e in exprs(full) if isinstance(e, Var)}
    return all(e in symbols for e in exprs(extent) if isinstance(e, Var))


def _union(analyzer: Analyzer, old: Expr | None, new: Expr, smaller: bool) -> Expr:
    if old is None or old is new:
        return new
    if analyzer.prove(old <= new):
        return old if smaller else new
    if analyzer.prove(new <= old):
        return new if smaller else old
    return minimum(old, new) if smaller else maximum(old, new)


def _reads(consumer: Stage, outputs: set[Buffer]) -> list[Load]:
    op = consumer.op
    if not isinstance(op, ComputeOp):
        return []
    found = [e for body in op.body for e in exprs(body)]
    return [e for e in found if isinstance(e, Load) and e.buffer in outputs]


def _loops_between(bounds: Bounds, stage: Stage, consumer: Stage, part: Domain) -> dict[Var, Expr]:
    """The loops, with their extents, that range while the region of ``stage`` stays fixed, where
    ``part`` of ``consumer`` is computed."""
    at = stage.attachment
    assert at.stage is not None
    assert at.axis is not None
    inside: dict[Var, Expr] = {}
    current, last = consumer, len(consumer.leaf_iter_vars)
    domain = part
    while current is not at.stage:
        for leaf in current.leaf_iter_vars[:last]:
            inside[domain.variables[leaf]] = domain.extents[leaf]
        up = current.attachment
        if up.kind != "at" or up.stage is None or up.axis is None:
            raise stage.contradiction(
                f"it is computed at an axis of stage {at.stage.name!r}, but stage "
                f"{consumer.name!r} reads it from outside of there",
                at.axis,
                f"Compute {consumer.name} inside that axis too, or {stage.name} further out",
                at.where,
            )
        # what is computed before a loop to roll is outside of it
        before = domain is bounds.warm.get(current)
        current, last = up.stage, attach_place(current, up) + (0 if before else 1)
        domain = bounds.domains[current]
    place = attach_place(stage, at)
    if last <= place:
        raise stage.contradiction(
            f"it is computed at an axis of stage {at.stage.name!r} that is inside the place where "
            f"stage {consumer.name!r} reads it",
            at.axis,
            "Compute it at an outer axis",
            at.where,
        )
    for leaf in current.leaf_iter_vars[place + 1 : last]:
        inside[domain.variables[leaf]] = domain.extents[leaf]
    rank = _SCOPE_RANK[bounds.scopes[stage]]
    for parent, leaf in enclosing_loops(stage):
        mark = parent.marks.get(leaf)
        if mark is not None and mark.thread is not None and rank <= thread_rank(mark.thread.tag):
            inside[mark.thread.var] = bounds.domains[parent].extents[leaf]
    return inside


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
    for parent, around in enclosing_loops(stage):
        other = parent.marks.get(around)
        if other is None or other.thread is None or other.thread.tag != thread.tag:
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
    widest = _union(bounds.analyzer, bounds.threads.get(thread.var), extent, smaller=False)
    bounds.threads[thread.var] = widest
    bounds.analyzer.bind(thread.var, 0, widest)
