"""The kernels of what `torch.compile(backend="tilewright")` made, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

#: Bytes a second that an H200 copies.
MEMORY = 4.3e12
#: Launches of a kernel that are timed together.
_LAUNCHES = 20


def profile(graphs: Sequence[Any], count: int) -> None:
    """Print the kernels of a step that take longest, each launched again and again by itself, and
    how often the memory of an H200 could copy meanwhile what they read and write."""
    calls: Counter[str] = Counter()
    times: dict[str, float] = {}
    moved: dict[str, float] = {}
    for executor in (e for graph in graphs for r in graph.regions for e in r.executors):
        for step in executor.steps:
            key = str(step.node.problem)
            calls[key] += 1
            if key in moved:
                times[key] += times[key] / (calls[key] - 1)
                continue
            held = [
                torch.zeros(t.shape, dtype=getattr(torch, t.dtype), device="cuda")
                for t in step.types
            ]
            pointers = tuple(t.data_ptr() for t in held)
            launch = step.kernel.program.launch_raw
            launch(pointers, ())
            torch.cuda.synchronize()
            several = torch.cuda.CUDAGraph()
            with torch.cuda.graph(several):
                for _ in range(_LAUNCHES):
                    launch(pointers, ())
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(2):
                begin.record()
                several.replay()
                end.record()
            torch.cuda.synchronize()
            times[key] = begin.elapsed_time(end) / _LAUNCHES / 1e3
            moved[key] = sum(t.numel() * t.element_size() for t in held) / MEMORY
    print(f"{sum(times.values()) * 1e3:.2f} ms of {sum(calls.values())} kernels, one by one")
    for key, seconds in sorted(times.items(), key=lambda pair: -pair[1])[:count]:
        us = seconds / calls[key] * 1e6
        print(
            f"{seconds * 1e3:8.3f} ms {calls[key]:3d} x {us:7.1f} us, {us / moved[key] / 1e6:5.1f} "
            f"of its bytes: {key[:330]}", flush=True,
        )  # fmt: skip
