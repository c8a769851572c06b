"""Phases of gradients by the input with strides: results that a stride apart see the same taps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.topi.nn.images import within
from tilewright.topi.operators.convolution import Convolution


def is_phased(p: Convolution) -> bool:
    """Whether it is a gradient by the input with strides."""
    return p.pass_ == "dgrad" and max(p.stride) > 1


def tap_of_phase(p: Convolution, phase: Any, taps: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The place in the filter through which results of a phase see a pixel of dy, and when there is
    one."""
    cut = all_phases(p)
    each = zip(
        parted(phase, cut), cut, p.padding[: len(cut)], taps, p.stride, strict=True
    )  # fmt: skip
    at = [
        found.first_phase + k + before - (t + found.first) * step
        for k, found, before, t, step in each
    ]
    return at, within(at, p.kernel)


def parted(phase: Any, cut: Sequence[Phases]) -> list[Any]:
    """The number of a phase along each dimension."""
    found = list[Any]()
    for count in (len(c.phases) for c in reversed(cut[1:])):
        found.insert(0, phase % count)
        phase = phase // count
    return [phase, *found]


@dataclass(frozen=True)
class Phases:
    """Of a gradient by the input, along a dimension: the ``phases`` of results that see any of
    dy, all or one of them; from which pixel of dy on, counted from that of the result, and how
    many; and of each phase which of these it sees, the first and how many."""

    phases: tuple[int, ...]
    first: int
    taps: int
    seen: tuple[tuple[int, int], ...]

    @property
    def first_phase(self) -> int:
        return self.phases[0]


def all_phases(p: Convolution) -> list[Phases]:
    """Those along each dimension."""
    return [phases(p, d) for d in range(len(p.image))]


def most_taps(cut: Sequence[Phases]) -> int:
    """How many taps the phase has that has most."""
    return math.prod(max(n for _, n in c.seen) for c in cut)


def phases(p: Convolution, d: int) -> Phases:
    """Those along one dimension."""
    stride, before = p.stride[d], p.padding[d]
    seen = {
        phase: [
            (phase + before - tap) // stride
            for tap in range(p.kernel[d])
            if (phase + before - tap) % stride == 0
        ]
        for phase in range(stride)
    }
    found = [phase for phase, pixels in seen.items() if pixels]
    kept = tuple(found) if len(found) == 1 else tuple(range(stride))
    pixels = [x for phase in kept for x in seen[phase]]
    first, last = min(pixels), max(pixels)
    own = tuple((min(seen[k], default=first) - first, len(seen[k])) for k in kept)
    return Phases(kept, first, last - first + 1, own)
