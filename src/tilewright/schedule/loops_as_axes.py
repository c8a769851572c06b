"""A stage declared over the loops that it has been given: skews and pads become declarations.

``C[i] = sum(X[i + k] * F[k], k)``, of which ``i`` was split by 8 and ``k`` skewed by the inner
part, becomes ``CL[io, ii] = sum(X[io * 8 + j] * F[j - ii], j, where=0 <= j - ii < K)``: the guards
of the loops are the condition of the reduction. Elements that pad a dimension have values of their
own, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.arith.conditions import conjuncts
from tilewright.arith.implied import implied
from tilewright.arith.safe_reads import reads_in_bounds, unproved_reads
from tilewright.ir.expr import Compare, Expr, Load, Reduce, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, const, floordiv, if_then_else, logical_and
from tilewright.ir.visit import free_vars, rewrite_exprs, substitute, uses
from tilewright.schedule.relations import Pad, Skew, consumed, guards
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp


def is_redeclared(stage: Stage) -> bool:
    """Whether loops of a stage stand for its axes only where guards hold."""
    return any(isinstance(r, Skew | Pad) for r in stage.relations)


def over_loops(
    stage: Stage,
    axes: Sequence[IterVar],
    extents: Mapping[IterVar, Expr],
    values: Mapping[IterVar, Expr],
) -> tuple[Expr, ...]:
    """The body of ``stage`` over ``axes``, those of the data that take the place of its loops;
    ``values`` are of all axes, by theirs and by the loops of the reduction.

    Raises :class:`ScheduleError` where the domain of a reduction depends on other axes.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    roots = {a.var for a in stage.roots}
    mapping: dict[Var, Expr] = {}
    for root in stage.roots:
        assert root.dom is not None
        if uses(root.dom.min, roots) or uses(root.dom.extent, roots):
            raise stage.error(
                "cache_write: loops were skewed or padded, and the domain of an axis depends on "
                "another one",
                root,
                "Reduce over a rectangle, with where= for what the domain leaves out",
            )
        mapping[root.var] = add(root.dom.min, values[root])
    leaves = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
    own = {a.var: Var.make(a.name, a.var.dtype) for a in leaves}
    reduced = tuple(IterVar(Range.from_extent(0, extents[a]), own[a.var], "reduce") for a in leaves)
    analyzer = Analyzer()
    analyzer.shapes(t.buffer for t in op.inputs)
    for axis in (*axes, *reduced):
        assert axis.dom is not None
        analyzer.bind(axis.var, axis.dom.min, axis.dom.extent)

    def at(e: Expr) -> Expr:
        made: Expr = substitute(substitute(e, mapping), own)
        return made

    inside: list[Expr] = []  # of loops of the reduction
    beyond: list[Expr] = []  # that an element is one of the tensor
    skewed = [r for r in stage.relations if isinstance(r, Skew)]
    rest = [r for r in stage.relations if r not in skewed]
    with ExitStack() as known:  # what skews say implies what pads of their loops do
        for relation in (*skewed, *rest):
            of_data = all(a.kind == "data" for a in consumed(relation))
            for guard in guards(relation, extents, values):
                made = substitute(guard, own)
                if not analyzer.prove(made):
                    (beyond if of_data else inside).append(made)
                    known.enter_context(analyzer.assume(made))
    first = op.body[0]
    if not isinstance(first, Reduce):
        return tuple(
            _unless_safe(stage, analyzer, at(e), beyond, const(0, e.dtype)) for e in op.body
        )
    quotients = [(substitute(r.distance(values), own), r.step) for r in skewed if r.step > 1]
    source = tuple(_exact(at(e), quotients) for e in first.source)
    whole = _exact(at(first.condition), quotients)
    condition = logical_and(*inside, whole)
    condition = _safely(stage, analyzer, condition, source, beyond)
    init = tuple(
        _unless_safe(stage, analyzer, at(e), beyond, identity)
        for e, identity in zip(first.init, first.reducer.identity, strict=False)
    )
    return tuple(
        Reduce(first.reducer, source, reduced, condition, k, init) for k in range(len(source))
    )


def _safely(
    stage: Stage,
    analyzer: Analyzer,
    condition: Expr,
    source: Sequence[Expr],
    beyond: Sequence[Expr],
) -> Expr:
    """``condition``, and that elements that pad a dimension read only what is there: as conditions
    of what is read, which hold for all others, or else as ``beyond``."""
    if reads_in_bounds(analyzer, condition):
        with analyzer.assume(condition):
            found = [x for e in source for x in unproved_reads(analyzer, expanded(stage, e))]
            with analyzer.assume(logical_and(*beyond)):
                left = [c for c in found if not analyzer.prove(c)]
        known = [*beyond, *conjuncts(condition)]
        bounds = {v: analyzer.bounds(v) for c in (*left, *known) for v in free_vars(c)}
        if all(implied(c, known, bounds) for c in left):
            return logical_and(condition, *dict.fromkeys(found))
    return logical_and(*beyond, condition)


def expanded(stage: Stage, e: Expr) -> Expr:
    """``e``, with what stages that are inlined compute in place of reads of them."""

    def rule(e: Expr) -> Expr | None:
        made = stage.schedule.stage_of(e.buffer) if isinstance(e, Load) else None
        if made is None or made.attachment.kind != "inline" or not isinstance(made.op, ComputeOp):
            return None
        assert isinstance(e, Load)
        at = {a.var: index for a, index in zip(made.op.axis, e.indices, strict=True)}
        value = [t.buffer for t in made.op.outputs].index(e.buffer)
        return rewrite_exprs(substitute(made.op.body[value], at), rule)  # type: ignore[no-any-return]

    made: Expr = rewrite_exprs(e, rule)
    return made


def _unless_safe(
    stage: Stage, analyzer: Analyzer, e: Expr, guards: Sequence[Expr], other: Expr
) -> Expr:
    """``e``, where it reads what is not there beyond ``guards`` only there."""
    if not guards or reads_in_bounds(analyzer, expanded(stage, e)):
        return e
    return if_then_else(logical_and(*guards), e, other)


def _exact(e: Expr, quotients: Sequence[tuple[Expr, int]]) -> Expr:
    """``e`` where quotients have no remainder: ``j // 2 * 2`` is ``j``, so that what a window with
    gaps reads, and whether that is there, goes by its position."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Load(buffer, indices, predicate):
                return Load(buffer, tuple(map(exact, indices)), predicate)
            case Compare(a, b) if a.dtype.is_int and e.exact:
                return type(e)(exact(a), exact(b))
        return None

    def exact(e: Expr) -> Expr:
        form = as_affine(e)
        for whole, step in quotients:
            quotient = floordiv(whole, step)
            factor = form.coefficient(quotient)
            if factor and factor % step == 0:
                form = form.without(quotient).combine(1, as_affine(whole), factor // step)
        return form.to_expr(e.dtype) if e.exact and e.dtype.is_int else e

    made: Expr = rewrite_exprs(e, rule)
    return made
