"""What threads did with shared memory, as far as units that go there by another way may not know.

Tensor cores and TMA see what a thread stored only once that thread fenced it off, and may
fill what it read before its load has ended. By location it is known which thread stored there
last, and which read last, with no fence since, or with no barrier behind the fence: a unit that
another thread sends there all the same is a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.values import Array


class Unfenced:
    """Of one memory, by location, the lane that accessed it last, by whether it stored: one more
    than its number, with the opposite sign once it has fenced off what it did and no barrier has
    followed; 0 for none."""

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
        fenced = _of(frame)
        for accesses in (self.read, self.stored):
            mine = (accesses > 0) & fenced[np.maximum(accesses, 0)]
            accesses[mine] *= -1

    def pass_barrier(self, frame: Frame) -> None:
        """The lanes of ``frame`` have met: what they fenced off is before all that follows."""
        met = _of(frame)
        for accesses in (self.read, self.stored):
            accesses[(accesses < 0) & met[np.maximum(-accesses, 0)]] = 0

    def found(self, at: Array, lanes: Array, fills: bool) -> int:
        """Of a unit that reads, or ``fills``, locations ``at``, asked by ``lanes`` each for a row
        of them: one more than a lane whose access it may not know of, 0 where there is none."""
        own = -(lanes[:, None] + 1)
        for accesses in (self.stored, self.read) if fills else (self.stored,):
            there = accesses[at]
            wrong = there[(there != 0) & (there != own)]
            if wrong.size:
                return int(abs(wrong[0]))
        return 0


def _of(frame: Frame) -> Array:
    """By one more than a lane's number whether it is of ``frame``."""
    found = np.zeros(frame.batch.size + 1, np.bool_)
    found[frame.lanes + 1] = True
    return found
