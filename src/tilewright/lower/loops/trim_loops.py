"""Loops run only where the guard of their body can hold.

Stands after simplification, which leaves guards as comparisons of affine forms, and before
partitioning, which makes the ends constant in the interior. A sum over a padded input adds zero
outside of it, so it need not go there:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import if_then_else, logical_and
>>> i, d = axes("i d")
>>> A, W, B = buffer("A", 32), buffer("W", 7), buffer("B", 32)
>>> x = if_then_else(logical_and(3 <= i + d, i + d < 35), A[i + d - 3], 0.0)
>>> body = loop(d, 7, store(B[i], B[i] + x * W[d]))
>>> print(trim_loops(func(loop(i, 32, store(B[i], 0.0), body))).body)
for i in range(32):
    B[i] = T.float32(0)
    for d in range(T.max(3 - i, 0), T.min(35 - i, 7)):
        B[i] = B[i] + A[i + d - 3] * W[d]

Where the guard depends on loops further in, on a CPU, a loop runs where it holds for any of their
iterations, and the guard stays. It becomes a branch around a vector where it is the same in all
lanes, so that :mod:`~tilewright.lower.loops.partition_loops` can take it out of the interior:

>>> p, v = axes("p v")
>>> A, W, C = buffer("A", 32, 8), buffer("W", 15), buffer("C", 32, 8)
>>> n = i * 4 + p + d - 7
>>> x = if_then_else(logical_and(n >= 0, n < 32), A[n, v], 0.0)
>>> body = store(C[i * 4 + p, v], C[i * 4 + p, v] + x * W[d])
>>> body = loop(p, 4, loop(v, 8, body, kind="vectorized"), kind="unrolled")
>>> print(trim_loops(func(loop(i, 8, loop(d, 15, body)))).body)
for i in range(8):
    for d in range(T.max(4 - i * 4, 0), T.min(39 - i * 4, 15)):
        for p in T.unrolled(4):
            for v in T.vectorized(8):
                if i * 4 + p + d - 7 >= 0 and i * 4 + p + d - 7 < 32:
                    C[i * 4 + p, v] = C[i * 4 + p, v] + A[i * 4 + p + d - 7, v] * W[d]

What a zero is multiplied by is taken as finite. On a CPU every serial loop is trimmed that can be.
On a GPU a short loop is worth more unrolled, where a guard costs one predicate: loops of fewer
than 8 iterations keep what would make their ends vary, and so do loops under the pragma to unroll;
but not those that issue instructions to go on in the background, of which each takes longer than
the end of a loop. Of the others those keep it, too, that choose among the registers of a fragment.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from tilewright.arith import Analyzer, Unbounded, solve
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import int_range
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Access,
    Allocate,
    FillAhead,
    For,
    ForKind,
    If,
    Instr,
    Let,
    Pragma,
    Remark,
    Seq,
    Stmt,
    Store,
)
from tilewright.ir.visit import Steps, allocated, indexes, run, statements, uses
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.loops.partition_loops import at_most_zero
from tilewright.lower.substitution import put
from tilewright.target.target import Target

#: Memories of which nothing is read where what is around their allocation does nothing else: those
#: of a thread, or of threads that come to a statement together; shared memory where all agree.
_SCRATCH = ("local", "fragment", "shared")
_THREADS = (ForKind.THREAD, ForKind.VTHREAD)
#: On a GPU, the ends of loops of fewer iterations stay constants.
_SHORT = 8


def trim_loops(func: Func) -> Func:
    """Narrow serial loops to where their body does something; see the module's docstring."""
    target: Target = func.target
    # Those of a block, which agree on the block.
    threads = {
        s.var for s in statements(func.body)
        if isinstance(s, For) and s.kind in _THREADS and not s.tag.startswith("blockIdx")
    }  # fmt: skip
    return replace(func, body=_Trim(analyzer_of(func), target.is_gpu, threads).stmt(func.body))


class _Guard(NamedTuple):
    """A condition, and what the variables of loops further in range over that are in it, or in the
    ranges of these."""

    condition: Expr
    inner: dict[Var, tuple[Expr, Expr]]

    def depends_on(self, var: Var) -> bool:
        ends = (e for pair in self.inner.values() for e in pair)
        return any(uses(e, {var}) for e in (self.condition, *ends))


