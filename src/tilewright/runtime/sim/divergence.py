"""Threads that do together what needs all of their block, or of their warp."""

from __future__ import annotations

import numpy as np

from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame


def require_block(frame: Frame, site: Site, kind: str, does: str, of_cluster: bool = False) -> None:
    """Report a finding of ``kind`` where threads of a block, or ``of_cluster``, are missing from
    ``frame``.

    ``does`` says what the first thread that is there does, such as "reduces without" the other.
    """
    blocks = frame.batch.cluster if of_cluster else 1
    _require(frame, _partial_block(frame, blocks), site, kind, does)


def require_warp(frame: Frame, site: Site, kind: str, does: str) -> None:
    """As :func:`require_block`, for the threads of a warp."""
    _require(frame, _partial_warp(frame), site, kind, does)


def _require(frame: Frame, found: tuple[int, int] | None, site: Site, kind: str, does: str) -> None:
    if found is not None:
        here, absent = found
        batch = frame.batch
        other = batch.findings.place(batch, int(batch.who[absent]), site)
        batch.findings.add(kind, site, frame, here, does, other=other)


def _partial_block(frame: Frame, blocks: int) -> tuple[int, int] | None:
    """The frame's position of a lane of whose ``blocks`` not all lanes are there, and one that is
    missing."""
    if frame.act is None:
        return None
    batch = frame.batch
    slots, threads = batch.slot[frame.act] // blocks, batch.grid.threads * blocks
    here = np.bincount(slots, minlength=batch.count // blocks)
    partial = (here > 0) & (here < threads)
    if not partial.any():
        return None
    slot = int(np.argmax(partial))
    present = frame.act[slots == slot]
    block = np.arange(slot * threads, (slot + 1) * threads)
    absent = int(np.setdiff1d(block, present)[0])
    return int(np.argmax(slots == slot)), absent


def _partial_warp(frame: Frame) -> tuple[int, int] | None:
    """The frame's position of a lane whose warp is not all there, and a lane that is missing."""
    if frame.act is None:
        return None
    batch = frame.batch
    missing = np.ones(batch.size, np.bool_)
    missing[frame.act] = False
    here = np.zeros(batch.count * batch.grid.warps, np.bool_)
    here[batch.warp[frame.act]] = True
    absent = missing & here[batch.warp]
    if not absent.any():
        return None
    lane = int(np.argmax(absent))
    return int(np.argmax(batch.warp[frame.act] == batch.warp[lane])), lane
