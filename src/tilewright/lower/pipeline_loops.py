"""A buffer filled in every iteration gets several copies, and is filled some iterations ahead.

The statement that fills it is marked ``Attr("pipeline", (buffer, stages), ...)`` in the body of a
serial loop. The first fillings move in front of the loop; in the loop, the filling for ``stages -
1`` iterations later is issued before this iteration's use, so that its loads are under way
meanwhile.

>>> from tilewright.lower.sketch import allocate, axes, buffer, func, loop, store
>>> k, i, j = axes("k i j")
>>> A, B, S = buffer("A", 4, 8), buffer("B", 8), buffer("S", 8, scope="shared")
>>> fill = Attr("pipeline", (S, 2), loop(i, 8, store(S[i], A[k, i])))
>>> use = loop(j, 8, store(B[j], B[j] + S[j]))
>>> print(pipeline_loops(func(loop(k, 4, allocate(S, fill, use)), target="sim")).body)
S = T.allocate([2, 8], 'float32', 'shared')
for i in range(8):
    S[0, i] = A[0, i]
for k in range(4):
    if k < 3:
        for i in range(8):
            S[(k + 1) % 2, i] = A[k + 1, i]
    for j in range(8):
        B[j] = B[j] + S[k % 2, j]

Where asynchronous instructions fill a buffer, every filling is committed as a group of their queue,
and an iteration ends in a wait, and a barrier, until what the next one uses is there.

A buffer in registers, a fragment too, cannot be chosen from by a loop variable: where one is
marked, the loop is unrolled by the number of copies instead, and each copy of the body has its own.
With two copies one barrier an iteration is enough, which barrier insertion, after this pass, finds
by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import add, const, floordiv, floormod, mul, sub
from tilewright.ir.stmt import (
    Allocate,
    Attr,
    For,
    ForKind,
    If,
    Instr,
    Queue,
    Seq,
    Stmt,
    Store,
    Sync,
    seq,
)
from tilewright.ir.visit import allocated, distinct, loads, statements, stores
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.substitution import copy, widen

KEY = "pipeline"
#: Around asynchronous instructions whose groups end, and are waited for, as this pass says.
COMMITTED = "committed"

#: Whose elements a loop variable cannot choose from.
_REGISTERS = ("local", "fragment")


def pipeline_loops(func: Func) -> Func:
    """``func`` with copies of the marked buffers; marks outside of serial loops have no effect.

    Raises :class:`LoweringError` where the loop changes what the marked statement reads, or the
    buffer is used outside of the loop.
    """
    if not any(isinstance(s, Attr) and s.key == KEY for s in statements(func.body)):
        return func
    return replace(func, body=_Pipelining(analyzer_of(func)).stmt(func.body))


class _Pipelining(InContext):
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
                        return self.pipelined(loop, marks)
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

    def pipelined(self, loop: For, marks: list[_Mark]) -> Stmt:
        if isinstance(loop.extent, IntImm) and loop.extent.value <= 1:
            return replace(loop, body=_unmarked(loop.body, {m.buffer for m in marks}))
        _check(loop, marks)
        copies = {m.buffer: _copies(m.buffer, m.stages) for m in marks}
        self.lifted.update(copies)
        body = _unallocated(loop.body, set(copies))
        made = _Pipeline(loop, marks, copies).lowered(body)
        if not self.analyzer.prove(loop.extent > 0):  # without iterations nothing is filled
            made = If(loop.extent > 0, made)
        for buffer in copies.values():
            made = Allocate(buffer, made)
        return made


@dataclass(frozen=True)
class _Mark:
    buffer: Buffer
    stages: int
    fill: Stmt

    @property
    def queue(self) -> str:
        """That of the asynchronous instructions that fill it, or nothing."""
        issued = (x.instruction.queue for x in statements(self.fill) if isinstance(x, Instr))
        return next((str(queue) for queue in issued if queue), "")


def _marks(body: Stmt) -> list[_Mark]:
    """The marked statements that are carried out once an iteration, in order."""
    match body:
        case Attr(key, (Buffer() as buffer, int(stages)), inner) if key == KEY:
            return [_Mark(buffer, stages, inner)]
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
                f"pipeline of {mark.buffer.name!r}: it cannot be computed iterations of "
                f"{loop.var.name!r} ahead, because it reads {names}, which that loop writes. "
                "Compute what it reads outside of the loop, or pipeline only that"
            )
        others = own - {mark.buffer} - set(allocated(mark.fill))
        if others:
            names = ", ".join(sorted(repr(b.name) for b in others))
            raise LoweringError(
                f"pipeline of {mark.buffer.name!r}: what computes it also writes {names}, "
                "which is used elsewhere"
            )


def _written_apart(loop: For, mark: _Mark, buffer: Buffer) -> bool:
    """Whether the loop writes ``buffer`` elsewhere than in the marked statement."""
    total = sum(s.buffer is buffer for s in stores(loop.body))
    return total != sum(s.buffer is buffer for s in stores(mark.fill))


def _check_gone(buffer: Buffer, s: Stmt) -> None:
    if any(isinstance(n, (Load, Store)) and n.buffer is buffer for n in distinct(s)):
        raise LoweringError(
            f"pipeline of {buffer.name!r}: it is used outside of the loop that fills it"
        )


def _copies(b: Buffer, stages: int) -> Buffer:
    layout, held = b.layout, b.distribution
    if layout is not None:
        # The copies lie one after the other, each with the gaps of its rows.
        layout = Layout((b.size, *layout.strides), layout.base, layout.swizzle)
    if held is not None:
        held = held.copies(stages)
    return replace(b, shape=(const(stages), *b.shape), layout=layout, distribution=held)


class _Pipeline:
    """The loop with its fillings some iterations ahead."""

    def __init__(self, loop: For, marks: list[_Mark], copies: dict[Buffer, Buffer]) -> None:
        self.loop, self.marks, self.copies = loop, marks, copies
        self.queues = list(dict.fromkeys(m.queue for m in marks if m.queue))
        self.end = add(loop.min, loop.extent)
        self.analyzer = Analyzer()
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        self.simplify = self.analyzer.simplify

    def lowered(self, body: Stmt) -> Stmt:
        ahead = max(m.stages for m in self.marks) - 1
        first = seq(*(self.first(i) for i in range(ahead)), *self.waits())
        var, kind = self.loop.var, self.loop.kind
        if kind is ForKind.UNROLLED or all(b.scope not in _REGISTERS for b in self.copies):
            turn = sub(var, self.loop.min)
            return seq(first, replace(self.loop, body=self.step(body, var, turn)))
        # The copies are chosen by constants: so many iterations a turn of the loop as there are
        # copies, and those that are left where their number is no multiple of it.
        count = math.lcm(*(mark.stages for mark in self.marks))
        turns = Var.make(var.name, var.dtype)
        whole = self.simplify(floordiv(self.loop.extent, count))
        self.analyzer.bind(turns, 0, whole)
        steps = []
        for i in range(count):
            at = self.simplify(add(add(mul(turns, count), self.loop.min), i))
            steps.append(self.step(copy(body, {var: at}), at, const(i)))
        zero = const(0, var.dtype)
        main = replace(self.loop, var=turns, min=zero, extent=whole, body=seq(*steps))
        left = self.simplify(floormod(self.loop.extent, count))
        start = self.simplify(sub(self.end, left))
        rest = []
        for i in range(count - 1):
            at = self.simplify(add(start, i))
            rest.append(self.when(left > i, self.step(copy(body, {var: at}), at, const(i), left)))
        return seq(first, main, *rest)

    def first(self, i: int) -> Stmt:
        """What is filled for iteration ``i`` in front of the loop."""
        at, slot = add(self.loop.min, i), const(i)
        fills = [
            self.when(self.loop.extent > i, self.fill(mark, at, slot))
            for mark in self.marks
            if i < mark.stages - 1
        ]
        return seq(*fills, *self.commits())

    def commits(self) -> list[Stmt]:
        """The ends of the groups of all that was filled at once."""
        return [Queue(queue, "commit") for queue in self.queues]

    def waits(self) -> list[Stmt]:
        """Until what the next iteration uses is there, for all threads; later fillings are younger
        groups. Where they write is known, when is not: so the barrier stands here already."""
        waits: list[Stmt] = [
            Queue(queue, "wait", min(m.stages for m in self.marks if m.queue == queue) - 2)
            for queue in self.queues
        ]
        together = any(m.queue and m.buffer.scope == "shared" for m in self.marks)
        return [*waits, Sync("shared")] if together else waits

    def step(self, body: Stmt, at: Expr, turn: Expr, left: Expr | None = None) -> Stmt:
        """One iteration: fill other copies for later ones, then use this one's.

        ``turn`` is the number of the iteration, or that modulo the numbers of copies; ``left``,
        after the last whole turn, how many iterations there are from turn 0 on.
        """
        fills = []
        for mark in self.marks:
            ahead = mark.stages - 1
            fill = self.fill(
                mark, self.simplify(add(at, ahead)), self.slot(add(turn, ahead), mark.stages)
            )
            more = at < sub(self.end, ahead) if left is None else add(turn, ahead) < left
            fills.append(self.when(more, fill))
        slots = {mark.buffer: self.slot(turn, mark.stages) for mark in self.marks}
        use = self.used(_emptied(body, set(self.copies)), slots)
        # What goes on in the background is issued first: then only what was issued an iteration
        # earlier has to be waited for before its copy is filled again. Copies that are filled in
        # the background themselves are waited for first: one barrier serves their use, and what
        # was used before and is filled again.
        if self.queues or _issues(use):
            return seq(use, *fills, *self.commits(), *self.waits())
        return seq(*fills, use)

    def slot(self, turn: Expr, stages: int) -> Expr:
        return self.simplify(floormod(turn, stages))

    def when(self, condition: Expr, then: Stmt) -> Stmt:
        """``then`` where ``condition`` holds, which may be known."""
        found = self.simplify(condition)
        if isinstance(found, IntImm):
            return then if found.value else Seq(())
        return If(found, then)

    def fill(self, mark: _Mark, at: Expr, slot: Expr) -> Stmt:
        made = self.used(copy(mark.fill, {self.loop.var: at}), {mark.buffer: slot})
        return Attr(COMMITTED, mark.queue, made) if mark.queue else made

    def used(self, s: Stmt, slots: dict[Buffer, Expr]) -> Stmt:
        for buffer, slot in slots.items():
            s = widen(s, {buffer: self.copies[buffer]}, partial(_in_copy, slot))
        return s


def _issues(s: Stmt) -> bool:
    return any(isinstance(x, Instr) and x.instruction.queue for x in statements(s))


def _in_copy(slot: Expr, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (slot, *indices)


def _emptied(body: Stmt, buffers: set[Buffer]) -> Stmt:
    """``body`` without the marked statements."""
    match body:
        case Attr(key, (buffer, _), _) if key == KEY and buffer in buffers:
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
        case Attr(key, (buffer, _), inner) if key == KEY and buffer in buffers:
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
