"""Boundary conditions leave the interior of loops.

Stands after guards have been hoisted and loops trimmed, so that what is left of conditions are
comparisons of affine forms and ends of loops, and before vectorising, which then has an interior
without masks. A loop becomes what comes before the interior, the interior, and what comes after:

>>> from tilewright.lower.ir_builder import *
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

A condition on less than an eighth of the work in a loop is not worth copies, say on the store of a
sum, unless a schedule asks for it (the pragma "partition"): copies may then leave out what nobody
reads; nor is an interior of less than half of the loop. A reduction loop is divided where that
takes a branch out of it and either its parts are known or it may be long: what guards its vectors
is a mask, which is cheaper than a copy of the body.

A PARALLEL loop stays one loop, with the interior and the rest as the branches of an ``If``: three
parallel loops would wait for one another. So does, on a CPU, a loop of long iterations whose
interior begins and ends where only the run tells: what comes before it and after it would be the
same code twice. ``limit`` bounds the stores that copies of one nest may grow to.

On a GPU a loop is divided where a branch leaves an interior that is the same for all threads: the
guard of a tile that its threads fetch in several rounds remains in the last round alone, and the
loads of the others need not wait for one another. A loop with a pipeline stays whole, and so does
one that a pipeline inside of it goes on over: parts would each have copies of their own in shared
memory, and run empty at their ends. (Pipelines that go on over a loop further out go on over
parts.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tilewright.arith import Analyzer, Unbounded, solve
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, ForKind, If, Instr, Let, Pragma, Stmt, Store, seq
from tilewright.ir.visit import Steps, children, exprs, run, statements, uses
from tilewright.lower.analysis.marked_fills import marked
from tilewright.lower.analysis.steps import steps, turns
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.loops.simplify import simplified
from tilewright.lower.substitution import copy

#: Stores that the copies of one nest may have together.
_LIMIT = 64


def partition_loops(func: Func, limit: int = _LIMIT) -> Func:
    """Take boundary conditions out of loop interiors; see the module's docstring."""
    gpu: bool = func.target.is_gpu
    return replace(func, body=_Partition(analyzer_of(func), limit, gpu).stmt(func.body))


#: A guess of the iterations of a loop whose length is not known.
_UNKNOWN = 8

#: Reduction loops that may have this many iterations are divided at ends that are not known.
_LONG = 8

#: On a CPU, what comes before and after an interior is one copy of this many stores.
_ONE_REST = 64

#: The least part of a loop's work that a condition must guard to be worth copies.
_SHARE = 8

#: What the variables of inner loops range over; None for a name of a value.
_Domain: TypeAlias = dict[Var, tuple[Expr, Expr] | None]


class _Guard(NamedTuple):
    """A condition, the loops and names around it, the steps it guards, and whether it is that of a
    branch (or of a loop's end) and not of a choice of values."""

    condition: Expr
    around: tuple[For | Let, ...]
    steps: float
    branch: bool


