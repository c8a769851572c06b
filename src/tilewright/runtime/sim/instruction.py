"""What an instruction that simulates itself sees of the machine.

An instruction with a method ``simulate(view)`` is executed by it instead of by its body: for what
loops cannot say, such as a fragment spread over the lanes of a warp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame, Spread
from tilewright.runtime.sim.memory import Memory
from tilewright.runtime.sim.values import Array
from tilewright.target.queues import QUEUES


@dataclass(slots=True)
class Operand:
    """An operand of an instruction: the place of its memory, its indices by the axes."""

    place: int
    indices: Callable[[Frame], list[Array]]
    what: Any


class InstructionView:
    """The operands of one execution, in the threads that execute it.

    Values have one element a thread, or are NumPy scalars where all threads agree. All accesses
    are checked like those of loads and stores.

    Of an instruction that a group of threads executes together, :meth:`read_block` and
    :meth:`write_block` take an operand whole, once a group.
    """

    def __init__(
        self, instruction: Any, frame: Frame, axes: list[int], operands: list[Operand], site: Site
    ) -> None:
        self.instruction = instruction
        self._frame, self._axes, self._operands, self._site = frame, axes, operands, site
        self._in_use: list[tuple[Memory, Array, bool]] = []

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

    def read_block(
        self, operand: int, zeros_outside: bool = False, inside: int | None = None
    ) -> Array:
        """All elements of an operand: of shape (groups, its extents along its axes).

        With ``zeros_outside``, those that its memory does not have are zero; with ``inside``, no
        others are read than those that the memory of that operand, of the same axes, has.
        """
        o, leaders = self._operands[operand], self._leaders(0)
        memory = self._memory(operand)
        at = self._block(operand, leaders)
        keep = self._inside(memory, at, leaders) if zeros_outside else None
        if inside is not None:
            keep = self._inside(self._memory(inside), self._block(inside, leaders), leaders)
        with self._in_order(memory), self._by_a_unit(memory, at, store=False):
            found = Memory.read(memory, leaders, at, keep, self._site, o.what)
        if not zeros_outside:
            self._use(memory, leaders, at, write=False)
        if (
            memory.races is not None and self.instruction.group > 1
        ):  # any of them may read it: what one wrote another one reads
            other = self._leaders(1)
            with self._by_a_unit(memory, at, store=False):
                memory.read(other, self._block(operand, other), None, self._site, o.what)
        return np.broadcast_to(found, (leaders.n, found.shape[-1])).reshape(
            leaders.n, *self._extents(operand)
        )

    def write_block(self, operand: int, value: Array, none_outside: bool = False) -> None:
        """Store all elements of an operand, in the same shape; with ``none_outside``, those that
        its memory has."""
        o, leaders = self._operands[operand], self._leaders(0)
        memory = self._memory(operand)
        at = self._block(operand, leaders)
        flat, keep = value.reshape(leaders.n, -1), None
        if none_outside:
            keep = self._inside(memory, at, leaders)
        with self._in_order(memory), self._by_a_unit(memory, at, store=True):
            Memory.write(memory, leaders, at, flat, keep, self._site, o.what)
        if keep is None:
            self._use(memory, leaders, at, write=True)

    def _inside(self, memory: Memory, at: list[Array], leaders: Frame) -> Array:
        """Which elements of a block a memory has."""
        keep = np.ones((leaders.n, at[0].shape[-1]), np.bool_)
        for index, extent in zip(at, memory.form.shape, strict=True):
            keep &= (index >= 0) & (index < extent)
        return keep

    def meet(self) -> None:
        """Check that all blocks of a cluster copy the same, the second operand to the first, where
        none of them uses what it has there any more."""
        count = self.instruction.cluster
        if count == 1:
            return
        leaders = self._leaders(0)
        blocks, problem = leaders.batch.slot[leaders.lanes], ""
        together = blocks[::count].repeat(count) // count * count
        whole = len(blocks) % count == 0
        if not whole or (blocks != together + np.arange(len(blocks)) % count).any():
            problem = f"copies a box to all {count} blocks of a cluster, which not all of them do"
        for index in (i for number in (0, 1) for i in self._block(number, leaders) if whole):
            rows = index.reshape(-1, count, index.shape[-1])
            if (rows != rows[:, :1]).any():
                problem = f"copies other boxes in other ones of {count} blocks of a cluster"
        memory, at = self._memory(0), self._block(0, leaders)
        if not problem and memory.races is not None:
            offset, _ = memory.offset(leaders, at, None, self._site, "fills")
            place = np.broadcast_to(memory.locate(leaders, offset), (leaders.n, at[0].shape[-1]))
            if memory.races.since(place, leaders.batch.met):
                problem = (
                    f"fills {memory.buffer.name} in all blocks of a cluster, of which one may "
                    "still use what it has there: no barrier that frees it is between"
                )
        if problem:
            leaders.batch.findings.add(
                "race between blocks", self._site, leaders, 0, problem, buffer=memory.buffer.name
            )

    def end(self) -> None:
        """What an asynchronous instruction uses is in use from now on."""
        if self.instruction.queue:
            flights = self._frame.batch.flights
            flights.issue(self.instruction.queue, self._leaders(0), self._in_use)

    @contextmanager
    def _in_order(self, memory: Memory) -> Iterator[None]:
        """Earlier instructions of a queue that keeps their order need not be waited for."""
        queue = QUEUES.get(self.instruction.queue)
        marks = memory.marks
        if queue is not None and queue.ordered:
            memory.marks = None
        try:
            yield
        finally:
            memory.marks = marks

    @contextmanager
    def _by_a_unit(self, memory: Memory, at: list[Array], store: bool) -> Iterator[None]:
        """Boxes are not moved by requests of threads, but count as what is moved."""
        batch = self._frame.batch
        cost, unfenced = batch.cost, memory.unfenced
        if cost is not None and getattr(self.instruction, "tensor_map", False):
            cost.moved(memory.buffer, at[0].size, store)
            batch.cost = None
        if self.instruction.queue and QUEUES[self.instruction.queue].proxy:
            memory.unfenced = None  # what it does itself is not by a thread's way
        try:
            yield
        finally:
            batch.cost, memory.unfenced = cost, unfenced

    def _use(self, memory: Memory, leaders: Frame, at: list[Array], write: bool) -> None:
        if self.instruction.queue:
            offset, _ = memory.offset(leaders, at, None, self._site, "uses")
            place = np.broadcast_to(memory.locate(leaders, offset), (leaders.n, at[0].shape[-1]))
            self._in_use.append((memory, place, write))
            if memory.unfenced is not None and QUEUES[self.instruction.queue].proxy:
                self._check_fenced(memory, leaders, place, write)

    def _check_fenced(self, memory: Memory, leaders: Frame, place: Array, write: bool) -> None:
        assert memory.unfenced is not None
        lane = memory.unfenced.found(place, leaders.lanes, write)
        if not lane:
            return
        batch = leaders.batch
        batch.findings.add(
            "unfenced access", self._site, leaders, 0,
            f"{'fills' if write else 'reads'} {memory.buffer.name} (shared), of which a thread "
            f"{'read or wrote' if write else 'wrote'} a part with no fence of the proxy since: "
            f"thread {batch.thread_of(int(batch.who[lane - 1]))[0]}",
            buffer=memory.buffer.name, key=(write,),
        )  # fmt: skip

    def _memory(self, operand: int) -> Memory:
        found: Memory = self._frame.memories[self._operands[operand].place]
        return found

    def _extents(self, operand: int) -> list[int]:
        extents: list[int] = self.instruction.axes_of(self.instruction.operands[operand])[1]
        return extents

    def _leaders(self, number: int) -> Frame:
        """The threads with this number in their group."""
        threads = self._frame.pick(self._frame.batch.thread)
        return self._frame.narrow(threads % self.instruction.group == number)

    def _block(self, operand: int, frame: Frame) -> list[Array]:
        """The indices of all elements of an operand: one row a group, one column an element."""
        own, extents = self.instruction.axes_of(self.instruction.operands[operand])
        count = math.prod(extents)
        values = dict.fromkeys(self._axes, np.zeros(count, np.int32))
        places = np.indices(extents, np.int32).reshape(len(extents), count)
        values.update((self._axes[k], place) for k, place in zip(own, places, strict=True))
        found = self._operands[operand].indices(Spread.of(frame, values))
        return [np.broadcast_to(i, (frame.n * count,)).reshape(frame.n, count) for i in found]
