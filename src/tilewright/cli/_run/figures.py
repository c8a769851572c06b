"""What a run of a model shows: times, layers, differences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor


@dataclass(frozen=True)
class Times:
    """Seconds of iterations."""

    seconds: Sequence[float]

    def percentile(self, share: float) -> float:
        """The time that this share of iterations is within."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def to_dict(self) -> dict[str, float]:
        """In milliseconds."""
        found = {
            "median": statistics.median(self.seconds), "mean": statistics.fmean(self.seconds),
            "p90": self.percentile(0.9), "p99": self.percentile(0.99), "min": min(self.seconds),
            "max": max(self.seconds), "deviation": statistics.pstdev(self.seconds),
        }  # fmt: skip
        return {name: value * 1e3 for name, value in found.items()}


@dataclass(frozen=True)
class Difference:
    """An output beside what was expected; ``worst`` is the largest difference over what is allowed,
    within which it is where that is at most 1; ``note`` says what differs beside numbers."""

    name: str
    absolute: float
    relative: float
    worst: float
    note: str = ""

    @property
    def fits(self) -> bool:
        return self.worst <= 1


#: Of the largest number of an output: what sums of many terms that cancel may be off.
_CANCELLED = 1e-5


def difference(
    name: str, found: Any, wanted: Any, rtol: float, atol: float | None = None
) -> Difference:
    """How far an output is from what was expected; infinitely where shapes differ, or NaN is in one
    of them alone. Without ``atol`` it is 1e-5 of the largest number."""
    import numpy as np

    if found.shape != wanted.shape:
        note = f"its shape is {found.shape}, and {wanted.shape} was expected"
        return Difference(name, np.inf, np.inf, np.inf, note)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    size = float(np.max(np.abs(b[np.isfinite(b)]), initial=0)) or 1.0
    atol = _CANCELLED * size if atol is None else atol
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        off = np.where(same, 0, np.abs(a - b))
        off = np.where(np.isnan(off), np.inf, off)
        allowed = np.where(np.isfinite(b), atol + rtol * np.abs(b), atol)
        worst = np.where(off > 0, off / np.maximum(allowed, 1e-300), 0)
    absolute = float(off.max(initial=0))
    return Difference(name, absolute, absolute / size, float(worst.max(initial=0)))


def layers(executor: Executor, times: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each kernel, in order, with the median of its milliseconds."""
    rows = []
    for k, step in enumerate(executor.steps):
        seconds = statistics.median(t[k] for t in times)
        problem = step.node.problem
        rows.append({
            "name": step.node.name, "kernel": str(problem), "ms": seconds * 1e3,
            "gflops": problem.flops / seconds / 1e9, "gbytes": problem.bytes / seconds / 1e9,
        })  # fmt: skip
    return rows


def by_kernel(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one kernel added up, that which takes longest first."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = found.setdefault(row["kernel"], {**row, "ms": 0.0, "count": 0})
        one["ms"] += row["ms"]
        one["count"] += 1
    return sorted(found.values(), key=lambda r: -float(r["ms"]))
