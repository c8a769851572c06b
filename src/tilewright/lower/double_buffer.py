"""A buffer filled in every iteration gets two halves, and is filled one iteration ahead.

The statement that fills it is marked ``Attr("double_buffer", buffer, ...)`` in the body of a
serial loop. The first filling moves in front of the loop; in the loop, the next iteration's
filling is issued before this iteration's use, so that its loads are under way meanwhile.

>>> from tilewright.lower.sketch import allocate, axes, buffer, func, loop, store
>>> k, i, j = axes("k i j")
>>> A, B, S = buffer("A", 4, 8), buffer("B", 8), buffer("S", 8, scope="shared")
>>> fill = Attr("double_buffer", S, loop(i, 8, store(S[i], A[k, i])))
>>> use = loop(j, 8, store(B[j], B[j] + S[j]))
>>> print(double_buffer(func(loop(k, 4, allocate(S, fill, use)), target="sim")).body)
S = T.allocate([2, 8], 'float32', 'shared')
for i in range(8):
    S[0, i] = A[0, i]
for k in range(4):
    if k < 3:
        for i in range(8):
            S[(k + 1) % 2, i] = A[k + 1, i]
    for j in range(8):
        B[j] = B[j] + S[k % 2, j]

A buffer in registers cannot be chosen from by a loop variable: where one is marked, the loop is
unrolled by two instead, and each copy of the body has its half. With two halves one barrier an
iteration is enough, which barrier insertion, after this pass, finds by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import add, const, floordiv, floormod, mul, sub
from tilewright.ir.stmt import Allocate, Attr, For, ForKind, If, Seq, Stmt, Store, seq
from tilewright.ir.visit import allocated, distinct, loads, statements, stores
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.substitution import copy, widen

KEY = "double_buffer"


def double_buffer(func: Func) -> Func:
    """``func`` with the marked buffers doubled; marks outside of serial loops have no effect.

    Raises :class:`LoweringError` where the loop changes what the marked statement reads, or the
    buffer is used outside of the loop.
    """
    if not any(isinstance(s, Attr) and s.key == KEY for s in statements(func.body)):
        return func
    return replace(func, body=_Doubling(analyzer_of(func)).stmt(func.body))


class _Doubling(InContext):
    """From the innermost loop outwards."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.lifted: set[Buffer] = set()
        self.serial = False  # whether the innermost loop around can be pipelined

    def expr(self, e: Expr) -> Expr:
        return e

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(var, low, extent, kind, body):
                serial = kind in (ForKind.SERIAL, ForKind.UNROLLED)
                outer, self.serial = self.serial, serial
                with self.analyzer.scope():
                    self.analyzer.bind(var, low, extent)
                    inner = self.stmt(body)
                self.serial = outer
                loop = s if inner is body else replace(s, body=inner)
                if serial:
                    marks = _marks(inner)
                    if marks:
                        return self.doubled(loop, marks)
                return loop
            case Allocate(buffer, body):
                made = self.stmt(body)
                if buffer not in self.lifted:
                    return s if made is body else Allocate(buffer, made)
                _check_gone(buffer, made)
                return made
            case Attr(key, _, body) if key == KEY and not self.serial:
                return self.stmt(body)
        return super().stmt(s)

    def doubled(self, loop: For, marks: list[_Mark]) -> Stmt:
        if isinstance(loop.extent, IntImm) and loop.extent.value <= 1:
            return replace(loop, body=_unmarked(loop.body, {m.buffer for m in marks}))
        _check(loop, marks)
        twice = {m.buffer: _twice(m.buffer) for m in marks}
        self.lifted.update(twice)
        body = _unallocated(loop.body, set(twice))
        made = _Pipeline(loop, marks, twice).lowered(body)
        if not self.analyzer.prove(loop.extent > 0):  # without iterations nothing is filled
            made = If(loop.extent > 0, made)
        for buffer in twice.values():
            made = Allocate(buffer, made)
        return made


@dataclass(frozen=True)
class _Mark:
    buffer: Buffer
    fill: Stmt


def _marks(body: Stmt) -> list[_Mark]:
    """The marked statements that are carried out once an iteration, in order."""
    match body:
        case Attr(key, buffer, inner) if key == KEY:
            assert isinstance(buffer, Buffer)
            return [_Mark(buffer, inner)]
        case Attr(_, _, inner) | Allocate(_, inner):
            return _marks(inner)
        case Seq(stmts):
            return [mark for s in stmts for mark in _marks(s)]
    return []


def _check(loop: For, marks: list[_Mark]) -> None:
    """Whether each filling may run an iteration early."""
    for mark in marks:
        written = {s.buffer for s in stores(loop.body)}
        own = {s.buffer for s in stores(mark.fill)}
        reads = {load.buffer for load in loads(mark.fill)}
        changed = {b for b in reads & written if b not in own or _written_apart(loop, mark, b)}
        if changed:
            names = ", ".join(sorted(repr(b.name) for b in changed))
            raise LoweringError(
                f"double_buffer of {mark.buffer.name!r}: it cannot be computed an iteration of "
                f"{loop.var.name!r} ahead, because it reads {names}, which that loop writes. "
                "Compute what it reads outside of the loop, or double-buffer only that"
            )
        others = own - {mark.buffer} - set(allocated(mark.fill))
        if others:
            names = ", ".join(sorted(repr(b.name) for b in others))
            raise LoweringError(
                f"double_buffer of {mark.buffer.name!r}: what computes it also writes {names}, "
                "which is used elsewhere"
            )


