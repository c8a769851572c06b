"""Asynchronous instructions are fenced, committed and waited for.

Such an instruction goes on after it was issued. Statements that do nothing but issue instructions
of one queue become a group: a fence before them, a commit behind. Before anything that would see a
group unfinished (it reads what the group writes, or writes what the group reads or writes), the
thread waits for that group, and so for those before it; younger ones stay under way.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> from tilewright.ir.stmt import Access
>>> from tilewright.target.instruction import Argument, Axis, decl_instruction
>>> from tilewright.ir.expr import Var
>>> double = decl_instruction("doc_double", (Axis("i", 4),), (Argument("C", ("i",), "float32"),
...     Argument("A", ("i",), "float32")), lambda c, a: a * 2.0, queue="wgmma")
>>> k, i, j = axes("k i j")
>>> A, B = buffer("A", 2, 4, scope="local"), buffer("B", 4, scope="local")
>>> C = buffer("C", 4)
>>> issue = Instr(double, (i,), (Access(B, (i,)), Access(A, (const(0), i))), store(B[i], 0.0))
>>> other = loop(j, 4, store(A[1, j], 7.0))
>>> print(insert_async_waits(func(issue, other, store(A[0, 0], 1.0), store(C[0], B[0]))).body)
T.queue('wgmma', 'fence')
with T.instruction('doc_double', B[i], A[0, i]):
    B[i] = T.float32(0)
T.queue('wgmma', 'commit')
for j in range(4):
    A[1, j] = T.float32(7)
T.queue('wgmma', 'wait', 0)
A[0, 0] = T.float32(1)
C[0] = B[0]

It stands after barriers were inserted, which take an instruction as done where it stands: a barrier
behind which shared memory is written again, that a group still reads, or is read that a group
writes, waits for the group first. What pipelining fills copies with it has committed and awaits
itself; where it says that a barrier frees the copies of earlier iterations, the groups of this one
stay under way. Behind a branch that has awaited what fills shared memory, so has the other; behind
branches that leave different numbers of groups under way of a queue that reads registers, none is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Committed,
    Evaluate,
    For,
    ForKind,
    If,
    Instr,
    Iteration,
    Let,
    Queue,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import children, distinct, statements
from tilewright.lower.analysis.around_barriers import around_barriers
from tilewright.lower.async_.under_way import (
    Group,
    State,
    Use,
    ended_alike,
    grown,
    level,
    merged,
)
from tilewright.target.queues import QUEUES


def insert_async_waits(func: Func) -> Func:
    """``func`` with fences, commits and waits for its asynchronous instructions."""
    if not any(isinstance(s, Instr) and s.instruction.queue for s in statements(func.body)):
        return func
    waits = _Waits(func)
    body, left = waits.visit(func.body, ())
    for queue in dict.fromkeys(group.queue for group in left):
        body = seq(body, Queue(queue, "wait", 0))
    return replace(func, body=body)


class _Waits:
    def __init__(self, func: Func) -> None:
        split = {s for s in statements(func.body) if isinstance(s, Sync) and s.split}
        self.behind = around_barriers(func.body, split)[1]
        # Groups of each queue so far, counted outside of loops and branches.
        self.count, self.inside = Counter[str](), 0

    def visit(self, s: Stmt, state: State) -> tuple[Stmt, State]:
        """``s`` with what it needs, and the groups under way after it."""
        if isinstance(s, Committed):
            return s, state
        if isinstance(s, Iteration):
            state = tuple(replace(group, now=False) for group in state)
        queue = _queue_of(s)
        if queue:
            waited, state = self.wait_for(s, state, QUEUES[queue].ordered and queue)
            group = Group(queue, frozenset(_uses(s)), number=self.counted(queue))
            fence = Queue(queue, "fence") if QUEUES[queue].fence else None
            return seq(waited, fence, s, Queue(queue, "commit")), grown(state, group)
        if isinstance(s, Sync):
            waited, state = self.barrier(s, state)
            return seq(waited, s), state
        if isinstance(s, Queue):
            return s, self.of_pipeline(s, state)
        if not any(isinstance(x, (Instr, Sync)) for x in statements(s)):
            waited, state = self.wait_for(s, state, False)
            return seq(waited, s), state
        match s:
            case Seq(stmts):
                parts = []
                for child in stmts:
                    part, state = self.visit(child, state)
                    parts.append(part)
                return seq(*parts), state
            case For():
                return self.loop(s, state)
            case If(condition, then, orelse):
                waited, state = self.wait_for(_reading(condition), state, False)
                self.inside += 1
                yes, one = self.visit(then, state)
                no, other = (seq(), state) if orelse is None else self.visit(orelse, state)
                self.inside -= 1
                ends = ended_alike(yes, state, one, other), ended_alike(no, state, other, one)
                (yes, one), (no, other) = level(*ends)
                empty = isinstance(no, Seq) and not no.stmts
                made = If(condition, yes, None if empty else no)
                return seq(waited, made), merged(one, other)
            case Let(_, value, body):
                waited, state = self.wait_for(_reading(value), state, False)
                inner, state = self.visit(body, state)
                return seq(waited, replace(s, body=inner)), state
            case Allocate(_, body) | Remark(body=body):
                inner, state = self.visit(body, state)
                return with_body(s, inner), state
        waited, state = self.wait_for(s, state, False)
        return seq(waited, s), state

    def loop(self, s: For, state: State) -> tuple[Stmt, State]:
        waited, state = self.wait_for(seq(_reading(s.min), _reading(s.extent)), state, False)
        early, state = self.before_pipelines(s, state)
        waited = seq(waited, early)
        self.inside += 1
        while True:
            body, after = self.visit(s.body, state)
            found = merged(state, after)
            if found == state:
                break
            state = found
        self.inside -= 1
        return seq(waited, replace(s, body=body)), state

    def counted(self, queue: str) -> int | None:
        """The number of one more group of a queue; None inside of loops and branches."""
        if self.inside:
            return None
        self.count[queue] += 1
        return self.count[queue]

    def of_pipeline(self, s: Queue, state: State) -> State:
        """The groups under way behind what a pipeline does with a queue: those before the ones
        that it leaves under way have ended."""
        if s.action == "commit":
            self.counted(s.queue)
        if s.action != "wait" or self.inside:
            return state
        last = self.count[s.queue] - s.pending
        return tuple(g for g in state if g.queue != s.queue or g.number is None or g.number > last)

    def before_pipelines(self, s: For, state: State) -> tuple[Stmt, State]:
        """Before a loop, waits for groups that it needs and whose queue it pipelines: inside, they
        would end what is under way for later iterations, which the pipeline alone knows of."""
        self.inside += 1
        kept = {id(group) for group in self.visit(s.body, state)[1]}
        self.inside -= 1
        queues = {x.queue for x in statements(s.body) if isinstance(x, Committed)}
        waits: list[Stmt] = []
        for queue in sorted(queues & {group.queue for group in state if id(group) not in kept}):
            waits.append(Queue(queue, "wait", 0))
            state = tuple(group for group in state if group.queue != queue)
        return seq(*waits), state

    def wait_for(
        self, s: Stmt, state: State, same: str | bool, copies: Collection[Buffer] = ()
    ) -> tuple[Stmt | None, State]:
        """Waits before ``s``; groups of the queue ``same`` are in order with it. Of ``copies`` it
        is about those that groups of this iteration do not use.

        What is not an instruction waits for all of a queue that has a wait of its own for that,
        if for any (:class:`~tilewright.target.queues.AsyncQueue`).
        """
        uses, issues = list(_uses(s)), bool(_queue_of(s))
        waits: list[Stmt] = []
        for queue in dict.fromkeys(group.queue for group in state):
            own = [group for group in state if group.queue == queue]
            last = -1
            for k, group in enumerate(own):
                for use in group.uses:
                    ordered = queue == same and use.write
                    ordered |= group.now and use.buffer in copies
                    if not ordered and any(use.conflicts(other) for other in uses):
                        alone = QUEUES[queue].wait_all and use.write and not issues
                        last = len(own) - 1 if alone else max(last, k)
            if last >= 0:
                pending = len(own) - 1 - last
                waits.append(Queue(queue, "wait", pending))
                gone = set(map(id, own[: last + 1]))
                state = tuple(group for group in state if id(group) not in gone)
        return (seq(*waits) if waits else None), state

    def barrier(self, s: Sync, state: State) -> tuple[Stmt | None, State]:
        """Before a barrier, waits for what others may overwrite behind it."""
        if s.scope == "warp":
            return None, state
        behind = self.behind[s]
        seen: list[Stmt] = [Store(b, (), const(0, b.dtype)) for b, written in behind if written]
        seen += [Evaluate(Load(b, (), None)) for b, written in behind if not written]
        return self.wait_for(seq(*seen), state, False, s.frees)


def _queue_of(s: Stmt) -> str:
    """The queue of which ``s`` issues instructions and does nothing else, or nothing."""
    match s:
        case Instr():
            return str(s.instruction.queue)
        case For(_, low, extent, ForKind.SERIAL | ForKind.UNROLLED, body):
            return "" if _reads(low) or _reads(extent) else _queue_of(body)
        case Committed():
            return ""
        case Remark(body=body):
            return _queue_of(body)
        case Seq(stmts) if stmts:
            found = {_queue_of(x) for x in stmts}
            return found.pop() if len(found) == 1 else ""
        case If(condition, then, None):
            return "" if _reads(condition) else _queue_of(then)
    return ""


def _reads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in distinct(e))


def _reading(e: Expr) -> Stmt:
    """A statement that does nothing but evaluate ``e``."""
    return Evaluate(e)


def _uses(s: Stmt, whole: bool = True) -> Iterator[Use]:
    """What a statement reads and writes; unless ``whole``, without the statements inside it."""
    match s:
        case Instr(_, _, operands, body):
            written = {x.buffer for x in statements(body) if isinstance(x, Store)}
            for access in operands:
                part = _part(access.buffer, access.indices)
                yield Use(access.buffer, part, access.buffer in written)
            return
        case Store(buffer, indices):
            yield Use(buffer, _part(buffer, indices), True)
        case AllReduce(_, buffers, indices):
            for buffer in buffers:
                yield Use(buffer, _part(buffer, indices), True)
    for child in children(s):
        if isinstance(child, Stmt):
            if whole:
                yield from _uses(child)
        elif isinstance(child, Expr):
            for x in distinct(child):
                if isinstance(x, Load):
                    yield Use(x.buffer, _part(x.buffer, x.indices), False)


def _part(buffer: Buffer, indices: tuple[Expr, ...]) -> int | None:
    """The constant first index of an access to registers, which later ones are known to share."""
    if indices and buffer.scope in ("local", "fragment") and isinstance(indices[0], IntImm):
        return indices[0].value
    return None
