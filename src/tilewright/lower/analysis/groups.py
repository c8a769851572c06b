"""How many groups of a queue are committed between two moments, and how many may not have ended.

Time is counted in groups. Of a loop around an instruction, what is left of its iterations commits
as many groups as they are times those of one; so the number of groups between an instruction and a
later statement is an affine form of the loops around both, whatever the number of iterations, and
nothing is unrolled. The forms are bounds from below: a branch counts for the fewer groups of both
sides. What may be under way at a statement, bounded from above, follows from waits alone, on all
ways to it. An instruction has ended where more groups lie between than may be under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

from tilewright.arith.affine import Affine, as_affine, constant
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import LT, Broadcast, Expr, FloorMod, IntImm, Load, Var
from tilewright.ir.ops import floormod, is_const
from tilewright.ir.stmt import For, ForKind, If, Instr, Let, Queue, Sync
from tilewright.ir.visit import exprs
from tilewright.lower.analysis.accesses import Kernel, Node
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.domain import can_run
from tilewright.target.queues import QUEUES

#: More groups than any kernel has under way.
ANY = 1 << 30


class Level(NamedTuple):
    """How many groups of a thread's may not have ended, as it knows itself, as all of its warp and
    as all of its block know, and as a producer knows, which waits for no box; as much as its block
    where there is none."""

    own: int
    warp: int
    block: int
    producer: int


#: Who knows of the end of an instruction.
_NOBODY, _THREAD, _WARP, _BLOCK, _PRODUCER = range(5)


class _Since(NamedTuple):
    """What certainly came after an instruction: groups, and which threads know of its end."""

    groups: int = 0
    known: int = _NOBODY


class _Count(NamedTuple):
    """A lower bound of a number of groups: a form, and a number that neither is below."""

    form: Affine
    least: int


_NONE = _Count(constant(0), 0)


def _sum(a: _Count, b: _Count, times: int = 1) -> _Count:
    return _Count(a.form.combine(1, b.form, times), a.least + times * b.least)


@dataclass(frozen=True)
class Distance:
    """A lower bound of the number of groups that are committed between two moments.

    ``early`` is in what the variables are at the first, ``late`` at the second; their sum is never
    below ``least``. Variables of ``same`` have one value at both.
    """

    early: Affine
    late: Affine
    least: int
    same: Collection[Expr]

    def residue(self, ahead: Affine, behind: Affine, modulus: int) -> int | None:
        """What the number leaves, divided by ``modulus``, wherever the form ``ahead`` at the first
        moment equals ``behind`` at the second but for multiples of it; None where it varies."""
        const = self.early.const + self.late.const + ahead.const - behind.const
        total: dict[tuple[int, Expr], int] = {}
        for side, sign, form in (
            (0, 1, self.early), (1, 1, self.late), (0, 1, ahead), (1, -1, behind)
        ):  # fmt: skip
            for atom, k in form.terms.items():
                place = side + 1 if self._varies(atom) else 0
                total[place, atom] = total.get((place, atom), 0) + sign * k
        if any(k % modulus for k in total.values()):
            return None
        return const % modulus

    def _varies(self, atom: Expr) -> bool:
        named = (x for x in exprs(atom) if isinstance(x, (Var, Load)))
        return any(x not in self.same for x in named)


class Groups:
    """Those of one ``queue`` in a kernel.

    Where all threads of a block wait together for what one of them has issued, each knows of the
    end by its own wait. Else others learn of it by a barrier behind the wait; and a producer, which
    does not wait, by one that frees copies, on which all arrive for it.
    """

    def __init__(self, kernel: Kernel, queue: str) -> None:
        self.kernel, self.queue = kernel, queue
        self.together = QUEUES[queue].collective
        self.produced = kernel.func.producer
        self._counts: dict[Node, _Count] = {}
        self._commits: set[Node] = set()
        active: set[Node] = set()
        for node in kernel.root.walk():
            match node.stmt:
                case Queue(name, "commit") if name == queue:
                    self._commits.update(node.line)
                    active.update(node.line)
                case Queue(name, "wait") if name == queue:
                    active.update(node.line)
                case Sync(_, _, split) if not self.together or (split and self.produced):
                    active.update(node.line)
        self._active = active
        self._levels: dict[Node, Level] = {}
        self.end = self._behind(kernel.root, Level(0, 0, 0, 0))

    # ------------------------------------------------------------------ what may be under way

    def region(self, node: Node) -> Node:
        """The first of the statements between which and ``node`` nothing is committed, awaited or
        met, on the way of one run of what is around them; or ``node``, where it is around such."""
        above = node.parent
        while above is not None and above not in self._active:
            node, above = above, above.parent
        if node in self._active or above is None:
            return node
        while node.number and not isinstance(above.stmt, If):
            before = above.children[node.number - 1]
            if before in self._active:
                break
            node = before
        return node

    def level(self, region: Node, produced: bool) -> Level:
        """What may not have ended when a :meth:`region` begins, as a producer knows or others."""
        known = self._levels[region]
        return Level(*[known.producer] * len(known)) if produced else known

    def _behind(self, node: Node, level: Level) -> Level:
        self._levels[node] = level
        if node not in self._active:
            return level
        match node.stmt:
            case Queue(_, "commit") if node in self._commits:
                return Level(*(min(n + 1, ANY) for n in level))
            case Queue(_, "wait", pending):
                own = min(level.own, pending)
                ends = (own, own, own) if self.together else (own, *level[1:3])
                return Level(*ends, level.producer if self.produced else ends[2])
            case Sync(scope, _, split):
                own, warp, block, producer = level
                if split:
                    return Level(own, warp, block, min(producer, own if self.produced else block))
                warp = min(warp, own)
                block = block if scope == "warp" else warp
                return Level(own, warp, block, producer if self.produced else block)
            case If():
                sides = [self._behind(x, level) for x in node.children]
                return _joined(*sides) if len(sides) > 1 else _joined(level, *sides)
            case For(extent=extent, kind=kind) if kind is not ForKind.THREAD:
                return self._behind_loop(node.children[0], level, extent)
        for child in node.children:
            level = self._behind(child, level)
        return level

    def _behind_loop(self, body: Node, level: Level, extent: Expr) -> Level:
        """With what one iteration leaves however much was under way, nothing grows on."""
        after = self._behind(body, level)
        begun = _joined(level, after)
        if begun != level:
            most = Level(*(n if n == more else ANY for n, more in zip(level, begun, strict=True)))
            after = self._behind(body, most)
            if _joined(most, after) != most:
                after = self._behind(body, Level(*[ANY] * len(level)))
            after = self._behind(body, _joined(level, after))
        certain = isinstance(extent, IntImm) and extent.value > 0
        return after if certain else _joined(level, after)

    # ------------------------------------------------------------------ how many lie between

    def orders(self, early: Node, late: Node) -> Iterator[tuple[Order, Distance]]:
        """How a moment of ``late`` may lie behind one of ``early``, an instruction or what is
        around it; with the number of groups between."""
        shared = [x for x, y in zip(early.line, late.line, strict=False) if x is y]
        loops = [x for x in shared if _is_loop(x) and x is not late]
        meet = shared[-1]
        if meet is not late and meet is not early and not isinstance(meet.stmt, If):
            depth = len(meet.ancestors) + 1
            one, two = early.line[depth], late.line[depth]
            if one.number < two.number:
                between = map(self._count, meet.children[one.number + 1 : two.number])
                first = reduce(_sum, between, self._tail(early, one))
                order = Order(frozenset(loops))
                yield order, self._distance(first, self._head(late, two), loops)
        for depth, loop in enumerate(loops):
            assert isinstance(loop.stmt, For)
            body = loop.children[0]
            first, then = self._tail(early, body), self._head(late, body)
            each = self._each(loop)
            if each:
                turn = Affine({loop.stmt.var: each})
                first = _Count(first.form - turn - each, first.least)
                then = _Count(then.form + turn, then.least)
            order = Order(frozenset(loops[:depth]), loop)
            yield order, self._distance(first, then, loops[:depth])

    def to_end(self, node: Node) -> Affine:
        """A lower bound of the number of groups from ``node`` until the kernel ends."""
        return self._tail(node, self.kernel.root).form

    def awaited(self, early: Node, late: Node, order: Order, produced: bool = False) -> bool:
        """Whether waits, and barriers, on the shortest way from an instruction to what lies behind
        it in ``order`` tell all of its end, or the producer, where that does what is ``late``."""
        if order.carried is not None:
            top = order.carried.children[0]
            since = self._rest(early, top, _Since())
        else:
            depth = next(
                k for k, (x, y) in enumerate(zip(early.line, late.line, strict=False)) if x is not y
            )
            one, top = early.line[depth], late.line[depth]
            since = self._rest(early, one, _Since())
            assert one.parent is not None
            since = self._through(one.parent.children[one.number + 1 : top.number], since)
        path = [node for node in late.line if len(node.ancestors) > len(top.ancestors)]
        for node in path:
            above = node.parent
            assert above is not None
            if above in self._active and not isinstance(above.stmt, If):
                since = self._through(above.children[: node.number], since)
        return since.known >= (_PRODUCER if produced else _BLOCK)

    def _rest(self, node: Node, top: Node, since: _Since) -> _Since:
        """Behind ``node``, until ``top`` around it ends, with no other iteration of a loop."""
        while node is not top:
            above = node.parent
            assert above is not None
            if above in self._active and not isinstance(above.stmt, If):
                since = self._through(above.children[node.number + 1 :], since)
            node = above
        return since

    def _through(self, nodes: Iterable[Node], since: _Since) -> _Since:
        for node in nodes:
            if node in self._active and since.known < _PRODUCER:
                since = self._once(node, since)
        return since

    def _once(self, node: Node, since: _Since) -> _Since:
        match node.stmt:
            case Queue(_, "commit") if node in self._commits:
                return since._replace(groups=since.groups + 1)
            case Queue(_, "wait", pending) if since.groups > pending and since.known == _NOBODY:
                return since._replace(known=_BLOCK if self.together else _THREAD)
            case Sync(_, _, True) if since.known == _BLOCK and self.produced:
                return since._replace(known=_PRODUCER)
            case Sync(scope, _, split) if since.known >= _THREAD and not split:
                return since._replace(known=max(since.known, _WARP if scope == "warp" else _BLOCK))
            case If():
                one, *others = (self._through((x,), since) for x in node.children)
                other = others[0] if others else since
                return _Since(min(one.groups, other.groups), min(one.known, other.known))
            case For(_, _, extent) if _is_loop(node):
                runs = isinstance(extent, IntImm) and extent.value > 0
                return self._through(node.children, since) if runs else since
        return self._through(node.children, since)

    def _distance(self, first: _Count, then: _Count, loops: Iterable[Node]) -> Distance:
        same = {node.stmt.var for node in loops if isinstance(node.stmt, For)}
        return Distance(first.form, then.form, first.least + then.least, self._fixed | same)

    @cached_property
    def _fixed(self) -> frozenset[Expr]:
        """Variables that are the same for all threads of a block, wherever they are."""
        params = self.kernel.func.params
        extents = (x for p in params if isinstance(p, Buffer) for n in p.shape for x in exprs(n))
        blocks = (axis.var for axis in self.kernel.blocks)
        return frozenset(x for x in (*params, *extents, *blocks) if isinstance(x, Var))

    @cached_property
    def _threads(self) -> frozenset[Expr]:
        return frozenset(self.kernel.thread_vars())

    def _tail(self, node: Node, top: Node) -> _Count:
        """Behind ``node``, until ``top`` around it ends: in this run of that."""
        total = _NONE
        while node is not top:
            above = node.parent
            assert above is not None
            match above.stmt:
                case If():
                    pass
                case For(var, low, extent) if _is_loop(above):
                    if each := self._each(above):
                        left = as_affine(low) + as_affine(extent) - Affine({var: 1}) - 1
                        total = _sum(total, _Count(left, 0), each)
                case _ if above in self._commits:
                    for after in above.children[node.number + 1 :]:
                        total = _sum(total, self._count(after))
            node = above
        return total

    def _head(self, node: Node, top: Node) -> _Count:
        """Before ``node``, since ``top`` around it began."""
        total = _NONE
        while node is not top:
            above = node.parent
            assert above is not None
            match above.stmt:
                case If():
                    pass
                case For(var, low) if _is_loop(above):
                    if each := self._each(above):
                        total = _sum(total, _Count(Affine({var: 1}) - as_affine(low), 0), each)
                case _ if above in self._commits:
                    for before in above.children[: node.number]:
                        total = _sum(total, self._count(before))
            node = above
        return total

    def _each(self, loop: Node) -> int:
        """A lower bound of the groups of any iteration of a loop."""
        count = self._count(loop.children[0])
        return count.form.const if count.form.is_const else count.least

    def _count(self, node: Node) -> _Count:
        """A lower bound of the groups of a run of ``node``."""
        if node not in self._commits:
            return _NONE
        found = self._counts.get(node)
        if found is None:
            found = self._counts[node] = self._counted(node)
        return found

    def _counted(self, node: Node) -> _Count:
        match node.stmt:
            case Queue():
                return _Count(constant(1), 1)
            case If():
                if len(node.children) < 2:
                    return _NONE
                one, other = map(self._count, node.children)
                if one.form == other.form:
                    return one
                least = min(one.least, other.least)
                return _Count(constant(least), least)
            case For(_, _, extent) if _is_loop(node):
                each = self._each(node)
                if isinstance(extent, IntImm):
                    total = each * max(extent.value, 0)
                    return _Count(constant(total), total)
                return self._repeated(node, extent, each)
        return reduce(_sum, map(self._count, node.children), _NONE)

    def _repeated(self, loop: Node, extent: Expr, each: int) -> _Count:
        """``each`` times an extent that is the same for all threads and never negative."""
        named = {x for n in loop.ancestors if isinstance(n.stmt, Let) for x in (n.stmt.var,)}
        if any(isinstance(x, Load) or x in named or x in self._threads for x in exprs(extent)):
            return _NONE
        if can_run(self.kernel, loop, (LT(extent, IntImm(extent.dtype, 0)), True)):
            return _NONE
        return _Count(as_affine(extent) * each, 0)


def _joined(*levels: Level) -> Level:
    return Level(*map(max, zip(*levels, strict=True)))


def _is_loop(node: Node) -> bool:
    return isinstance(node.stmt, For) and node.stmt.kind is not ForKind.THREAD


def instruction_of(node: Node) -> Node:
    """The instruction that a statement is in, or itself."""
    return next((n for n in node.ancestors if isinstance(n.stmt, Instr)), node)


def congruent(index: Expr, modulus: int) -> Affine | None:
    """A form that equals ``index`` but for multiples of ``modulus``; None of a vector's lanes."""
    while isinstance(index, Broadcast):
        index = index.value
    if index.dtype.lanes > 1:
        return None
    while isinstance(index, FloorMod) and is_const(floormod(index.b, modulus), 0):
        index = index.a
    return as_affine(index)
