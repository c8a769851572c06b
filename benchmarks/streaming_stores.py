"""Streaming stores on a CPU: a depthwise layer by itself, and layers that read one another.

By itself a layer reads the same image again and again, and nobody reads its result: then the caches
hold the image if the result goes past them. In a row of layers, which pass two buffers back and
forth as an allocator that reuses memory does, each reads what the one before it wrote. Ordinary and
streaming stores take turns; times are medians, of one layer. A last-level cache is said to hold so
much that results of some of these layers fit and those of others do not.

    PYTHONPATH=src python benchmarks/streaming_stores.py [--threads 1 2] [--batches 1 2 4 8]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grouped
import measure

import tilewright
from tilewright.cli._measure.machine import Machine, find
from tilewright.cli._measure.turns import Batch, of_calls, take_turns
from tilewright.runtime import array, caches
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

#: Layers in a row.
_DEPTH = 4


def kernel(problem: Conv, machine: Machine, name: str, stream: int) -> tilewright.Kernel:
    """The first guess of a template, with ordinary or with streaming stores."""
    template = TEMPLATES[name]
    config = replace(template.candidates(problem, machine.target)[0], stream=stream)
    declaration = template.declare(problem, config)
    schedule = template.schedule(declaration, config)
    return tilewright.build(schedule, declaration.args, machine.target)


def row(calls: list[Callable[[], None]]) -> Batch:
    """One after the other, as one call."""

    def run() -> None:
        for call in calls:
            call()

    return of_calls(run)


def line(problem: Conv, machine: Machine, name: str, seconds: float) -> dict[str, Any]:
    """Times of a layer in microseconds, and how many times faster streaming makes it."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal(problem.result_shape, np.float32)
    first, second = array(values), array(values)
    filters = array(np.full((problem.channels, 1, 3, 3), 1 / 9, np.float32))
    batches: dict[str, Batch] = {}
    for kind, stream in (("ordinary", 0), ("streaming", 1)):
        made = kernel(problem, machine, name, stream)
        there, back = made.bind(first, filters, second), made.bind(second, filters, first)
        batches[f"alone, {kind}"] = row([there])
        batches[f"in a row, {kind}"] = row([there, back] * (_DEPTH // 2))
    times = take_turns(batches, 25, 0.006, seconds, machine.rest)
    found: dict[str, Any] = {
        "section": f"{machine.threads} thread{'s' * (machine.threads > 1)}",
        "problem": str(problem),
        "template": name,
        "result MB": round(values.nbytes / 1e6, 1),
        "exceeds the cache": values.nbytes > caches.last_level(machine.threads),
    }
    for variant, layers in (("alone", 1), ("in a row", _DEPTH)):
        plain, past = (
            statistics.median(times[f"{variant}, {kind}"]) / layers * 1e6
            for kind in ("ordinary", "streaming")
        )
        found |= {
            f"{variant} us": plain,
            f"{variant}, streaming us": past,
            f"{variant}: gain": plain / past,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=3.0, help="of a layer, about (3)")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    lines = []
    for threads in options.threads:
        machine = find("llvm", threads)
        for batch in options.batches:
            for layout, name in (("NHWC", "cpu.channels"), ("NCHW", "cpu.lines")):
                shape, filters = f"{batch}x256x96x96", "256x1x3x3"
                problem = Conv.parse(shape, filters, padding=1, layout=layout)
                lines.append(line(problem, machine, name, options.seconds))
    print(grouped.text(lines))
    results = {"environment": measure.environment("llvmlite"), "rows": lines}
    print(measure.save("cpu_streaming_stores", results, options.out))


if __name__ == "__main__":
    main()
