"""Where intermediate values lie: in one block of memory, one where another was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: Values begin at multiples of this many bytes: the lines of caches, the widest vectors.
ALIGNED = 64


@dataclass(frozen=True)
class Lifetime:
    """The steps from the one that writes a value to the last that reads it, and its bytes."""

    begin: int
    end: int
    nbytes: int

    @property
    def space(self) -> int:
        """The bytes that it takes, with those behind it."""
        return -(-self.nbytes // ALIGNED) * ALIGNED

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are needed at one time."""
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class Plan:
    """The offset of each value, and the bytes of the whole."""

    offsets: Mapping[int, int]
    nbytes: int


#: What is placed first: the largest, what is needed longest, or at all first.
_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda x: (-x.space, x.begin),
    lambda x: (x.begin - x.end, -x.space),
    lambda x: (x.begin, -x.space),
)
#: How often an order is changed.
_TRIES = 64


def plan(lifetimes: Sequence[Lifetime]) -> Plan:
    """Offsets by number, each at the lowest place that is free for its life: the best of some
    orders, in which what ends last is placed first the next time.

    >>> plan([Lifetime(0, 1, 256), Lifetime(1, 2, 64), Lifetime(2, 3, 192)])
    Plan(offsets={0: 0, 2: 0, 1: 256}, nbytes=320)
    """
    least, best = most_alive(lifetimes), Plan({}, 1 << 62)
    for first in _ORDERS:
        order = sorted(range(len(lifetimes)), key=lambda k: first(lifetimes[k]))
        for _ in range(_TRIES):
            found = _in_order(lifetimes, order)
            best = min(best, found, key=lambda p: p.nbytes)
            if best.nbytes <= least:
                return best
            top = max(order, key=lambda k: found.offsets[k] + lifetimes[k].space)
            order = [top, *(k for k in order if k != top)]
    return best


def _in_order(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> Plan:
    offsets: dict[int, int] = {}
    for k in order:
        own = lifetimes[k]
        beside = sorted(
            (at, at + lifetimes[j].space) for j, at in offsets.items() if own.overlaps(lifetimes[j])
        )
        place = 0
        for begin, end in beside:
            if begin - place >= own.space:
                break
            place = max(place, end)
        offsets[k] = place
    return Plan(offsets, max((offsets[k] + x.space for k, x in enumerate(lifetimes)), default=0))


def most_alive(lifetimes: Sequence[Lifetime]) -> int:
    """The bytes of the largest set of values that are needed at one time: what no plan is below."""
    steps = {x.begin for x in lifetimes}
    return max((sum(x.space for x in lifetimes if x.begin <= s <= x.end) for s in steps), default=0)


def slots(lifetimes: Sequence[Lifetime]) -> tuple[list[int], list[int]]:
    """Where memory has no parts: for each value the number of a block that nothing else is in
    meanwhile, and the bytes of each block. Values go into the smallest that holds them, or make the
    largest larger.

    >>> slots([Lifetime(0, 1, 256), Lifetime(1, 2, 64), Lifetime(2, 3, 192)])
    ([0, 1, 0], [256, 64])
    """
    sizes: list[int] = []
    ends: list[int] = []
    found = [0] * len(lifetimes)
    for k in sorted(range(len(lifetimes)), key=lambda k: (lifetimes[k].begin, -lifetimes[k].space)):
        own = lifetimes[k]
        free = [s for s, end in enumerate(ends) if end < own.begin]
        if not free:
            sizes.append(0)
            ends.append(0)
            free = [len(sizes) - 1]
        place = min(free, key=lambda s: (sizes[s] < own.space, abs(sizes[s] - own.space)))
        sizes[place] = max(sizes[place], own.space)
        found[k], ends[place] = place, own.end
    return found, sizes
