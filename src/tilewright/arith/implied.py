"""What follows from conditions on integers, remainders included, decided exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arith.encode import Instance
from tilewright.arith.interval import Interval
from tilewright.arith.isl import UNBOUNDED, Undecided
from tilewright.arith.system import System
from tilewright.ir.expr import Expr, Var


def implied(condition: Expr, known: Sequence[Expr], bounds: Mapping[Var, Interval]) -> bool:
    """Whether ``condition`` holds wherever all of ``known`` do, with variables within ``bounds``.

    False, too, where that is too hard to say.

    >>> x = Var.make("x")
    >>> implied(x < 39, [x < 40, (x % 2).equal(0)], {x: Interval(0, None)})
    True
    """
    system = System()
    instance = Instance(system)
    for var, span in bounds.items():
        low = -UNBOUNDED if span.lo is None else span.lo
        instance.bind(var, low, UNBOUNDED if span.hi is None else span.hi)
    for each in known:
        instance.require(each)
    instance.require(condition, False)
    try:
        return system.solve() is None
    except Undecided:
        return False
