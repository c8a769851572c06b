"""Does a kernel take as long wherever it is loaded?

Layers of one image take a microsecond or two, and in sweeps of thousands of kernels about one in a
hundred took three to five more, with the same instructions as another that did not. Each layer's
first choice is loaded several times in one process, and the copies take turns: medians of
CUDA-graph replays. "slow" are copies that take 1.5 times as long as the fastest.

    PYTHONPATH=src python benchmarks/loaded_again.py --copies 12 --only "batch 1"
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
from gpu_depthwise import Layer
from gpu_layers import sections
from problem_parts import build, first_choices

import tilewright
from tilewright.topi.operators.conv import Conv

_TARGET = "cuda -arch=sm_90a"
#: Launches of a graph, and rounds of replays.
_LAUNCHES, _ROUNDS = 200, 15
#: A copy is slow that takes this many times as long as the fastest.
_SLOW = 1.5


def prepare(p: Conv, path: str) -> str:
    """Compile the first choice for a problem into a file: its name, or why there is none."""
    template, values = first_choices(p, _TARGET, 1)[0]
    failure = build(p, template, values, _TARGET, path)
    return f"failed: {failure}" if failure else f"{template} {','.join(map(str, values.values()))}"


def timed(p: Conv, path: str, copies: int) -> list[float]:
    """Microseconds of each of ``copies`` copies."""
    layer = Layer(p, sets=1)
    operands, result = layer.operands()[0], layer.result[0]
    kernels = [tilewright.load(path) for _ in range(copies)]
    calls = {f"{k}": lambda _, one=one: one(*operands, result) for k, one in enumerate(kernels)}
    measure.ROUNDS, measure.LAUNCHES = _ROUNDS, _LAUNCHES
    return list(measure.graph_medians(calls).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="batch 1", help="sections and problems with this")
    parser.add_argument("--copies", type=int, default=12, help="of each kernel")
    parser.add_argument("--seconds", type=float, default=120.0, help="to stop after")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    wanted = [p for section, p in sections() if arguments.only in f"{section} {p}"]
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + arguments.seconds
    with TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{k}.kernel") for k in range(len(wanted))]
        with ProcessPoolExecutor() as pool:
            names = list(pool.map(prepare, wanted, paths))
        for p, path, name in zip(wanted, paths, names, strict=True):
            if name.startswith("failed") or time.monotonic() > end:
                continue
            times = timed(p, path, arguments.copies)
            slow = sum(t > _SLOW * min(times) for t in times)
            rows.append(
                {"problem": str(p), "kernel": name, "fastest us": min(times),
                 "median us": statistics.median(times), "slowest us": max(times), "slow": slow}
            )  # fmt: skip
            print(rows[-1], flush=True)
    result = {
        "environment": measure.environment("torch"), "copies": arguments.copies,
        "slow": sum(row["slow"] for row in rows), "of": arguments.copies * len(rows), "rows": rows,
    }  # fmt: skip
    print(measure.save("h200_loaded_again", result, arguments.out))


if __name__ == "__main__":
    main()
