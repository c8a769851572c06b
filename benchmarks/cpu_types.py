"""Layers of ResNet-50 on a CPU in bfloat16 and int8, beside our own in float32.

Each layer has channels last, a constant filter, which is packed ahead as in a network, and the
epilogue that networks have behind it; kernels are those that nobody measured. All types take turns
in one process, and medians are compared. With ``--cpu-time`` they are of the time that the process
had a core, for machines that do other things, too.

    PYTHONPATH=src python benchmarks/cpu_types.py [--threads 1] [--batch 1 8] [--only 3x3]
        [--cpu-time]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import measure
import numpy as np
from cpu_layers import QUANTIZED

from tilewright.ir.dtype import dtype as dtype_of
from tilewright.runtime.narrow_floats import storage_type
from tilewright.select import choose
from tilewright.select.algorithm import BuiltKernel
from tilewright.topi import Conv

#: Extent, channels, filters, taps and stride of a layer, and how often the network has it.
LAYERS = (
    (224, 3, 64, 7, 2, 1), (56, 64, 64, 1, 1, 1), (56, 64, 64, 3, 1, 3), (56, 64, 256, 1, 1, 4),
    (56, 256, 64, 1, 1, 2), (56, 256, 128, 1, 1, 1), (56, 128, 128, 3, 2, 1),
    (56, 256, 512, 1, 2, 1), (28, 128, 128, 3, 1, 3), (28, 128, 512, 1, 1, 4),
    (28, 512, 128, 1, 1, 3), (28, 512, 256, 1, 1, 1), (28, 256, 256, 3, 2, 1),
    (28, 512, 1024, 1, 2, 1), (14, 256, 256, 3, 1, 5), (14, 256, 1024, 1, 1, 6),
    (14, 1024, 256, 1, 1, 5), (14, 1024, 512, 1, 1, 1), (14, 512, 512, 3, 2, 1),
    (14, 1024, 2048, 1, 2, 1), (7, 512, 512, 3, 1, 2), (7, 512, 2048, 1, 1, 3),
    (7, 2048, 512, 1, 1, 2),
)  # fmt: skip
TYPES = ("float32", "bfloat16", "int8")


def problem(layer: tuple[int, ...], batch: int, dtype: str) -> Conv:
    """A layer in one type."""
    extent, channels, filters, taps, stride, _ = layer
    return Conv.parse(
        (batch, channels, extent, extent), (filters, channels, taps, taps), 1, stride=stride,
        padding=taps // 2, layout="NHWC", dtype=dtype, constants=("filter",),
        epilogue=QUANTIZED.get(dtype, "bias+relu"),
    )  # fmt: skip


def call(p: Conv, target: str) -> tuple[Callable[[], None], str]:
    """A call of the kernel for a problem, with random inputs; and what kernel it is."""
    rng, choice = np.random.default_rng(0), choose(p, target)
    arrays = []
    for shape, kind in (*p.inputs().values(), p.result):
        whole = dtype_of(kind).is_int
        made = rng.integers(0, 100, shape) if whole else rng.standard_normal(shape, "float32")
        arrays.append(made.astype(storage_type(dtype_of(kind))))
    built = choice.build()
    assert isinstance(built, BuiltKernel)
    kernel = built.kernel
    return kernel.bind(*kernel.prepared(arrays)), str(choice)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--only", default="", help="layers whose name contains this")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, one thread")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    target, rows = f"llvm -threads={options.threads}", []
    for batch, layer in product(options.batch, LAYERS):
        extent, channels, filters, taps, stride, times = layer
        name = f"{batch}x{channels}x{extent}x{extent} {taps}x{taps} s{stride} to {filters}"
        if options.only not in name:
            continue
        calls = {kind: call(problem(layer, batch, kind), target) for kind in TYPES}
        each = {kind: run for kind, (run, _) in calls.items()}
        found = measure.host_medians(each, options.rounds, clock=clock)
        row: dict[str, Any] = {"batch": batch, "layer": name, "times": times}
        row |= {f"{kind} us": us for kind, us in found.items()}
        row |= {f"float32 / {kind}": found["float32"] / found[kind] for kind in TYPES[1:]}
        row |= {f"{kind} kernel": text for kind, (_, text) in calls.items()}
        rows.append(row)
        print(name, *(f"{k} {row[f'float32 / {k}']:.2f}" for k in TYPES[1:]), flush=True)
    means: dict[str, float] = {}
    for batch, kind in product(options.batch, TYPES[1:]):
        ratios = [math.log(r[f"float32 / {kind}"]) for r in rows if r["batch"] == batch]
        if ratios:
            means[f"batch {batch}, {kind}"] = math.exp(statistics.mean(ratios))
    print({name: round(value, 2) for name, value in means.items()})
    results = {
        "environment": measure.environment("llvmlite", gpu=False), "means": means, "rows": rows,
    }  # fmt: skip
    print(measure.save("cpu_types", results, options.out))


if __name__ == "__main__":
    main()
