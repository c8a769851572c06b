"""rfactor: part of a reduction becomes a data axis, to be spread over threads."""

from __future__ import annotations

from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir.expr import Expr, Load, Reduce, Var, load
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import add, const, if_then_else, logical_and, maximum
from tilewright.ir.visit import distinct, substitute, uses
from tilewright.schedule.cache import make_operation, replace_output
from tilewright.schedule.relations import (
    Relation,
    Single,
    Skew,
    consumed,
    guards,
    pass_extents,
    pass_values,
    said,
)
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.operation import ComputeOp
from tilewright.te.tensor import Tensor


def rfactor(s: Schedule, tensor: Tensor, axis: Any, factor_axis: int = 0) -> Any:
    """Reduce over all but ``axis`` in a new stage, and over ``axis`` in the stage of ``tensor``;
    ``axis`` may be several, which become dimensions side by side.

    ``B[i] = sum(A[i, ko, ki], (ko, ki))`` becomes, for axis ``ki``,
    ``BF[ki, i] = sum(A[i, ko, ki], ko)`` and ``B[i] = sum(BF[ki, i], ki)``. The new stage, whose
    dimension ``factor_axis`` is ``axis``, is returned; the stage of ``tensor`` starts again with
    ``s[B].op.axis`` and ``s[B].op.reduce_axis``. A condition that is about no axis over which the
    new stage reduces is one of both stages: where it does not hold, ``BF`` has nothing to add.

    Raises :class:`ScheduleError` where the stage is no reduction, ``axis`` no reduction loop, or
    something else is said of the stage's loops already.
    """
    stage = s[tensor]
    op = stage.op
    if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
        raise stage.error(
            "rfactor: the stage is not a reduction", mend="Pass the tensor that te.sum makes"
        )
    kept = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    for each in kept:
        stage.leaf(each, "rfactor")
        if each.kind != "reduce":
            names = ", ".join(a.name for a in stage.leaf_iter_vars if a.kind == "reduce")
            raise stage.error(
                "rfactor: not a reduction axis", each, f"The reduction's loops are {names}"
            )
    if not kept or len(set(kept)) < len(kept):
        raise stage.error(
            f"rfactor: got {len(kept)} axes, of which {len(set(kept))} are different",
            mend="Pass the axes that become dimensions, each once",
        )
    rank = len(op.axis)
    place = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    if not 0 <= place <= rank:
        raise stage.error(
            f"rfactor: the new stage has {rank + 1} dimensions, none of them is {factor_axis}",
            kept[0],
            f"factor_axis is from 0 to {rank}, or from {-rank - 1} to -1",
        )
    _check_unscheduled(stage)

    reduction = op.body[0]
    leaves = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
    data = [Var.make(a.name, a.var.dtype) for a in op.axis]
    mapping: dict[Var, Expr] = {a.var: v for a, v in zip(op.axis, data, strict=True)}
    starts, extents = _domains(stage, op, mapping)
    for each in kept:
        if uses(extents[each], set(data)):
            raise stage.error(
                f"rfactor: how often the axis runs, {extents[each]}, depends on a data axis, but "
                "it becomes a dimension of a tensor",
                each,
                "Split the axis by a constant factor, and pass the inner one",
            )
    fresh = {a: Var.make(a.name, a.var.dtype) for a in leaves}
    values: dict[IterVar, Expr] = {a: fresh[a] for a in leaves}
    relations = [r for r in stage.relations if _is_reduce(r)]
    pass_values(relations, extents, values)

    for root in op.reduce_axis:
        mapping[root.var] = add(starts[root], values[root])
    inside = [
        _unless_proved(guard, leaves, fresh, extents)
        for r in relations
        for guard in guards(r, extents, values)
    ]
    # Behind the guards of the splits: it may read memory, where the axes have values of their own.
    condition = logical_and(*inside, substitute(reduction.condition, mapping))
    source = tuple(substitute(e, mapping) for e in reduction.source)

    axes = [
        IterVar(Range.from_extent(0, extent), v, "data")
        for v, extent in zip(data, tensor.shape, strict=True)
    ]
    analyzer = Analyzer()
    analyzer.shapes(t.buffer for t in op.inputs)
    dimensions = []
    for each in kept:
        extent = extents[each]
        if not analyzer.prove(extent >= 0):
            extent = maximum(extent, 0)
        dimensions.append(IterVar(Range.from_extent(0, extent), fresh[each], "data"))
    axes[place:place] = dimensions
    inner = tuple(
        IterVar(Range.from_extent(0, extents[a]), fresh[a], "reduce")
        for a in leaves
        if a not in kept
    )
    body: tuple[Expr, ...]
    if inner:
        body = tuple(
            Reduce(reduction.reducer, source, inner, condition, k, ()) for k in range(len(source))
        )
    else:
        body = tuple(
            if_then_else(condition, e, identity)
            for e, identity in zip(source, reduction.reducer.identity, strict=True)
        )
    factored = make_operation(f"{op.name}.rf", tuple(axes), body)

    last = tuple(
        IterVar(Range.from_extent(0, extents[a]), Var.make(f"{a.name}.v"), "reduce") for a in kept
    )
    indices: list[Expr] = [a.var for a in op.axis]
    indices[place:place] = [a.var for a in last]
    partial = tuple(load(t.buffer, tuple(indices)) for t in factored.outputs)
    at: dict[Var, Expr] = {v: a.var for a, v in zip(op.axis, data, strict=True)}
    at |= {fresh[a]: v.var for a, v in zip(kept, last, strict=True)}
    reduced = {a.var for a in inner}
    whole = [
        c
        for c in conjuncts(condition)
        if not uses(c, reduced) and not any(isinstance(e, Load) for e in distinct(c))
    ]
    final = op.derive(
        tuple(
            Reduce(
                reduction.reducer, partial, last, substitute(logical_and(*whole), at), k,
                reduction.init,
            )
            for k in range(len(partial))
        )
    )  # fmt: skip
    stage.replace_op(final)
    replace_output(s, op, final)
    s.add(Stage(s, factored), before=stage)
    return factored.outputs[0] if len(factored.outputs) == 1 else list(factored.outputs)


