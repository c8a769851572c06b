"""A guard is dropped where it keeps nothing but undefined elements of a local buffer from values.

Stands after trimming, which reads guards, and before they are hoisted. A tile of a size that does
not divide the output is computed whole, in registers, and only the copy out of it is guarded:
vectors of a local buffer without masks stay in registers.

>>> from tilewright.lower.ir_builder import *
>>> i, v = axes("i v")
>>> A, C, acc = buffer("A", 16), buffer("C", 14), buffer("acc", 8, scope="local")
>>> n = i * 8 + v
>>> tile = loop(v, 8, when(n < 14, store(acc[v], A[n] * 2.0)), kind="vectorized")
>>> out = loop(v, 8, when(n < 14, store(C[n], acc[v])), kind="vectorized")
>>> print(drop_guards(func(loop(i, 2, allocate(acc, tile, out)))).body)
for i in range(2):
    acc = T.allocate([8], 'float32', 'local')
    for v in T.vectorized(8):
        acc[v] = A[i * 8 + v] * T.float32(2)
    for v in T.vectorized(8):
        if i * 8 + v < 14:
            C[i * 8 + v] = acc[v]

The guard must say which elements of the buffer exist, the same for every store to it, so that no
element that some store defines is changed; what it guarded must stay in bounds without it and read
nothing that is written under the same guard. Elements of other tiles may be copied, and computed
with, where nobody wrote them; but a branch, a loop's bound, an index or a divisor made of such a
value has no meaning in LLVM, nor has the program then. A guard that differs between the lanes of a
vector guards what would not, and nothing else:

>>> total = buffer("total", 8, scope="local")
>>> add = loop(v, 8, when(n < 14, store(total[v], total[v] + C[n] * 2.0)), kind="vectorized")
>>> print(drop_guards(func(loop(i, 2, allocate(total, add, out)))).body.body.body.stmts[0])
for v in T.vectorized(8):
    total[v] = total[v] + T.if_then_else(i * 8 + v < 14, C[i * 8 + v], T.float32(0)) * T.float32(2)

On a GPU a guard costs one predicate and guards stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, For, ForKind, If, Instr, Let, Remark, Seq, Stmt, Store
from tilewright.ir.visit import Steps, exprs, run, statements, uses, walk
from tilewright.lower.analysis.varying import mentions
from tilewright.lower.context import InContext, analyzer_of, in_bounds, pure, reads_in_bounds
from tilewright.lower.loops.partition_loops import at_most_zero

#: Which elements a guard lets exist: the dimension and its sign, and the rest of the inequality.
_Limit: TypeAlias = tuple[int, int, Expr]


def drop_guards(func: Func) -> Func:
    """Drop guards of stores to local buffers; see the module's docstring."""
    if func.target.is_gpu:
        return func
    if not any(
        isinstance(s, Allocate) and s.buffer.scope == "local" for s in statements(func.body)
    ):
        return func
    return replace(func, body=_Drop(func).stmt(func.body))