class _Trim(InContext):
    def __init__(self, analyzer: Analyzer, gpu: bool, threads: set[Var]) -> None:
        super().__init__(analyzer)
        self.gpu = gpu
        self.unrolling = False
        self.threads = threads
        self.lanes: set[Var] = set()  # variables of the vectorised loops around

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Store) and self.lanes and not self.gpu:
            return self.branched(s)
        if not isinstance(s, For):
            return s if isinstance(s, Instr) else (yield from super().steps(s))
        before, lanes = self.unrolling, self.lanes
        self.unrolling = before or s.pragma(Pragma.AUTO_UNROLL_MAX_STEP, 0) > 1
        if s.kind is ForKind.VECTORIZED:
            self.lanes = {*lanes, s.var}
        found = yield from super().steps(s)
        assert isinstance(found, For)
        found = self.trimmed(found)
        self.unrolling, self.lanes = before, lanes
        return found

    def branched(self, s: Store) -> Stmt:
        """A vector of updates under what is the same in all lanes of its guard."""
        if s.predicate is not None:
            return s
        found = _update_guards(s.buffer, s.indices, s.value)
        kept = [g for g in dict.fromkeys(found) if pure(g) and not uses(g, self.lanes)]
        if not kept:
            return s
        body = put(s, dict.fromkeys(kept, ops.const(True)))
        return If(ops.logical_and(*kept), _Decided(self.analyzer).stmt(body))

    def trimmed(self, s: For) -> For:
        if s.kind is not ForKind.SERIAL or not s.pragma(Pragma.TRIM, True):
            return s
        whole = self.gpu and self.stays_whole(s)
        if whole and any(isinstance(x, FillAhead) for x in statements(s.body)):
            return s  # a pipeline needs its loop, which goes where one iteration is left
        last = ops.sub(ops.add(s.min, s.extent), 1)
        low, high, kept = s.min, last, []
        # Threads that fill memory together for one another take part in all iterations.
        together = any(b.scope == "shared" for b in allocated(s.body))
        for guard in run(_guards_beside(s.body, frozenset())) or []:
            if not uses(guard.condition, {s.var}):
                continue
            if together and uses(guard.condition, self.threads):
                continue
            condition = self.somewhere(guard)
            if condition is None:
                continue
            lower, upper, rest = solve(condition, s.var, self.analyzer)
            inner = {s.var, *guard.inner}
            if rest or any(uses(e, inner) or not pure(e) for e in lower + upper):
                continue
            if whole and not all(isinstance(e, IntImm) for e in (s.min, s.extent, *lower, *upper)):
                continue
            for e in lower:
                low = ops.maximum(low, e)
            for e in upper:
                high = ops.minimum(high, e)
            kept.append(guard)
        if not kept:
            return s
        low = self.analyzer.simplify(low)
        extent = self.analyzer.simplify(ops.sub(ops.add(high, 1), low))
        holds: Expr = ops.const(True)
        body = put(s.body, {g.condition: holds for g in kept if not g.inner})
        with self.analyzer.scope():
            self.analyzer.bind(s.var, low, extent)
            return replace(s, min=low, extent=extent, body=_Decided(self.analyzer).stmt(body))

    def somewhere(self, guard: _Guard) -> Expr | None:
        """Where a guard can hold for some iteration of the loops further in."""
        if not guard.inner:
            return guard.condition
        difference = at_most_zero(guard.condition)
        if self.gpu or difference is None:
            return None
        try:
            least, _ = self.analyzer.relax(difference, guard.inner)
        except Unbounded:
            return None
        return ops.as_expr(least <= 0)

    def stays_whole(self, s: For) -> bool:
        if any(isinstance(x, Instr) and x.instruction.queue for x in statements(s.body)):
            return False
        if not isinstance(s.extent, IntImm):
            return self.unrolling
        # What is in registers has to be named, which takes a loop that is written out.
        return self.unrolling or s.extent.value < _SHORT or indexes(s, "fragment")


