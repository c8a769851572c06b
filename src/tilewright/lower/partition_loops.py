"""Boundary conditions leave the interior of loops.

Stands after guards have been hoisted and loops trimmed, so that what is left of conditions are
comparisons of affine forms and ends of loops, and before vectorising, which then has an interior
without masks. A loop becomes what comes before the interior, the interior, and what comes after:

>>> from tilewright.lower.sketch import *
>>> from tilewright.ir.ops import if_then_else, logical_and
>>> i, v, d = axes("i v d")
>>> A, B = buffer("A", 32), buffer("B", 32)
>>> n = i * 4 + v + d
>>> x = if_then_else(logical_and(1 <= n, n < 33), A[n - 1], 0.0)
>>> body = loop(v, 4, store(B[i * 4 + v], B[i * 4 + v] + x), kind="vectorized")
>>> print(partition_loops(func(loop(i, 8, loop(d, 3, body)))).body)
for d in range(3):
    for v in T.vectorized(4):
        B[v] = B[v] + T.if_then_else(1 <= d + v, A[d + v - 1], T.float32(0))
for i in range(1, 7):
    for d in range(3):
        for v in T.vectorized(4):
            B[i * 4 + v] = B[i * 4 + v] + A[i * 4 + d + v - 1]
for d in range(3):
    for v in T.vectorized(4):
        B[v + 28] = B[v + 28] + T.if_then_else(d + v < 5, A[d + v + 27], T.float32(0))

A reduction loop is divided where that takes a branch out of it and its parts are known. What guards
its vectors is a mask, which is cheaper than a copy of the body.

A PARALLEL loop stays one loop, with the interior and the rest as the branches of an ``If``: three
parallel loops would wait for one another. On a GPU nothing is partitioned unless
``config={"partition_gpu": True}`` asks for it: neighbouring threads would take different parts.
``config={"partition_limit": n}`` bounds the stores that copies of one nest may grow to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.arith import Analyzer, Unbounded, solve
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, ForKind, If, Instr, Let, Stmt, Store, seq
from tilewright.ir.visit import children, exprs, uses, walk
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.simplify import simplified
from tilewright.lower.substitution import copy

#: Stores that the copies of one nest may have together.
_LIMIT = 64


def partition_loops(func: Func) -> Func:
    """Take boundary conditions out of loop interiors; see the module's docstring."""
    config = func.attrs.get("config") or {}
    if func.attrs["target"].is_gpu and not config.get("partition_gpu", False):
        return func
    limit = int(config.get("partition_limit", _LIMIT))
    return replace(func, body=_Partition(analyzer_of(func), limit).stmt(func.body))


