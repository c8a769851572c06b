"""How long a schedule takes to become a kernel: lowering, proof, compilation, warm and cold.

Each figure is the median of several fresh schedules; "warm" builds find the compiled kernel in the
cache on disk. Import time is that of a fresh process, less that of an empty one.

    python benchmarks/compile_latency.py [--target llvm "cuda -arch=sm_90a"] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import article_003
import measure

import tilewright
from tilewright import te
from tilewright.runtime import build as build_module
from tilewright.runtime.build import forget
from tilewright.target import Target
from tilewright.topi.cpu.depthwise_conv2d import schedule_rows
from tilewright.topi.gpu.depthwise_registers import schedule_registers
from tilewright.topi.gpu.depthwise_shared import SharedTile, schedule_shared
from tilewright.topi.nn import depthwise_conv2d_nchw
from tilewright.verify import verify

Program = Callable[[], tuple[Any, list[Any]]]


def walk(version: str) -> Program:
    """A schedule of article 003."""

    def make() -> tuple[Any, list[Any]]:
        s, inp, ker, out = article_003.declaration()
        article_003.VERSIONS[version](s[out])
        return s, [inp, ker, out]

    return make


def depthwise(schedule: Callable[[Any], Any]) -> Program:
    """Article 000's layer, 1x256x96x96 with K 3, under a schedule of topi."""

    def make() -> tuple[Any, list[Any]]:
        data = te.placeholder((1, 256, 96, 96), name="Input")
        weight = te.placeholder((256, 1, 3, 3), name="Filter")
        out = depthwise_conv2d_nchw(data, weight)
        return schedule(out), [data, weight, out]

    return make


GPU = {f"article 003 {name}": walk(name) for name in article_003.VERSIONS} | {
    "article 000": depthwise(lambda out: schedule_shared(out, SharedTile(32, 32, 8, 16, 1, 2))),
    "registers": depthwise(schedule_registers),
}
CPU = {"rows": depthwise(schedule_rows)}


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long ``action`` takes, and what it returns."""
    begin = time.perf_counter()
    found = action()
    return (time.perf_counter() - begin) * 1e3, found


def measure_program(make: Program, target: Target, repeats: int) -> dict[str, float]:
    """Medians of every step for one program."""
    steps: dict[str, list[float]] = {}
    for _ in range(repeats):
        s, args = make()
        lower_ms, module = milliseconds(lambda: tilewright.lower(s, args, target))
        verify_ms, _ = milliseconds(lambda: [verify(f) for f in module.funcs])
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TILEWRIGHT_CACHE"] = cache
            forget()
            compile_ms, _ = milliseconds(lambda: build_module(module, target))
            forget()
            s, args = make()
            cold_ms, _ = milliseconds(lambda: tilewright.build(s, args, target))
            forget()
            s, args = make()
            warm_ms, _ = milliseconds(lambda: tilewright.build(s, args, target))
        for name, ms in (
            ("lower ms", lower_ms), ("verify ms", verify_ms), ("compile ms", compile_ms),
            ("cold ms", cold_ms), ("warm ms", warm_ms),
        ):  # fmt: skip
            steps.setdefault(name, []).append(ms)
    return {name: statistics.median(found) for name, found in steps.items()}


def import_seconds(repeats: int) -> float:
    """Of ``import tilewright`` in a fresh process, beyond the interpreter's own start."""

    def once(code: str) -> float:
        return milliseconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))[0]

    empty = statistics.median(once("pass") for _ in range(repeats))
    return (statistics.median(once("import tilewright") for _ in range(repeats)) - empty) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", nargs="+", default=["llvm"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for text in options.target:
        target = Target.parse(text)
        for name, make in (CPU if target.kind == "llvm" else GPU).items():
            found = measure_program(make, target, options.repeats)
            rows.append({"program": name, "target": text, **found})
    seconds = import_seconds(options.repeats)
    print(measure.table(rows))
    print(f"import tilewright: {seconds:.3f} s")
    results = {"environment": measure.environment(), "rows": rows, "import s": seconds}
    print(measure.save("compile_latency", results, options.out))


if __name__ == "__main__":
    main()
