"""guard_by_zeros: the condition of a sum of products becomes the zeros of its factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts, inequality_form
from tilewright.arith.implied import implied
from tilewright.arith.safe_reads import unproved_reads
from tilewright.ir.expr import Cast, Expr, IntImm, Load, Mul, Reduce, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import const, logical_and
from tilewright.ir.visit import free_vars
from tilewright.schedule.cache import replace_output
from tilewright.schedule.loops_as_axes import expanded
from tilewright.schedule.stage import Stage
from tilewright.schedule.zeros import zero_unless, zero_with
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor


def guard_by_zeros(
    stage: Stage,
    operands: Sequence[Tensor],
    over: Any = (),
    finite: bool = False,
    around: Any = (),
) -> None:
    """Let factors that are zero stand for the condition of a sum of products.

    ``C[i] = sum(X[j] * T[i, j], j, where=0 <= j - i < K)``, of which ``T[i, j]`` is zero where the
    condition does not hold, becomes ``C[i] = sum(X[j] * T[i, j], j)``: an instruction that
    multiplies matrices knows no condition. ``operands`` are the factors whose zeros are meant, as
    :func:`~tilewright.schedule.reindex.reindex` makes them. With ``over``, axes of the declaration,
    the sum goes on to leave out what is zero for all of them: the condition is what the old one,
    and the zeros of ``operands``, say where each of these axes is at its best; an axis of the sum
    for which that is a number begins and ends there. What is about none of them stays. A mapping
    from operands has axes for the zeros of each. What the condition comes to where axes of
    ``around`` are at their best too is said beside it: of the loops outside of these it then tells
    in which iterations nothing counts, so that nothing is copied for them. The axes of the sum are
    those of ``op.reduce_axis`` afterwards.

    **This changes results where a factor is not finite**: zero times infinity is NaN, and spreads
    to elements that did not read it. ``finite=True`` says that they are, or that this is allowed;
    products of integers need no promise.

    Raises :class:`ScheduleError` where the stage is no sum of products with ``operands``, where
    part of the condition is about none of their zeros and does not stay, where other factors would
    be read out of bounds without it, and without ``finite`` for floats.
    """
    op = stage.op
    stage.unused("guard_by_zeros")
    if stage.relations or stage.marks:
        raise stage.error(
            "guard_by_zeros: the stage was already scheduled",
            mend="Call guard_by_zeros before split, reorder, bind and the like, or s.cache_write, "
            "which makes axes of the loops",
        )
    body = op.body[0] if isinstance(op, ComputeOp) else None
    if not isinstance(body, Reduce) or body.reducer.name != "sum" or len(op.outputs) != 1:
        raise stage.error(
            "guard_by_zeros: the stage is no sum, and what else is reduced has no factor that "
            "stands for nothing",
            mend="Keep the condition",
        )
    assert isinstance(op, ComputeOp)
    if body.dtype.is_float and not finite:
        raise stage.error(
            "guard_by_zeros: zero times what is not finite is NaN, in elements that did not read "
            "it before",
            mend="Write finite=True where the tensors are finite, or the tolerance of the "
            "operator allows it",
        )
    factors = _factors(body.source[0])
    own = over if isinstance(over, Mapping) else dict.fromkeys(operands, over)
    for other in own.keys() - set(operands):
        raise stage.error(
            f"guard_by_zeros: over says axes for {other!r}, which is no operand",
            mend="Name it among the operands",
        )
    each = {operand: _axes(stage, own.get(operand, ()), "over") for operand in operands}
    axes = set[Var]().union(*each.values())
    zero: list[Expr] = []
    said: list[tuple[Expr, set[Var]]] = []
    for operand in operands:
        reads = [f for f in factors if f.buffer is operand.buffer]
        if not reads:
            names = ", ".join(f.buffer.name for f in factors) or "none"
            raise stage.error(
                f"guard_by_zeros: {operand.name!r} is no factor of the products",
                mend=f"Factors that are read as they are: {names}",
            )
        conditions = zero_unless(stage.schedule, reads[0])
        zero += conditions
        said += [(c, each[operand]) for c in conditions]

    analyzer = Analyzer()
    analyzer.shapes(t.buffer for t in (*op.inputs, *op.outputs))
    for root in stage.roots:
        assert root.dom is not None
        analyzer.bind(root.var, root.dom.min, root.dom.extent)
    old = [_plain(analyzer, c) for c in conjuncts(body.condition) if not isinstance(c, IntImm)]
    with analyzer.assume(logical_and(*zero)):
        staying = [c for c in old if axes and axes.isdisjoint(free_vars(c))]
        left = [c for c in old if c not in staying and not analyzer.prove(c)]
    bounds = {root.var: analyzer.bounds(root.var) for root in stage.roots}
    left = [c for c in left if not implied(c, [*zero, *staying], bounds)]
    if left:
        raise stage.error(
            f"guard_by_zeros: where {left[0]} does not hold, no operand is known to be zero",
            mend="Use s.reindex on the factor that the condition is about, with all axes that "
            "stand in it, and name its copy among the operands",
        )
    more = _axes(stage, around, "around")
    kept: list[Expr] = []
    for condition, free in (*((c, axes) for c in old), *said) if axes else ():
        best = analyzer.simplify(_relaxed(analyzer, condition, free))
        with analyzer.assume(logical_and(*kept)):
            if not analyzer.prove(best):
                kept.append(best)
    wide = [analyzer.simplify(_relaxed(analyzer, c, more)) for c in kept] if more else []
    kept = list(dict.fromkeys((*(c for c in wide if not analyzer.prove(c)), *kept)))
    reduced = []
    with analyzer.assume(logical_and(*kept)):
        unproved = unproved_reads(analyzer, expanded(stage, body.source[0]))
        if beyond := [c for c in unproved if not implied(c, kept, bounds)]:
            raise stage.error(
                "guard_by_zeros: without the condition the stage would read what is not there, as "
                f"{beyond[0]} is not known to hold",
                mend="Use s.reindex on the other factors too, whose copies are zero there",
            )
        for axis in body.axes:
            reduced.append(_narrowed(analyzer, axis))
            if reduced[-1] is not axis:
                kept = [c for c in kept if not _says(analyzer, c, axis)]
    source, init = body.source, body.init
    condition = logical_and(*kept)
    derived = op.derive(
        (Reduce(body.reducer, source, tuple(reduced), condition, body.index, init),)
    )
    stage.replace_op(derived)
    replace_output(stage.schedule, op, derived)


def _plain(analyzer: Analyzer, condition: Expr) -> Expr:
    """A condition without axes that it is not about: ``(i * 2 + j) % 2 == 0`` is one on ``j``."""
    made = analyzer.simplify(condition)
    return made if len(free_vars(made)) < len(free_vars(condition)) else condition


def _narrowed(analyzer: Analyzer, axis: IterVar) -> IterVar:
    """An axis of a reduction without the ends at which its condition never holds."""
    bounds, dom = analyzer.bounds(axis.var), axis.dom
    assert dom is not None
    if not isinstance(dom.min, IntImm) or not isinstance(dom.extent, IntImm):
        return axis
    if bounds.lo is None or bounds.hi is None or bounds.hi < bounds.lo:
        return axis
    count = bounds.hi - bounds.lo + 1
    if (bounds.lo, count) == (dom.min.value, dom.extent.value):
        return axis
    low, extent = (const(n, axis.var.dtype) for n in (bounds.lo, count))
    return IterVar(Range.from_extent(low, extent), axis.var, axis.kind, where=axis.where)


def _says(analyzer: Analyzer, condition: Expr, axis: IterVar) -> bool:
    """Whether a condition says no more than where an axis begins or ends."""
    form = inequality_form(analyzer, condition)
    return form is not None and set(form.terms) == {axis.var}


def _factors(product: Expr) -> list[Load]:
    """The elements of tensors with which a product is zero."""
    found: list[Load] = []
    waiting = [product]
    while waiting:
        e = waiting.pop()
        while isinstance(e, Cast):
            e = e.value
        read = zero_with(e)
        if read is not None:
            found.append(read)
        elif isinstance(e, Mul):
            waiting += [e.a, e.b]
    return found


def _axes(stage: Stage, over: Any, said: str) -> set[Var]:
    given = list(over) if isinstance(over, (list, tuple)) else [over]
    for axis in given:
        if not isinstance(axis, IterVar) or axis not in stage.roots:
            names = ", ".join(root.name for root in stage.roots)
            raise stage.error(
                f"guard_by_zeros: {said} takes axes of the declaration, got {axis!r}",
                axis if isinstance(axis, IterVar) else None,
                f"They are {names}",
            )
    return {axis.var for axis in given}


def _relaxed(analyzer: Analyzer, condition: Expr, axes: set[Var]) -> Expr:
    """A condition that holds where ``condition`` does for some value of ``axes``."""
    form = inequality_form(analyzer, condition)
    if axes.isdisjoint(free_vars(condition)):
        return condition
    if form is None or any(
        not axes.isdisjoint(free_vars(atom)) for atom in form.terms if atom not in axes
    ):
        return const(True)
    least = form
    for axis in axes.intersection(a for a in form.terms if isinstance(a, Var)):
        bounds = analyzer.bounds(axis)
        factor = form.coefficient(axis)
        end = bounds.lo if factor > 0 else bounds.hi
        if end is None:
            return const(True)
        least = least.without(axis) + end * factor
    made: Expr = least.to_expr(const(0).dtype) <= 0
    return made
