"""What is read of a stage while the loops outside of where it is computed stand still.

Each index with which a consumer reads it is an interval as the loops inside range; what is needed
is the smallest interval that covers those of all reads.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from tilewright.arith import Analyzer, Unbounded
from tilewright.arith.conditions import conjuncts, inequality_form
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load, Min, Reduce, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import (
    add,
    cast,
    ceildiv,
    const,
    floordiv,
    floormod,
    is_const,
    maximum,
    minimum,
    mul,
    sub,
)
from tilewright.ir.visit import exprs, substitute, uses
from tilewright.lower.analysis.clusters import AXIS as CLUSTER
from tilewright.lower.build.attached import attach_place, enclosing_loops, thread_rank
from tilewright.schedule.relations import Fuse, Single, Skew, consumed, made, pass_values
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp
from tilewright.te.scan import ScanOp

if TYPE_CHECKING:
    from tilewright.lower.build.bounds import Bounds, Domain

#: By variable, the least and the greatest value.
Range: TypeAlias = "dict[Var, tuple[Expr, Expr]]"
_SCOPE_RANK = {"global": 0, "cluster": 1, "shared": 1, "fragment": 2, "local": 3}


def required_region(bounds: Bounds, stage: Stage) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The first index in each dimension, and how many from there on; all where it is at the root.

    The domains of its consumers are known by then.
    """
    shape = stage.op.outputs[0].shape
    whole = tuple(const(0) for _ in shape), shape
    if isinstance(stage.op, ScanOp):  # the rows before the steps are not computed by it
        dom = stage.op.scan_axis.dom
        assert dom is not None
        others = [a.dom.extent for a in stage.op.axis[1:] if a.dom is not None]
        whole = (dom.min, *(const(0) for _ in others)), (dom.extent, *others)
    if stage.kept_at.kind != "at":
        return whole
    los: list[Expr | None] = [None] * len(shape)
    his: list[Expr | None] = [None] * len(shape)
    unbounded: set[int] = set()
    analyzer, around = bounds.analyzer, bounds.around(stage, stage.kept_at)
    for consumer, part in _parts(bounds, bounds.schedule.consumers(stage)):
        for k, found in _needed(bounds, stage, consumer, part):
            if found is None:
                unbounded.add(k)
                continue
            with bounds.inside(around):
                los[k] = union(analyzer, los[k], found[0], smaller=True)
                his[k] = union(analyzer, his[k], found[1], smaller=False)
    mins: list[Expr] = []
    extents: list[Expr] = []
    with bounds.inside(around):
        for k, full in enumerate(shape):
            lo_k, hi_k = los[k], his[k]
            # In the type of the axis, as the declaration counts it, whatever that of an index is.
            type = stage.op.axis[k].var.dtype
            first: Expr | None = None
            extent, alignment = full, stage.bounds_alignments.get(k)
            if k not in unbounded and lo_k is not None and hi_k is not None:
                least, extent = _interval(analyzer, lo_k, hi_k, full, alignment)
                first = analyzer.simplify(cast(type, least))
            if (
                first is None or not first.exact
            ):  # there is none, or one that the type need not hold
                first, extent = const(0, type), full
                if alignment is not None:
                    first, extent = _aligned(analyzer, first, full, *alignment)
            mins.append(analyzer.simplify(cast(type, first)))
            extents.append(analyzer.simplify(cast(type, extent)))
    return tuple(mins), tuple(extents)


def _needed(
    bounds: Bounds, stage: Stage, consumer: Stage, part: Domain
) -> list[tuple[int, tuple[Expr, Expr] | None]]:
    """By read of ``consumer`` and dimension, the first and the last index; None where the loops do
    not say them."""
    analyzer, shape = bounds.analyzer, stage.op.outputs[0].shape
    inside = _loops_between(bounds, stage, consumer, part)
    mapping = _ranging_values(bounds, consumer, part, inside)
    found: list[tuple[int, tuple[Expr, Expr] | None]] = []
    with bounds.inside((*bounds.around(stage, stage.kept_at), *inside)):
        domain = {v: (const(0), analyzer.simplify(sub(extent, 1))) for v, extent in inside.items()}
        buffers = {tensor.buffer for tensor in stage.op.outputs}
        guards = [substitute(c, mapping) for c in _guards(analyzer, consumer, buffers)]
        for read in _reads(consumer, buffers):
            for k, index in enumerate(read.indices):
                at = analyzer.simplify(substitute(index, mapping))
                try:
                    lo, hi = analyzer.relax(at, domain)
                    for guard in guards:
                        lo, hi = _guarded(analyzer, at, guard, domain, (lo, hi))
                except Unbounded:  # it takes its value from memory
                    found.append((k, None))
                    continue
                # Memory is read where the guards of the consumer hold, and of what data may say,
                # the tensor has a part. What wraps around says nothing of how far apart two are.
                unknown = any(uses(e, set(domain)) or not e.exact for e in (lo, hi)) or (
                    _from_memory(at) and not _inside(bounds.symbols, consumer, index, shape[k])
                )
                found.append((k, None if unknown else (lo, hi)))
    return found


