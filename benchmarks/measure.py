"""Measuring side by side: candidates take turns in one process, medians are compared."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilewright.report.numbers import short

#: Launches in one captured graph, and rounds in which every graph is replayed once.
LAUNCHES, ROUNDS = 40, 60


def graph_medians(candidates: Mapping[str, Callable[[int], Any]]) -> dict[str, float]:
    """Microseconds a call on the GPU, by candidate: medians of interleaved CUDA-graph replays.

    A candidate is called with the number of the launch, by which it may rotate its buffers. The
    launches are captured once; replays leave the host's overhead out.
    """
    import torch

    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    stream = torch.cuda.Stream()
    for name, call in candidates.items():
        with torch.cuda.stream(stream):
            for i in range(LAUNCHES):
                call(i)
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name], stream=stream):
            for i in range(LAUNCHES):
                call(i)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for round in range(ROUNDS + 5):
        for name, graph in graphs.items():
            with torch.cuda.stream(stream):
                start.record(stream)
                graph.replay()
                end.record(stream)
            end.synchronize()
            if round >= 5:
                times[name].append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    return {name: statistics.median(found) for name, found in times.items()}


def host_medians(
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int = 30,
    span: float = 0.01,
    rest: float = 0.0,
) -> dict[str, float]:
    """Microseconds a call on the host's clock, by candidate: medians of interleaved batches.

    Before a batch the process sleeps for ``rest`` seconds and makes one call that does not count:
    idle threads of one library's pool spin for a while, and would take a core from the next.
    """
    counts: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        begin = time.perf_counter()
        call()
        once = max(time.perf_counter() - begin, 1e-7)
        counts[name] = max(1, int(span / once))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            if rest:
                time.sleep(rest)
                call()
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - begin) * 1e6 / counts[name])
    return {name: statistics.median(found) for name, found in times.items()}


def environment(*packages: str) -> dict[str, str]:
    """What a result depends on: the machine, the date, the versions."""
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "command": " ".join(["python", *sys.argv]),
    }
    for package in ("tilewright", "numpy", *packages):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    if found["tilewright"] == "not installed":
        import tilewright

        found["tilewright"] = f"{tilewright.__version__} (from source)"
    if "torch" in packages:
        import torch

        if torch.cuda.is_available():
            found["device"] = torch.cuda.get_device_name()
            found["cudnn"] = str(torch.backends.cudnn.version())
    found.setdefault("device", _cpu_name())
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown CPU"


def save(name: str, results: dict[str, Any], folder: str) -> Path:
    """Write results as JSON into ``folder``; the file is returned."""
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def table(rows: list[Mapping[str, Any]]) -> str:
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
