"""Groups of asynchronous instructions that may be under way, as waits for them are inserted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import For, If, Queue, Stmt, seq
from tilewright.ir.visit import children
from tilewright.lower.async_.pipeline_marks import REGISTERS

#: Groups that are distinguished: of more, the oldest ones count as one.
_MOST = 6


@dataclass(frozen=True)
class Use:
    """Part of a buffer: the copy that a constant first index chooses, else all of it."""

    buffer: Buffer
    part: int | None
    write: bool

    def conflicts(self, other: Use) -> bool:
        # What fills shared memory stores each element once, until it was used behind a barrier.
        apart = self.buffer.scope == "shared" and self.write and other.write
        return (
            self.buffer is other.buffer
            and not apart
            and (self.write or other.write)
            and (self.part is None or other.part is None or self.part == other.part)
        )


@dataclass(frozen=True)
class Group:
    """Instructions under way, with all that they use; ``now`` if they are of this iteration of the
    innermost pipeline for certain. ``number`` is how many groups of the queue there were with it,
    those of pipelines included, where that is known."""

    queue: str
    uses: frozenset[Use]
    now: bool = True
    number: int | None = None

    @property
    def reads_registers(self) -> bool:
        return any(not u.write and u.buffer.scope in REGISTERS for u in self.uses)

    def joined(self, other: Group) -> Group:
        number = self.number if self.number == other.number else None
        return Group(self.queue, self.uses | other.uses, self.now and other.now, number)


#: The groups that may be under way, the oldest first.
State: TypeAlias = tuple[Group, ...]


def grown(state: State, group: Group) -> State:
    """With one more group; of too many, the two oldest of its queue count as one."""
    own = [g for g in state if g.queue == group.queue]
    if len(own) < _MOST:
        return (*state, group)
    joined = own[0].joined(own[1])
    kept = tuple(joined if g is own[1] else g for g in state if g is not own[0])
    return (*kept, group)


def ended_alike(branch: Stmt, before: State, after: State, other: State) -> tuple[Stmt, State]:
    """A branch, and what is under way behind it, with waits for what fills shared memory since
    before it, where the ``other`` branch has awaited that: who has the memory then may store."""
    fills = {
        id(group)
        for group in before
        if any(u.write and u.buffer.scope == "shared" for u in group.uses)
    }
    gone = fills - set(map(id, other))
    for queue in dict.fromkeys(group.queue for group in after):
        own = [group for group in after if group.queue == queue]
        last = max((k for k, group in enumerate(own) if id(group) in gone), default=-1)
        if last >= 0:
            branch = seq(branch, Queue(queue, "wait", len(own) - 1 - last))
            ended = set(map(id, own[: last + 1]))
            after = tuple(group for group in after if id(group) not in ended)
    return branch, after


def level(one: tuple[Stmt, State], other: tuple[Stmt, State]) -> Iterator[tuple[Stmt, State]]:
    """Two branches, with waits for a queue whose groups read registers, unless both issue as many
    and leave as many under way.

    ptxas (CUDA 13.0) does not keep such registers until a wait that follows, but may load other
    values there: nothing else reads them any more.
    """
    branches = one, other
    reading = (group.queue for _, state in branches for group in state if group.reads_registers)
    uneven = [queue for queue in dict.fromkeys(reading) if not _even(queue, *branches)]
    for branch, state in branches:
        for queue in uneven:
            if any(group.queue == queue for group in state):
                branch = seq(branch, Queue(queue, "wait", 0))
        yield branch, tuple(group for group in state if group.queue not in uneven)


def _even(queue: str, *branches: tuple[Stmt, State]) -> bool:
    first, second = (issued(branch, queue) for branch, _ in branches)
    left = {sum(group.queue == queue for group in state) for _, state in branches}
    return first is not None and first == second and len(left) == 1


def issued(s: Stmt, queue: str) -> int | None:
    """How many groups of a queue a statement issues; None where that depends."""
    match s:
        case Queue():
            return int(s.queue == queue and s.action == "commit")
        case For(body=body):
            return None if issued(body, queue) != 0 else 0
        case If(_, then, orelse):
            count = issued(then, queue)
            return count if count == (0 if orelse is None else issued(orelse, queue)) else None
    counts = [issued(x, queue) for x in children(s) if isinstance(x, Stmt)]
    return None if None in counts else sum(x for x in counts if x is not None)


def merged(one: State, other: State) -> State:
    """What may be under way after either: the groups of each age together."""
    found: list[Group] = []
    for queue in dict.fromkeys(group.queue for group in (*one, *other)):
        a, b = ([g for g in state if g.queue == queue] for state in (one, other))
        made: list[Group] = []
        for age in range(1, max(len(a), len(b)) + 1):
            same = [groups[-age] for groups in (a, b) if len(groups) >= age]
            made.append(same[0] if len(same) == 1 else same[0].joined(same[1]))
        found += reversed(made)
    return tuple(found)