def _guards(analyzer: Analyzer, consumer: Stage, buffers: set[Buffer]) -> list[Expr]:
    """What is at most zero wherever a sum reads ``buffers``, which it does in its terms alone."""
    op = consumer.op
    body = op.body[0] if isinstance(op, ComputeOp) else None
    if not isinstance(body, Reduce) or is_const(body.condition):
        return []
    others = [e for x in (body.condition, *body.init) for e in exprs(x)]
    if any(isinstance(e, Load) and e.buffer in buffers for e in others):
        return []
    forms = [inequality_form(analyzer, c) for c in conjuncts(body.condition)]
    return [f.to_expr(const(0).dtype) for f in forms if f is not None]


def _guarded(
    analyzer: Analyzer, at: Expr, guard: Expr, domain: Range, known: tuple[Expr, Expr]
) -> tuple[Expr, Expr]:
    """The first and the last of ``known`` that an index is where ``guard`` is at most zero.

    Such multiples of the two are added that a variable leaves the sum: of an index that falls with
    a variable which the guard bounds from above, that sum is a lower bound."""
    lo, hi = known
    index, bound = analyzer.affine(at), analyzer.affine(guard)
    tried = set[Fraction]()
    for atom in bound.terms:
        ratio = Fraction(index.coefficient(atom), bound.coefficient(atom))
        if not ratio or ratio in tried:
            continue
        tried.add(ratio)
        times, over = abs(ratio.numerator), ratio.denominator
        if ratio < 0:
            both = add(mul(at, over), mul(guard, times))
            end = ceildiv(analyzer.relax(analyzer.simplify(both), domain)[0], over)
            if analyzer.prove(lo < end) and analyzer.prove(end <= hi):
                lo = analyzer.simplify(end)
        else:
            both = sub(mul(at, over), mul(guard, times))
            end = floordiv(analyzer.relax(analyzer.simplify(both), domain)[1], over)
            if analyzer.prove(end < hi) and analyzer.prove(lo <= end):
                hi = analyzer.simplify(end)
    return lo, hi


def _interval(
    analyzer: Analyzer, lo: Expr, hi: Expr, full: Expr, alignment: tuple[int, int] | None
) -> tuple[Expr, Expr]:
    """From ``lo`` to ``hi``, aligned where that is asked for; from all of the dimension where that
    is no more, or where a buffer cannot have as many elements. What is aligned may be more than the
    dimension, unless it begins at the smaller of two reads, which may be further apart than they
    ever are."""
    extent = analyzer.extent(lo, hi)
    tile = alignment is not None and not isinstance(lo, Min)
    if not _usable(extent, full) or (not tile and _covers(analyzer, extent, full)):
        lo, extent = const(0), full
    if alignment is not None:
        return _aligned(analyzer, lo, extent, *alignment)
    return analyzer.simplify(lo), extent


def _ranging_values(
    bounds: Bounds, stage: Stage, part: Domain, inside: dict[Var, Expr]
) -> dict[Expr, Expr]:
    """From the variables of the declaration's axes to their values, where ``inside`` range.

    An axis ranges itself where all that it was made into does: it has a variable of its own, added
    to ``inside``, where these, of which guards leave out some, would go too far.
    """
    analyzer = bounds.analyzer
    values: dict[IterVar, Expr] = dict(part.variables)
    whole = {leaf for leaf, var in part.variables.items() if var in inside}
    for relation in reversed(stage.relations):
        pass_values([relation], part.extents, values)
        axes, extents = made(relation), part.extents
        if not whole.issuperset(axes):
            continue
        whole.update(consumed(relation))
        if isinstance(relation, Fuse | Single):
            continue
        parent, product = relation.parent, functools.reduce(mul, (extents[a] for a in axes))
        if isinstance(relation, Skew) or not analyzer.prove(product.equal(extents[parent])):
            values[parent] = var = Var.make(parent.name, parent.var.dtype)
            bounds.bind(var, extents[parent])
            inside[var] = extents[parent]
    starts = part.starts.items()
    return {a.var: analyzer.simplify(add(start, values[a])) for a, start in starts}


