"""Timing side by side: candidates take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

#: Runs something so many times, and returns the seconds of one.
Batch: TypeAlias = Callable[[int], float]

#: Between the batches of different candidates, for threads that spin after their work to go to
#: sleep.
_PAUSE = 0.001


def of_calls(call: Callable[[], Any]) -> Batch:
    """A batch of calls that return when they are done, by the host's clock."""

    def batch(number: int) -> float:
        call()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - begin) / number

    return batch


def quick(batch: Batch, hopeless: float = float("inf")) -> float:
    """Seconds, by a few short batches; by a single run where that is above ``hopeless``."""
    once = min(batch(1), batch(1))
    if once > hopeless:
        return once
    number = max(1, int(0.002 / max(once, 1e-7)))
    return statistics.median(batch(number) for _ in range(3))


def medians(
    batches: Mapping[str, Batch], rounds: int = 25, span: float = 0.004, limit: float = 2.5
) -> dict[str, list[float]]:
    """Seconds a run, ``rounds`` times by name; the names take turns.

    One batch lasts about ``span`` seconds. Slow candidates get fewer rounds, so that all of it
    takes about ``limit`` seconds, but never fewer than five.
    """
    numbers, cost = {}, 0.0
    for name, batch in batches.items():
        once = batch(1)
        numbers[name] = max(1, int(span / max(once, 1e-7)))
        cost += (numbers[name] + 1) * once + _PAUSE
    count = max(5, min(rounds, int(limit / cost)))
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(count):
        for name, batch in batches.items():
            time.sleep(_PAUSE)
            times[name].append(batch(numbers[name]))
    return times
