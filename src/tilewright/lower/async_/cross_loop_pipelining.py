"""A pipeline goes on across the iterations of an outer loop, instead of running empty.

Where :mod:`~tilewright.lower.async_.pipeline_loops` fills copies for later iterations of one loop,
this pass looks further: the last iterations of a loop fill copies for the first ones of what comes
next in the loop that has the note (:mod:`~tilewright.lower.async_.pipeline_marks`), be it another
loop of the same stage, which partitioning made, or the same one in the next iteration. So what is
loaded in the background never waits for what is computed between.

>>> from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
>>> c, k, i, j = axes("c k i j")
>>> A, B, S = buffer("A", 3, 4, 8), buffer("B", 3), buffer("S", 8, scope="shared")
>>> fill = FillAhead(S, 2, c, loop(i, 8, store(S[i], A[c, k, i])))
>>> use = loop(j, 8, store(B[c], B[c] + S[j]))
>>> inner = loop(k, 4, allocate(S, fill, use))
>>> outer = replace(loop(c, 3, store(B[c], 0.0), inner), pipelines=c)
>>> print(cross_loop_pipelining(func(outer, target="sim")).body)
S = T.allocate([2, 8], 'float32', 'shared')
for i in range(8):
    S[0, i] = A[0, 0, i]
for c in range(3):
    B[c] = T.float32(0)
    for k in range(4):
        if k < 3:
            for i in range(8):
                S[(k + 1) % 2, i] = A[c, k + 1, i]
        else:
            if c < 2:
                for i in range(8):
                    S[(k + 1) % 2, i] = A[c + 1, 0, i]
        for j in range(8):
            B[c] = B[c] + S[k % 2, j]

Copies follow one another through all iterations, so that the number of those inside of the outer
loop must be a constant: a loop of the stage that runs less often now and then runs on, and does
nothing. Where other loops do so, the program is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.arith import Analyzer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar
from tilewright.ir.ops import add, const, floormod, logical_not, mul, sub
from tilewright.ir.stmt import Allocate, FillAhead, For, If, Remark, Seq, Stmt, seq, with_body
from tilewright.ir.visit import Steps, statements
from tilewright.lower.analysis.marked_fills import marked, queue_of
from tilewright.lower.async_.pipeline_marks import (
    REGISTERS,
    check_ahead,
    commits,
    committed,
    emptied,
    fills_again,
    in_copies,
    iteration,
    unallocated,
    using,
    waits,
)
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.substitution import copy, put


def cross_loop_pipelining(func: Func) -> Func:
    """``func`` with the pipelines of loops that have the note; marks elsewhere stay as they are.

    Raises :class:`LoweringError` where the number of iterations inside of such a loop is not
    known, the stages are in registers, or the loop changes what is loaded ahead.
    """
    noted = any(isinstance(s, For) and s.pipelines is not None for s in statements(func.body))
    return replace(func, body=_Continuing(analyzer_of(func)).stmt(func.body)) if noted else func


@dataclass(frozen=True, eq=False)
class _Step:
    """Where copies are filled and used: what is in the memory of the marked buffers."""

    scope: Allocate
    marks: tuple[FillAhead, ...]


@dataclass(frozen=True, eq=False)
class _Loop:
    """A loop with steps in it."""

    loop: For
    inside: tuple[_Step | _Loop, ...]


_Node: TypeAlias = "_Step | _Loop"
_Values: TypeAlias = Mapping[Var, Expr]
_Made: TypeAlias = Callable[[], Stmt]


class _Continuing(InContext):
    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        made = yield from super().steps(s)
        if not isinstance(made, For) or made.pipelines is None:
            return made
        tree = _Loop(made, tuple(_steps(made.body, made.pipelines)))
        return _Pipeline(tree, self.analyzer).lowered() if tree.inside else made


def _steps(s: Stmt, over: IterVar) -> Iterator[_Node]:
    """The steps of the pipelines that go on over a loop, in its body, in order."""
    match s:
        case Allocate(buffer, body):
            marks = tuple(m for m in marked(body) if m.over is over)
            if any(m.buffer is buffer for m in marks):
                yield _Step(s, marks)
            else:
                yield from _steps(body, over)
        case Remark(body=body):
            yield from _steps(body, over)
        case Seq(stmts):
            for x in stmts:
                yield from _steps(x, over)
        case For(_, _, _, _, body):
            inside = tuple(_steps(body, over))
            if inside:
                yield _Loop(s, inside)


class _Pipeline:
    """All steps in one loop."""

    def __init__(self, tree: _Loop, analyzer: Analyzer) -> None:
        self.tree, self.analyzer = tree, analyzer
        self.parents: dict[_Node, _Loop] = {}
        self.offsets: dict[_Node, int] = {}  # steps before it, in one iteration of its parent
        self.lengths: dict[_Node, int] = {}  # steps in one iteration of a loop
        self.scopes: dict[Stmt, _Step] = {}
        self.loops: dict[Stmt, _Loop] = {}
        self.most: dict[_Loop, Expr] = {tree: tree.loop.extent}  # iterations, all of them counted
        with analyzer.scope():
            analyzer.bind(tree.loop.var, tree.loop.min, tree.loop.extent)
            self._count(tree)
        first, *_ = steps = list(self.steps(tree))
        for step in steps:
            _check_alike(first, step)
            check_ahead(tree.loop, step.marks)
        self.marks = first.marks
        self.stages = first.marks[0].stages
        uses = (emptied(step.scope, {m.buffer for m in step.marks}) for step in steps)
        self.again = all(fills_again(self.marks, use) for use in uses)
        self.ahead = self.stages - 1 + self.again
        self.filled = [in_copies(m.buffer, self.stages) for m in first.marks]

    def _count(self, node: _Loop) -> None:
        total = 0
        for inner in node.inside:
            self.parents[inner], self.offsets[inner] = node, total
            if isinstance(inner, _Step):
                self.scopes[inner.scope] = inner
                total += 1
                continue
            self.loops[inner.loop] = inner
            loop = inner.loop
            with self.analyzer.scope():
                self.analyzer.bind(loop.var, loop.min, loop.extent)
                self._count(inner)
            most = self.analyzer.bounds(loop.extent).hi
            exact = isinstance(loop.extent, IntImm)
            if most is None or not (exact or _lone(inner)):
                raise LoweringError(
                    f"pipeline over {self.tree.loop.var.name!r}: how often the loop "
                    f"{loop.var.name!r} inside of it runs, {loop.extent}, is not a constant. "
                    "Leave out `over`, or cut the loops so that each runs equally often"
                )
            self.most[inner] = const(int(most))
            total += int(most) * self.lengths[inner]
        self.lengths[node] = total

    def steps(self, node: _Node) -> Iterator[_Step]:
        if isinstance(node, _Step):
            yield node
            return
        for inner in node.inside:
            yield from self.steps(inner)

    def lowered(self) -> Stmt:
        loop = self.tree.loop
        some = self.analyzer.simplify(loop.extent > 0)
        with self.analyzer.assume(some):
            start = {loop.var: loop.min}
            first = self.tree.inside[0]
            warm: list[Stmt] = []
            for k in range(self.ahead):
                warm += [self.enter(first, start, const(k), const(k)), *commits(self.marks)]
            with self.analyzer.scope():
                self.analyzer.bind(loop.var, loop.min, loop.extent)
                main = replace(loop, body=self.rewritten(loop.body), pipelines=None)
        made = seq(*warm, *waits(self.marks, self.again), main)
        if not isinstance(some, IntImm):  # without iterations nothing is filled
            made = If(some, made)
        for buffer in self.filled:
            made = Allocate(buffer, made)
        return made

    def rewritten(self, s: Stmt) -> Stmt:
        """A part of the outer loop's body with its steps."""
        match s:
            case Allocate() if s in self.scopes:
                return self.step(self.scopes[s])
            case Allocate(_, body) | Remark(body=body):
                return with_body(s, self.rewritten(body))
            case Seq(stmts):
                return seq(*(self.rewritten(x) for x in stmts))
            case For(var, low, _, _, body) if s in self.loops:
                most = self.most[self.loops[s]]
                with self.analyzer.scope():
                    self.analyzer.bind(var, low, most)
                    return replace(s, extent=most, body=self.rewritten(body))
        return s

    def step(self, step: _Step) -> Stmt:
        """What uses one copy of each buffer, and fills others for what comes later."""
        buffers = [m.buffer for m in step.marks]
        number = self.number(step)
        use = using(
            emptied(unallocated(step.scope, set(buffers)), set(buffers)),
            dict.fromkeys(buffers, self.slot(number)),
            dict(zip(buffers, self.filled, strict=True)),
        )
        loop = self.parents[step].loop
        inside = self.analyzer.simplify(loop.var < add(loop.min, loop.extent))
        if not isinstance(inside, IntImm):
            use = If(inside, use)
        fill = self.ahead_of(step, self.slot(add(number, self.ahead)))
        return iteration(step.marks, self.filled, use, fill, self.again)

    # -- where a step stands, and what follows ------------------------------------------------

    def number(self, step: _Step) -> Expr:
        """The number of a step among all of them, in their order."""
        node: _Node = step
        found: Expr = const(0)
        while node is not self.tree:
            parent = self.parents[node]
            turns = mul(sub(parent.loop.var, parent.loop.min), self.lengths[parent])
            found = add(add(found, self.offsets[node]), turns)
            node = parent
        return self.analyzer.simplify(found)

    def ahead_of(self, step: _Step, slot: Expr) -> Stmt:
        """Fill the copy ``slot`` for the step that comes ``ahead`` steps after one."""
        parent = self.parents[step]
        node: _Node = step
        values: dict[Var, Expr] = {}
        while node is not self.tree:
            node = self.parents[node]
            values[node.loop.var] = node.loop.var
        if not _lone(parent):
            return self.after(step, values, const(self.ahead - 1), slot)
        var, end = parent.loop.var, add(parent.loop.min, self.most[parent])
        then = add(var, self.ahead)
        return self.either(
            then < end,
            lambda: self.fill(step, {**values, var: then}, slot),
            lambda: self.after(parent, values, sub(then, end), slot),
        )

    def after(self, node: _Node, values: _Values, count: Expr, slot: Expr) -> Stmt:
        """Fill for the step with that number of others between it and the end of ``node``."""
        if node is self.tree:
            return Seq(())
        parent = self.parents[node]
        siblings = parent.inside
        place = siblings.index(node) + 1
        if place < len(siblings):
            return self.enter(siblings[place], values, count, slot)
        then = add(values[parent.loop.var], 1)
        return self.either(
            then < add(put(parent.loop.min, values), self.most[parent]),
            lambda: self.enter(siblings[0], {**values, parent.loop.var: then}, count, slot),
            lambda: self.after(parent, values, count, slot),
        )

    def enter(self, node: _Node, values: _Values, count: Expr, slot: Expr) -> Stmt:
        """Fill for the step with that number of others between it and the beginning of ``node``."""
        if isinstance(node, _Step):
            return self.either(
                count <= 0,
                lambda: self.fill(node, values, slot),
                lambda: self.after(node, values, sub(count, 1), slot),
            )
        loop, inner = node.loop, node.inside[0]
        low = put(loop.min, values)
        if isinstance(inner, _Loop) or not _lone(node):
            return self.enter(inner, {**values, loop.var: low}, count, slot)
        return self.either(
            count < self.most[node],
            lambda: self.fill(inner, {**values, loop.var: add(low, count)}, slot),
            lambda: self.after(node, values, sub(count, self.most[node]), slot),
        )

    def either(self, condition: Expr, then: _Made, orelse: _Made) -> Stmt:
        """One of two statements, of which each is made under what it may take for granted."""
        known = self.analyzer.simplify(condition)
        if isinstance(known, IntImm):
            return then() if known.value else orelse()
        with self.analyzer.assume(known):
            yes = then()
        with self.analyzer.assume(logical_not(known)):
            no = orelse()
        return If(known, yes, None if isinstance(no, Seq) and not no.stmts else no)

    def fill(self, step: _Step, values: _Values, slot: Expr) -> Stmt:
        found = {var: self.analyzer.simplify(value) for var, value in values.items()}
        made = []
        for mark, buffer in zip(step.marks, self.filled, strict=True):
            s = using(copy(mark.body, found), {mark.buffer: slot}, {mark.buffer: buffer})
            made.append(committed(mark, s))
        loop = self.parents[step].loop
        inside = put(loop.var < add(loop.min, loop.extent), found)
        return self.either(inside, lambda: seq(*made), lambda: Seq(()))

    def slot(self, number: Expr) -> Expr:
        return self.analyzer.simplify(floormod(number, self.stages))


def _lone(node: _Loop) -> bool:
    """Whether the iterations of a loop are steps that follow one another."""
    return len(node.inside) == 1 and isinstance(node.inside[0], _Step)


def _check_alike(one: _Step, other: _Step) -> None:
    """Whether two steps fill the same copies."""

    def tiles(step: _Step) -> list[object]:
        return [(m.buffer.shape, m.buffer.dtype, m.stages, queue_of(m)) for m in step.marks]

    if tiles(one) != tiles(other) or len({m.stages for m in one.marks}) > 1:
        names = ", ".join(sorted({repr(m.buffer.name) for m in (*one.marks, *other.marks)}))
        raise LoweringError(
            f"pipeline of {names}: going on over an outer loop, its tiles must be of one size, and "
            "in that number of copies. Cut the loops evenly, or leave out `over`"
        )
    for mark in one.marks:
        if mark.buffer.scope in REGISTERS:
            raise LoweringError(
                f"pipeline of {mark.buffer.name!r}: registers are chosen by constants, so that it "
                "cannot go on over an outer loop. Leave out `over`, or keep it in shared memory"
            )