def _parts(bounds: Bounds, stages: list[Stage]) -> list[tuple[Stage, Domain]]:
    """Stages with what is computed of them: rolling ones in two parts."""
    found = [(stage, bounds.domains[stage]) for stage in stages]
    return found + [(stage, bounds.warm[stage]) for stage in stages if stage in bounds.warm]


def _from_memory(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in exprs(e))


def _inside(symbols: Iterable[Var], consumer: Stage, index: Expr, full: Expr) -> bool:
    """Whether an index stays within a dimension, as far as the axes of its stage tell."""
    analyzer, op = Analyzer(), consumer.op
    assert isinstance(op, ComputeOp)
    for var in symbols:
        analyzer.symbol(var)
    for axis in (*op.axis, *op.reduce_axis):
        assert axis.dom is not None
        analyzer.bind(axis.var, axis.dom.min, axis.dom.extent)
    return analyzer.prove(index >= 0) and analyzer.prove(index < full)


def _aligned(
    analyzer: Analyzer, lo: Expr, extent: Expr, factor: int, offset: int
) -> tuple[Expr, Expr]:
    """The smallest interval of whole groups of ``factor`` around the one given."""
    beyond = analyzer.simplify(floormod(sub(lo, offset), factor))
    slack = beyond if isinstance(beyond, IntImm) else const(factor - 1)
    groups = ceildiv(add(extent, slack), factor)
    return analyzer.simplify(sub(lo, beyond)), analyzer.simplify(mul(groups, factor))


def _covers(analyzer: Analyzer, extent: Expr, full: Expr) -> bool:
    if isinstance(extent, IntImm) and isinstance(full, IntImm):
        return extent.value >= full.value  # which the type of an index from memory may not hold
    return bool(analyzer.prove(extent >= full))


def _usable(extent: Expr, full: Expr) -> bool:
    """A buffer needs an extent that does not change from one iteration to the next."""
    if isinstance(extent, IntImm):
        return True
    symbols = {e for e in exprs(full) if isinstance(e, Var)}
    return all(e in symbols for e in exprs(extent) if isinstance(e, Var))


def union(analyzer: Analyzer, old: Expr | None, new: Expr, smaller: bool) -> Expr:
    """The smaller or the larger of two ends; without ``old``, ``new``."""
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
    at = stage.kept_at
    assert at.stage is not None
    assert at.axis is not None
    inside: dict[Var, Expr] = {}
    current, last = consumer, len(consumer.leaf_iter_vars)
    domain = part
    scope = bounds.scopes[stage]
    around: set[Var] | None = None  # the loops around the stage, which few programs ask for
    while current is not at.stage:
        for leaf in _own_loops(current, 0, last):
            var, mark = domain.variables[leaf], current.marks.get(leaf)
            thread = None if mark is None else mark.thread
            if thread is not None and around is None:
                loops = enclosing_loops(stage, at)
                around = {bounds.domains[p].variables[x] for p, x in loops}
            # What a thread alone has, it alone reads, in loops over the same threads as one around.
            if thread is None or var not in (around or ()) or shares(scope, thread.tag):
                inside[var] = domain.extents[leaf]
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
    for leaf in _own_loops(current, place + 1, last):
        inside[domain.variables[leaf]] = domain.extents[leaf]
    for parent, leaf in bounds.nesting.threads(stage):
        thread = parent.marks[leaf].thread
        if thread is not None and shares(scope, thread.tag):
            inside[thread.var] = bounds.domains[parent].extents[leaf]
    return inside


def _own_loops(stage: Stage, first: int, last: int) -> list[IterVar]:
    """Loops of a stage, without one that goes along with that of another stage."""
    return [leaf for leaf in stage.leaf_iter_vars[first:last] if leaf is not stage.rolls_along]


def shares(scope: str, tag: str) -> bool:
    """Whether the threads along an axis share memory of a scope."""
    if scope == "warp":
        return tag == "threadIdx.x"
    if scope == "cluster" and tag == CLUSTER:
        return True
    return _SCOPE_RANK[scope] <= thread_rank(tag)
