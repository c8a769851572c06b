"""Statements that fill a buffer for a pipeline, :class:`~tilewright.ir.stmt.FillAhead`: taken out
of their loops, and put together as iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, Load
from tilewright.ir.ops import const
from tilewright.ir.stmt import (
    Allocate,
    Committed,
    FillAhead,
    For,
    Instr,
    Iteration,
    Queue,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import allocated, distinct, loads, statements, stores
from tilewright.lower.analysis.marked_fills import queue_of
from tilewright.lower.substitution import widen
from tilewright.target.queues import LATE_TILES, QUEUES

#: Scopes whose elements a loop variable cannot choose from.
REGISTERS = ("local", "fragment")


def committed(mark: FillAhead, body: Stmt) -> Stmt:
    """``body``, a copy of what ``mark`` holds, as a part of its pipeline's groups."""
    queue = queue_of(mark)
    return Committed(queue, body) if queue else body


def check_ahead(loop: For, marks: Sequence[FillAhead]) -> None:
    """Whether each filling may run an iteration early."""
    for mark in marks:
        written = {s.buffer for s in stores(loop.body)}
        own = {s.buffer for s in stores(mark.body)}
        reads = {load.buffer for load in loads(mark.body)}
        changed = {b for b in reads & written if b not in own or _written_apart(loop, mark, b)}
        if changed:
            names = ", ".join(sorted(repr(b.name) for b in changed))
            raise LoweringError(
                f"pipeline of {mark.buffer.name!r}: it cannot be computed iterations of "
                f"{loop.var.name!r} ahead, because it reads {names}, which that loop writes. "
                "Compute what it reads outside of the loop, or pipeline only that"
            )
        others = own - {mark.buffer} - set(allocated(mark.body))
        if others:
            names = ", ".join(sorted(repr(b.name) for b in others))
            raise LoweringError(
                f"pipeline of {mark.buffer.name!r}: what computes it also writes {names}, "
                "which is used elsewhere"
            )


def _written_apart(loop: For, mark: FillAhead, buffer: Buffer) -> bool:
    """Whether the loop writes ``buffer`` elsewhere than in the marked statement."""
    total = sum(s.buffer is buffer for s in stores(loop.body))
    return total != sum(s.buffer is buffer for s in stores(mark.body))


def check_gone(buffer: Buffer, s: Stmt) -> None:
    if any(isinstance(n, (Load, Store)) and n.buffer is buffer for n in distinct(s)):
        raise LoweringError(
            f"pipeline of {buffer.name!r}: it is used outside of the loop that fills it"
        )


def in_copies(b: Buffer, stages: int) -> Buffer:
    layout, held = b.layout, b.distribution
    if layout is None and held is None and b.span is not b.size:
        layout = Layout(b.dense_strides)
    if layout is not None:
        # The copies lie one after the other, each with the gaps of its rows, aligned as one is.
        layout = Layout((b.span, *layout.strides), layout.base, layout.swizzle)
    if held is not None:
        held = held.copies(stages)
    return replace(b, shape=(const(stages), *b.shape), layout=layout, distribution=held)


def using(s: Stmt, slots: Mapping[Buffer, Expr], copies: Mapping[Buffer, Buffer]) -> Stmt:
    """``s`` with, in place of each buffer, that of its ``copies`` which ``slots`` says."""
    for buffer, slot in slots.items():
        s = widen(s, {buffer: copies[buffer]}, partial(_in_copy, slot))
    return s