class _Partition(InContext):
    def __init__(self, analyzer: Analyzer, limit: int) -> None:
        super().__init__(analyzer)
        self.limit = limit

    def expr(self, e: Expr) -> Expr:
        return e

    def stmt(self, s: Stmt) -> Stmt:
        s = s if isinstance(s, Instr) else super().stmt(s)
        if isinstance(s, For) and s.kind in (ForKind.SERIAL, ForKind.PARALLEL):
            interior = self.interior(s)
            if interior is not None:
                return simplified(self.analyzer, _parts(s, *interior))
        return s

    def interior(self, s: For) -> tuple[Expr, Expr] | None:
        """The first iteration of the interior and the first after it, both within the loop."""
        done = [x for x in walk(s.body) if isinstance(x, (Store, Instr))]
        if len(done) * (2 if s.kind is ForKind.PARALLEL else 3) > self.limit:
            return None
        reduction = not any(uses(place, {s.var}) for x in done for place in _places(x))
        end = ops.add(s.min, s.extent)
        low, high = s.min, end
        with self.analyzer.scope():
            self.analyzer.bind(s.var, s.min, s.extent)
            for lower, upper in self.limits(s.body, s.var, {}, reduction):
                first, after = low, high
                for e in lower:
                    first = ops.maximum(first, e)
                for e in upper:
                    after = ops.minimum(after, ops.add(e, 1))
                first, after = self.analyzer.simplify(first), self.analyzer.simplify(after)
                if reduction and not (isinstance(first, IntImm) and isinstance(after, IntImm)):
                    continue
                if not self.empty(first, after):
                    low, high = first, after
        if (low, high) == (s.min, end) or self.small(s, low, high):
            return None
        if not self.analyzer.prove(low <= high):
            high = ops.maximum(low, high)
        return self.analyzer.simplify(low), self.analyzer.simplify(high)

    def empty(self, low: Expr, high: Expr) -> bool:
        return self.analyzer.prove(high <= low)

    def small(self, s: For, low: Expr, high: Expr) -> bool:
        """Whether the interior is not worth copies: less than half of a loop, known or not."""
        size = self.analyzer.simplify(ops.sub(high, low))
        whole = self.analyzer.simplify(s.extent)
        if isinstance(whole, IntImm) and isinstance(size, IntImm):
            return size.value < 1 or 2 * size.value < whole.value
        # With symbolic ends the interior may be empty; where the whole is constant, it must not.
        return isinstance(whole, IntImm) and not self.analyzer.prove(2 * size >= whole)

    def limits(
        self, node: Stmt | Expr, var: Var, inner: dict[Var, tuple[Expr, Expr]], reduction: bool
    ) -> Iterator[tuple[list[Expr], list[Expr]]]:
        """Bounds of ``var`` within which a condition in ``node`` holds whatever inner loops do.

        For a reduction loop, only of branches: a choice of values is a mask or a predicate.
        """
        match node:
            case For(loop, low, extent, _, body):
                for e in (low, extent):
                    for x in exprs(e):
                        condition = _constant_wins(x)
                        if condition is not None:
                            yield from self.bounds(condition, var, inner)
                with self.analyzer.scope():
                    self.analyzer.bind(loop, low, extent)
                    known = self.analyzer.bounds(loop)
                    first = low if known.lo is None else ops.const(known.lo)
                    last = low + extent - 1 if known.hi is None else ops.const(known.hi)
                    yield from self.limits(body, var, {**inner, loop: (first, last)}, reduction)
                return
            case Let(let):
                inner = {**inner, let: (let, let)}
            case E.Select() if reduction:
                return
            case If(condition) | E.Select(condition):
                for c in conjuncts(condition):
                    if pure(c):
                        yield from self.bounds(c, var, inner)
        for child in children(node):
            yield from self.limits(child, var, inner, reduction)

    def bounds(
        self, condition: Expr, var: Var, inner: dict[Var, tuple[Expr, Expr]]
    ) -> Iterator[tuple[list[Expr], list[Expr]]]:
        """Bounds of ``var`` within which ``condition`` holds for all values of inner variables."""
        difference = at_most_zero(condition)
        if difference is None or not uses(difference, {var}):
            return
        domain = {v: ends for v, ends in inner.items() if uses(difference, {v})}
        if any(ends[0] is v for v, ends in domain.items()):
            return  # a name for a value
        try:
            _, worst = self.analyzer.relax(difference, domain) if domain else (None, difference)
        except Unbounded:
            return
        lower, upper, rest = solve(worst <= 0, var, self.analyzer)
        if rest or not (lower or upper) or any(uses(e, {var, *inner}) for e in lower + upper):
            return
        yield lower, upper


def _places(s: Store | Instr) -> tuple[Expr, ...]:
    """The indices that a statement writes at, for an instruction all that it speaks of."""
    return s.indices if isinstance(s, Store) else tuple(i for o in s.operands for i in o.indices)


def at_most_zero(condition: Expr) -> Expr | None:
    """A form that is not positive just where a comparison of integers holds."""
    if not isinstance(condition, E.Compare) or condition.a.dtype not in ("int32", "int64"):
        return None
    difference = ops.sub(condition.a, condition.b)
    match condition:
        case E.LE():
            return difference
        case E.LT():
            return ops.add(difference, 1)
        case E.GE():
            return ops.neg(difference)
        case E.GT():
            return ops.sub(1, difference)
    return None


def _constant_wins(e: Expr) -> Expr | None:
    """Where a minimum or maximum is the constant in it."""
    match e:
        case E.Min(IntImm() as c, x) | E.Min(x, IntImm() as c):
            return E.LE(c, x)
        case E.Max(IntImm() as c, x) | E.Max(x, IntImm() as c):
            return E.GE(c, x)
    return None


def _parts(s: For, low: Expr, high: Expr) -> Stmt:
    """The loop in its parts, the middle one from ``low`` to before ``high``."""
    if s.kind is ForKind.PARALLEL:
        inside = ops.logical_and(low <= s.var, s.var < high)
        return replace(s, body=If(inside, s.body, copy(s.body)))
    before = copy(replace(s, extent=ops.sub(low, s.min)))
    after = copy(replace(s, min=high, extent=ops.sub(ops.add(s.min, s.extent), high)))
    return seq(before, replace(s, min=low, extent=ops.sub(high, low)), after)
