"""rolling_update, compute_with: reductions that go along with the loop of another one."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError, user_location
from tilewright.ir.expr import (
    Add,
    Binary,
    Call,
    Cast,
    Expr,
    FloatImm,
    Load,
    Max,
    Min,
    Mul,
    Reduce,
    Sub,
    Var,
)
from tilewright.ir.ops import cast, const, mul, select, sub, unary
from tilewright.ir.visit import exprs, free_vars, substitute, uses
from tilewright.schedule.attach import compute_at, depends
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Attachment, Stage
from tilewright.te.operation import ComputeOp

#: Functions of a sum of which each term is a factor.
_POWERS = ("exp2", "exp")
#: Operations on numbers.
_COMBINED: dict[type[Expr], Callable[[float, float], float]] = {
    Add: operator.add, Sub: operator.sub, Mul: operator.mul,
    Max: lambda a, b: max(a, b) if a + b < math.inf else math.nan,
    Min: lambda a, b: min(a, b) if a + b > -math.inf else math.nan,
}  # fmt: skip
#: By the bits of a type, its largest number, or less.
_LARGE = {16: 65504.0, 32: (2 - 2**-23) * 2.0**127, 64: sys.float_info.max}
#: A power of 2 that is infinite in every type.
_MOST = 1024


def rolling_update(stage: Stage, axis: Any, parent: Stage, loop: Any) -> None:
    """Compute ``stage``, a reduction, along with ``parent``, a sum that needs all of it: in every
    iteration of ``loop`` of the sum that of ``axis``, one of the loops of the reduction.

    Until then the sum has used what was reduced so far, ``m``. Its terms are powers
    ``exp2(x - w(m))`` or ``exp2((x - w(m)) * number)``, times what ``m`` has no part in, so that
    one multiplication turns what was summed into what it would be of the new ``m``. The loops of a
    softmax, ::

        for j: M = max(M, x[j])
        for j: S = S + exp2(x[j] - M) * v[j]

    become those of an online softmax (Milakov and Gimelshein, 2018; FlashAttention, Dao, 2022)::

        for j:
            before = M
            M = max(M, x[j])
            S = S * exp2(before - M)
            S = S + exp2(x[j] - M) * v[j]

    ``loop`` is the outermost one of the sum, and has as many iterations as ``axis``; the stages
    between the two are computed inside of it. The result is the same up to rounding, and NaN where
    a term comes while ``w`` of what was reduced is infinite: of a maximum before its first finite
    value. A ``w`` with a bound, ``max(m, -1e30)``, keeps clear of that.

    Raises :class:`ScheduleError` where ``axis`` or ``loop`` is no loop of a reduction, and where
    the terms of the sum are no such powers, or grow as ``w`` does: those of a sum that is 0 would
    be multiplied with infinity.
    """
    _check_loops(stage, axis, parent, loop, "rolling_update")
    exponent_of(stage, parent)
    compute_at(stage, parent, loop)
    stage.rolls_along = axis
    stage.lines["rolls_along"] = user_location()


def compute_with(stage: Stage, axis: Any, parent: Stage, loop: Any) -> None:
    """Compute ``stage``, a reduction, along with ``parent``, another one that neither reads it nor
    is read by it: in every iteration of ``loop`` of that one that of ``axis``, one of its own.
    (Halide's primitive of that name.)

    So both use what is computed inside of the loop, ::

        for j: P = exp2(x[j]); S = S + P * v[j]
        for j: P = exp2(x[j]); T = T + P

    being one loop. ``stage`` is there where ``parent`` is. What :func:`rolling_update` does to the
    sum ``parent`` it does to ``stage``, where that is a sum of such terms too.

    Raises :class:`ScheduleError` where ``axis`` or ``loop`` is no loop of a reduction, or ``stage``
    and ``parent``, or another one that is computed with that, depend on each other.
    """
    _check_loops(stage, axis, parent, loop, "compute_with")
    beside = [s for s in stage.schedule.stages if s.beside is parent and s is not stage]
    pairs = [(stage, other) for other in (parent, *beside)]
    for one, other in (*pairs, *((b, a) for a, b in pairs)):
        if one is other or depends(one, other):
            raise stage.error(
                f"compute_with: {one.name} is computed of {other.name}, which comes first",
                axis,
                "Compute it at a loop of what reads it, or after what it reads",
            )
    stage.attachment = Attachment("at", parent, loop, user_location())
    stage.rolls_along, stage.beside = axis, parent
    stage.lines["rolls_along"] = user_location()


def _check_loops(stage: Stage, axis: Any, parent: Stage, loop: Any, name: str) -> None:
    for of, one in ((stage, axis), (parent, loop)):
        if not isinstance(of, Stage) or not _reduction(of):
            raise stage.error(
                f"{name}: {of!r} is no reduction of one value",
                mend=f"Write s[A].{name}(axis, s[B], loop) with loops of reductions A and B",
            )
        of.leaf(one, name)
        if one.kind != "reduce":
            raise of.error(
                f"{name}: not a loop of the reduction", one,
                "Pass one of those that op.reduce_axis was split into",
            )  # fmt: skip


@dataclass(frozen=True)
class Exponent:
    """What a stage has to do with the terms of a sum, that are ``function(... - value)`` times
    something: ``value`` is one of ``read``, which loads an element of the stage."""

    function: str
    value: Expr
    read: Load

    @property
    def scaled(self) -> tuple[Expr, FloatImm | None]:
        """What ``value`` is without a number that it is multiplied with, and that number."""
        match self.value:
            case Mul(a, FloatImm() as number):
                return a, number
        return self.value, None

    def overflows(self, first: Expr) -> bool:
        """Whether what nothing was summed of yet, which is 0, is multiplied with infinity where the
        element, which is ``first`` to begin with, becomes any other: powers are of less then."""
        value, scale = self.scaled
        zero = const(0, self.read.dtype)
        begun, later = (
            _number(substitute(value, {self.read: e}), finite=False) for e in (first, zero)
        )
        return (begun - later) * (1 if scale is None else scale.value) > _MOST

    def factor(self, old: Expr, new: Expr, first: Expr) -> Expr:
        """What terms are multiplied with where the element changes, which is ``first`` to begin
        with: 1 where it stays that, as the difference of two infinite values is NaN. A number that
        both values are multiplied with multiplies their difference, which is 0 where they are the
        same: a fused multiplication would leave what one of the two products was rounded by."""
        value, scale = self.scaled
        before, after = (substitute(value, {self.read: e}) for e in (old, new))
        begun = substitute(value, {self.read: first})
        difference = sub(before, after)
        made = unary(self.function, difference if scale is None else mul(difference, scale))
        if math.isfinite(_number(begun)):
            return made
        return select(old.equal(new), const(1, made.dtype), made)


def exponent_of(stage: Stage, parent: Stage) -> Exponent:
    """How the terms of the sum ``parent`` depend on ``stage``.

    Raises :class:`ScheduleError` where not as :func:`rolling_update` needs it.
    """
    assert isinstance(parent.op, ComputeOp)
    reduction = parent.op.body[0]
    assert isinstance(reduction, Reduce)
    found = _Terms(stage, parent)
    if reduction.reducer.name != "sum" or reduction.init:
        raise found.error(f"it is no sum from 0 on, but {reduction.reducer.name}")
    if found.depends(reduction.condition):
        raise found.error("which terms it has depends on the stage")
    exponent = found.exponent(reduction.source[0])
    if uses(exponent.read, {a.var for a in parent.op.reduce_axis}):
        raise found.error(f"each of its terms has another {exponent.read}")
    reduced = stage.op.body[0] if isinstance(stage.op, ComputeOp) else None
    assert isinstance(reduced, Reduce)
    (first,) = reduced.init or reduced.reducer.identity
    if exponent.overflows(first):
        raise found.error(f"its terms grow as {stage.name} goes on, from {first}: 0 times infinity")
    return exponent


class _Terms:
    """The terms of a sum, through the stages that they are made in."""

    def __init__(self, stage: Stage, parent: Stage) -> None:
        self.schedule: Schedule = stage.schedule
        self.stage, self.parent = stage, parent
        self.own: Buffer = stage.op.outputs[0].buffer
        self.dependent = {self.own}
        for other in self.schedule.stages:  # producers before their consumers
            if any(t.buffer in self.dependent for t in other.op.inputs):
                self.dependent.update(t.buffer for t in other.op.outputs)

    def depends(self, e: Expr) -> bool:
        """Whether an expression is of the stage."""
        return any(isinstance(x, Load) and x.buffer in self.dependent for x in exprs(e))

    def exponent(self, e: Expr) -> Exponent:
        match e:
            case Cast(dtype, value) if dtype.is_float and value.dtype.is_float:
                return self.exponent(value)
            case Mul(a, b) if self.depends(a) != self.depends(b):
                return self.exponent(a if self.depends(a) else b)
            case Call(_, name, (Sub(x, value),)) if name in _POWERS and not self.depends(x):
                return Exponent(name, value, self.read(value))
            case Call(_, name, (Mul(Sub(x, value), FloatImm() as number),)) if (
                name in _POWERS and not self.depends(x)
            ):
                return Exponent(name, mul(value, number), self.read(value))
            case Load(buffer, indices) if buffer is not self.own and buffer in self.dependent:
                op = self.made(buffer).op
                assert isinstance(op, ComputeOp)
                if len(op.body) == 1 and not isinstance(op.body[0], Reduce):
                    at = {
                        a.var: cast(a.var.dtype, i) for a, i in zip(op.axis, indices, strict=True)
                    }
                    return self.exponent(substitute(op.body[0], at))
        raise self.error(f"a term has the factor {e}")

    def made(self, buffer: Buffer) -> Stage:
        stage = self.schedule.stage_of(buffer)
        assert stage is not None
        return stage

    def read(self, value: Expr) -> Load:
        """The one element of the stage that a value is of, and of nothing else."""
        found = {x for x in exprs(value) if isinstance(x, Load)}
        read = next(iter(found), None)
        if read is None or len(found) > 1 or read.buffer is not self.own:
            raise self.error(f"a power has {value} in its exponent, which is not of one element")
        if free_vars(substitute(value, {read: Var.make("m", read.dtype)}))[1:]:
            raise self.error(f"a power has {value} in its exponent, which is of loops as well")
        return read

    def error(self, why: str) -> ScheduleError:
        return self.stage.error(
            f"rolling_update: what {self.parent.name} has summed cannot be turned into what it is "
            f"of another {self.stage.name}: {why}",
            mend="Let each term be exp2(x - w), or exp, times what does not depend on the stage, "
            "where w is computed of one element of it",
        )


def _number(e: Expr, finite: bool = True) -> float:
    """What an expression of numbers is; NaN where that is not known, or not ``finite``."""
    if isinstance(e, FloatImm):
        return e.value
    combine = _COMBINED.get(type(e))
    if combine is None or not isinstance(e, Binary):
        return math.nan
    value = combine(_number(e.a, finite), _number(e.b, finite))
    return value if not finite or abs(value) <= _LARGE.get(e.dtype.bits, 0) else math.nan


def _reduction(stage: Stage) -> bool:
    op = stage.op
    return isinstance(op, ComputeOp) and len(op.body) == 1 and isinstance(op.body[0], Reduce)
