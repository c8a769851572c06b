"""What goes on in the background, and what touches its memory before it is known to have ended.

An instruction of a queue goes on behind the statement that issues it, until its thread has waited
for its group. Other threads learn of that end by a barrier behind the wait; one between the two
tells them nothing. So what a thread has issued is followed along the ways through the kernel: it
runs until the wait, has ended for its own thread then, and for all threads behind the next barrier.
What touches the memory before conflicts with it, unless the indices keep the two apart. Conflicts
of threads (:mod:`.dependence`) take such an instruction as done where it is issued: what other
threads do up to the next barrier is found there.

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


_State = frozenset[Issued]


class Background(NamedTuple):
    """What ``conflicts`` with an instruction, of each pair of statements the first, with what is
    known of the instruction then; and the reads of memory of a block that go ``on`` at its end."""

    conflicts: tuple[tuple[Issued, Conflict], ...]
    on: tuple[Access, ...]


def background(kernel: Kernel) -> Background:
    """What goes on in the background too long."""
    issued = {n for n in kernel.root.walk() if (q := queue_of(n)) and not QUEUES[q].collective}
    if not issued:
        return Background((), ())
    paths = _Paths(kernel, issued)
    left = paths.behind(kernel.root, frozenset())
    return Background(tuple(paths.found.values()), tuple(paths.beyond(left)))


def queue_of(node: Node) -> str:
    """The queue of an instruction; empty where it has none, or there is no instruction."""
    return str(node.stmt.instruction.queue) if isinstance(node.stmt, Instr) else ""


class _Paths:
    """Goes the ways through a kernel."""

    def __init__(self, kernel: Kernel, issued: set[Node]) -> None:
        self.kernel, self.issued, self.dependences = kernel, issued, Dependences(kernel)
        self.accesses: dict[Node, list[Access]] = {}
        for access in kernel.accesses:
            around = (n for n in access.node.ancestors if isinstance(n.stmt, Instr))
            self.accesses.setdefault(next(around, access.node), []).append(access)
        self.asked: set[tuple[Issued, Node]] = set()
        self.found: dict[tuple[Node, Node], tuple[Issued, Conflict]] = {}

    def behind(self, node: Node, state: _State) -> _State:
        """What some thread does not know to have ended behind ``node``."""
        self.check(node, state)
        match node.stmt:
            case If(orelse=None):
                return state | self.behind(node.children[0], state)
            case If():
                return self.behind(node.children[0], state) | self.behind(node.children[1], state)
            case For(kind=kind) if kind is not ForKind.THREAD:
                return self.behind_loop(node, state)
            case Queue(queue, "commit"):
                return frozenset(_committed(x) if x.queue == queue else x for x in state)
            case Queue(queue, "wait", pending):
                return frozenset(
                    replace(x, age=_ENDED) if x.queue == queue and x.age >= pending else x
                    for x in state
                )
            case Sync() as barrier:
                return frozenset(filter(None, (self.told(x, barrier) for x in state)))
            case Instr():
                return state | {Issued(node)} if node in self.issued else state
        for child in node.children:
            state = self.behind(child, state)
        return state

    def behind_loop(self, node: Node, state: _State) -> _State:
        assert isinstance(node.stmt, For)
        begun, extent = state, node.stmt.extent
        certain = isinstance(extent, IntImm) and extent.value > 0
        while True:
            after = self.behind(node.children[0], begun)
            again = frozenset(_again(x, node) for x in after)
            if again <= begun:
                break
            begun |= again
        left = after if certain else after | state
        return frozenset(replace(x, around=None, by=0) if x.around is node else x for x in left)

    def told(self, x: Issued, barrier: Sync) -> Issued | None:
        """``x`` behind a barrier, unless all know of its end. What a producer fills comes to no
        barrier but those that are split, to which others come without a wait."""
        if not x.ended:
            return x
        whole = barrier.scope != "warp" and not barrier.split
        told = _ALL if whole else max(x.told, _OF_WARP) if barrier.scope == "warp" else x.told
        freed = x.freed or barrier.split or (whole and not self.kernel.func.producer)
        return None if told == _ALL and freed else replace(x, told=told, freed=freed)

    def check(self, node: Node, state: _State) -> None:
        """Look at what ``node`` itself touches."""
        late = self.accesses.get(node)
        for early in state if late else ():
            if (early, node) not in self.asked and (early.node, node) not in self.found:
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

    def beyond(self, state: _State) -> Iterator[Access]:
        """Reads of memory of a block that go on when that ends."""
        for node in dict.fromkeys(x.node for x in state if not x.ended):
            reads = (a for a in self.accesses[node] if not a.write and a.buffer.scope == "shared")
            yield from islice(reads, 1)


#: Memory of one thread.
_OWN = ("local", "fragment")


def _lasts(access: Access) -> bool:
    return not access.write or access.buffer.scope in _OWN


def _committed(x: Issued) -> Issued:
    return x if x.ended else replace(x, age=min(x.age + 1, _MOST))


def _again(x: Issued, loop: Node) -> Issued:
    """``x`` in the next iteration of a loop."""
    if loop not in x.node.ancestors or x.around not in (None, loop):
        return x
    return replace(x, around=loop, by=min(x.by + 1, _MOST))


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
