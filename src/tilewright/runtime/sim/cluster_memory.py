"""Memory of a cluster: each block keeps a part of it, which others read while that block runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.runtime.sim.findings import first
from tilewright.runtime.sim.memory import Form, Memory, index_at, lane_of
from tilewright.runtime.sim.values import Array

if TYPE_CHECKING:
    from tilewright.runtime.sim.findings import Findings, Site
    from tilewright.runtime.sim.frame import Batch, Frame


class ClusterMemory(Memory):
    """Storage of a buffer of scope "cluster", a copy for each cluster of a batch.

    Reported are writes to the part of another block, and reads of such a part behind which the
    blocks do not meet: its block may have ended.
    """

    def __init__(self, buffer: Buffer, form: Form, batch: Batch) -> None:
        super().__init__(buffer, form, batch.count // batch.cluster, batch.cluster_of)
        self.rank = batch.slot % batch.cluster
        self.beyond = np.full(batch.size, -1, np.int64)  # by thread, when it last read elsewhere
        self.site: Site | None = None

    def offset(
        self, frame: Frame, indices: list[Array], keep: Array | None, site: Site, verb: str
    ) -> tuple[Array, Array | None]:
        own: Any = frame.pick(self.rank)
        # One index may be that of all lanes.
        if np.ndim(indices[0]) == 2 or (keep is not None and keep.ndim == 2):
            own = own[:, None]
        elsewhere = indices[0] != own
        if keep is not None:
            elsewhere = elsewhere & keep
        if elsewhere.any() and verb == "writes":
            at = first(elsewhere)
            frame.batch.findings.add(
                "write to another block", site, frame, lane_of(frame, elsewhere, at),
                f"writes {self._element(index_at(indices, at))}, which another block of the "
                "cluster keeps: only that one may", buffer=self.buffer.name,
            )  # fmt: skip
        elif elsewhere.any():
            lanes = elsewhere.any(axis=1) if elsewhere.ndim == 2 else elsewhere
            self.beyond[frame.lanes[np.broadcast_to(lanes, (frame.n,))]] = frame.batch.time
            self.site = site
        return super().offset(frame, indices, keep, site, verb)

    def end(self, batch: Batch, findings: Findings, frame: Frame) -> None:
        """Report what may have been read of blocks that have ended."""
        late = self.beyond >= batch.cluster_since
        if late.any() and self.site is not None:
            lane = int(np.argmax(late))
            findings.add(
                "read of an ended block", self.site, frame, lane,
                f"reads {self.buffer.name} of another block, which may have ended: no barrier of "
                "the cluster follows", buffer=self.buffer.name,
            )  # fmt: skip
