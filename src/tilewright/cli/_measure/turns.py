"""Timing side by side: candidates take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

#: Runs something about that number of times, and returns the seconds of one.
Batch: TypeAlias = Callable[[int], float]

#: Waits before a batch until what ran before no longer matters.
Rest: TypeAlias = Callable[[], None]

#: Between batches that share no cores.
_PAUSE = 0.001
#: While threads spin after their work, how often it is looked whether they do, which is coarser
#: than the ticks by which systems count a running thread's time; up to which part of a core the
#: process may use and still counts as idle; and for how long at most it is waited for.
_LOOK, _IDLE, _PATIENCE = 0.01, 0.25, 0.4

#: Seconds of work after :func:`until_idle` that do not count: a thread that slept may be woken on
#: the core of the one that waits for it, and shares it until the system moves one of them.
_AWAKE = 0.02

#: The seconds that a captured graph lasts, about, and the most launches in one.
_GRAPH_SPAN, GRAPH_LAUNCHES = 0.002, 40


def briefly() -> None:
    """The rest of candidates that leave no threads behind."""
    time.sleep(_PAUSE)


def until_idle() -> None:
    """The rest of candidates with several threads: until all threads of the process sleep.

    The threads of a pool go on spinning after their work, since more may come at once: those of
    OpenMP for milliseconds (GCC's) or 200 of them (Intel's), ONNX Runtime's for tens. Meanwhile
    they hold cores that the next candidate's own threads would run on.
    """
    begin = time.monotonic()
    used = time.process_time()
    while time.monotonic() - begin < _PATIENCE:
        start = time.monotonic()
        time.sleep(_LOOK)
        before, used = used, time.process_time()
        if used - before < _IDLE * (time.monotonic() - start):
            return


def of_calls(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Batch:
    """A batch of calls that return when they are done, by a clock of the host's.

    One more call comes first and does not count: it wakes the threads.
    """

    def batch(number: int) -> float:
        call()
        begin = clock()
        for _ in range(number):
            call()
        return (clock() - begin) / number

    return batch


def of_graph(call: Callable[[int], Any], sets: int = 1, launches: int | None = None) -> Batch:
    """A batch of replays of a CUDA graph of PyTorch's, by the GPU's clock: without the host.

    Parameters
    ----------
    call : launches work on PyTorch's current stream; called with the number of the launch, by
        which it takes the next of its ``sets`` of buffers.
    launches : how many are captured, by default what lasts about two milliseconds; rounded up to
        whole turns through the sets.
    """
    import torch

    stream = torch.cuda.Stream()

    def timed(work: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            start.record(stream)
            work()
            end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def run(count: int) -> None:
        for i in range(count):
            call(i)

    timed(lambda: run(sets))  # compiles, chooses algorithms
    once = timed(lambda: run(sets)) / sets
    wanted = launches or max(1, min(GRAPH_LAUNCHES, int(_GRAPH_SPAN / max(once, 1e-7))))
    count = -(-wanted // sets) * sets
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run(count)
    timed(graph.replay)  # uploads it
    kept = graph, call  # a graph does not hold the memory that it works on; what was captured does

    def batch(number: int) -> float:
        replays = max(1, -(-number // count))
        return timed(lambda: [kept[0].replay() for _ in range(replays)]) / (replays * count)

    return batch


def quick(batch: Batch, hopeless: float = float("inf")) -> float:
    """Seconds, by a few short batches; by a single run where that is above ``hopeless``."""
    once = min(batch(1), batch(1))
    if once > hopeless:
        return once
    number = max(1, int(0.002 / max(once, 1e-7)))
    return statistics.median(batch(number) for _ in range(3))


def take_turns(
    batches: Mapping[str, Batch],
    rounds: int = 25,
    span: float = 0.004,
    limit: float = 2.5,
    rest: Rest = briefly,
) -> dict[str, list[float]]:
    """Seconds a run, ``rounds`` times by name; the names take turns.

    One batch lasts about ``span`` seconds, and ``rest`` comes before it; where that let threads
    sleep, so does a batch that does not count, which wakes them. Where candidates are slow,
    or their threads slow to sleep, there are fewer rounds, so that all of it takes about ``limit``
    seconds, but never fewer than five.
    """
    numbers, waking, cost = {}, {}, 0.0
    for name, batch in batches.items():
        begin = time.monotonic()
        rest()
        rested = time.monotonic() - begin
        once = batch(1)
        numbers[name] = max(1, int(span / max(once, 1e-7)))
        waking[name] = int(_AWAKE / max(once, 1e-7)) if rest is until_idle else 0
        cost += (numbers[name] + waking[name] + 2) * once + rested
    count = max(min(5, rounds), min(rounds, int(limit / cost)))
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(count):
        for name, batch in batches.items():
            rest()
            if waking[name]:
                batch(waking[name])
            times[name].append(batch(numbers[name]))
    return times
