"""What holds at some moment is possible: no system of what is true there is refuted.

Expressions on indices and on data, which wraps around in its type, are evaluated at a point; a
system with their values as constraints has to have a solution, also one of two such moments, and
nothing that is false there is proved.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random

import pytest

from tilewright.arith import Analyzer
from tilewright.arith.encode import Instance
from tilewright.arith.system import System, Undecided, constant, minus
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.dtype import DType, dtype, int_range, wrapped
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, IntImm, Var

TYPES = [dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")]
Point = dict[Var, int]


class Beyond(Exception):
    """An index that its type does not hold."""


def value(e: Expr, at: Point) -> int:
    """The value of an expression, in the machine's arithmetic."""
    match e:
        case Var():
            return at[e]
        case IntImm(_, n):
            found = n
        case E.Not(a):
            return int(not value(a, at))
        case E.And(a, b):
            return int(value(a, at) and value(b, at))
        case E.Or(a, b):
            return int(value(a, at) or value(b, at))
        case E.Select(c, a, b) | E.IfThenElse(c, a, b):
            return value(a, at) if value(c, at) else value(b, at)
        case E.Cast(_, a):
            found = value(a, at)
        case E.Compare(a, b) | E.Binary(a, b):
            found = _OPERATIONS[type(e)](value(a, at), value(b, at))
        case _:
            raise NotImplementedError(type(e).__name__)
    inside = int(wrapped(found, e.dtype)) if e.dtype.is_int else found
    if e.exact and inside != found:
        raise Beyond
    return inside


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    E.Add: lambda a, b: a + b, E.Sub: lambda a, b: a - b, E.Mul: lambda a, b: a * b,
    E.Min: min, E.Max: max, E.BitAnd: lambda a, b: a & b,
    E.FloorDiv: lambda a, b: a // b if b else 0, E.FloorMod: lambda a, b: a % b if b else 0,
    E.TruncDiv: _truncated, E.TruncMod: lambda a, b: a - b * _truncated(a, b) if b else 0,
    E.EQ: lambda a, b: a == b, E.NE: lambda a, b: a != b, E.LT: lambda a, b: a < b,
    E.LE: lambda a, b: a <= b, E.GT: lambda a, b: a > b, E.GE: lambda a, b: a >= b,
}  # fmt: skip


class Drawn:
    """Variables with their ranges, expressions of them, and points."""

    def __init__(self, seed: int) -> None:
        r = self.r = Random(seed)
        self.ranges: dict[Var, tuple[int, int]] = {}
        for name in "ij"[: r.randint(1, 2)]:
            low = r.randint(-5, 5)
            self.ranges[Var.make(name, r.choice(["int32", "int64"]))] = low, low + r.randint(0, 12)
        for name in "xy"[: r.randint(1, 2)]:
            t = r.choice([TYPES[0], r.choice(TYPES), TYPES[-1]])
            self.ranges[Var.make(name, t, exact=False)] = int_range(t)
        self.pinned = [v for v in self.ranges if r.random() < 0.5]
        self.conditions = [self.condition(2) for _ in range(r.randint(0, 3))]

    def point(self) -> Point:
        """Mostly at the ends of ranges, or near 0."""
        r = self.r
        return {
            v: r.choice([low, high, r.randint(low, high), max(low, min(high, r.randint(-3, 9)))])
            for v, (low, high) in self.ranges.items()
        }

    def number(self, t: DType) -> IntImm:
        low, high = int_range(t)
        n = self.r.choice([self.r.randint(-4, 4), self.r.randint(5, 20), 64, low, high])
        return IntImm(t, n if low <= n <= high else 3)

    def integer(self, t: DType, depth: int) -> Expr:
        r = self.r
        own = [v for v in self.ranges if v.dtype == t]
        if not depth or r.random() < 0.15:
            return r.choice([*own, *own, self.number(t), ops.cast(t, r.choice([*self.ranges]))])
        a = self.integer(t, depth - 1)
        b = self.number(t) if r.random() < 0.5 else self.integer(t, depth - 1)
        match r.randrange(8):
            case 0 | 1:
                return r.choice([ops.add, ops.sub])(a, b)
            case 2:
                return ops.mul(a, b)
            case 3 | 4:
                f = r.choice([ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod])
                return f(a, IntImm(t, 5) if isinstance(b, IntImm) and not b.value else b)
            case 5:
                return r.choice([ops.minimum, ops.maximum])(a, b)
            case 6:
                return ops.select(self.condition(depth - 1), a, b)
        return ops.cast(t, self.integer(r.choice(TYPES), depth - 1))

    def condition(self, depth: int) -> Expr:
        r, t = self.r, self.r.choice([v.dtype for v in self.ranges])
        if depth and r.random() < 0.3:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return r.choice([E.And(a, b), E.Or(a, b), E.Not(a)])
        compare = r.choice([E.LT, E.LE, E.GT, E.GE, E.EQ, E.NE])
        made: Expr = compare(self.integer(t, depth), self.number(t))
        return made


def require(drawn: Drawn, instance: Instance, at: Point) -> None:
    """Let hold at a moment what holds at a point."""
    for var, (low, high) in drawn.ranges.items():
        instance.bind(var, low, high)
    for condition in drawn.conditions:
        instance.require(condition, bool(value(condition, at)))
    for var in drawn.pinned:
        instance.system.require(minus(instance.form(var), constant(at[var])), equal=True)


def solvable(system: System) -> bool:
    try:
        return system.solve() is not None
    except Undecided:
        return True


def of_seed(seed: int) -> None:
    drawn = Drawn(seed)
    one, two = drawn.point(), drawn.point()
    t = drawn.r.choice([v.dtype for v in drawn.ranges])
    e, f, question = drawn.integer(t, 2), drawn.integer(t, 1), drawn.condition(2)
    apart = value(e, one) - value(f, two)

    system = System()
    first = Instance(system)
    require(drawn, first, one)
    second = Instance(system, 1, first)
    require(drawn, second, two)
    difference = minus(first.form(e), second.form(f))
    system.require(minus(difference, constant(apart)), equal=True)
    assert solvable(system), (seed, str(e), str(f), one, two)

    analyzer = Analyzer()
    for var, (low, high) in drawn.ranges.items():
        if var.exact:
            analyzer.bind(var, low, high - low + 1)
    with ExitStack() as known:
        for c in drawn.conditions:
            known.enter_context(analyzer.assume(c if value(c, one) else E.Not(c)))
        assert value(question, one) or not analyzer.prove(question), (seed, str(question), one)
        assert value(analyzer.simplify(e), one) == value(e, one), (seed, str(e), one)


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_what_holds_is_not_refuted(first: int) -> None:
    for seed in range(first, first + 100):
        try:
            of_seed(seed)
        except (Beyond, LanguageError):
            continue