class _Drop(InContext):
    def __init__(self, func: Func) -> None:
        super().__init__(analyzer_of(func))
        self.loops: set[Var] = {x.var for x in statements(func.body) if isinstance(x, (For, Let))}
        self.limits: dict[Buffer, set[_Limit]] = {}  # those that every store to a buffer is under
        self.inner: dict[Buffer, set[Expr]] = {}  # variables bound since the buffer was allocated
        self.lanes: set[Var] = set()  # variables of the vectorised loops around
        self.only: dict[Buffer, set[Expr]] = {}  # the guards that stores to a buffer are left under
        self.made = _of_tiles(func.body)

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Instr():
                return s
            case For(var, _, _, ForKind.VECTORIZED, _):
                around, self.lanes = self.lanes, {*self.lanes, var}
                s = yield from super().steps(s)
                self.lanes = around
                return s
            case Allocate(buffer, body) if buffer.scope == "local":
                bound = {x.var for x in statements(body) if isinstance(x, (For, Let))}
                self.inner[buffer] = set(bound)
                common = self.common(buffer, body)
                if common:
                    self.limits[buffer] = common
            case If(condition, then, None) if self.limits:
                kept = conjuncts(condition)
                for c in () if _decides(then, self.made) else list(kept):
                    others = [x for x in kept if x is not c]
                    behind = kept[kept.index(c) + 1 :]
                    if not all(map(pure, behind)):
                        continue  # it guards these
                    with self.analyzer.assume(ops.logical_and(*others)):
                        if self.defines(c, then) or not self.limits_all(c, then):
                            continue
                        if _Inside(self.analyzer).holds(then):
                            kept = others
                        elif uses(c, self.lanes):
                            masked = _Masked(self.analyzer, c).stmt(then)
                            if _Inside(self.analyzer).holds(masked):
                                kept, then = others, masked
                for x in statements(then):
                    if isinstance(x, Store):
                        self.only.setdefault(x.buffer, set()).update(kept)
                if not kept:
                    return (yield self.steps(then))
                rest = ops.logical_and(*kept)
                return If(rest, (yield self.under(rest, then)))
        return (yield from super().steps(s))

    def common(self, buffer: Buffer, body: Stmt) -> set[_Limit]:
        """The limits that every store to ``buffer`` is under."""
        found: list[set[_Limit]] = []

        def visit(s: Stmt, guards: tuple[Expr, ...]) -> Steps:
            match s:
                case If(condition, then, orelse):
                    yield visit(then, (*guards, *conjuncts(condition)))
                    if orelse is not None:
                        yield visit(orelse, guards)
                case Seq(stmts):
                    for x in stmts:
                        yield visit(x, guards)
                case For(_, _, _, _, inner) | Let(_, _, inner) | Remark(body=inner):
                    yield visit(inner, guards)
                case Allocate(_, inner):
                    yield visit(inner, guards)
                case Store(target):
                    if target is buffer:
                        limits = (self.limit(g, s) for g in guards)
                        found.append({x for x in limits if x is not None})
                case _:
                    if mentions(s, set(), {buffer}):
                        found.append(set())

        run(visit(body, ()))
        return set.intersection(*found) if found else set()

    def limit(self, guard: Expr, s: Store) -> _Limit | None:
        """``guard`` as a limit on one index of ``s``, free of variables of loops inside."""
        inner = self.inner.get(s.buffer, set())
        if not pure(guard) or not any(x in inner for x in exprs(guard)):
            return None
        form = at_most_zero(guard)
        if form is None:
            return None
        for d, index in enumerate(s.indices):
            for sign, rest in ((1, ops.sub(form, index)), (-1, ops.add(form, index))):
                rest = self.analyzer.simplify(rest)
                if not any(x in inner for x in exprs(rest)):
                    return d, sign, rest
        return None

    def defines(self, guard: Expr, then: Stmt) -> bool:
        """Whether ``then`` reads what was written under ``guard`` alone, or, in this iteration of
        the loops around, under what may not hold without it."""
        read = dict.fromkeys(x.buffer for x in walk(then) if isinstance(x, Load))
        written = {g for buffer in read for g in self.only.get(buffer, ())}
        return guard in written or not all(map(self.analyzer.prove, filter(self.known, written)))

    def known(self, e: Expr) -> bool:
        """Whether the loops here bind every variable of ``e``."""
        return pure(e) and not uses(e, self.loops - self.analyzer.context.bound)

    def limits_all(self, guard: Expr, then: Stmt) -> bool:
        """Whether without ``guard`` only elements that do not exist are stored by ``then``."""
        for s in walk(then):
            match s:
                case Store(buffer):
                    limits = self.limits.get(buffer)
                    if limits is None or self.limit(guard, s) not in limits:
                        return False
                case For() | Seq() | If() | Remark() | Expr():
                    continue
                case _:
                    return False
        return True


def _of_tiles(body: Stmt) -> set[Buffer | Var]:
    """The buffers that ``body`` allocates, and the names for what is made of their elements."""
    found: set[Buffer | Var] = {x.buffer for x in statements(body) if isinstance(x, Allocate)}
    named = [x for x in walk(body) if isinstance(x, (Let, E.LetExpr))]
    while more := {x.var for x in named if _reads(x.value, found)} - found:
        found |= more
    return found


def _reads(e: Expr, made: set[Buffer | Var]) -> bool:
    return any((x.buffer if isinstance(x, Load) else x) in made for x in exprs(e))


def _decides(body: Stmt, made: set[Buffer | Var]) -> bool:
    """Whether a branch, a loop's bound, an index or a divisor in ``body`` is made of ``made``."""
    decisive: list[Expr] = []
    for x in walk(body):
        match x:
            case If(condition) | E.IfThenElse(condition):
                decisive.append(condition)
            case E.And(a) | E.Or(a):  # which may decide whether the other operand is evaluated
                decisive.append(a)
            case For(_, low, extent):
                decisive += (low, extent)
            case Load(_, indices) | Store(_, indices):
                decisive += indices
            case E.FloorDiv(_, b) | E.FloorMod(_, b) | E.TruncDiv(_, b) | E.TruncMod(_, b):
                decisive.append(b)
    return any(_reads(e, made) for e in decisive)


class _Masked(InContext):
    """Puts the reads that are not in bounds under a guard; they are zero where it does not hold."""

    def __init__(self, analyzer: Analyzer, guard: Expr) -> None:
        super().__init__(analyzer)
        self.guard = guard

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        if isinstance(e, Load) and not reads_in_bounds(self.analyzer, e):
            return E.IfThenElse(self.guard, e, ops.const(0, e.dtype))
        return e


class _Inside(InContext):
    """Whether nothing in a statement fails: every access is in bounds."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.inside = True

    def holds(self, s: Stmt) -> bool:
        self.stmt(s)
        return self.inside

    def expr(self, e: Expr) -> Expr:
        self.inside = self.inside and reads_in_bounds(self.analyzer, e)
        return e

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Store):
            place = Load(s.buffer, s.indices, None)
            self.inside = self.inside and in_bounds(self.analyzer, place)
        return (yield from super().steps(s))
