"""A Dask scheduler and its workers, each a process that a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


class Cluster:
    """A scheduler with ``workers`` processes that have a CPU each."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen[Any]] = []
        self.scheduler = self.start("scheduler", "--port", "0", "--no-show")
        deadline = time.monotonic() + 60
        while not self.address:
            assert time.monotonic() < deadline
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.workers = [self.worker() for _ in range(workers)]

    @property
    def address(self) -> str:
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError, KeyError):
            return ""

    def worker(self, *words: str) -> subprocess.Popen[Any]:
        """One more worker; without words it has a CPU."""
        resources = words or ("--resources", "CPU=1")
        return self.start("worker", "--no-nanny", "--nthreads", "1", *resources)

    def start(self, what: str, *words: str) -> subprocess.Popen[Any]:
        log = (self.folder / f"{what}-{len(self.processes)}.log").open("w")
        made = subprocess.Popen(
            [sys.executable, "-m", "dask", what, "--scheduler-file", str(self.file),
             "--no-dashboard", "--host", "127.0.0.1", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
                 "DASK_LOGGING__DISTRIBUTED": "critical"},
        )  # fmt: skip
        self.processes.append(made)
        return made

    def wait_for(self, count: int) -> None:
        """Until exactly ``count`` workers are there: the others are known to be lost."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            deadline = time.monotonic() + 60
            while len(client.scheduler_info(n_workers=-1)["workers"]) != count:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()