def _in_copy(slot: Expr, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (slot, *indices)


def emptied(body: Stmt, buffers: set[Buffer]) -> Stmt:
    """``body`` without the marked statements."""
    return _replaced(body, buffers, lambda fill: Seq(()))


def unmarked(body: Stmt, buffers: set[Buffer]) -> Stmt:
    """``body`` with the marked statements as any others."""
    return _replaced(body, buffers, lambda fill: fill)


def _replaced(body: Stmt, buffers: set[Buffer], made: Callable[[Stmt], Stmt]) -> Stmt:
    """``body`` with what is ``made`` of each marked statement in its place."""
    match body:
        case FillAhead(buffer, _, _, inner) if buffer in buffers:
            return made(inner)
        case Remark(body=inner):
            left = _replaced(inner, buffers, made)
            return left if isinstance(left, Seq) and not left.stmts else with_body(body, left)
        case Allocate(buffer, inner):
            return Allocate(buffer, _replaced(inner, buffers, made))
        case Seq(stmts):
            return seq(*(_replaced(s, buffers, made) for s in stmts))
    return body


def unallocated(body: Stmt, buffers: set[Buffer]) -> Stmt:
    """``body`` without the allocations of some buffers, which become copies further out."""
    match body:
        case Allocate(buffer, inner) if buffer in buffers:
            return unallocated(inner, buffers)
        case Allocate(buffer, inner):
            return Allocate(buffer, unallocated(inner, buffers))
        case FillAhead():
            return body
        case Remark(body=inner):
            return with_body(body, unallocated(inner, buffers))
        case Seq(stmts):
            return seq(*(unallocated(s, buffers) for s in stmts))
    return body


def fills_again(marks: Sequence[FillAhead], use: Stmt) -> bool:
    """Whether the copies that an iteration has used are those that it fills, a whole turn ahead.

    They are where every thread waits for all that is filled in the background, so that a barrier
    stands behind the use, and nothing that uses them goes on there. Elsewhere those are filled that
    the iteration before has used, a turn less one ahead.
    """
    return is_collective(marks) and not issues(use)


def is_collective(marks: Sequence[FillAhead]) -> bool:
    """Whether every thread waits for all of what is filled in the background."""
    return all(QUEUES[q].collective if q else False for q in map(queue_of, marks))


def iteration(
    marks: Sequence[FillAhead], copies: Sequence[Buffer], use: Stmt, fill: Stmt, again: bool
) -> Stmt:
    """``use`` of one of the ``copies`` of each buffer, and ``fill`` of some for later, in order.
    They are those that were used where ``again``, as :func:`fills_again` has it.

    What goes on in the background is issued first: then only what was issued an iteration earlier
    has to be waited for before its copy is filled again. Copies that are filled in the background
    themselves are waited for at the end. Where each thread waits for its own part of them, a
    barrier follows, which serves what was used before and is filled again, too; where every thread
    waits for all of it, that barrier and the filling stand behind the last use, whatever else an
    iteration does after it.
    """
    if not (any(map(queue_of, marks)) or issues(use)):
        return seq(fill, use)
    if is_collective(marks):
        free = Sync("shared", tuple(copies))
        done = _behind_last_use(use, copies, seq(free, fill, *commits(marks)))
        return Iteration(seq(done, *_queue_waits(marks, again)))
    return seq(use, fill, *commits(marks), *waits(marks))


def fill_late(
    marks: Sequence[FillAhead], copies: Sequence[Buffer], use: Stmt, fill: Stmt
) -> Stmt:  # fmt: skip
    """``use`` with what late loads bring: in front of its first use of one of the ``copies``, the
    copies that the iteration before used are filled, and those of its own waited for.

    So whatever an iteration does before comes between the last use of a copy and its filling, and
    who fills it does not wait for one that is late.
    """
    pending = min(m.stages for m in marks) - 1
    then = seq(
        Sync("shared", tuple(copies)), fill, *commits(marks), Queue(LATE_TILES, "wait", pending)
    )
    return _before_first_use(use, copies, then)


def is_late(mark: FillAhead) -> bool:
    """Whether late loads fill it."""
    return queue_of(mark) == LATE_TILES


def _before_first_use(s: Stmt, buffers: Sequence[Buffer], then: Stmt) -> Stmt:
    match s:
        case Allocate(_, body) | Remark(body=body):
            return with_body(s, _before_first_use(body, buffers, then))
        case Seq(stmts):
            for k, part in enumerate(stmts):
                if _uses(part, buffers):
                    made = _before_first_use(part, buffers, then)
                    return seq(*stmts[:k], made, *stmts[k + 1 :])
    return seq(then, s)


def _behind_last_use(s: Stmt, buffers: Sequence[Buffer], then: Stmt) -> Stmt:
    """``s`` with ``then`` behind the last statement of it that uses one of ``buffers``."""
    match s:
        case Allocate(buffer, body):
            return Allocate(buffer, _behind_last_use(body, buffers, then))
        case Remark(body=body):
            return with_body(s, _behind_last_use(body, buffers, then))
        case Seq(stmts):
            last = max((k for k, part in enumerate(stmts) if _uses(part, buffers)), default=-1)
            if last >= 0:
                behind = _behind_last_use(stmts[last], buffers, then)
                return seq(*stmts[:last], behind, *stmts[last + 1 :])
    return seq(s, then)


def _uses(s: Stmt, buffers: Sequence[Buffer]) -> bool:
    wanted = set(buffers)
    return any(
        (isinstance(n, (Load, Store)) and n.buffer in wanted)
        or (isinstance(n, Instr) and any(a.buffer in wanted for a in n.operands))
        for n in distinct(s)
    )


def commits(marks: Sequence[FillAhead]) -> list[Stmt]:
    """The ends of the groups of all that was filled at once."""
    return [Queue(queue, "commit") for queue in _queues(marks)]


def waits(marks: Sequence[FillAhead], again: bool = False) -> list[Stmt]:
    """Until what the next iteration uses is there, for all threads; later fillings are younger
    groups, one more where an iteration :func:`fills_again` its own copies. Where they write is
    known, when is not: so the barrier stands here already."""
    found = _queue_waits(marks, again)
    together = any(queue_of(m) and m.buffer.scope == "shared" for m in marks)
    return [*found, Sync("shared")] if together else found


def pending(marks: Sequence[FillAhead], groups: int) -> list[Stmt]:
    """Until all but the last ``groups`` are there."""
    return [Queue(queue, "wait", groups) for queue in _queues(marks)]


def _queue_waits(marks: Sequence[FillAhead], again: bool) -> list[Stmt]:
    return [
        Queue(queue, "wait", min(m.stages for m in marks if queue_of(m) == queue) - 2 + again)
        for queue in _queues(marks)
    ]


def issues(s: Stmt) -> bool:
    """Whether a statement has asynchronous instructions."""
    return any(isinstance(x, Instr) and x.instruction.queue for x in statements(s))


def _queues(marks: Sequence[FillAhead]) -> list[str]:
    return [queue for queue in dict.fromkeys(map(queue_of, marks)) if queue]
