"""What threads did with shared memory, as far as units that go there by another way may not know.

Tensor cores and copying units see what a thread stored only once that thread fenced it off, and may
fill what it read before its load has ended. By location it is known which thread stored there last,
and which read last, with no fence since: a unit that goes there all the same is a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Instr, Stmt
from tilewright.ir.visit import statements
from tilewright.target.queues import QUEUES

if TYPE_CHECKING:
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.values import Array


class Unfenced:
    """Of one memory, by location, one more than the lane that accessed it, 0 for none; by whether
    it stored."""

    def __init__(self, size: int) -> None:
        self.read, self.stored = np.zeros(size, np.int32), np.zeros(size, np.int32)

    def note(self, frame: Frame, at: Array, keep: Array | None, store: bool) -> None:
        """An access of the lanes of ``frame`` at locations ``at``, where ``keep`` holds."""
        lanes = frame.lanes + 1
        shape = np.broadcast_shapes(np.shape(at), (len(lanes), *(1,) * (np.ndim(at) - 1)))
        who = np.broadcast_to(lanes.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        where = np.broadcast_to(at, shape)
        if keep is not None:
            held = np.broadcast_to(keep, shape)
            who, where = who[held], where[held]
        (self.stored if store else self.read)[where] = who

    def fence(self, frame: Frame) -> None:
        """The lanes of ``frame`` have fenced off all that they did."""
        fenced = np.zeros(frame.batch.size + 1, np.bool_)
        fenced[frame.lanes + 1] = True
        for accesses in (self.read, self.stored):
            accesses[fenced[accesses]] = 0

    def found(self, at: Array, fills: bool) -> int:
        """Of a unit that reads, or ``fills``, locations ``at``: one more than a lane whose access
        it may not know of, 0 where there is none."""
        stored = self.stored[at]
        return int(np.max(np.maximum(stored, self.read[at]) if fills else stored, initial=0))


def beside_threads(body: Stmt) -> set[Buffer]:
    """The shared memory where units go by another way than threads."""
    return {
        access.buffer
        for s in statements(body)
        if isinstance(s, Instr) and s.instruction.queue and QUEUES[s.instruction.queue].proxy
        for access in s.operands
        if access.buffer.scope == "shared"
    }
