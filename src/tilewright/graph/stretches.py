"""Kernels in a row, divided into stretches, behind which memory that nobody reads any more is free.

One block of memory for all intermediate values is there from the first kernel to the last. Where
inputs may be dropped on the way, as what a forward pass has stored for its gradients, values of the
last kernels can take the memory of what the first ones have read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph.memory import Lifetime, plan


@dataclass(frozen=True)
class Stretch:
    """Kernels from ``begin`` on, before ``end``.

    Attributes
    ----------
    offsets, nbytes : where values that are made here lie, by number, in a block of their own.
    inputs : those that nobody reads behind it, by number.
    blocks : those of stretches, by number, that nobody reads behind it.
    """

    begin: int
    end: int
    offsets: Mapping[int, int]
    nbytes: int
    inputs: tuple[int, ...]
    blocks: tuple[int, ...]


def divided(
    lifetimes: Sequence[Lifetime], last: Sequence[int], steps: int, count: int
) -> list[Stretch]:
    """At most ``count`` stretches of as many ``steps`` each; ``last`` is the last one that reads
    each input, -1 where none does.

    >>> lives = [Lifetime(0, 1, 64), Lifetime(1, 3, 256), Lifetime(2, 3, 64)]
    >>> for s in divided(lives, [0, 3], 4, 2):
    ...     print(s.begin, s.end, dict(s.offsets), s.nbytes, s.inputs, s.blocks)
    0 2 {1: 0, 0: 256} 320 (0,) ()
    2 4 {2: 0} 64 (1,) (0, 1)
    """
    count = max(1, min(count, steps))
    bounds = [steps * k // count for k in range(count + 1)]

    def at(step: int) -> int:
        return next((k for k in range(count) if step < bounds[k + 1]), count - 1)

    own = [[n for n, x in enumerate(lifetimes) if at(x.begin) == k] for k in range(count)]
    plans = [plan([lifetimes[n] for n in found]) for found in own]
    until = [max((at(lifetimes[n].end) for n in found), default=k) for k, found in enumerate(own)]
    return [
        Stretch(
            bounds[k],
            bounds[k + 1],
            {own[k][n]: offset for n, offset in plans[k].offsets.items()},
            plans[k].nbytes,
            tuple(n for n, step in enumerate(last) if at(step) == k),
            tuple(n for n, end in enumerate(until) if end == k),
        )
        for k in range(count)
    ]
