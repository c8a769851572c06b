"""reindex: a copy of a tensor, indexed as its reader goes through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts, inequality_form
from tilewright.arith.factor import factored
from tilewright.arith.implied import implied
from tilewright.arith.safe_reads import reads_in_bounds, unproved_reads
from tilewright.ir.buffer import Buffer, known_scope, scopes_instead
from tilewright.ir.expr import Expr, Load, Reduce, Select, Var
from tilewright.ir.expr import load as read_at
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, as_index, const, if_then_else, logical_and, sub
from tilewright.ir.visit import distinct, free_vars, rewrite_exprs, substitute, uses
from tilewright.schedule.cache import make_operation, replace_output
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.schedule.zeros import is_zero, zero_unless, zero_with
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor


def reindex(s: Schedule, tensor: Tensor, reader: Any, axes: Any, scope: str) -> Tensor:
    """A copy of ``tensor`` with a dimension for each of ``axes``, which ``reader`` reads.

    ``axes`` are axes of the declaration of ``reader``, or sums of multiples of them. With ``[ii,
    j]``, ``C[ii] = sum(X[j] * F[j - ii], j, where=0 <= j - ii < K)`` becomes ``T[ii, j] = F[j -
    ii] if 0 <= j - ii < K else 0`` and ``C[ii] = sum(X[j] * T[ii, j], ...)``: a matrix that has an
    element of ``F`` several times. Axes that are equal wherever the condition of the reader holds
    may stand for each other. A dimension begins at the least value of its axis; a pair of one and a
    :class:`~tilewright.ir.itervar.Range` that has all of its values is a dimension of that range.
    The copy is zero where it would read what is not there, and where a condition of the reader, as
    far as ``axes`` say it, does not hold: nobody reads it there. Of an inlined ``tensor`` it is a
    copy of what that is made of.

    Where ``reader`` is no reduction, but a choice between an element of ``tensor`` and zero, the
    copy takes the condition over, as far as ``axes`` say it.

    Raises :class:`ScheduleError` where ``reader`` does not read ``tensor``, or at several indices,
    where an index does not follow from ``axes``, where these are not of ``reader``, or without
    known bounds, or not known to lie in their range, and where an index that is read from memory
    is not there for all of a range.
    """
    stage, producer = s[reader], s[tensor]
    op = stage.op
    memory = known_scope(scope) if scope else scope
    if memory is None:
        raise stage.error(f"unknown scope {scope!r}", mend=scopes_instead())
    if not isinstance(op, ComputeOp):
        raise stage.error(
            "reindex: an extern stage reads its inputs as they are",
            mend="Use reindex for what te.compute reads",
        )
    analyzer = Analyzer()
    analyzer.shapes(t.buffer for t in (*op.inputs, *op.outputs))
    for root in stage.roots:
        assert root.dom is not None
        analyzer.bind(root.var, root.dom.min, root.dom.extent)
    own = {root.var for root in stage.roots}
    given = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    pairs = [axis if isinstance(axis, tuple) else (axis, None) for axis in given]
    values = [_index(stage, axis, own) for axis, _ in pairs]
    condition = _condition(op, tensor)
    domains = [
        _domain(stage, analyzer, condition, value, whole)
        for value, (_, whole) in zip(values, pairs, strict=True)
    ]
    fresh = tuple(
        IterVar(Range.from_extent(0, extent), Var.make(f"ax{k}"), "data")
        for k, (_, extent) in enumerate(domains)
    )
    names = [add(axis.var, low) for axis, (low, _) in zip(fresh, domains, strict=True)]
    nothing = _equal_to_zero(analyzer, condition)
    values_of, names_of = [*values, *nothing], [*names, *(const(0) for _ in nothing)]
    indices = []
    for index in _read(stage, op, tensor):
        found = factored(index, own, values_of, names_of)
        if found is None:  # a quotient of a sum may be a sum with a quotient
            simple = [analyzer.simplify(value) for value in values_of]
            found = factored(analyzer.simplify(index), own, simple, names_of)
        if found is None:
            said = ", ".join(map(repr, values))
            raise stage.error(
                f"reindex: the stage reads {tensor.name!r} at {index}, which does not follow from "
                f"{said}",
                mend="Give axes of which each index is a sum of multiples: all that stand in it, "
                "or the sums in which they do",
            )
        indices.append(found)

    inside = Analyzer()
    inside.shapes(t.buffer for t in (tensor, *producer.op.inputs))
    for axis in fresh:
        inside.bind(axis.var, const(0), axis.dom.extent if axis.dom is not None else None)
    for index in indices:
        if not reads_in_bounds(inside, index):
            raise stage.error(
                f"reindex: in a range beyond what the stage reads, {index} reads what is not there",
                mend="Give no range to an axis that stands in what an index is read from",
            )
    known = [factored(c, own, values, names) for c in conjuncts(condition)]
    value, guards = _element(producer, tensor, indices)
    # A condition that reads memory says nothing where a range goes beyond what the reader has.
    guards = [c for c in known if c is not None and reads_in_bounds(inside, c)] + guards
    copy = make_operation(
        f"{tensor.name}.{memory or 'reindexed'}", fresh,
        (_guarded(inside, value, guards),),
    )  # fmt: skip
    (made,) = copy.outputs
    place = tuple(
        analyzer.simplify(sub(v, low)) for v, (low, _) in zip(values, domains, strict=True)
    )
    new = Stage(s, copy)
    new.scope = memory
    s.add(new, before=stage)
    _reroute(stage, op, tensor.buffer, read_at(made.buffer, place), analyzer)
    return made


def _index(stage: Stage, axis: Any, own: set[Var]) -> Expr:
    value = axis.var if isinstance(axis, IterVar) else as_index(axis)
    if not own.issuperset(free_vars(value)):
        names = ", ".join(root.name for root in stage.roots)
        raise stage.error(
            f"reindex: {value} is not made of axes of the declaration of the reader",
            axis if isinstance(axis, IterVar) else None,
            f"They are {names}; after split, skew and the like, s.cache_write makes axes of the "
            "loops",
        )
    return value


def _domain(
    stage: Stage, analyzer: Analyzer, condition: Expr, value: Expr, whole: Range | None
) -> tuple[Expr, Expr]:
    """The least value of an axis of a copy, and how many there are from it on."""
    if whole is not None:
        ends = [value >= whole.min, value < add(whole.min, whole.extent)]
        each = {root.var: analyzer.bounds(root.var) for root in stage.roots}
        known = conjuncts(condition)
        if not all(analyzer.prove(c) or implied(c, known, each) for c in ends):
            raise stage.error(
                f"reindex: {value} is not known to lie in the {whole.extent} values from "
                f"{whole.min} on",
                mend="Give a range that has all of its values, or none",
            )
        return whole.min, whole.extent
    own = {root.var for root in stage.roots}
    for root in stage.roots:
        if root.var is value and root.dom is not None:
            if not uses(root.dom.min, own) and not uses(root.dom.extent, own):
                return root.dom.min, root.dom.extent
    bounds = analyzer.bounds(value)
    if bounds.lo is None or bounds.hi is None:
        raise stage.error(
            f"reindex: nothing is known of how large {value} gets",
            mend="Give its axes one by one, or split what is symbolic by a constant factor",
        )
    return const(bounds.lo), const(bounds.hi - bounds.lo + 1)


def _read(stage: Stage, op: ComputeOp, tensor: Tensor) -> tuple[Expr, ...]:
    """The indices at which a stage reads a tensor."""
    found = {
        e.indices
        for body in op.body
        for e in distinct(body)
        if isinstance(e, Load) and e.buffer is tensor.buffer
    }
    if not found:
        read = ", ".join(t.name for t in op.inputs) or "nothing"
        raise stage.error(
            f"reindex: the stage does not read {tensor.name}", mend=f"It reads {read}"
        )
    if len(found) > 1:
        raise stage.error(
            f"reindex: the stage reads {tensor.name!r} at {len(found)} different indices",
            mend="Use s.cache_read, whose copy has the tensor's own indices",
        )
    return found.pop()


def _condition(op: ComputeOp, tensor: Tensor) -> Expr:
    """Where a stage reads a tensor, as far as one condition says it."""
    first, others = op.body[0], list[Expr]()
    if isinstance(first, Reduce):
        others = [first.condition, *first.init]
    elif isinstance(first, Select):
        others = [first.condition, first.on_false, *op.body[1:]]
    else:
        return const(True)
    elsewhere = any(
        isinstance(x, Load) and x.buffer is tensor.buffer for e in others for x in distinct(e)
    )
    return const(True) if elsewhere else first.condition


def _equal_to_zero(analyzer: Analyzer, condition: Expr) -> list[Expr]:
    """What is zero wherever a condition holds: ``j - i`` of ``j <= i`` and ``i <= j``."""
    forms = [inequality_form(analyzer, c) for c in conjuncts(condition)]
    found = [form for form in forms if form is not None and form.terms and -form in forms]
    return [form.to_expr(const(0).dtype) for form in found]


def _element(producer: Stage, tensor: Tensor, indices: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
    """An element of a tensor, or what it is made of where that is inlined, and the conditions
    without which it is zero."""
    op = producer.op
    if producer.attachment.kind == "inline" and isinstance(op, ComputeOp):
        at = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        body = op.body[op.outputs.index(tensor)]
        made: Expr = substitute(body, at)
        if isinstance(made, Select) and is_zero(made.on_false):
            return made.on_true, conjuncts(made.condition)
        return made, []
    return read_at(tensor.buffer, tuple(indices)), []


def _guarded(analyzer: Analyzer, value: Expr, guards: Sequence[Expr]) -> Expr:
    """``value`` where ``guards`` hold and it reads what is there, and zero elsewhere."""
    kept = _needed(analyzer, guards)
    with analyzer.assume(logical_and(*kept)):
        within = unproved_reads(analyzer, value)
    if within:
        kept = _needed(analyzer, [*kept, *within])
    return if_then_else(logical_and(*kept), value, const(0, value.dtype)) if kept else value


def _needed(analyzer: Analyzer, guards: Sequence[Expr]) -> list[Expr]:
    """Those of ``guards`` that do not follow from others, earlier ones or later ones."""
    kept = list(dict.fromkeys(guards))
    for guard in reversed(kept):
        others = [c for c in kept if c is not guard]
        with analyzer.assume(logical_and(*others)):
            if analyzer.prove(guard):
                kept = others
    return kept


def _reroute(stage: Stage, op: ComputeOp, old: Buffer, new: Expr, analyzer: Analyzer) -> None:
    def rule(e: Expr) -> Expr | None:
        return new if isinstance(e, Load) and e.buffer is old else None

    body = tuple(rewrite_exprs(e, rule) for e in op.body)
    chosen = body[0]
    if isinstance(chosen, Select) and is_zero(chosen.on_false):
        if zero_with(chosen.on_true) is new and isinstance(new, Load):
            with analyzer.assume(logical_and(*zero_unless(stage.schedule, new))):
                left = [c for c in conjuncts(chosen.condition) if not analyzer.prove(c)]
            with analyzer.assume(logical_and(*left)):
                if not reads_in_bounds(analyzer, new):  # of a range that the condition keeps it in
                    left = conjuncts(chosen.condition)
            body = (if_then_else(logical_and(*left), chosen.on_true, chosen.on_false), *body[1:])
    rerouted = op.derive(body)
    stage.op = rerouted
    replace_output(stage.schedule, op, rerouted)
