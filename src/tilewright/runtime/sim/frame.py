"""Which threads run: a batch of blocks as one axis of lanes, and the lanes that are active.

Lane ``l`` of a batch of ``B`` blocks of ``N`` threads is thread ``l % N`` (threadIdx.x fastest) of
the batch's block ``l // N``. A frame holds its active lanes by number, and values computed under
it have one element an active lane: what is not active is not evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.buffer import warp_copies
from tilewright.runtime.sim.flight import Flights
from tilewright.target.devices import WARP

if TYPE_CHECKING:
    from tilewright.runtime.sim.cost import Cost
    from tilewright.runtime.sim.findings import Findings
    from tilewright.runtime.sim.values import Array


@dataclass(frozen=True)
class Grid:
    """The extents of a launch, each as (x, y, z)."""

    block: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        """Warps a block, the last one perhaps not full."""
        return -(-self.threads // WARP)

    @property
    def warps_of_rows(self) -> int:
        """Copies that a block has of memory of scope "warp"."""
        return warp_copies(self.block)

    def thread_id(self, linear: int) -> tuple[int, int, int]:
        return _unlinear(linear, self.block)

    def block_id(self, linear: int) -> tuple[int, int, int]:
        return _unlinear(linear, self.grid)


def _unlinear(linear: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = extents
    return linear % x, linear // x % y, linear // (x * y)


class Batch:
    """Some blocks of a launch, executed side by side.

    Time counts barriers. Two accesses of a block's threads are in order if a block barrier came
    after the first, that is, if it is older than ``since``; ``warp_since`` is the same for warps,
    and ``cluster_since`` for ``cluster`` neighbouring blocks.
    """

    def __init__(
        self, kernel: str, grid: Grid, first: int, count: int, findings: Findings, time: int,
        cluster: int = 1,
    ) -> None:  # fmt: skip
        self.kernel, self.grid, self.first, self.count = kernel, grid, first, count
        self.cluster = cluster
        self.findings = findings
        self.cost: Cost | None = None
        threads = grid.threads
        self.lanes = np.arange(count * threads, dtype=np.int32)
        self.slot = self.lanes // threads  # the batch's block, by lane
        self.thread = self.lanes - self.slot * threads
        self.warp = self.slot * grid.warps + self.thread // WARP
        x = grid.block[0]
        row = self.slot * (threads // x) + self.thread // x
        #: Who shares memory of scope "warp": 32 neighbours along threadIdx.x.
        self.warp_of_row = row * -(-x // WARP) + self.thread % x // WARP
        #: Threads by one number for the whole launch; a warp takes 32 of them, full or not.
        self.who = (first + self.slot) * (grid.warps * WARP) + self.thread
        self.flights = Flights(count * threads)
        self.cluster_of = self.slot // cluster
        self.time = time
        self.cluster_since: Any = time
        self.since: Any = time  # an int, or one a lane
        self.warp_since: Any = None
        self.met = time  # when all blocks of a cluster last had done with copies

    @property
    def size(self) -> int:
        return len(self.lanes)

    def thread_of(self, who: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The thread and the block that ``who`` numbers."""
        block, thread = divmod(int(who), self.grid.warps * WARP)
        return self.grid.thread_id(thread), self.grid.block_id(block)

    def pass_barrier(self, lanes: Array | None, scope: str) -> None:
        """All accesses of ``lanes`` so far are before those to come (None: of all lanes) of the
        same warp, block ("shared") or cluster."""
        self.time += 1
        if scope == "warp":
            self.warp_since = self._passed(self.warp_since, lanes, self.warp)
            return
        if scope == "cluster":
            self.cluster_since = self._passed(self.cluster_since, lanes, self.cluster_of)
        self.since = self._passed(self.since, lanes, self.slot)

    def _passed(self, held: Any, lanes: Array | None, group: Array) -> Any:
        if lanes is None:
            return self.time
        each = np.empty(self.size, np.int32)
        each[:] = -1 if held is None else held
        each[np.isin(group, group[lanes])] = self.time
        return each


