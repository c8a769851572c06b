"""What accesses cost on a GPU: passes over the banks of shared memory, sectors of global memory.

Shared memory has 32 banks of 4 bytes. The 32 threads of a warp are served in one pass if no two of
them touch different words of one bank; reading the same word is free. Accesses of 8 bytes a thread
are served by half warps, of 16 bytes by quarter warps (CUDA C++ programming guide, "Shared
memory"). Global memory moves in sectors of 32 bytes, aligned to 32; arrays start at a sector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.expr import Load
from tilewright.ir.text import expr_text
from tilewright.runtime.sim.report import AccessCost, Branch, SimReport, Traffic
from tilewright.target.devices import BANKS, SECTOR, WARP, WIDEST, WORD

if TYPE_CHECKING:
    from tilewright.ir.buffer import Buffer
    from tilewright.ir.expr import Expr
    from tilewright.runtime.sim.findings import Site
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.values import Array


@dataclass(frozen=True, slots=True)
class Request:
    """One access by the threads of a batch.

    ``byte`` is the address of each element in its memory, of shape (threads, vector lanes);
    ``warp`` the warp of each thread in the batch and ``lane`` its place there.
    """

    byte: Array
    size: int
    warp: Array
    lane: Array

    @property
    def contiguous(self) -> bool:
        """Whether every thread's elements lie one after the other."""
        return self.byte.shape[1] == 1 or bool((np.diff(self.byte, axis=1) == self.size).all())


def split(request: Request) -> list[Request]:
    """The request as hardware issues it: at most 16 contiguous bytes a thread and request.

    Those of one width stand in one, as requests of as many more warps.
    """
    threads, lanes = request.byte.shape
    step = max(1, WIDEST // request.size) if request.contiguous else 1
    count, warps = lanes // step, int(request.warp.max()) + 1
    made = []
    if count:
        byte = request.byte[:, : count * step].reshape(threads, count, step).swapaxes(0, 1)
        warp = request.warp + warps * np.arange(count)[:, None]
        lane = np.tile(request.lane, count)
        made = [Request(byte.reshape(-1, step), request.size, warp.ravel(), lane)]
    if lanes % step:
        rest = request.byte[:, count * step :]
        made.append(Request(rest, request.size, request.warp, request.lane))
    return made


def bank_passes(request: Request) -> tuple[Array, int]:
    """Passes over the banks for each group of threads served together; and the fewest in sum."""
    width = request.byte.shape[1] * request.size
    groups = max(1, min(width // WORD, 4))  # 1, 2 or 4 a warp
    group = request.warp.astype(np.int64) * groups + request.lane // (WARP // groups)
    words = request.byte[:, :1] // WORD + np.arange(-(-width // WORD))
    # Words are distinguished within a group: a word that several threads read is fetched once.
    span = int(words.max()) + 1
    group, word = np.divmod(np.unique(group[:, None] * span + words), span)
    bank, load = np.unique(group * BANKS + word % BANKS, return_counts=True)
    passes = np.maximum.reduceat(load, np.flatnonzero(np.diff(bank // BANKS, prepend=-1)))
    return passes, len(passes)


def sectors(request: Request) -> tuple[Array, int]:
    """Sectors moved for each warp; and how few would hold what was asked for."""
    warp = request.warp.astype(np.int64)[:, None]
    span = int(request.byte.max()) + 1
    owner, byte = np.divmod(np.unique(warp * span + request.byte), span)
    _, asked = np.unique(owner, return_counts=True)
    touched = np.unique(owner * (span // SECTOR + 1) + byte // SECTOR) // (span // SECTOR + 1)
    _, moved = np.unique(touched, return_counts=True)
    return moved, int((-(-asked * request.size // SECTOR)).sum())


class Cost:
    """Figures of one run, kept by statement."""

    def __init__(self, report: SimReport) -> None:
        self.report = report
        self._accesses: dict[tuple[int, Any, bool], AccessCost] = {}
        self._branches: dict[int, Branch] = {}

    def access(
        self,
        frame: Frame,
        site: Site,
        what: tuple[Buffer, tuple[Expr, ...]],
        offset: Array,
        keep: Array | None,
        store: bool,
    ) -> None:
        """Count an access at ``offset`` (elements; of any shape) where ``keep`` holds."""
        buffer, indices = what
        size = buffer.dtype.bytes
        if np.ndim(offset) == 1:
            offset = offset[:, None]
        offset = np.broadcast_to(offset, (frame.n, np.shape(offset)[-1] if np.ndim(offset) else 1))
        rows = frame.lanes
        if keep is not None:
            keep = keep[:, None] if np.ndim(keep) == 1 else keep
            chosen = np.broadcast_to(keep, np.broadcast_shapes(offset.shape, np.shape(keep)))
            offset = np.broadcast_to(offset, chosen.shape)
            if not chosen.all():
                rows = np.broadcast_to(rows[:, None], chosen.shape)[chosen]
                offset = offset[chosen][:, None]
        count = offset.size
        self.moved(buffer, count, store)
        if buffer.scope not in ("shared", "global") or not count:
            return
        cost = self._access(site, buffer, indices, store)
        cost.elements += count
        cost.bytes += count * size
        batch = frame.batch
        whole = Request(offset.astype(np.int64) * size, size, batch.warp[rows], batch.thread[rows])
        for request in split(Request(whole.byte, size, whole.warp, whole.lane % WARP)):
            each, ideal = bank_passes(request) if buffer.scope == "shared" else sectors(request)
            cost.requests += len(np.unique(request.warp))
            cost.transactions += int(each.sum())
            cost.ideal += ideal
            cost.worst = max(cost.worst, int(each.max()))

    def moved(self, buffer: Buffer, count: int, store: bool) -> None:
        """Count ``elements``, read or written."""
        traffic, size = self.report.traffic.setdefault(buffer.scope, Traffic()), buffer.dtype.bytes
        if store:
            traffic.stores += count
            traffic.bytes_stored += count * size
        else:
            traffic.loads += count
            traffic.bytes_loaded += count * size

    def _access(
        self, site: Site, buffer: Buffer, indices: tuple[Expr, ...], store: bool
    ) -> AccessCost:
        key = (site.number, (buffer, indices), store)
        found = self._accesses.get(key)
        if found is None:
            text = expr_text(Load(buffer, indices, None))
            found = self._accesses[key] = AccessCost(
                site.kernel, site.text, text, buffer.name, buffer.scope, store
            )
            self.report.accesses.append(found)
        return found

    def branch(self, frame: Frame, site: Site, taken: Array) -> None:
        """Count the warps whose active threads disagree on ``taken``."""
        warp = frame.pick(frame.batch.warp)
        active = np.bincount(warp)
        agree = np.bincount(warp[taken], minlength=len(active))
        found = self._branches.get(site.number)
        if found is None:
            found = self._branches[site.number] = Branch(site.kernel, site.text)
            self.report.branches.append(found)
        found.warps += int(np.count_nonzero(active))
        found.divergent += int(np.count_nonzero((agree > 0) & (agree < active)))

    def barrier(self, frame: Frame, kernel: str) -> None:
        """Count a block barrier that the blocks of ``frame`` pass."""
        blocks = (
            frame.batch.count if frame.act is None else len(np.unique(frame.batch.slot[frame.act]))
        )
        self.report.barriers[kernel] = self.report.barriers.get(kernel, 0) + blocks