class _Decided(InContext):
    """Takes out choices and branches whose condition is a constant."""

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        match e:
            case E.Select(IntImm(_, value), on_true, on_false):
                return on_true if value else on_false
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        match s:
            case If(IntImm(_, value), then, _) if value:
                return then
        return s


def _guards_beside(s: Stmt, scratch: frozenset[Buffer]) -> Steps:
    """Pure conditions outside of which ``s`` changes nothing but ``scratch`` and what it allocates.

    None where it never changes anything else.
    """
    inside: list[_Guard] | None
    match s:
        case Store(buffer) | Instr(_, _, (Access(buffer), *_)) if buffer in scratch:
            return None
        case Store(buffer, indices, value, None):
            return [_Guard(g, {}) for g in _update_guards(buffer, indices, value) if pure(g)]
        case If(condition, then, None):
            within = yield _guards_beside(then, scratch)
            if within is None:
                return None
            found: list[_Guard] = []
            for c in conjuncts(condition):  # one that reads may guard those after it
                if not pure(c):
                    return found
                found.append(_Guard(c, {}))
            return found + within
        case If(_, then, Stmt() as orelse):
            one = yield _guards_beside(then, scratch)
            other = yield _guards_beside(orelse, scratch)
            return None if one is other is None else []
        case Seq(stmts):
            parts: list[list[_Guard]] = []
            for x in stmts:
                inside = yield _guards_beside(x, scratch)
                if inside is not None:
                    parts.append(inside)
            if not parts:
                return None
            first, *others = parts
            return [g for g in first if all(g in part for part in others)]
        case For(var, low, extent, _, body):
            ends = low, ops.sub(ops.add(low, extent), 1)
            inside = yield _guards_beside(body, scratch)
            return inside and [
                _Guard(g.condition, {**g.inner, var: ends}) if g.depends_on(var) else g
                for g in inside
            ]
        case Let(var, _, body):
            inside = yield _guards_beside(body, scratch)
            return inside and [g for g in inside if not g.depends_on(var)]
        case Allocate(buffer, body) if buffer.scope in _SCRATCH:
            return (yield _guards_beside(body, scratch | {buffer}))
        case Remark(body=body) | Allocate(_, body):
            return (yield _guards_beside(body, scratch))
    return []


def _update_guards(buffer: object, indices: tuple[Expr, ...], value: Expr) -> list[Expr]:
    """Conditions outside of which ``buffer[indices] = value`` stores what is there already."""

    def old(e: Expr) -> bool:
        return isinstance(e, Load) and e.buffer is buffer and e.indices == indices

    match value:
        case E.Sub(a, b) if old(a):
            return _zero_unless(b)
        case E.Call(_, "fma", (a, b, c)) if old(c):
            return _zero_unless(a) + _zero_unless(b)
        case E.Binary(a, b) if old(a) or old(b):
            other = b if old(a) else a
            match value:
                case E.Add():
                    return _zero_unless(other)
                case E.Mul():
                    return _neutral_unless(other, 1)
                case E.Max() | E.Min():
                    return _neutral_unless(other, _end(other, isinstance(value, E.Max)))
    return []


def _zero_unless(e: Expr) -> list[Expr]:
    """Conditions outside of which ``e`` is zero."""
    match e:
        case E.Mul(a, b):
            return _zero_unless(a) + _zero_unless(b)
        case E.Cast(t, value) if not t.is_bool:
            return _zero_unless(value)
        case E.Select(condition, on_true, on_false) if ops.is_const(on_false, 0):
            return conjuncts(condition) + _zero_unless(on_true)
    return []


def _neutral_unless(e: Expr, neutral: float) -> list[Expr]:
    match e:
        case E.Select(condition, on_true, on_false) if ops.is_const(on_false, neutral):
            return conjuncts(condition) + _neutral_unless(on_true, neutral)
    return []


def _end(e: Expr, least: bool) -> float:
    """The least or the greatest value of the type of ``e``."""
    if e.dtype.is_float:
        return -math.inf if least else math.inf
    return int_range(e.dtype)[0 if least else 1]