def _written_apart(loop: For, mark: _Mark, buffer: Buffer) -> bool:
    """Whether the loop writes ``buffer`` elsewhere than in the marked statement."""
    total = sum(s.buffer is buffer for s in stores(loop.body))
    return total != sum(s.buffer is buffer for s in stores(mark.fill))


def _check_gone(buffer: Buffer, s: Stmt) -> None:
    if any(isinstance(n, (Load, Store)) and n.buffer is buffer for n in distinct(s)):
        raise LoweringError(
            f"double_buffer of {buffer.name!r}: it is used outside of the loop that fills it"
        )


def _twice(b: Buffer) -> Buffer:
    layout = b.layout
    if layout is not None:
        # The halves lie one after the other, each with the gaps of its rows.
        layout = Layout((b.size, *layout.strides), layout.base, layout.swizzle)
    return replace(b, shape=(const(2), *b.shape), layout=layout)


class _Pipeline:
    """The loop with its fillings one iteration ahead."""

    def __init__(self, loop: For, marks: list[_Mark], twice: dict[Buffer, Buffer]) -> None:
        self.loop, self.marks, self.twice = loop, marks, twice
        self.end = add(loop.min, loop.extent)
        self.analyzer = Analyzer()
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        self.simplify = self.analyzer.simplify

    def lowered(self, body: Stmt) -> Stmt:
        first = seq(*(self.fill(mark, self.loop.min, const(0)) for mark in self.marks))
        var = self.loop.var
        if self.loop.kind is ForKind.UNROLLED or all(b.scope != "local" for b in self.twice):
            turn = floormod(sub(var, self.loop.min), 2)
            after = self.simplify(floormod(add(sub(var, self.loop.min), 1), 2))
            return seq(first, replace(self.loop, body=self.step(body, var, turn, after)))
        # The halves are chosen by constants: two iterations a turn of the loop, and one that is
        # left where their number is odd.
        pairs = Var.make(var.name, var.dtype)
        half = self.simplify(floordiv(self.loop.extent, 2))
        self.analyzer.bind(pairs, 0, half)
        even = self.simplify(add(mul(pairs, 2), self.loop.min))
        odd = self.simplify(add(even, 1))
        both = seq(
            self.step(copy(body, {var: even}), even, const(0), const(1)),
            self.step(copy(body, {var: odd}), odd, const(1), const(0)),
        )
        main = replace(self.loop, var=pairs, min=const(0, var.dtype), extent=half, body=both)
        last = self.simplify(sub(self.end, 1))
        rest = self.used(_emptied(copy(body, {var: last}), set(self.twice)), const(0))
        left = self.simplify(floormod(self.loop.extent, 2))
        if isinstance(left, IntImm):
            return seq(first, main, rest if left.value else None)
        return seq(first, main, If(left.equal(1), rest))

    def step(self, body: Stmt, at: Expr, turn: Expr, after: Expr) -> Stmt:
        """One iteration: fill the other half for the next one, then use this one's."""
        following = self.simplify(add(at, 1))
        fills = seq(*(self.fill(mark, following, after) for mark in self.marks))
        more = self.simplify(at < sub(self.end, 1))
        if not isinstance(more, IntImm):
            fills = If(more, fills)
        elif not more.value:
            fills = Seq(())
        return seq(fills, self.used(_emptied(body, set(self.twice)), turn))

    def fill(self, mark: _Mark, at: Expr, half: Expr) -> Stmt:
        return self.used(copy(mark.fill, {self.loop.var: at}), half)

    def used(self, s: Stmt, half: Expr) -> Stmt:
        made: Stmt = widen(s, self.twice, lambda indices: (half, *indices))
        return made


def _emptied(body: Stmt, buffers: set[Buffer]) -> Stmt:
    """``body`` without the marked statements."""
    match body:
        case Attr(key, buffer, _) if key == KEY and buffer in buffers:
            return Seq(())
        case Attr(key, value, inner):
            left = _emptied(inner, buffers)
            return left if isinstance(left, Seq) and not left.stmts else Attr(key, value, left)
        case Allocate(buffer, inner):
            return Allocate(buffer, _emptied(inner, buffers))
        case Seq(stmts):
            return seq(*(_emptied(s, buffers) for s in stmts))
    return body


def _unmarked(body: Stmt, buffers: set[Buffer]) -> Stmt:
    match body:
        case Attr(key, buffer, inner) if key == KEY and buffer in buffers:
            return inner
        case Attr(key, value, inner):
            return Attr(key, value, _unmarked(inner, buffers))
        case Allocate(buffer, inner):
            return Allocate(buffer, _unmarked(inner, buffers))
        case Seq(stmts):
            return seq(*(_unmarked(s, buffers) for s in stmts))
    return body


def _unallocated(body: Stmt, buffers: set[Buffer]) -> Stmt:
    match body:
        case Allocate(buffer, inner) if buffer in buffers:
            return _unallocated(inner, buffers)
        case Allocate(buffer, inner):
            return Allocate(buffer, _unallocated(inner, buffers))
        case Attr(key, value, inner) if key != KEY:
            return Attr(key, value, _unallocated(inner, buffers))
        case Seq(stmts):
            return seq(*(_unallocated(s, buffers) for s in stmts))
    return body
