"""Measuring side by side: candidates take turns in one process, medians are compared."""

from __future__ import annotations

import compileall
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tilewright
from tilewright.cli._devices import cpu
from tilewright.cli._measure.environment import environment as surroundings
from tilewright.cli._measure.environment import versions
from tilewright.cli._measure.turns import Rest, briefly, of_calls, of_graph, take_turns
from tilewright.report.numbers import short

#: Where benchmarks are.
FOLDER = Path(__file__).parent
#: Launches in one captured graph, and rounds in which every graph is replayed once.
LAUNCHES, ROUNDS = 40, 60
#: Seconds of a graph's replay that are many.
LONG = 0.015


def graph_medians(candidates: Mapping[str, Callable[[int], Any]]) -> dict[str, float]:
    """Microseconds a call on the GPU, by candidate: medians of interleaved CUDA-graph replays.

    A candidate is called with the number of the launch, by which it may rotate its buffers. The
    launches are captured once; replays leave the host's overhead out. One whose launches take more
    than :data:`LONG` is replayed in every third round.
    """
    batches = {name: of_graph(call, 1, LAUNCHES) for name, call in candidates.items()}
    every = {name: 3 if batch(1) * LAUNCHES > LONG else 1 for name, batch in batches.items()}
    for name, batch in batches.items():  # the clocks rise
        for _ in range(5 // every[name]):
            batch(1)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(ROUNDS):
        for name, batch in batches.items():
            if turn % every[name] == 0:
                times[name].append(batch(1) * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def host_medians(
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int = 30,
    span: float = 0.01,
    rest: Rest = briefly,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Microseconds a call on a clock of the host's, by candidate: medians of interleaved batches.

    Before a batch comes ``rest`` and one call that does not count.
    """
    batches = {name: of_calls(call, clock) for name, call in candidates.items()}
    times = take_turns(batches, rounds, span, 1e9, rest)
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def as_installed() -> dict[str, str]:
    """The environment of new processes, which find Tilewright's byte code compiled, as after an
    installation: without, they would compile what they import."""
    compileall.compile_dir(Path(tilewright.__file__).parent, quiet=1)
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def environment(*packages: str, gpu: bool = True) -> dict[str, str]:
    """What a result depends on: the machine, the date, the versions. It was measured on the GPU,
    where PyTorch sees one, if not on the CPU (``gpu``)."""
    found = versions("numpy", *packages)
    device = cpu().name
    if gpu and "torch" in packages:
        import torch

        if torch.cuda.is_available():
            device = torch.cuda.get_device_name()
            found["cudnn"] = str(torch.backends.cudnn.version())
    script = f"{FOLDER.name}/{Path(sys.argv[0]).name}"
    return surroundings(device, shlex.join(["python", script, *sys.argv[1:]]), found)


def save(name: str, results: dict[str, Any], folder: str) -> Path:
    """Write results as JSON into ``folder``; the file is returned."""
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table; floats with three significant digits."""
    if not rows:
        return "(nothing)"
    names = list(rows[0])
    text = [[_cell(row.get(n, "")) for n in names] for row in rows]
    widths = [max(len(n), *(len(r[k]) for r in text)) for k, n in enumerate(names)]
    lines = [" | ".join(n.ljust(w) for n, w in zip(names, widths, strict=True))]
    lines.append(" | ".join("-" * w for w in widths))
    lines += [" | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in text]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return short(value) if abs(value) >= 1e-3 else f"{value:.1e}"
