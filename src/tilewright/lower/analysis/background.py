"""What goes on in the background, and what touches its memory before it is known to have ended.

An instruction of a queue goes on behind the statement that issues it, until its thread has waited
for its group. Other threads learn of that end by a barrier behind the wait; one between the two
tells them nothing. So what a thread has issued is followed along the ways through the kernel: it
runs until the wait, has ended for its own thread then, and for all threads behind the next barrier.
What touches the memory before conflicts with it, unless the indices keep the two apart. Conflicts
of threads (:mod:`.dependence`) take such an instruction as done where it is issued: what other
threads do up to the next barrier is found there.

Where branches meet, those that read registers are equally old behind each: of others ptxas (CUDA
13.0) may load other values into the registers that they still read.

What it reads anywhere counts, and what it writes in registers. What fills shared memory does not:
which of its groups a read waits for is known by counting iterations, as :mod:`.groups` does for
:mod:`~tilewright.verify.arrivals`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tilewright.ir.expr import IntImm
from tilewright.ir.stmt import For, ForKind, If, Instr, Queue, Sync
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.dependence import Conflict, Dependences
from tilewright.lower.analysis.runners import Runners
from tilewright.target.queues import QUEUES

#: As many groups, or iterations, are counted; of more it is known that they are as many at least.
_MOST = 8
#: In place of the age of a group: it has not been committed; it was waited for.
_OPEN, _ENDED = -1, -2
#: Which threads beside its own know of the end, all of them by barriers.
_NONE, _OF_WARP, _ALL = range(3)


@dataclass(frozen=True)
class Issued:
    """An instruction that was issued at ``node``.

    Parameters
    ----------
    age : how many groups its thread has committed since its own.
    told : which threads know of its end.
    freed : whether what fills memory with boxes knows of it.
    around, by : the outermost loop around it of which iterations have ended since, and how many.
    """

    node: Node
    age: int = _OPEN
    told: int = _NONE
    freed: bool = False
    around: Node | None = None
    by: int = 0

    @property
    def queue(self) -> str:
        return queue_of(self.node)

    @property
    def ended(self) -> bool:
        return self.age == _ENDED


#: An instruction that was issued, or that the way got here: what is issued from here on.
_Fact = Issued | None
_Facts = dict[_Fact, None]


class Background(NamedTuple):
    """What ``conflicts`` with an instruction, of each pair of statements the first, with what is
    known of the instruction then; the reads of memory of a block that go ``on`` at its end; and
    reads of registers that are ``uneven`` behind a branch."""

    conflicts: tuple[tuple[Issued, Conflict], ...]
    on: tuple[Access, ...]
    uneven: tuple[Access, ...]


def background(kernel: Kernel) -> Background:
    """What goes on in the background too long."""
    issued = {n for n in kernel.root.walk() if (q := queue_of(n)) and not QUEUES[q].collective}
    if not issued:
        return Background((), (), ())
    paths = _Paths(kernel, issued)
    left = paths.behind(kernel.root, None)
    found, uneven = paths.found.values(), (paths.held[node] for node in paths.uneven)
    return Background(tuple(found), tuple(paths.beyond(left)), tuple(uneven))


def queue_of(node: Node) -> str:
    """The queue of an instruction; empty where it has none, or there is no instruction."""
    return str(node.stmt.instruction.queue) if isinstance(node.stmt, Instr) else ""


class _Paths:
    """Goes the ways through a kernel.

    What becomes of one instruction does not depend on which others go on beside it. So each is
    followed by itself, and what a statement does to it is found once: a state of all of them has
    as many values as there are combinations, and loops in loops go through many.
    """

    def __init__(self, kernel: Kernel, issued: set[Node]) -> None:
        self.kernel, self.issued, self.dependences = kernel, issued, Dependences(kernel)
        self.accesses: dict[Node, list[Access]] = {}
        for access in kernel.accesses:
            around = (n for n in access.node.ancestors if isinstance(n.stmt, Instr))
            self.accesses.setdefault(next(around, access.node), []).append(access)
        #: Nodes with something inside that changes what is known.
        self.telling: set[Node] = set()
        for node in kernel.root.walk():
            if node in issued or isinstance(node.stmt, (Queue, Sync)):
                self.telling.update((node, *node.ancestors))
        lasting = {a.buffer for n in issued for a in filter(_lasts, self.accesses.get(n, ()))}
        #: By a node without, what inside of it touches memory that instructions use.
        self.touching: dict[Node, list[Node]] = {}
        for node in self.accesses:
            if any(a.buffer in lasting for a in self.accesses[node]):
                top = node
                for outer in reversed(node.ancestors):
                    if outer in self.telling:
                        break
                    top = outer
                self.touching.setdefault(top, []).append(node)
        self.known: dict[tuple[Node, _Fact], _Facts] = {}
        self.asked: set[tuple[Issued, Node]] = set()
        self.found: dict[tuple[Node, Node], tuple[Issued, Conflict]] = {}
        #: Instructions that read registers where branches meet which are not alike.
        self.uneven: dict[Node, None] = {}
        #: What each reads there and does not write.
        self.held: dict[Node, Access] = {}
        for node in issued:
            reads = self.accesses.get(node, ()) if QUEUES[queue_of(node)].fence else ()
            written = {a.buffer for a in reads if a.write}
            for a in reads:
                if a.buffer.scope in _OWN and a.buffer not in written:
                    self.held[node] = a

    def behind(self, node: Node, x: _Fact) -> _Facts:
        """What becomes of ``x`` by ``node``, on each way through it; of None, with what it
        issues."""
        known = self.known.get((node, x))
        if known is None:
            if x is not None:
                for touching in self.touching.get(node, ()):
                    self.check(touching, x)
            known = self.told_by(node, x) if node in self.telling else {x: None}
            self.known[node, x] = known
        return known

    def told_by(self, node: Node, x: _Fact) -> _Facts:
        match node.stmt:
            case If(orelse=orelse):
                other = {x: None} if orelse is None else self.behind(node.children[1], x)
                return self.met(node, self.behind(node.children[0], x), other)
            case For(kind=kind) if kind is not ForKind.THREAD:
                return self.behind_loop(node, x)
            case Queue(queue, "commit") if x is not None and x.queue == queue:
                return {_committed(x): None}
            case Queue(queue, "wait", pending) if x is not None and x.queue == queue:
                return {replace(x, age=_ENDED) if x.age >= pending else x: None}
            case Sync() as barrier if x is not None:
                told = self.told(x, barrier)
                return {} if told is None else {told: None}
            case Instr():
                issues = x is None and node in self.issued
                return {x: None, Issued(node): None} if issues else {x: None}
        facts: _Facts = {x: None}
        for child in node.children:
            facts = {z: None for y in facts for z in self.behind(child, y)}
        return facts

    def met(self, node: Node, one: _Facts, other: _Facts) -> _Facts:
        """What becomes of an instruction by either branch of ``node``."""
        held = [[y for y in z if y is not None and self.holds(y)] for z in (one, other)]
        ages = [{y.age for y in z} for z in held]
        if ages[0] != ages[1] or (_MOST in ages[0] and _commits(node)):
            self.uneven.update((y.node, None) for z in held for y in z)
        return {**one, **other}

    def holds(self, x: Issued) -> bool:
        """Whether it is of a group under way, and reads registers."""
        return x.node in self.held and x.age >= 0

    def behind_loop(self, node: Node, x: _Fact) -> _Facts:
        assert isinstance(node.stmt, For)
        extent = node.stmt.extent
        left: _Facts = {}
        begun: _Facts = {x: None}
        todo = [x]
        while todo:
            for y in self.behind(node.children[0], todo.pop()):
                left[y] = None
                again = None if y is None else _again(y, node)
                if again not in begun:
                    begun[again] = None
                    todo.append(again)
        if not (isinstance(extent, IntImm) and extent.value > 0):
            left[x] = None
        return {_outside(y, node): None for y in left}

    def told(self, x: Issued, barrier: Sync) -> Issued | None:
        """``x`` behind a barrier, unless all know of its end. What a producer fills comes to no
        barrier but those that are split, to which others come without a wait."""
        if not x.ended:
            return x
        whole = barrier.scope != "warp" and not barrier.split
        told = _ALL if whole else max(x.told, _OF_WARP) if barrier.scope == "warp" else x.told
        freed = x.freed or barrier.split or (whole and not self.kernel.func.producer)
        return None if told == _ALL and freed else replace(x, told=told, freed=freed)

    def check(self, node: Node, early: Issued) -> None:
        """Look at what ``node`` itself touches."""
        if (early, node) in self.asked or (early.node, node) in self.found:
            return
        self.asked.add((early, node))
        conflict = next(self.conflicts(early, node), None)
        if conflict is not None:
            self.found[early.node, node] = early, conflict

    def conflicts(self, early: Issued, node: Node) -> Iterator[Conflict]:
        queue = QUEUES[early.queue]
        ordered = queue.ordered and queue_of(node) == early.queue and not early.ended
        for a in filter(_lasts, self.accesses[early.node]):
            for b in self.accesses[node]:
                runners = _runners(early, b) if a.buffer is b.buffer else None
                if runners is None or not (a.write or b.write) or (ordered and runners == "self"):
                    continue
                found = self.dependences.conflict(a, b, _order(early, node), runners)
                if found is not None:
                    yield found

    def beyond(self, left: _Facts) -> Iterator[Access]:
        """Reads of memory of a block that go on when that ends."""
        for node in dict.fromkeys(x.node for x in left if x is not None and not x.ended):
            reads = (a for a in self.accesses[node] if not a.write and a.buffer.scope == "shared")
            yield from islice(reads, 1)


#: Memory of one thread.
_OWN = ("local", "fragment")


def _lasts(access: Access) -> bool:
    return not access.write or access.buffer.scope in _OWN


def _commits(node: Node) -> bool:
    inside = (n.stmt for n in node.walk())
    return any(
        isinstance(s, Queue) and s.action == "commit" and QUEUES[s.queue].fence for s in inside
    )


def _committed(x: Issued) -> Issued:
    return x if x.ended else replace(x, age=min(x.age + 1, _MOST))


def _again(x: Issued, loop: Node) -> Issued:
    """``x`` in the next iteration of a loop."""
    if loop not in x.node.ancestors or x.around not in (None, loop):
        return x
    return replace(x, around=loop, by=min(x.by + 1, _MOST))


def _outside(x: _Fact, loop: Node) -> _Fact:
    """``x`` behind a loop: its iterations are not told apart."""
    return replace(x, around=None, by=0) if x is not None and x.around is loop else x


def _order(early: Issued, node: Node) -> Order:
    """How the moment of ``node`` lies behind that at which the instruction was issued."""
    shared = zip(early.node.ancestors, node.ancestors, strict=False)
    same: list[Node] = []
    for one, other in shared:
        if one is not other or one is early.around:
            break
        if isinstance(one.stmt, For) and one.stmt.kind is not ForKind.THREAD:
            same.append(one)
    return Order(frozenset(same), early.around, early.by if early.by < _MOST else 0)


def _runners(early: Issued, late: Access) -> Runners | None:
    """Who must not meet: the threads whose order the waits and barriers since do not tell."""
    if late.buffer.scope in _OWN:
        return None if early.ended else "self"
    if not early.ended:
        return "any"
    if late.collective:
        return None if early.freed else "producer"
    if early.told == _ALL:
        return None
    return "warps" if early.told == _OF_WARP else "threads"