class _Partition(InContext):
    def __init__(self, analyzer: Analyzer, limit: int, gpu: bool) -> None:
        super().__init__(analyzer)
        self.limit, self.gpu = limit, gpu
        self.kinds = (ForKind.SERIAL, ForKind.UNROLLED if gpu else ForKind.PARALLEL)
        self.threads: _Domain = {}  # of a GPU, which all have to take the same part

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        around = self.threads
        if isinstance(s, For) and s.kind is ForKind.THREAD:
            self.threads = {**around, s.var: (s.min, ops.add(s.min, ops.sub(s.extent, 1)))}
        s = s if isinstance(s, Instr) else (yield from super().steps(s))
        self.threads = around
        if isinstance(s, For) and s.kind in self.kinds:
            interior = self.interior(s)
            if interior is not None:
                return simplified(self.analyzer, self.parts(s, *interior))
        return s

    def parts(self, s: For, low: Expr, high: Expr) -> Stmt:
        if s.kind is ForKind.PARALLEL or self.one_rest(s, low, high):
            inside = ops.logical_and(low <= s.var, s.var < high)
            return replace(s, body=If(inside, s.body, copy(s.body)))
        made = _parts(s, low, high)
        # The ends of the interior were found for a loop that has iterations.
        if self.analyzer.prove(s.extent > 0):
            return made
        return If(s.extent > 0, made)

    def one_rest(self, s: For, low: Expr, high: Expr) -> bool:
        """Whether both sides of an interior are long, and neither is known."""
        known = isinstance(low, IntImm) or isinstance(high, IntImm)
        return not (self.gpu or known) and steps(s.body, _UNKNOWN) >= _ONE_REST

    def interior(self, s: For) -> tuple[Expr, Expr] | None:
        """The first iteration of the interior and the first after it, both within the loop."""
        if not s.pragma(Pragma.PARTITION, True):
            return None
        if s.pipelines is not None or any(mark.over is None for mark in marked(s.body)):
            return None
        done = [x for x in statements(s.body) if isinstance(x, (Store, Instr))]
        if len(done) * (2 if s.kind is ForKind.PARALLEL else 3) > self.limit:
            return None
        reduction = not any(uses(place, {s.var}) for x in done for place in _places(x))
        end = ops.add(s.min, s.extent)
        low, high = s.min, end
        with self.analyzer.scope():
            self.analyzer.bind(s.var, s.min, s.extent)
            most = self.analyzer.bounds(s.extent).hi
            long = most is None or most >= _LONG
            found = run(self.guards(s.body, s.var, (), 1))
            domains: dict[tuple[int, ...], _Domain] = {}
            asked = s.pragma(Pragma.PARTITION, None)
            worth = steps(s.body, _UNKNOWN) / _SHARE if found and not asked else 0
            for guard in found:
                # What guards the vectors of a reduction is a mask, cheaper than copies of the body.
                if guard.steps < worth or ((reduction or self.gpu) and not guard.branch):
                    continue
                place = tuple(map(id, guard.around))
                if place not in domains:
                    domains[place] = self.domain(guard.around)
                lower, upper = self.bounds(guard.condition, domains[place], s.var)
                first, after = low, high
                for e in lower:
                    first = ops.maximum(first, e)
                for e in upper:
                    after = ops.minimum(after, ops.add(e, 1))
                first, after = self.analyzer.simplify(first), self.analyzer.simplify(after)
                known = isinstance(first, IntImm) and isinstance(after, IntImm)
                if (self.gpu or (reduction and not long)) and not known:
                    continue
                if not self.analyzer.prove(after <= first):
                    low, high = first, after
        if (low is s.min and high is end) or self.small(s, low, high):
            return None
        if not self.analyzer.prove(low <= high):  # the interior may be empty
            low = ops.minimum(low, end)
            high = ops.maximum(low, high)
        return self.analyzer.simplify(low), self.analyzer.simplify(high)

    def small(self, s: For, low: Expr, high: Expr) -> bool:
        """Whether the interior is not worth copies: less than half of a loop, known or not."""
        size = self.analyzer.simplify(ops.sub(high, low))
        whole = self.analyzer.simplify(s.extent)
        if isinstance(whole, IntImm) and isinstance(size, IntImm):
            return size.value < 1 or 2 * size.value < whole.value
        # With symbolic ends the interior may be empty; where the whole is constant, it must not.
        return isinstance(whole, IntImm) and not self.analyzer.prove(2 * size >= whole)

    def guards(self, s: Stmt, var: Var, around: tuple[For | Let, ...], times: float) -> Steps:
        """The conditions on ``var`` in ``s``, which is done ``times`` times an iteration."""
        found: list[_Guard] = []

        def note(condition: Expr, steps: float, branch: bool) -> None:
            for c in conjuncts(condition):
                if uses(c, {var}) and pure(c):
                    found.append(_Guard(c, around, steps, branch))

        match s:
            case For(_, low, extent, _, body):
                trips = turns(s, _UNKNOWN)
                for end in (low, extent):
                    for x in exprs(end) if uses(end, {var}) else ():
                        condition = _constant_wins(x)
                        if condition is not None:
                            note(condition, times * trips * steps(body, _UNKNOWN), True)
                return found + (yield self.guards(body, var, (*around, s), times * trips))
            case Let():
                around = (*around, s)
            case If(condition, then, orelse) if uses(condition, {var}):
                guarded = steps(then, _UNKNOWN) + (0 if orelse is None else steps(orelse, _UNKNOWN))
                note(condition, times * guarded, True)
        for child in children(s):
            if isinstance(child, Stmt):
                found += yield self.guards(child, var, around, times)
                continue
            for e in exprs(child) if uses(child, {var}) else ():
                if isinstance(e, E.Select):
                    note(e.condition, times, False)
        return found

    def domain(self, around: tuple[For | Let, ...]) -> _Domain:
        """What the variables of threads, and of the loops and names ``around`` a guard range over,
        from the outermost in."""
        found = dict(self.threads)
        with self.analyzer.scope():
            for s in around:
                if isinstance(s, Let):
                    found[s.var] = None
                    continue
                self.analyzer.bind(s.var, s.min, s.extent)
                known = self.analyzer.bounds(s.var)
                first = s.min if known.lo is None else ops.const(known.lo)
                last = s.min + s.extent - 1 if known.hi is None else ops.const(known.hi)
                found[s.var] = first, last
        return found

    def bounds(self, condition: Expr, inner: _Domain, var: Var) -> tuple[list[Expr], list[Expr]]:
        """Bounds of ``var`` within which a guard holds for all values of inner variables."""
        nothing: tuple[list[Expr], list[Expr]] = [], []
        difference = at_most_zero(condition)
        if difference is None:
            return nothing
        domain: dict[Var, tuple[Expr, Expr]] = {}
        for v, ends in inner.items():
            if uses(difference, {v}):
                if ends is None:
                    return nothing
                domain[v] = ends
        try:
            _, worst = self.analyzer.relax(difference, domain) if domain else (None, difference)
        except Unbounded:
            return nothing
        lower, upper, rest = solve(worst <= 0, var, self.analyzer)
        if rest or any(uses(e, {var, *inner}) for e in lower + upper):
            return nothing
        return lower, upper


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
    before = copy(replace(s, extent=ops.sub(low, s.min)))
    after = copy(replace(s, min=high, extent=ops.sub(ops.add(s.min, s.extent), high)))
    return seq(before, replace(s, min=low, extent=ops.sub(high, low)), after)
