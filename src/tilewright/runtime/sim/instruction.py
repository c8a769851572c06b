"""What an instruction that simulates itself sees of the machine.

An instruction with a method ``simulate(view)`` is executed by it instead of by its body: for what
loops cannot say, such as a fragment spread over the lanes of a warp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame
from tilewright.runtime.sim.values import Array


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of an instruction: the place of its memory, its indices by the axes."""

    place: int
    indices: Callable[[Frame], list[Array]]
    what: Any


class InstructionView:
    """The operands of one execution, in the threads that execute it.

    Values have one element a thread, or are NumPy scalars where all threads agree. All accesses
    are checked like those of loads and stores.
    """

    def __init__(self, frame: Frame, axes: list[int], operands: list[Operand], site: Site) -> None:
        self._frame, self._axes, self._operands, self._site = frame, axes, operands, site

    @property
    def threads(self) -> Array:
        """The linear number in the block of each thread that executes."""
        return self._frame.pick(self._frame.batch.thread)

    def at(self, *axes: Any) -> None:
        """Set the instruction's axes, in the order of its declaration, for reads and writes."""
        for slot, value in zip(self._axes, axes, strict=True):
            self._frame.bind(slot, np.asarray(value, np.int32)[()])

    def read(self, operand: int) -> Array:
        """The element of an operand at the axes that :meth:`at` set."""
        o, frame = self._operands[operand], self._frame
        memory = frame.memories[o.place]
        found: Array = memory.read(frame, o.indices(frame), None, self._site, o.what)
        return found.copy()

    def write(self, operand: int, value: Array) -> None:
        """Store the element of an operand at the axes that :meth:`at` set."""
        o, frame = self._operands[operand], self._frame
        memory = frame.memories[o.place]
        memory.write(frame, o.indices(frame), np.asarray(value)[()], None, self._site, o.what)
