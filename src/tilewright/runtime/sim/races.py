"""Finding data races: every pair of unordered accesses of different threads to one location.

Lanes run in lockstep, so the order in which values are seen is only one of those that a GPU may
choose; what decides here is whether a barrier stands between two accesses. A location keeps its
last write and two reads. That is enough to report a race at the location: what was overwritten is
in order with what overwrote it, else it was reported then (the argument of FastTrack, Flanagan and
Freund 2009); and of many reads the two kept are as far apart as can be (other blocks, other
warps, other threads), so that no single writer can be in order with both and not with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.target.devices import WARP

if TYPE_CHECKING:
    from tilewright.runtime.sim.findings import Site
    from tilewright.runtime.sim.frame import Frame
    from tilewright.runtime.sim.values import Array


class _Accesses:
    """The last access of a kind by location: when, by whom, at which statement."""

    __slots__ = ("site", "time", "who")

    def __init__(self, size: int) -> None:
        self.time = np.full(size, -1, np.int32)
        self.who = np.full(size, -1, np.int32)
        self.site = np.zeros(size, np.int32)

    def put(self, at: Array, time: Any, who: Array, site: Any) -> None:
        self.time[at] = time
        self.who[at] = who
        self.site[at] = site


@dataclass(frozen=True)
class Conflict:
    """An access (its position among those just made) that is unordered with an earlier one."""

    position: int
    count: int
    other_who: int
    other_site: int
    earlier: str  # "wrote" or "read"
    between_blocks: bool


class Races:
    """The history of one memory's locations in one kernel.

    Parameters
    ----------
    size : how many locations.
    width : thread numbers a block takes.
    across : whether several blocks share it, which nothing orders.
    cluster : whether those of a cluster share it, which barriers of that order.
    reads : whether the kernel reads it at all.
    """

    def __init__(
        self, size: int, width: int, across: bool, reads: bool, cluster: bool = False
    ) -> None:
        self.width, self.across, self.reads, self.cluster = width, across, reads, cluster
        self.written = _Accesses(size)
        self.near = _Accesses(size if reads else 0)  # the last read
        self.far = _Accesses(size if reads else 0)  # another thread's, the farther the better

    def read(self, frame: Frame, at: Array, who: Array, rows: Array, site: Site) -> list[Conflict]:
        """Note reads of the locations ``at`` by ``who``; ``rows`` are their frame positions."""
        since, warp_since = self._since(frame, rows)
        found = self._against(self.written, at, who, since, warp_since, "wrote")
        self._note_reads(frame.batch.time, at, who, since, site.number)
        return found

    def write(self, frame: Frame, at: Array, who: Array, rows: Array, site: Site) -> list[Conflict]:
        """Note writes of the locations ``at`` by ``who``."""
        since, warp_since = self._since(frame, rows)
        found = self._against(self.written, at, who, since, warp_since, "wrote")
        if self.reads:
            found += self._against(self.near, at, who, since, warp_since, "read")
            if not any(conflict.earlier == "read" for conflict in found):
                found += self._against(self.far, at, who, since, warp_since, "read")
        self.written.put(at, frame.batch.time, who, site.number)
        then = self.written.who[at]
        twice = then != who  # two threads in one statement
        if twice.any():
            found.append(self._conflict(twice, then, self.written.site[at], who, "wrote"))
        return found

    def end(self, at: Array, time: int, write: bool) -> None:
        """What was written, or read, at the locations ``at`` in the background ends only now."""
        kept = [self.written] if write else [self.near, self.far] if self.reads else []
        for accesses in kept:
            accesses.time[at] = np.where(accesses.time[at] < 0, -1, time)

    def since(self, at: Array, time: int) -> bool:
        """Whether anybody touched one of the locations ``at`` since then."""
        kept = [self.written, self.near] if self.reads else [self.written]
        return any(bool((accesses.time[at] >= time).any()) for accesses in kept)

    def _against(
        self, kept: _Accesses, at: Array, who: Array, since: Any, warp_since: Any, earlier: str
    ) -> list[Conflict]:
        time = kept.time[at]
        recent = time >= (0 if self.across else since)
        if not recent.any():
            return []
        then = kept.who[at]
        bad = recent & (then != who)
        if self.across:
            bad &= self._live(time, then, who, since)
        if warp_since is not None:
            bad &= (then // WARP != who // WARP) | (time >= warp_since)
        if not bad.any():
            return []
        return [self._conflict(bad, then, kept.site[at], who, earlier)]

    def _conflict(
        self, bad: Array, then: Array, sites: Array, who: Array, earlier: str
    ) -> Conflict:
        foreign = bad & (then // self.width != who // self.width)
        worst = foreign if foreign.any() else bad
        k = int(np.argmax(worst))
        count = int(np.count_nonzero(bad))
        return Conflict(k, count, int(then[k]), int(sites[k]), earlier, worst is foreign)

    def _live(self, time: Array, then: Array, who: Array, since: Any) -> Array:
        """Whether an access by ``then`` may matter yet to those by ``who``'s block."""
        live = time >= since
        if self.across:
            live |= (time >= 0) & (then // self.width != who // self.width)
        return live

    def _distance(self, a: Array, b: Array) -> Array:
        warps = (a // WARP != b // WARP).astype(np.int8)
        return warps + (a // self.width != b // self.width) if self.across else warps

    def _note_reads(self, time: int, at: Array, who: Array, since: Any, site: int) -> None:
        near, far = self.near, self.far
        old_time, old = near.time[at], near.who[at]
        moved = self._live(old_time, old, who, since) & (old != who)
        if moved.any():  # the reader kept so far makes room: it may be the farther one
            held = far.who[at]
            alive = self._live(far.time[at], held, who, since) & (held != who)
            stays = alive & (self._distance(held, who) > self._distance(old, who))
            move = moved & ~stays
            here = at[move]
            far.put(here, old_time[move], old[move], near.site[here])
        near.put(at, time, who, site)
        last = near.who[at]
        others = last != who  # several threads in one statement: keep a second one
        if others.any():
            since = since if np.ndim(since) == 0 else since[others]
            self._keep_second(time, at[others], who[others], last[others], since, site)

    def _keep_second(
        self, time: int, at: Array, who: Array, last: Array, since: Any, site: int
    ) -> None:
        far = self.far
        held = far.who[at]
        alive = self._live(far.time[at], held, who, since) & (held != last)
        distance = self._distance(who, last)
        better = ~alive | (distance >= self._distance(held, last))
        for step in range(3 if self.across else 2):  # the farthest last, so that it stays
            pick = better & (distance == step)
            far.put(at[pick], time, who[pick], site)

    def _since(self, frame: Frame, rows: Array) -> tuple[Any, Any]:
        """The times of the last block barrier and warp barrier, by access; in memory of a cluster,
        of its last barrier."""

        def spread(value: Any) -> Any:
            return value[frame.lanes[rows]] if isinstance(value, np.ndarray) else value

        if self.cluster:
            return spread(frame.batch.cluster_since), None
        return spread(frame.batch.since), spread(frame.batch.warp_since)
