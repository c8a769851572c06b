"""What one choice without measuring costs the host: milliseconds, and calls of functions.

Random problems are drawn: products of matrices, and convolutions depthwise, dense and in groups,
of all passes, layouts and types, as networks have them, with large filters, and with odd
parameters. For each, :func:`tilewright.select.choose` decides by the policy "heuristic", with no
records of this machine, and those that the package brings or (``--no-shipped``) none. Calls are
those of Python's functions, of generators that go on and of builtin functions, as
``sys.setprofile`` counts them, so that they are the same on every machine; times are the
processor's, of one thread, the shortest of three other runs. What a process does once, reading
models and records, is done before; what it keeps of a problem is forgotten.

    python benchmarks/choice_latency.py [--count 100] [--seed 0] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any
from unittest.mock import patch

import measure

from tilewright.ir.errors import ProblemError
from tilewright.select import ProfileCache, choice, choose, knn, reason
from tilewright.topi.epilogue import parse_epilogue
from tilewright.topi.operators import Conv, Gemm
from tilewright.topi.operators.conv import LAYOUTS
from tilewright.topi.problem import Problem

TARGETS = ("cuda -arch=sm_90a", "llvm -arch=avx512")
#: What one choice may cost: milliseconds on two cores, and calls.
MOST_MS, MOST_CALLS = 50, 60_000
#: Elements of a tensor, at most.
_ELEMENTS = 2**29
_TYPES = ("float32", "float16", "float16", "bfloat16")
_EPILOGUES = ((), ("bias",), ("bias", "relu"), ("batch_norm(1e-05)", "relu6"))
_RUNS = 3


def problems(count: int, seed: int) -> Iterator[Problem]:
    """Problems that have a kernel on every target; more of them begin with the same."""
    found: set[Problem] = set()
    number = 0
    while len(found) < count:
        rng = random.Random(f"{seed} {number}")
        number += 1
        try:
            p = _product(rng) if rng.random() < 0.05 else _convolution(rng)
        except ProblemError:  # a window that is larger than the padded image
            continue
        large = max(math.prod(s) for s in p.shapes().values()) > _ELEMENTS
        if not large and p not in found and not any(reason(p, t) for t in TARGETS):
            found.add(p)
            yield p


def _log(rng: random.Random, least: float, most: float) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _product(rng: random.Random) -> Gemm:
    return Gemm(
        pass_=rng.choice(tuple(Gemm.PASSES)), dtype=rng.choice(_TYPES),
        m=_log(rng, 1, 4096), n=_log(rng, 1, 4096), k=_log(rng, 1, 4096),
        batch=rng.choice((1, 1, 8)), transpose_b=rng.random() < 0.5,
    )  # fmt: skip


def _convolution(rng: random.Random) -> Conv:
    """Raises :class:`ProblemError` where what was drawn is none."""
    kind = rng.choice(("network", "network", "large", "odd"))
    operator = "depthwise_conv2d"
    if kind != "large":
        operator = rng.choice(("depthwise_conv2d",) * 6 + ("depthwise_conv1d", "conv2d", "conv2d"))
    flat = operator.endswith("1d")
    width = _log(rng, 4, 160)
    height = 1 if flat else width if rng.random() < 0.7 else _log(rng, 4, 160)
    kernel = [rng.choice((1, 3, 3, 5, 7))] * 2
    multiplier = 1
    stride: Any = rng.choice((1, 1, 2))
    dilation: Any = 1
    if kind == "large":
        rows = 2 * _log(rng, 3, 25) + 1
        kernel = [rows, rows if rng.random() < 0.8 else rng.choice((3, 5, 7))]
    padding: Any = (kernel[0] // 2, kernel[1] // 2)
    if kind == "odd":
        kernel = [_log(rng, 1, 12), _log(rng, 1, 12)]
        stride, dilation = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 1, 2, 3))
        multiplier = rng.choice((1, 1, 1, 2, 3))
        padding = [rng.randint(0, k * dilation) for k in (*kernel, *kernel)]
    if flat:
        kernel[0], padding = 1, padding[-1]
    pass_ = rng.choice(tuple(Conv.PASSES))
    channels = _log(rng, 1, 600) if kind == "odd" else 8 * _log(rng, 1, 96)
    groups = rng.choice((1, 1, 2, 4)) if operator == "conv2d" else 0
    if groups:
        channels, multiplier = groups * -(-channels // groups), 8 * _log(rng, 1, 64)
    return Conv(
        operator=operator, batch=rng.choice((1, 1, 2, 8, 32, 64, 64, 64, 128)), channels=channels,
        height=height, width=width, groups=groups, multiplier=multiplier, kernel_h=kernel[0],
        kernel_w=kernel[1], padding=padding, stride=stride, dilation=dilation, pass_=pass_,
        dtype=rng.choice(_TYPES), layout=rng.choice(LAYOUTS[operator]),
        epilogue=() if pass_ == "wgrad" else parse_epilogue(rng.choice(_EPILOGUES)),
    )  # fmt: skip


def forget_records(shipped: bool) -> None:
    """Let no choice of this process find records of this machine, or those of the package."""
    os.environ["TILEWRIGHT_CACHE"] = "off"
    patch.object(knn, "own", lambda kind: ()).start()
    patch.object(choice, "_cache", ProfileCache).start()
    if not shipped:
        patch.object(knn, "shipped", lambda kind: ()).start()


def unseen(p: Problem) -> Problem:
    """The same problem, of which nothing is known."""
    for kept in _kept():
        kept.cache_clear()
    return p.replace()


@functools.cache
def _kept() -> list[Any]:
    """The functions of schedules that keep what they found of problems."""
    modules = [m for name, m in sys.modules.items() if name.startswith("tilewright.topi.")]
    caches = {id(f): f for m in modules for f in vars(m).values() if hasattr(f, "cache_clear")}
    return [f for f in caches.values() if re.search("Problem|Conv", str(signature(f)))]


def calls_of(p: Problem, target: str) -> int:
    """Calls that one choice makes."""
    found, p, before = 0, unseen(p), sys.getprofile()

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        choose(p, target)
    finally:
        sys.setprofile(before)
    return found


def seconds_of(p: Problem, target: str) -> float:
    """The processor's time that one choice takes."""
    p = unseen(p)
    start = time.process_time()
    choose(p, target)
    return time.process_time() - start


