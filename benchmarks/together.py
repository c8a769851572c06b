"""Models that compile all at once, each in a process of its own, and are then measured in turn.

Compiling takes a core or two for a minute, measuring the whole machine for seconds: a script that
does both for several models starts itself once for each (`rows`), and each waits for its turn
before it measures (`wait`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

_CHILD, _READY = "TILEWRIGHT_BENCHMARK_CHILD", "waits for its turn"
#: Seconds that compiling may take, and by how much all models but the first are nicer.
_LONG, _NICE = 210, 10


def wait() -> None:
    """In a process that :func:`rows` has started, return when all others wait or have ended and
    those before it have been measured; at once elsewhere."""
    if is_started():
        print(_READY, flush=True)
        sys.stdin.readline()
        with contextlib.suppress(PermissionError):  # being nice to nobody costs nothing
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        os.sched_setaffinity(0, map(int, os.environ[_CHILD].split()))


def is_started() -> bool:
    """Whether :func:`rows` has started this process, which prints its row and saves nothing."""
    return _CHILD in os.environ


def rows(
    models: Sequence[str], at_once: int = 0, seconds: float = _LONG
) -> Iterator[dict[str, Any]]:
    """What each of ``models`` gives: the script, started with ``--models`` and its name alone,
    prints rows as JSON. One that is not ready after ``seconds`` is ended, and said to have failed.
    With ``at_once`` they take turns, this many compiling and then being measured. The first of
    these has cores first: it is to be the one that takes longest.
    """
    count = at_once or len(models)
    for first in range(0, len(models), count):
        yield from _rows(models[first : first + count], seconds)


def _rows(models: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    started = {}
    cores = sorted(os.sched_getaffinity(0))
    for k, name in enumerate(models):
        # Each starts processes for as many as it sees: with half of them, few wait at the end.
        begin, share = k * len(cores) // len(models), max(len(cores) // 2, 1)
        own = [cores[(begin + j) % len(cores)] for j in range(share)]
        started[name] = subprocess.Popen(
            [sys.executable, "-u", *sys.argv, "--models", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, _CHILD: " ".join(map(str, cores))},
            preexec_fn=functools.partial(_begin, own, _NICE if k else 0),
        )  # fmt: skip
    readers = [threading.Thread(target=_ready, args=(p, seconds)) for p in started.values()]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    for name, process in started.items():
        assert process.stdin is not None
        if process.poll() is None:
            process.stdin.write("\n")
            process.stdin.flush()
        yield from _echo(process)
        if process.wait():
            yield {"model": name, "failed": f"the process ended with {process.returncode}"}


def _begin(cores: Sequence[int], nicer: int) -> None:
    os.sched_setaffinity(0, cores)
    os.nice(nicer)


def _ready(process: subprocess.Popen[str], seconds: float) -> None:
    """Return when a process waits or has ended, which it has at the latest after ``seconds``."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    _echo(process, until=_READY)
    timer.cancel()


def _echo(process: subprocess.Popen[str], until: str = "") -> list[dict[str, Any]]:
    """Print what a process prints, up to a line, but for the rows, which are returned."""
    found = []
    assert process.stdout is not None
    for line in process.stdout:
        if line.rstrip() == until:
            break
        if line.startswith('{"model"'):
            found.append(json.loads(line))
        else:
            print(line.rstrip(), flush=True)
    return found