def _check_unscheduled(stage: Stage) -> None:
    """What rfactor would undo: it leaves the stage with new loops."""
    stage.unused("rfactor")
    for axis, mark in stage.marks.items():
        if mark.said:
            raise stage.error(
                f"rfactor: an axis is already {mark.said}, which would be lost",
                axis,
                "Call rfactor first, and mark the loops that it leaves",
            )
    for relation in stage.relations:
        if isinstance(relation, Skew):
            what = "the reduction" if relation.parent.kind == "reduce" else "a data axis"
            raise stage.error(
                f"rfactor: {what} was skewed by a data axis ({relation.where})",
                relation.child,
                "Use s.cache_write first, whose result has the loops for axes, and pass one of "
                "these",
            )
        if not _is_reduce(relation) and not isinstance(relation, Single):
            raise stage.error(
                f"rfactor: a data axis was {said(relation)} ({relation.where}), which would be "
                "lost",
                consumed(relation)[0],
                "Call rfactor first, and split the loops that it leaves",
            )


def _is_reduce(relation: Relation) -> bool:
    return any(axis.kind == "reduce" for axis in consumed(relation))


def _domains(
    stage: Stage, op: ComputeOp, mapping: dict[Var, Expr]
) -> tuple[dict[IterVar, Expr], dict[IterVar, Expr]]:
    """Where the axes of the declaration start, and the extents of all, under ``mapping``."""
    starts: dict[IterVar, Expr] = {}
    extents: dict[IterVar, Expr] = {}
    others = {a.var for a in op.reduce_axis}
    for a in (*op.axis, *op.reduce_axis):
        assert a.dom is not None
        starts[a], extents[a] = (substitute(e, mapping) for e in (a.dom.min, a.dom.extent))
        if uses(starts[a], others) or uses(extents[a], others):
            raise stage.error(
                "rfactor: the domain of an axis depends on another axis of the reduction",
                a,
                "Reduce over a rectangle, with where= for what the domain leaves out",
            )
    pass_extents(stage.relations, extents, Analyzer().simplify)
    return starts, extents


def _unless_proved(
    guard: Expr, leaves: list[IterVar], fresh: dict[IterVar, Var], extents: dict[IterVar, Expr]
) -> Expr:
    analyzer = Analyzer()
    for leaf in leaves:
        analyzer.bind(fresh[leaf], const(0), extents[leaf])
    return const(True) if analyzer.prove(guard) else guard
