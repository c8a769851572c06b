"""The whole search space of article 003, 2,880 configurations, measured on a GPU.

PYTHONPATH=src python benchmarks/article_003_space.py --out FILE.json

Candidates are built in a process a core (lowering and NVRTC take 0.1 to 0.4 s of a core each) and
run in one process: a check against the unscheduled program, then the median of 11 CUDA-graph
replays of at least 1 ms each, about 40 ms a configuration, so that the whole takes 2 to 3 minutes
on 16 cores. What crashes, hangs or is wrong costs itself alone. Each measurement is kept in
FILE.sqlite as it comes: after an interruption, or after --minutes, the same command goes on, and at
every end FILE.json has the table of what is there.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import measure
import numpy as np

from tilewright.runtime.llvm_host import available_cores
from tilewright.tune.article_003 import NAME, SHAPE
from tilewright.tune.display import Display
from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.records import Records
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.table import Table
from tilewright.tune.task import Task, create
from tilewright.tune.tuner import Tuner

REPEAT, MIN_REPEAT_MS = 11, 1.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", default="benchmarks/results/h200_article_003_space.json")
    made.add_argument("--target", default="cuda", help="sim runs without a device, with --limit")
    made.add_argument("--jobs", type=int, help="processes that build, by default a core each")
    made.add_argument("--limit", type=int, metavar="N", help="only N of them, drawn at random")
    made.add_argument("--minutes", type=float, default=8.0, help="stop after this many minutes")
    made.add_argument("--compile-only", action="store_true", help="no device: build, write nothing")
    return made


def main() -> int:
    options = parser().parse_args()
    jobs = options.jobs or available_cores()
    if options.compile_only:
        target = "cuda -arch=sm_90a" if options.target == "cuda" else options.target
        return compile_only(create(NAME, SHAPE, target), jobs, options.limit)
    task = create(NAME, SHAPE, options.target)
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    count = min(options.limit or len(task.config_space), len(task.config_space))
    end = time.monotonic() + 60 * options.minutes
    seen: dict[str, Any] = {}

    def watch(tuner: Tuner, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        if time.monotonic() > end:
            raise KeyboardInterrupt

    class Option:
        """Remembers the device."""

        def open(self, task: Task) -> Any:
            runner = LocalRunner(10.0, 1, REPEAT, MIN_REPEAT_MS)
            measurer = measure_option(LocalBuilder(n_parallel=jobs), runner).open(task)
            seen["device"] = measurer.device
            return measurer

    tuner = RandomTuner(task, seed=0)
    with Records(out.with_suffix(".sqlite")) as records:
        tuner.tune(
            count, Option(), callbacks=[Display(prefix="article 003"), watch], records=records,
            resume=True, transfer=False, batch=max(64, 16 * jobs),
        )  # fmt: skip
        table = Table.of(task, seen["device"], records.find(problem=task.key))
    environment = measure.environment() | {"device": seen["device"].name}
    table.write(out, task, environment=environment)
    report(table, task)
    missing = count - len(table.costs)
    if missing > 0:
        print(f"{missing} are missing: the same command goes on with them", file=sys.stderr)
        return 3
    print(out)
    return 0


def report(table: Table, task: Task) -> None:
    """What the table says, in a few lines."""
    times = sorted((c, i) for i, c in table.costs.items() if c is not None)
    print(f"{len(table.costs)} measured, {len(table.errors)} failed")
    for why, count in collections.Counter(e[:100] for e in table.errors.values()).most_common(5):
        print(f"  {count} x {why}")
    if times:
        costs = [c for c, _ in times]
        near = sum(c <= 1.05 * costs[0] for c in costs)
        print(f"best {costs[0] * 1e6:.3f} us, median {statistics.median(costs) * 1e6:.3f} us, "
              f"worst {costs[-1] * 1e6:.1f} us; {near} within 5 % of the best")  # fmt: skip
        for cost, index in times[:5]:
            print(f"  {cost * 1e6:.3f} us  {task.config_space.get(index)}")


def build(task: dict[str, Any], index: int) -> tuple[int, float, str]:
    """The index, the seconds that building took, and why it failed."""
    from tilewright.lower.pipeline import lower
    from tilewright.runtime.build import build as compile_module

    begin, work = time.perf_counter(), Task.from_json(task)
    try:
        s, args = work.instantiate(work.config_space.get(index))
        compile_module(lower(s, args, work.target), work.target)
    except Exception as error:  # it is one candidate's
        return index, time.perf_counter() - begin, f"{type(error).__name__}: {error}"
    return index, time.perf_counter() - begin, ""


def compile_only(task: Task, jobs: int, limit: int | None) -> int:
    """Build a sample, and say how long it takes."""
    indices = task.config_space.sample(limit or len(task.config_space), np.random.default_rng(0))
    begin, seconds, failed = time.perf_counter(), [], 0
    with ProcessPoolExecutor(jobs) as pool:
        todo = ((task.to_json(), int(i)) for i in indices)
        for index, took, why in pool.map(build, *zip(*todo, strict=True), chunksize=4):
            seconds.append(took)
            failed += bool(why)
            if why:
                print(f"{index}: {why[:200]}")
    print(f"{len(seconds)} built in {time.perf_counter() - begin:.1f} s by {jobs} processes, "
          f"{failed} failed; {statistics.mean(seconds):.3f} s each, at most "
          f"{max(seconds):.2f} s")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