def cost(p: Problem, target: str) -> dict[str, Any]:
    """What one choice takes, and what is chosen."""
    return {
        "problem": str(p), "target": target,
        "ms": round(min(seconds_of(p, target) for _ in range(_RUNS)) * 1e3, 2),
        "calls": calls_of(p, target), "choice": str(choose(p, target)),
    }  # fmt: skip


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By target, the median, the 90th percentile and the worst."""
    found = []
    for target in TARGETS:
        line: dict[str, Any] = {"target": target}
        for unit in ("ms", "calls"):
            ordered = sorted(row[unit] for row in rows if row["target"] == target)
            line |= {
                f"median {unit}": statistics.median(ordered),
                f"90 % {unit}": ordered[int(0.9 * (len(ordered) - 1))],
                f"worst {unit}": ordered[-1],
            }
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="problems")
    parser.add_argument("--seed", type=int, default=0, help="other problems")
    parser.add_argument("--no-shipped", action="store_true", help="without the package's records")
    parser.add_argument("--out", help="folder for choice_latency.json")
    arguments = parser.parse_args()
    forget_records(not arguments.no_shipped)
    drawn = list(problems(arguments.count, arguments.seed))
    for p in drawn:  # what a process does once
        for target in TARGETS:
            choose(p, target)
    rows = [cost(p, target) for p in drawn for target in TARGETS]
    for row in rows:
        print(f"{row['ms']:8.1f} ms {row['calls']:7} calls  {row['target']:18} {row['problem']}")
    print(measure.table(summary(rows)))
    if arguments.out:
        environment = measure.environment(gpu=False)
        results = {**environment, "summary": summary(rows), "choices": rows}
        print(measure.save("choice_latency", results, arguments.out))


if __name__ == "__main__":
    main()