class Frame:
    """The active lanes of a batch, with the values of variables and the memories.

    ``act`` is None where all lanes are active, else their numbers in order. ``mask``, where not
    None, is of shape (active or 1, lanes of a vector) and says which elements of vectors are
    wanted: reads leave the others alone. ``used``, alike in shape, says of which a masked store
    keeps what is made of them: the others are read, but may be undefined. Within a scalar that is
    spread to a vector, ``used`` has one element an active lane.
    """

    __slots__ = ("act", "batch", "cache", "env", "lanes", "mask", "memories", "n", "used")

    def __init__(self, batch: Batch, env: list[Any], memories: list[Any]) -> None:
        self.batch, self.env, self.memories = batch, env, memories
        self.act: Array | None = None
        self.mask: Array | None = None
        self.used: Array | None = None
        self.lanes: Array = batch.lanes
        self.n: int = batch.size
        self.cache: dict[Any, Any] = {}

    def narrow(self, condition: Array) -> Frame:
        """The frame of those active lanes where ``condition`` (one a lane) holds."""
        made = Frame(self.batch, self.env, self.memories)
        made.act = made.lanes = self.lanes[condition]
        made.n = len(made.act)
        if self.mask is not None:
            made.mask = self.mask if len(self.mask) == 1 else self.mask[condition]
        if self.used is not None:
            made.used = self.used if len(self.used) == 1 else self.used[condition]
        return made

    def _again(self) -> Frame:
        """The same lanes."""
        made = Frame(self.batch, self.env, self.memories)
        made.act, made.lanes, made.n = self.act, self.lanes, self.n
        made.mask, made.used = self.mask, self.used
        return made

    def masked(self, mask: Array) -> Frame:
        """The same lanes with only the vector elements of ``mask`` wanted."""
        made = self._again()
        if self.mask is not None and self.mask.shape[-1] == mask.shape[-1]:
            mask = mask & self.mask
        made.mask = mask
        return made

    def keeping(self, used: Array) -> Frame:
        """The same lanes, of whose vectors (or scalars) only what ``used`` says is kept."""
        made = self._again()
        if self.used is not None and self.used.shape[1:] == used.shape[1:]:
            used = used & self.used
        made.used = used
        return made

    def spreading(self) -> Frame:
        """The frame for a scalar that becomes all elements of a vector: kept where one of them is.

        >>> batch = Batch("k", Grid((2, 1, 1), (1, 1, 1)), 0, 1, None, 0)
        >>> kept = np.array([[True, False], [False, False]])
        >>> Frame(batch, [], []).keeping(kept).spreading().used
        array([ True, False])
        """
        if self.used is None or self.used.ndim == 1:
            return self
        rows = self.used.any(axis=1)
        if rows.all():
            return self
        made = self._again()
        made.used = np.broadcast_to(rows, (self.n,))
        return made

    def unwritten(self, missing: Array) -> Array:
        """Of the elements read that nobody wrote, ``missing``, those that are kept."""
        if self.used is None:
            return missing
        if self.used.ndim == 1:
            return missing & (self.used if np.ndim(missing) < 2 else self.used[:, None])
        vector = np.ndim(missing) == 2 and missing.shape[1] == self.used.shape[1]
        return missing & self.used if vector else missing

    def pick(self, value: Array) -> Array:
        """The active lanes' part of ``value``, which has one row for each of the batch's lanes."""
        return value if self.act is None else value[self.act]

    def variable(self, slot: int) -> Array:
        """A variable in the active lanes."""
        value = self.env[slot]
        if self.act is None or value.ndim == 0 or (value.ndim == 2 and len(value) == 1):
            return value
        found = self.cache.get(slot)
        if found is None or found[0] is not value:
            found = self.cache[slot] = (value, value[self.act])
        return found[1]

    def bind(self, slot: int, value: Array) -> None:
        """Set a variable in the active lanes; other lanes never read it there."""
        if self.act is not None and value.ndim and not (value.ndim == 2 and len(value) == 1):
            full = np.zeros((self.batch.size, *value.shape[1:]), value.dtype)
            full[self.act] = value
            value = full
        elif value.ndim:
            value = value.copy()  # it may be a view of memory that changes
        self.env[slot] = value

    def remembered(self, key: Any, slots: tuple[int, ...], compute: Any) -> Array:
        """``compute(self)``, kept for as long as the variables in ``slots`` are the same."""
        env = self.env
        now = [env[slot] for slot in slots]
        found = self.cache.get(key)
        if found is not None and all(map(is_, found[0], now)):
            return found[1]
        value = compute(self)
        self.cache[key] = (now, value)
        return value

    def each(self, value: Array) -> Array:
        """``value`` with one row an active lane."""
        if value.ndim and len(value) == self.n:
            return value
        return np.broadcast_to(value, (self.n, *value.shape[1:]))


class Spread(Frame):
    """A frame in which an active lane counts once for each of several values of some variables.

    What is computed under it has one element a lane and value, those of a lane side by side.
    """

    __slots__ = ("own",)

    def __init__(self, frame: Frame, lanes: Array, own: dict[int, Array]) -> None:
        super().__init__(frame.batch, frame.env, frame.memories)
        self.act = self.lanes = lanes
        self.n = len(lanes)
        self.own = own  # by slot, one element an active lane

    @classmethod
    def of(cls, frame: Frame, values: dict[int, Array]) -> Spread:
        """The lanes of ``frame``, each with all ``values``: by slot, arrays of one length.

        >>> batch = Batch("k", Grid((2, 1, 1), (1, 1, 1)), 0, 1, None, 0)
        >>> Spread.of(Frame(batch, [np.arange(2)], []), {1: np.arange(3)}).variable(0)
        array([0, 0, 0, 1, 1, 1])
        """
        count = len(next(iter(values.values())))
        own = {slot: np.tile(value, frame.n) for slot, value in values.items()}
        return cls(frame, np.repeat(frame.lanes, count), own)

    def narrow(self, condition: Array) -> Frame:
        own = {slot: value[condition] for slot, value in self.own.items()}
        return Spread(self, self.lanes[condition], own)

    def _again(self) -> Frame:
        made = Spread(self, self.lanes, self.own)
        made.mask, made.used = self.mask, self.used
        return made

    def variable(self, slot: int) -> Array:
        found = self.own.get(slot)
        return super().variable(slot) if found is None else found

    def bind(self, slot: int, value: Array) -> None:
        self.own[slot] = np.broadcast_to(value, (self.n, *value.shape[1:]))
        self.env[slot] = value  # another one than before: what was remembered is forgotten
