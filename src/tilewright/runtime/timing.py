"""How long a kernel takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds a launch, over several measurements of ``number`` launches each."""

    times: tuple[float, ...]
    number: int

    @property
    def median(self) -> float:
        ordered = sorted(self.times)
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def mean(self) -> float:
        return sum(self.times) / len(self.times)

    @property
    def min(self) -> float:
        return min(self.times)

    @property
    def max(self) -> float:
        return max(self.times)

    @property
    def std(self) -> float:
        mean = self.mean
        return math.sqrt(sum((t - mean) ** 2 for t in self.times) / len(self.times))

    @property
    def results(self) -> Sequence[float]:
        """The measurements, under TVM's name."""
        return self.times

    def __repr__(self) -> str:
        return (
            f"Timing(median={_text(self.median)}, mean={_text(self.mean)}, "
            f"min={_text(self.min)}, std={_text(self.std)}, {len(self.times)} x {self.number})"
        )


def _text(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
