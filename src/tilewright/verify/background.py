"""What goes on in the background ends before what it reads is written, or sums are touched.

An instruction of a queue goes on behind the statement that issues it, until its thread has waited
for its group. Other threads learn of that end by a barrier behind the wait; one between the two
tells them nothing. So the proof follows what a thread has issued along the ways through the kernel:
it runs until the wait, has ended for its own thread then, and for all threads behind the next
barrier. What touches the memory before is refused, unless the indices keep the two apart. The
proof in :mod:`.races` takes such an instruction as done where it is issued: what other threads do
up to the next barrier is found there.

What it reads anywhere counts, and what it writes in registers. What fills shared memory does not:
there are as many groups under way as copies, and which one a read waits for is known by numbers of
iterations that this proof does not count. Simulation finds such a read too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.ir.expr import IntImm
from tilewright.ir.stmt import For, ForKind, If, Instr, Queue, Sync
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.dependence import Conflict, Dependences
from tilewright.lower.analysis.runners import Runners
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement

#: As many groups, or iterations, are counted; of more it is known that they are as many at least.
_MOST = 8
#: In place of the age of a group: it has not been committed; it was waited for.
_OPEN, _ENDED = -1, -2
#: Which threads beside its own know of the end, all of them by barriers.
_NONE, _OF_WARP, _ALL = range(3)


@dataclass(frozen=True)
class _Issued:
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
        return _queue(self.node)

    @property
    def ended(self) -> bool:
        return self.age == _ENDED


_State = frozenset[_Issued]


def unawaited(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each instruction, and statement that does not wait for its end."""
    issued = {n for n in kernel.root.walk() if (q := _queue(n)) and not QUEUES[q].collective}
    if issued:
        paths = _Paths(kernel, issued)
        left = paths.behind(kernel.root, frozenset())
        yield from paths.found.values()
        yield from paths.beyond(left)


def _queue(node: Node) -> str:
    return str(node.stmt.instruction.queue) if isinstance(node.stmt, Instr) else ""


class _Paths:
    """Goes the ways through a kernel."""

    def __init__(self, kernel: Kernel, issued: set[Node]) -> None:
        self.kernel, self.issued, self.dependences = kernel, issued, Dependences(kernel)
        self.accesses: dict[Node, list[Access]] = {}
        for access in kernel.accesses:
            around = (n for n in access.node.ancestors if isinstance(n.stmt, Instr))
            self.accesses.setdefault(next(around, access.node), []).append(access)
        self.asked: set[tuple[_Issued, Node]] = set()
        self.found: dict[tuple[Node, Node], Finding] = {}

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
                return state | {_Issued(node)} if node in self.issued else state
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

    def told(self, x: _Issued, barrier: Sync) -> _Issued | None:
        """``x`` behind a barrier, unless all know of its end. What a producer fills comes to no
        barrier but those that are split, to which others come without a wait."""
        if not x.ended:
            return x
        whole = barrier.scope == "shared" and not barrier.split
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
                    self.found[early.node, node] = _finding(self.kernel, early, node, conflict)

    def conflicts(self, early: _Issued, node: Node) -> Iterator[Conflict]:
        queue = QUEUES[early.queue]
        ordered = queue.ordered and _queue(node) == early.queue and not early.ended
        for a in filter(_lasts, self.accesses[early.node]):
            for b in self.accesses[node]:
                runners = _runners(early, b) if a.buffer is b.buffer else None
                if runners is None or not (a.write or b.write) or (ordered and runners == "self"):
                    continue
                found = self.dependences.conflict(a, b, _order(early, node), runners)
                if found is not None:
                    yield found

    def beyond(self, state: _State) -> Iterator[Finding]:
        """Of what reads memory of a block, and goes on when that ends."""
        for node in dict.fromkeys(x.node for x in state if not x.ended):
            reads = (a for a in self.accesses[node] if not a.write and a.buffer.scope == "shared")
            read = next(reads, None)
            if read is not None:
                yield Finding(
                    "unawaited",
                    f"unawaited: {statement(node)} may go on when the kernel ends, and with it the "
                    f"memory of {read.buffer.name}; wait for the queue {_queue(node)!r}",
                    stages=stages_of(node),
                )


#: Memory of one thread.
_OWN = ("local", "fragment")


def _lasts(access: Access) -> bool:
    return not access.write or access.buffer.scope in _OWN


def _committed(x: _Issued) -> _Issued:
    return x if x.ended else replace(x, age=min(x.age + 1, _MOST))


def _again(x: _Issued, loop: Node) -> _Issued:
    """``x`` in the next iteration of a loop."""
    if loop not in x.node.ancestors or x.around not in (None, loop):
        return x
    return replace(x, around=loop, by=min(x.by + 1, _MOST))


def _order(early: _Issued, node: Node) -> Order:
    """How the moment of ``node`` lies behind that at which the instruction was issued."""
    shared = zip(early.node.ancestors, node.ancestors, strict=False)
    same: list[Node] = []
    for one, other in shared:
        if one is not other or one is early.around:
            break
        if isinstance(one.stmt, For) and one.stmt.kind is not ForKind.THREAD:
            same.append(one)
    return Order(frozenset(same), early.around, early.by if early.by < _MOST else 0)


def _runners(early: _Issued, late: Access) -> Runners | None:
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


def _finding(kernel: Kernel, early: _Issued, node: Node, conflict: Conflict) -> Finding:
    one, two = conflict.early, conflict.late
    first, second = statement(early.node), statement(node)
    did, does = ("writes" if access.write else "reads" for access in (one, two))
    scope = "" if one.buffer.scope == "global" else f"{one.buffer.scope} "
    buffer = f"{scope}buffer {one.buffer.name}"
    wait = f"the wait for the queue {early.queue!r}"
    mend = f"put a barrier between {wait} and that" if early.ended else f"put {wait} before that"
    proved = conflict.decided and conflict.exact
    if proved:
        touched = f"[{', '.join(map(str, conflict.element))}] of {buffer}"
    else:
        touched = f"what may be the same of {buffer}, as far as is known here,"
    at = f" at {place(kernel, conflict.late_values)}" if conflict.late_values and proved else ""
    return Finding(
        "unawaited",
        f"unawaited: {first} {did} {touched} in the background, and {second} {does} it{at}, where "
        f"it is not known that the first has ended; {mend}",
        by_name(conflict.early_values) if proved else {},
        by_name(conflict.late_values) if proved else {},
        proved=proved,
        stages=stages_of(early.node, node),
    )
