"""Reductions that go on in the loop of the sum that reads them, which is rescaled there.

The stages of :func:`~tilewright.schedule.rolling_update.rolling_update`: what is reduced so far is
kept across the iterations of the loop, from before it. Each of them reduces some more, and
multiplies what was summed with what its terms would have become::

    M = -inf
    S = 0
    for j:
        M.before = M
        M = max(M, x[j])
        M.before = exp2(M.before - M)
        S = S * M.before
        S = S + exp2(x[j] - M) * v[j]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, Load, Reduce
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import cast, is_const, mul
from tilewright.ir.stmt import Allocate, If, Stmt, seq
from tilewright.ir.visit import free_vars, loads, uses
from tilewright.schedule.attach import depends
from tilewright.schedule.rolling_update import exponent_of
from tilewright.schedule.stage import Stage

if TYPE_CHECKING:
    from tilewright.lower.build.bounds import Bounds
    from tilewright.lower.build.schedule_to_func import Nests


def check_rolling_update(bounds: Bounds, stage: Stage, axis: IterVar) -> None:
    """Raises :class:`LoweringError` where the loops of a stage and of its sum do not go along."""
    at = stage.attachment
    assert at.stage is not None
    assert at.axis is not None
    stage.leaf(axis, "rolling_update")
    own, outer = bounds.domains[stage].extents[axis], bounds.domains[at.stage].extents[at.axis]
    if not bounds.analyzer.prove(own.equal(outer)):
        raise _refused(
            stage,
            f"its loop over {axis.name!r} has {own} iterations, and that over {at.axis.name!r} of "
            f"{at.stage.name} {outer}",
            "Split both reductions by the same factor",
        )
    first = next(leaf for leaf in at.stage.leaf_iter_vars if leaf.kind == "reduce")
    if first is not at.axis:
        raise _refused(
            stage,
            f"the loop over {first.name!r} of {at.stage.name} stands outside of that over "
            f"{at.axis.name!r}, so that the reduction would begin again in the middle of the sum",
            "Reorder the loops of the sum",
        )
    outside = at.stage.leaf_iter_vars[: at.stage.leaf_iter_vars.index(at.axis)]
    sizes = bounds.domains[at.stage].extents
    again = [leaf for leaf in outside if not is_const(sizes[leaf], 1)]
    if stage.beside is not None and again:
        raise _refused(
            stage,
            f"the loop over {again[0].name!r} of {at.stage.name} stands outside of that over "
            f"{at.axis.name!r}, so that all of the reduction would be done again",
            "Reorder the loops of the other reduction",
        )
    for one in (stage, at.stage):
        for leaf, said in one.marks.items():
            if leaf.kind == "reduce" and said.thread is not None:
                raise _refused(
                    stage, f"threads share the reduction of {one.name} over {leaf.name!r}",
                    "Use rfactor, and let the last stage be reduced in fragments, or serially",
                )  # fmt: skip


def updated(nests: Nests, parent: Stage, stage: Stage, update: Stmt, body: Stmt) -> Stmt:
    """``body`` of the loop of ``parent``, after the ``update`` of ``stage`` and what follows from
    it for what was summed before."""
    own, exponent = nests.stages[stage], exponent_of(stage, parent)
    (part, _), (read,) = own.outputs[0], own.results()
    before = Buffer(f"{part.name}.before", part.shape, part.dtype, part.scope)
    keep = own.every_element(before, read)
    old = Load(before, read.indices, None)
    turn = own.every_element(before, exponent.factor(old, read, own.first()))
    scaled: list[Stmt] = []
    for one in (parent, *_rescaled_beside(nests.beside(parent), stage)):
        total = nests.stages[one]
        (summed,), at = total.results(), total.reads(exponent_of(stage, one).read).indices
        value = mul(summed, cast(summed.dtype, Load(before, at, None)))
        if one is parent:
            scaled.append(total.set_results(value))
        else:
            scaled.append(total.every_element(summed.buffer, value))
    made = seq(keep, update, turn, *scaled, body)
    some = _where_any(nests, parent, stage.attachment.axis)
    return Allocate(before, made if some is None else If(some, made))


def _where_any(nests: Nests, parent: Stage, at: IterVar | None) -> Expr | None:
    """Where an iteration of a loop of ``parent`` adds anything, if that is the same for all of it
    and for all that is reduced along: elsewhere nothing is rescaled, either."""
    assert at is not None
    nest = nests.stages[parent]
    inner = {nest.domain.variables[x] for x in parent.leaf_iter_vars}
    outside = parent.leaf_iter_vars[: parent.leaf_iter_vars.index(at) + 1]
    inner -= {nest.domain.variables[x] for x in outside}
    some = nest.condition()
    if some is None or is_const(some) or uses(some, inner):
        return None
    for x in nests.attached[parent, at]:
        if x in nests.warm:  # what it keeps of an iteration is used in others
            return None
        if x.rolls_along is not None and not _reduces(nests, x, some):
            return None
    return some


def _reduces(nests: Nests, stage: Stage, some: Expr) -> bool:
    """Whether a stage, or one in which parts of its reduction are made, reduces where that holds,
    and nothing elsewhere."""
    nest = nests.stages.get(stage)
    if nest is None or not isinstance(nest.body[0], Reduce):
        return False
    if _same(nest.condition(), some):
        return True
    first, inputs = nest.body[0], stage.op.inputs
    part = nests.schedule.stage_of(inputs[0].buffer) if len(inputs) == 1 else None
    if part not in nests.stages or not all(isinstance(e, Load) for e in first.source):
        return False
    other = nests.stages[part].body[0]
    if not isinstance(other, Reduce) or other.init:  # which is there where nothing is reduced, too
        return False
    return other.reducer is first.reducer and _reduces(nests, part, some)


def _same(e: Expr | None, other: Expr) -> bool:
    """Whether two conditions are the same expression of the same variables and tensors."""
    if e is None or str(e) != str(other):
        return False
    return _named(e) == _named(other)


def _named(e: Expr) -> set[int]:
    """What an expression names, which may have the name of something else."""
    return {id(x) for x in free_vars(e)} | {id(load.buffer) for load in loads(e)}


def _rescaled_beside(beside: list[Stage], stage: Stage) -> list[Stage]:
    return [one for one in beside if depends(one, stage)]


def _refused(stage: Stage, why: str, mend: str) -> LoweringError:
    return stage.contradiction(
        f"{'rolling_update' if stage.beside is None else 'compute_with'}: {why}",
        stage.rolls_along,
        mend,
        stage.lines["rolls_along"],
    )
