"""A buffer filled in every iteration gets several copies, and is filled some iterations ahead.

The statement that fills it is marked (:mod:`~tilewright.lower.async_.pipeline_marks`) in the body
of a serial loop. The first fillings move in front of the loop; in the loop, the filling for
``stages - 1`` iterations later is issued before this iteration's use, so that its loads are under
way meanwhile.

>>> from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
>>> k, i, j = axes("k i j")
>>> A, B, S = buffer("A", 4, 8), buffer("B", 8), buffer("S", 8, scope="shared")
>>> fill = FillAhead(S, 2, None, loop(i, 8, store(S[i], A[k, i])))
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
and an iteration ends in a wait, and a barrier, until what the next one uses is there. Where all
threads wait for all of a filling, the barrier stands behind the use instead, and the copy that was
used is filled again at once, for ``stages`` iterations later: all others are under way meanwhile.

A buffer in registers, a fragment too, cannot be chosen from by a loop variable: where one is
marked, the loop is unrolled by the number of copies instead, and each copy of the body has its own.
Late loads (:data:`~tilewright.target.queues.LATE_TILES`) are asked for, and waited for, in front of
the first use of what they bring, not at the end, where who asks for them has other things to do.
With two copies one barrier an iteration is enough, which barrier insertion, after this pass, finds
by itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import add, const, floordiv, floormod, mul, sub
from tilewright.ir.stmt import Allocate, FillAhead, For, ForKind, If, Iteration, Seq, Stmt, seq
from tilewright.ir.visit import Steps, statements
from tilewright.lower.analysis.marked_fills import marked
from tilewright.lower.async_.pipeline_marks import (
    REGISTERS,
    check_ahead,
    check_gone,
    commits,
    committed,
    emptied,
    fill_late,
    fills_again,
    in_copies,
    is_collective,
    is_late,
    iteration,
    pending,
    unallocated,
    unmarked,
    using,
    waits,
)
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.substitution import copy

#: Iterations that are written out, at most.
_WRITTEN_OUT = 20


def pipeline_loops(func: Func) -> Func:
    """``func`` with copies of the marked buffers; marks outside of serial loops have no effect.

    Raises :class:`LoweringError` where the loop changes what the marked statement reads, or the
    buffer is used outside of the loop.
    """
    if not any(isinstance(s, FillAhead) for s in statements(func.body)):
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

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For(var, low, extent, kind, body):
                serial = kind in (ForKind.SERIAL, ForKind.UNROLLED)
                outer, self.serial = self.serial, serial
                with self.analyzer.scope():
                    self.analyzer.bind(var, low, extent)
                    inner = yield self.steps(body)
                self.serial = outer
                loop = s if inner is body else replace(s, body=inner)
                if serial:
                    marks = marked(inner)
                    if marks:
                        return self.pipelined(loop, marks)
                return loop
            case Allocate(buffer, body):
                made = yield self.steps(body)
                if buffer not in self.lifted:
                    return s if made is body else Allocate(buffer, made)
                check_gone(buffer, made)
                return made
            case FillAhead(body=body) if not self.serial:
                return (yield self.steps(body))
        return (yield from super().steps(s))

    def pipelined(self, loop: For, marks: list[FillAhead]) -> Stmt:
        if isinstance(loop.extent, IntImm) and loop.extent.value <= 1:
            return replace(loop, body=unmarked(loop.body, {m.buffer for m in marks}))
        check_ahead(loop, marks)
        copies = {m.buffer: in_copies(m.buffer, _used(m, loop)) for m in marks}
        self.lifted.update(copies)
        body = unallocated(loop.body, set(copies))
        made = _Pipeline(loop, marks, copies).lowered(body)
        if not self.analyzer.prove(loop.extent > 0):  # without iterations nothing is filled
            made = If(loop.extent > 0, made)
        for buffer in copies.values():
            made = Allocate(buffer, made)
        return made


def _used(mark: FillAhead, loop: For) -> int:
    """Copies of a buffer that the iterations of a loop use: where these are fewer than there could
    be copies, all of them are filled in front of it."""
    extent = loop.extent
    if mark.buffer.scope in REGISTERS or not isinstance(extent, IntImm):
        return mark.stages
    return min(mark.stages, extent.value)


class _Pipeline:
    """The loop with its fillings some iterations ahead."""

    def __init__(self, loop: For, marks: list[FillAhead], copies: dict[Buffer, Buffer]) -> None:
        self.loop, self.marks, self.copies = loop, marks, copies
        self.end = add(loop.min, loop.extent)
        self.analyzer = Analyzer()
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        self.simplify = self.analyzer.simplify
        self.again = False

    def ahead(self, mark: FillAhead) -> int:
        """How many iterations earlier a copy is filled."""
        return mark.stages - 1 + (self.again and not is_late(mark))

    def lowered(self, body: Stmt) -> Stmt:
        if self.all_ahead():
            return self.written_out(body)
        self.again = fills_again(self.marks, emptied(body, set(self.copies)))
        ahead = max(map(self.ahead, self.marks))
        soon = [mark for mark in self.marks if not is_late(mark)]
        first = seq(*(self.first(i) for i in range(ahead)), *waits(soon, self.again))
        var, kind = self.loop.var, self.loop.kind
        if kind is ForKind.UNROLLED or all(b.scope not in REGISTERS for b in self.copies):
            turn = sub(var, self.loop.min)
            return seq(first, replace(self.loop, body=self.step(body, var, turn)))
        # The copies are chosen by constants: as many iterations a turn of the loop as there are
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

    def all_ahead(self) -> bool:
        """Whether all threads wait for what is filled, few times, and each time in front."""
        extent, stages = self.loop.extent, min(mark.stages for mark in self.marks)
        few = isinstance(extent, IntImm) and extent.value <= min(stages - 1, _WRITTEN_OUT)
        late = any(map(is_late, self.marks))
        return few and not late and is_collective(self.marks)

    def written_out(self, body: Stmt) -> Stmt:
        """The iterations one after the other, each of which waits for its own copies: as none is
        filled again, none is freed, and nothing is committed that is not there."""
        assert isinstance(self.loop.extent, IntImm)
        count, steps = self.loop.extent.value, list[Stmt]()
        for i in range(count):
            at = self.simplify(add(self.loop.min, i))
            use = emptied(copy(body, {self.loop.var: at}), set(self.copies))
            slots = {mark.buffer: const(i) for mark in self.marks}
            steps += [
                *pending(self.marks, count - 1 - i),
                Iteration(using(use, slots, self.copies)),
            ]
        return seq(*(self.first(i) for i in range(count)), *steps)

    def first(self, i: int) -> Stmt:
        """What is filled for iteration ``i`` in front of the loop."""
        at, slot = add(self.loop.min, i), const(i)
        fills = [
            self.when(self.loop.extent > i, self.fill(mark, at, slot))
            for mark in self.marks
            if i < self.ahead(mark)
        ]
        return seq(*fills, *commits([m for m in self.marks if i < self.ahead(m)]))

    def step(self, body: Stmt, at: Expr, turn: Expr, left: Expr | None = None) -> Stmt:
        """One iteration: fill other copies for later ones, then use this one's.

        ``turn`` is the number of the iteration, or that modulo the numbers of copies; ``left``,
        after the last whole turn, how many iterations there are from turn 0 on.
        """
        fills, late = list[Stmt](), list[Stmt]()
        for mark in self.marks:
            ahead = self.ahead(mark)
            fill = self.fill(
                mark, self.simplify(add(at, ahead)), self.slot(add(turn, ahead), mark.stages)
            )
            more = at < sub(self.end, ahead) if left is None else add(turn, ahead) < left
            (late if is_late(mark) else fills).append(self.when(more, fill))
        slots = {mark.buffer: self.slot(turn, mark.stages) for mark in self.marks}
        use = using(emptied(body, set(self.copies)), slots, self.copies)
        parts = [[m for m in self.marks if is_late(m) is kind] for kind in (True, False)]
        copies, soon = ([self.copies[m.buffer] for m in part] for part in parts)
        if parts[0]:
            use = fill_late(parts[0], copies, use, seq(*late))
        if not parts[1]:
            return Iteration(use)
        return iteration(parts[1], soon, use, seq(*fills), self.again)

    def slot(self, turn: Expr, stages: int) -> Expr:
        return self.simplify(floormod(turn, stages))

    def when(self, condition: Expr, then: Stmt) -> Stmt:
        """``then`` where ``condition`` holds, which may be known."""
        found = self.simplify(condition)
        if isinstance(found, IntImm):
            return then if found.value else Seq(())
        return If(found, then)

    def fill(self, mark: FillAhead, at: Expr, slot: Expr) -> Stmt:
        made = using(copy(mark.body, {self.loop.var: at}), {mark.buffer: slot}, self.copies)
        return committed(mark, made)
