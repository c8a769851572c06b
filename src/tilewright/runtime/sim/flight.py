"""Asynchronous instructions under way: what nobody may touch before they were waited for.

An instruction is carried out where it is issued, and what it writes and reads is marked until its
group is waited for. Whoever reads what such an instruction writes, or writes what it uses, would
see another value on a GPU that takes its time: that is a finding. Between threads, what it reads
and writes counts as read and written when it was waited for; where all threads of a block wait for
it together, it is before all that any of them does then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.target.queues import QUEUES

if TYPE_CHECKING:
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.memory import Memory
    from tilewright.runtime.sim.values import Array


class Marks:
    """How many instructions under way write, or only read, each location of a memory."""

    def __init__(self, size: int) -> None:
        self.written = np.zeros(size, np.int16)
        self.held = np.zeros(size, np.int16)


@dataclass
class _Use:
    memory: Memory
    at: Array  # a row a thread that speaks for its group
    write: bool


@dataclass
class _Issued:
    lanes: Array  # the threads that speak for their groups
    group: Array  # by lane the number of its group, -1 before it is committed
    uses: list[_Use]


class Flights:
    """The queues of a batch of blocks."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._issued: dict[str, list[_Issued]] = {}
        self._groups: dict[str, Array] = {}

    def issue(self, queue: str, frame: Frame, uses: list[tuple[Memory, Array, bool]]) -> None:
        """An instruction of the lanes of ``frame``, with the locations that it uses."""
        made = [_Use(memory, at, write) for memory, at, write in uses]
        for use in made:
            _count(use, slice(None), 1)
        group = np.full(frame.n, -1)
        self._issued.setdefault(queue, []).append(_Issued(frame.lanes.copy(), group, made))

    def commit(self, queue: str, frame: Frame) -> None:
        """What the lanes of ``frame`` issued since the last time is a group of theirs."""
        groups = self._groups.setdefault(queue, np.zeros(self.lanes, np.int64))
        for issued in self._issued.get(queue, ()):
            open_ = (issued.group < 0) & np.isin(issued.lanes, frame.lanes)
            issued.group[open_] = groups[issued.lanes[open_]]
        groups[frame.lanes] += 1

    def wait(self, queue: str, frame: Frame, pending: int) -> None:
        """All groups of the lanes of ``frame`` but the ``pending`` youngest end."""
        groups = self._groups.get(queue)
        if groups is None:
            return
        left = []
        time = -1 if QUEUES[queue].collective else frame.batch.time
        for issued in self._issued.get(queue, ()):
            done = (issued.group >= 0) & (issued.group < groups[issued.lanes] - pending)
            done &= np.isin(issued.lanes, frame.lanes)
            if done.any():
                for use in issued.uses:
                    _count(use, done, -1)
                    if use.write and use.memory.unfenced is not None and not QUEUES[queue].proxy:
                        # It is there now, and for units that go there by another way not yet.
                        use.memory.unfenced.stored[use.at[done]] = issued.lanes[done, None] + 1
                    if use.memory.races is not None:
                        use.memory.races.end(use.at[done], time, use.write)
                    use.at = use.at[~done]
                issued.lanes, issued.group = issued.lanes[~done], issued.group[~done]
            if len(issued.lanes):
                left.append(issued)
        self._issued[queue] = left

    def unfinished(self) -> list[tuple[str, int]]:
        """A lane of each queue that has instructions under way at the end."""
        return [(q, int(issued[0].lanes[0])) for q, issued in self._issued.items() if issued]


def _count(use: _Use, rows: Any, step: int) -> None:
    """Mark what the threads ``rows`` use, once more or once less."""
    marks = use.memory.marks
    if marks is None:
        marks = use.memory.marks = Marks(len(use.memory.data))
    at = use.at[rows].ravel().astype(np.intp)  # with these types and shapes NumPy has a fast way
    np.add.at(marks.written if use.write else marks.held, at, np.int16(step))
