"""Where what a stage computes is zero, because what it reads is."""

from __future__ import annotations

import math

from tilewright.arith.conditions import conjuncts
from tilewright.ir.expr import Call, Cast, Expr, FloatImm, IntImm, Load, Mul, Select, Sub
from tilewright.ir.tf32 import TF32_FUNCTIONS
from tilewright.ir.visit import substitute
from tilewright.schedule.schedule import Schedule
from tilewright.te.operation import ComputeOp


def zero_unless(s: Schedule, read: Load) -> list[Expr]:
    """The conditions without which what is read is zero, as far as its stage, and those that this
    is made of, say them."""
    stage, found = s.stage_of(read.buffer), list[Expr]()
    while stage is not None and isinstance(stage.op, ComputeOp) and len(stage.op.body) == 1:
        at = {a.var: index for a, index in zip(stage.op.axis, read.indices, strict=True)}
        value = substitute(stage.op.body[0], at)
        if isinstance(value, Select) and is_zero(value.on_false):
            found += conjuncts(value.condition)
            value = value.on_true
        inner = zero_with(value)
        if inner is None:
            break
        read, stage = inner, s.stage_of(inner.buffer)
    return found


def zero_with(e: Expr) -> Load | None:
    """The element of a tensor with which ``e`` is zero, too, if there is one: that, converted, or a
    part of it.

    >>> from tilewright import te
    >>> x = te.placeholder((4,), "float32", name="x")[2]
    >>> zero_with(x - te.round_tf32(x)), zero_with(x + 1)
    (x[2], None)
    """
    match e:
        case Load():
            return e
        case Cast(_, value):
            return zero_with(value)
        case Call(_, name, (Expr() as x,)) if name in TF32_FUNCTIONS:
            return zero_with(x)
        case Mul(x, FloatImm(_, number)) if 0 < number < math.inf:
            return zero_with(x)
        case Sub(x, y) | Select(_, x, y):
            found = zero_with(x)
            return found if found is not None and zero_with(y) is found else None
    return None


def is_zero(e: Expr) -> bool:
    """Whether an expression is the number zero, without a sign."""
    return isinstance(e, (IntImm, FloatImm)) and e.value == 0 and math.copysign(1, e.value) > 0
