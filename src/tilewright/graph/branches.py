"""Which kernels of a graph run beside one another: two streams, and who waits for whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Branches:
    """Of steps in an order that is right one after the other, where else they may run.

    Attributes
    ----------
    streams : of each step, 0 or 1: steps of a stream run in order.
    waits : of each step, the step of the other stream that it waits for; None where it need not.
    until : of each step, the last one that may run before it is done: what it reads is needed so
        long.
    """

    streams: tuple[int, ...]
    waits: tuple[int | None, ...]
    until: tuple[int, ...]

    @property
    def awaited(self) -> frozenset[int]:
        """The steps that others wait for."""
        return frozenset(k for k in self.waits if k is not None)


def branches(reads: Sequence[Collection[int]]) -> Branches:
    """Streams of steps, of which each reads what these earlier ones write.

    A step follows the latest that it reads from where that is the last of its stream; else it is
    beside that: on the stream whose last step is the earlier.

    >>> found = branches([(), (0,), (1,), (0,), (2, 3), (4,)])  # 3 beside 1 and 2
    >>> found.streams, found.waits, found.until
    ((0, 0, 0, 1, 1, 1), (None, None, None, 0, 2, None), (0, 3, 3, 3, 4, 5))
    """
    streams: list[int] = []
    waits: list[int | None] = []
    done: list[int] = []  # of each step, a bit for each that is done before it begins
    last = [-1, -1]
    for k, sources in enumerate(reads):
        own = next((s for s in _latest_first(last) if last[s] in sources), None)
        if own is None:
            own = min((0, 1), key=lambda s: last[s])
        known = _with(done, last[own])
        late = [x for x in sources if not known >> x & 1]
        awaited = max(late, default=None)
        if awaited is not None:
            known |= _with(done, awaited)
        streams.append(own)
        waits.append(awaited)
        done.append(known)
        last[own] = k
    until = tuple(
        max(i for i in range(k, len(done)) if not done[i] >> k & 1) for k in range(len(done))
    )
    return Branches(tuple(streams), tuple(waits), until)


def _latest_first(last: Sequence[int]) -> list[int]:
    return sorted((0, 1), key=lambda s: -last[s])


def _with(done: Sequence[int], step: int) -> int:
    """The bits of a step and of all that are done before it; none of -1."""
    return 0 if step < 0 else done[step] | 1 << step
