"""Random pipelines, right and wrong: copies in the background, waits and barriers in loops.

Most have one thing or another that a pipeline must not have: a wait for too few groups, a barrier
before the wait and not behind it, a copy that is filled again too early, groups under conditions.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.gpu_programs import kernel

from tilewright.ir import Module
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import as_index, const, floormod
from tilewright.ir.stmt import Access, Allocate, Instr, Queue, Stmt, Sync, seq
from tilewright.lower.ir_builder import buffer, loop, store, when
from tilewright.target.instructions import copy_async, tma_load

#: Threads of the block, which are as many as a copy has elements; and rows that are copied.
THREADS, ROWS = 32, 24


@dataclass
class _Drawn:
    r: Random

    def __post_init__(self) -> None:
        self.boxes = self.r.random() < 0.4
        self.copies = self.r.choice([1, 2, 3, 4, 4])
        self.queue = "tma" if self.boxes else "cp.async"
        self.thread = Var.make("t")
        self.a, self.b = buffer("A", ROWS, THREADS), buffer("B", ROWS + 8, THREADS)
        self.s = buffer("S", self.copies, THREADS, scope="shared")
        self.shift = self.r.choice([0, 1, 1, 5])

    def slot(self, number: Expr | int) -> Expr:
        return floormod(as_index(number), self.copies)

    def fill(self, number: Expr | int) -> Stmt:
        """One of the copies filled for the iteration of this number."""
        slot, row = self.slot(number), floormod(as_index(number), ROWS)
        i, j = Var.make("i"), Var.make("j")
        if self.boxes:
            operands = (Access(self.s, (slot + i, j)), Access(self.a, (row + i, j)))
            body = loop(i, 1, loop(j, THREADS, store(self.s[slot + i, j], self.a[row + i, j])))
            box = Instr(tma_load((1, THREADS), "float32"), (i, j), operands, body)
            return when(E.EQ(self.thread, const(0)), box)
        at = self.thread + i
        operands = (Access(self.s, (slot, at)), Access(self.a, (row, at)))
        body = loop(i, 1, store(self.s[slot, at], self.a[row, at]))
        return Instr(copy_async(1), (i,), operands, body)

    def read(self, row: Expr | int, number: Expr | int) -> Stmt:
        column = (self.thread + self.shift) % THREADS
        return store(self.b[as_index(row), self.thread], self.s[self.slot(number), column])

    def commit(self) -> Stmt:
        return Queue(self.queue, "commit")

    def wait(self, pending: int) -> Stmt:
        return Queue(self.queue, "wait", max(pending, 0))

    def sync(self) -> Stmt:
        return seq(Queue(self.queue, "proxy") if self.boxes else None, Sync("shared"))

    def some(self, chance: float, s: Stmt) -> list[Stmt]:
        return [s] if self.r.random() < chance else []


def drawn(seed: int) -> Module:
    """A kernel that copies rows of A to a ring of copies, and these to B."""
    r = Random(seed)
    d = _Drawn(r)
    outer, inner = r.choice([1, 2, 3]), r.choice([1, 2, 3, 4, 5])
    nested = r.random() < 0.5
    restart = nested and r.random() < 0.5  # whether every outer iteration has a ring of its own
    ahead = r.choice([max(d.copies - 1, 1), d.copies, d.copies - 1, 1])
    base = r.choice([ahead - 1, d.copies - 2, d.copies - 1, 0, 1])
    c, k = Var.make("c"), Var.make("k")
    number = c * inner + k if nested and not restart else k
    end = inner if restart or not nested else outer * inner
    warm = _warm(d, ahead) + d.some(0.6, d.wait(base + r.choice([0, 0, 1, -1])))
    warm += d.some(0.6, d.sync())
    extent = as_index(inner)
    if restart and r.random() < 0.5:
        extent = r.choice([c + 1, 3 - c, c])
    main = loop(k, extent, _iteration(d, number, end, ahead, base, k < inner - 1))
    if restart:
        more = [d.wait(r.choice([0, 0, 1])), d.sync()] if r.random() < 0.5 else []
        whole: Stmt = loop(c, outer, seq(*warm, main, *more))
    else:
        whole = seq(*warm, loop(c, outer, main) if nested else main)
    whole = seq(whole, *d.some(0.8, d.wait(0)))
    if r.random() < 0.5:
        whole = seq(whole, d.sync(), d.read(ROWS + 1, r.randrange(d.copies)))
    return kernel("k", (d.a, d.b), Allocate(d.s, whole), threadIdx_x=(d.thread, THREADS))


def _warm(d: _Drawn, ahead: int) -> list[Stmt]:
    """What is filled in front of the loop."""
    count = max(ahead + d.r.choice([0, 0, 0, 1, -1]), 0)
    if d.r.random() < 0.3:
        q = Var.make("q")
        return [loop(q, count, seq(d.fill(q), d.commit()))]
    found: list[Stmt] = []
    for i in range(count):
        fill = d.fill(i)
        if not d.boxes and d.r.random() < 0.05:
            fill = when(d.thread < 16, fill)
        found += [fill, d.commit(), *d.some(0.1, d.wait(d.r.choice([0, 1, 2])))]
    return found


def _iteration(
    d: _Drawn, number: Expr, end: int, ahead: int, base: int, not_last: Expr
) -> Stmt:  # fmt: skip
    r = d.r
    more = number + ahead < end
    fill = r.choice([
        [when(more, d.fill(number + ahead)), d.commit()],
        [when(more, seq(d.fill(number + ahead), d.commit()))],
        [d.fill(number + ahead), d.commit()],
    ])  # fmt: skip
    read = [d.read(number, number)]
    if r.random() < 0.1:
        read = [when(not_last, *read)]
    wait = d.some(0.9, d.wait(base + r.choice([0, 0, 0, 1, -1])))
    if wait and r.random() < 0.1:
        wait = [when(not_last, *wait)]
    meet, free = d.some(0.9, d.sync()), d.some(0.7, d.sync())
    parts = r.choice([
        [wait, meet, read, free, fill],
        [read, free, fill, wait, meet],
        [fill, wait, meet, read, free],
        [wait, meet, fill, read, free],
        [free, fill, read, wait, meet],
        [read, fill, wait, meet],
        [meet, read, wait, free, fill],
    ])  # fmt: skip
    return seq(*(s for part in parts for s in part))
