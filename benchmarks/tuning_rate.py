"""How many candidates a minute a tuner measures, on one device and on several.

PYTHONPATH=src python benchmarks/tuning_rate.py --workers 1,2 [--local] [--out FOLDER]

With --local, that number of GPUs are measured on by the tuner's own processes. Else through Dask:
for each number of workers it starts a scheduler and that number of workers on this machine, one a
GPU with an equal share of the cores. What is tuned is the space of article 003, by random search,
as `tilewright tune` measures by default. Starting up does not count; what a batch waits for does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure

from tilewright.runtime.llvm_host import available_cores
from tilewright.tune.article_003 import NAME, SHAPE
from tilewright.tune.cluster import RESOURCES
from tilewright.tune.display import Display
from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.task import Task, create


class Cluster:
    """A scheduler with workers, until the end of the ``with``."""

    def __init__(self, workers: int, threads: int, resource: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "scheduler.json"
        self.processes = [self._start("scheduler", {}, "--port", "0")]
        for k in range(workers):
            words = ["--no-nanny", "--nthreads", str(threads), "--resources", f"{resource}=1"]
            self.processes.append(self._start("worker", {"CUDA_VISIBLE_DEVICES": str(k)}, *words))

    def _start(self, what: str, more: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", what, "--scheduler-file", str(self.file),
             "--no-dashboard", "--host", "127.0.0.1", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
            cwd=self.folder.name,
        )  # fmt: skip

    def __enter__(self) -> str:
        from distributed import Client

        while not self.file.exists():
            if self.processes[0].poll() is not None:
                raise SystemExit("the scheduler did not start: python -m dask scheduler")
            time.sleep(0.1)
        with Client(scheduler_file=str(self.file), set_as_default=False) as client:
            client.wait_for_workers(len(self.processes) - 1, timeout=120)
        return str(json.loads(self.file.read_text())["address"])

    def __exit__(self, *exc: object) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        self.folder.cleanup()


class Opened:
    """A measure option that notes when it was ready, and what its device is."""

    def __init__(self, option: Any) -> None:
        self.option, self.at, self.device = option, 0.0, ""

    def open(self, task: Task) -> Any:
        measurer = self.option.open(task)
        self.at, self.device = time.monotonic(), measurer.device.name
        return measurer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--local", action="store_true", help="without Dask")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    counts = [int(n) for n in options.workers.split(",")]
    threads = max(1, available_cores() // max(counts))
    task, device = create(NAME, SHAPE, options.target), ""
    rows: list[dict[str, Any]] = []
    for count in counts:
        place: Any = contextlib.nullcontext()
        devices, builder = range(count), LocalBuilder(n_parallel=threads * count)
        if not options.local:
            place = Cluster(count, threads, RESOURCES[task.target.kind])
            devices, builder = range(1), LocalBuilder()
        with place as address:
            runner = LocalRunner(10.0, 1, repeat=5, min_repeat_ms=20.0, devices=devices)
            opened = Opened(measure_option(builder, runner, address))
            tuner = RandomTuner(task, seed=0)
            tuner.tune(options.trials, opened, callbacks=[Display(prefix=f"{count} workers")])
            seconds, device = time.monotonic() - opened.at, opened.device
        rate = tuner.trials / seconds * 60
        first = rows[0]["trials a minute"] / counts[0] if rows else rate / count
        rows.append(
            {"workers": count, "trials": tuner.trials, "seconds": round(seconds, 1),
             "trials a minute": round(rate, 1), "times one": round(rate / first, 3)}
        )  # fmt: skip
    print(measure.table(rows))
    found = {"environment": measure.environment("dask") | {"device": device}, "rows": rows}
    found["through"] = "the tuner's processes" if options.local else "Dask"
    print(
        measure.save("h200_tuning_rate" if "H200" in device else "tuning_rate", found, options.out)
    )


if __name__ == "__main__":
    main()
