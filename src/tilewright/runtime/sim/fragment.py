"""Fragments: arrays in the registers of a group of threads, each of which has its own part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.distribution import Distribution
from tilewright.runtime.sim.findings import first
from tilewright.runtime.sim.memory import Form, Memory, index_at, lane_of, occurrences
from tilewright.runtime.sim.values import Array

if TYPE_CHECKING:
    from tilewright.runtime.sim.findings import Site
    from tilewright.runtime.sim.frame import Batch, Frame


class Fragment(Memory):
    """Storage with a copy for each group of threads, of which a thread uses its own elements.

    An instruction that the group executes together uses it as a plain :class:`Memory`.
    """

    def __init__(self, buffer: Buffer, form: Form, batch: Batch) -> None:
        assert buffer.distribution is not None
        self.held: Distribution = buffer.distribution
        groups = groups_of(buffer, batch.grid.threads)
        owner = batch.slot * groups + batch.thread // self.held.lanes
        super().__init__(buffer, form, groups * batch.count, owner)

    def read(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, what: Any
    ) -> Array:
        """As of any memory, by the thread that holds the element."""
        self._check_lane(frame, indices, keep, site, "reads")
        return super().read(frame, indices, keep, site, what)

    def write(
        self,
        frame: Frame,
        indices: list[Array],
        value: Array,
        keep: Array | None,
        site: Site,
        what: Any,
    ) -> None:
        """As of any memory, by the thread that holds the element."""
        self._check_lane(frame, indices, keep, site, "writes")
        super().write(frame, indices, value, keep, site, what)

    def _check_lane(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, verb: str
    ) -> None:
        holder: Any = np.int32(0)
        for index, bits in zip(indices, self.held.bits, strict=True):
            for b, bit in enumerate(bits):
                if bit is not None:
                    holder = holder + ((index >> b & 1) << bit)
        # Lanes that hold the same elements differ in bits that no index has.
        told = self.held.lanes - 1 - sum(1 << b for b in self.held.shared)
        here = frame.pick(frame.batch.thread) % self.held.lanes & told
        wrong = holder != (here[:, None] if np.ndim(holder) == 2 else here)
        if keep is not None:
            wrong = wrong & keep
        if not np.any(wrong):
            return
        position = first(wrong)
        index = index_at(indices, position)
        owner = np.broadcast_to(holder, np.shape(wrong))[position]
        frame.batch.findings.add(
            "foreign register",
            site,
            frame,
            lane_of(frame, wrong, position),
            f"{verb} {self._element(index)}, which thread {owner} of its group holds",
            buffer=self.buffer.name,
            index=index,
            count=occurrences(frame, wrong),
            key=(verb,),
        )


def groups_of(buffer: Buffer, threads: int) -> int:
    """How many groups of a block hold a fragment each."""
    assert buffer.distribution is not None
    return -(-threads // buffer.distribution.lanes)
