"""Random integer expressions and conditions, and their values at every point of a small domain."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.arith import Analyzer
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Expr, Var
from tilewright.ir.operand import OPERATORS

Points = Mapping[Var, Any]  # the values of each variable, one array position a point

_NUMPY = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.FloorDiv: np.floor_divide,
    E.FloorMod: np.mod, E.Min: np.minimum, E.Max: np.maximum, E.TruncMod: np.fmod,
    E.TruncDiv: lambda a, b: (a - np.fmod(a, b)) // b,
    E.BitAnd: np.bitwise_and, E.BitOr: np.bitwise_or, E.BitXor: np.bitwise_xor,
    E.Shl: np.left_shift, E.Shr: np.right_shift,
    E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal,
    E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip


def value(e: Expr, at: Points) -> Any:
    """The value of an expression at each of the points."""
    match e:
        case Var():
            return at[e]
        case E.IntImm(t, number):
            return np.bool_(number) if t.is_bool else np.int64(number)
        case E.Not(a):
            return np.logical_not(value(a, at))
        case E.Select(c, a, b):
            return np.where(value(c, at), value(a, at), value(b, at))
        case E.Cast(t, a):
            return np.asarray(value(a, at)).astype(str(t)).astype(bool if t.is_bool else np.int64)
        case E.LetExpr(var, a, body):
            return value(body, {**at, var: value(a, at)})
        case E.Binary(a, b) | E.Compare(a, b):
            return _NUMPY[type(e)](value(a, at), value(b, at))
    raise NotImplementedError(type(e).__name__)


@dataclass(frozen=True)
class Domain:
    """Variables, an analyzer that knows their ranges, and all points they can be at."""

    variables: tuple[Var, ...]
    analyzer: Analyzer
    points: Points


def domain(*ranges: tuple[str, int, int]) -> Domain:
    """Variables of independent ranges, given as (name, least, greatest)."""
    variables = tuple(Var.make(name) for name, _, _ in ranges)
    analyzer = Analyzer()
    for var, (_, lo, hi) in zip(variables, ranges, strict=True):
        analyzer.bind(var, lo, hi - lo + 1)
    rows = list(itertools.product(*(range(lo, hi + 1) for _, lo, hi in ranges)))
    return Domain(variables, analyzer, _columns(variables, rows))


def symbolic_domain(largest: int = 5) -> Domain:
    """n and m unbounded, i below n, j below m, and o with a block of 4 that ends at n."""
    n, m, i, j, o, k = variables = tuple(map(Var.make, "nmijok"))
    analyzer = Analyzer()
    analyzer.bind(n, 1, None)
    analyzer.bind(m, 1, None)
    analyzer.bind(i, 0, n)
    analyzer.bind(j, 0, m)
    analyzer.bind(o, 0, ops.ceildiv(n, 4))
    analyzer.bind(k, o * 4, ops.minimum(4, n - o * 4))
    rows = [
        (a, b, c, d, e, f)
        for a in range(1, largest + 1)
        for b in range(1, largest + 1)
        for c in range(a)
        for d in range(b)
        for e in range((a + 3) // 4)
        for f in range(e * 4, min(e * 4 + 4, a))
    ]
    return Domain(variables, analyzer, _columns(variables, rows))


def _columns(variables: Sequence[Var], rows: list[tuple[int, ...]]) -> Points:
    table = np.array(rows, dtype=np.int64)
    return {var: table[:, column] for column, var in enumerate(variables)}


@st.composite
def integers(draw: Any, variables: Sequence[Var], depth: int = 4, products: bool = False) -> Expr:
    """An integer expression of the kinds that indices are made of."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.integers(0, 3)) == 0:
            return ops.const(draw(st.integers(-20, 20)))
        return draw(st.sampled_from(list(variables)))

    def sub() -> Expr:
        return draw(integers(variables, depth - 1, products))

    kind = draw(st.integers(0, 13))
    if kind <= 3:
        return sub() + sub()
    if kind == 4:
        return sub() - sub()
    if kind <= 6:
        return sub() * draw(st.sampled_from([2, 3, 4, 8, -1, -2, -4, 6]))
    divisor = draw(st.sampled_from([2, 3, 4, 8, 6, 12, -3, 16]))
    if kind <= 8:
        return sub() // divisor
    if kind == 9:
        return sub() % divisor
    if kind == 10:
        return draw(st.sampled_from([ops.truncdiv, ops.truncmod]))(sub(), divisor)
    if kind == 11:
        return draw(st.sampled_from([ops.minimum, ops.maximum]))(sub(), sub())
    if kind == 12:
        choice = draw(st.sampled_from([ops.select, ops.if_then_else]))
        return choice(draw(conditions(variables, min(depth - 1, 1), products)), sub(), sub())
    return sub() * draw(st.sampled_from(list(variables))) if products else sub() % divisor


@st.composite
def conditions(draw: Any, variables: Sequence[Var], depth: int = 2, products: bool = False) -> Expr:
    """A condition on integers."""
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind <= 4:
        compare = draw(
            st.sampled_from([OPERATORS[c] for c in ("lt", "le", "gt", "ge", "eq", "ne")])
        )
        a = draw(integers(variables, 2, products))
        return compare(a, draw(integers(variables, 2, products)))
    a = draw(conditions(variables, depth - 1, products))
    if kind == 7:
        return ops.logical_not(a)
    b = draw(conditions(variables, depth - 1, products))
    return ops.logical_and(a, b) if kind == 5 else ops.logical_or(a, b)
