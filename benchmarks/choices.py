"""What is chosen for tables of problems without measuring: compared between versions, and counted.

The layers of the benchmarks of GPUs and of CPUs, and random problems (those of
``choice_latency.py``), on fixed targets; those of Hopper as on the H200 of the shipped records, and
again without records. Of each the first choices are kept, templates with their parameters. No GPU
is needed.

    PYTHONPATH=src python benchmarks/choices.py --out /tmp/before.json
    PYTHONPATH=src python benchmarks/choices.py --against /tmp/before.json
    PYTHONPATH=src python benchmarks/choices.py --first

A refactoring of what proposes tiles changes nothing: ``--against`` lists the choices that differ,
and its status is then 1. ``--first`` counts how often each template is chosen first, by target: one
that never is may be left out. All of it takes some four minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import cpu_layers
import gpu_dense
import gpu_layers
import large_kernels
from choice_latency import forget_records, problems

from tilewright.ir.errors import TilewrightError
from tilewright.select import choice, knn
from tilewright.select.choice import options
from tilewright.topi.problem import Problem
from tilewright.tune.tuned import shipped

H200 = "NVIDIA H200"
HOPPER, AMPERE = "cuda -arch=sm_90a", "cuda -arch=sm_80"
OPENCL = "opencl -device=any"
CPUS = ("llvm -arch=avx512 -threads=4", "llvm -arch=amx -threads=4")
#: Choices of a problem that are kept.
_KEPT = 3

#: By target and problem, the first choices.
Choices = dict[str, list[str]]


def of_gpus() -> Iterator[Problem]:
    """The layers of the benchmarks of GPUs, depthwise and dense."""
    for sections in (gpu_layers.sections(), large_kernels.sections()):
        yield from (p for _, p in sections)
    for layers in gpu_dense.LAYERS.values():
        for layer in layers:
            for batch, dtype, pass_ in (
                (64, "float16", "forward"), (64, "float16", "dgrad"), (64, "float16", "wgrad"),
                (1, "float16", "forward"), (64, "tf32", "forward"), (64, "tf32", "dgrad"),
                (64, "tf32", "wgrad"), (64, "tf32x3", "forward"), (64, "tf32x3", "dgrad"),
            ):  # fmt: skip
                yield gpu_dense.problem(layer, pass_, batch, dtype)


def of_cpus() -> Iterator[Problem]:
    """The layers of the benchmarks of CPUs, depthwise, dense, of bytes, transposed and volumes."""
    for dtype in ("float32", "bfloat16", "uint8"):
        for shape, k, stride in (*cpu_layers.LAYERS, *cpu_layers.LARGE):
            for p in cpu_layers.problems(shape, k, stride, dtype):
                yield p
                if dtype != "uint8":
                    yield from (p.replace(pass_=pass_) for pass_ in ("dgrad", "wgrad"))
        for layer in cpu_layers.DENSE:
            yield from cpu_layers.problems(*layer[:3], dtype, *layer[3:])
    for kind in ("transposed", "volumes"):
        yield from (p for _, found in cpu_layers.others(kind) for p in found)


def tables(count: int) -> Iterator[tuple[str, str, Problem]]:
    """Targets, the names of devices at hand, and problems, of which ``count`` are random."""
    drawn = list(problems(count, 0))
    for p in dict.fromkeys((*of_gpus(), *drawn)):
        yield HOPPER, H200, p
        yield HOPPER, "", p
    for target in (AMPERE, OPENCL):
        yield from ((target, "", p) for p in dict.fromkeys((*of_gpus(), *drawn[: count // 4])))
    for target in CPUS:
        yield from ((target, "", p) for p in dict.fromkeys((*of_cpus(), *drawn[: count // 2])))


def chosen(count: int) -> Choices:
    """The first choices for every problem; an error's text where there is none."""
    found: Choices = {}
    for target, device, p in tables(count):
        known = json.dumps({"device": device})
        records = shipped if device else lambda kind: ()
        with patch.object(choice, "machine_of", lambda _, k=known: k), \
             patch.object(knn, "shipped", records):  # fmt: skip
            try:
                first = [str(c).partition(", took")[0] for c in islice(options(p, target), _KEPT)]
            except TilewrightError as error:
                first = [str(error).splitlines()[0]]
        found[f"{target}{device and f' ({device})'}: {p.key}"] = first
    return found


def firsts(found: Choices) -> str:
    """How often each template is first, by target."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for name, choices in found.items():
        template = choices[0].partition("(")[0] if choices else "none"
        count[name.partition(": ")[0]][template] += 1
    lines = []
    for target, each in count.items():
        lines.append(f"{target}: {each.total()} problems")
        lines += [f"  {number:5} {template}" for template, number in each.most_common()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="random problems")
    parser.add_argument("--out", type=Path, help="file for the choices")
    parser.add_argument("--against", type=Path, help="file of another version to compare with")
    parser.add_argument("--first", action="store_true", help="count first choices by template")
    arguments = parser.parse_args()
    forget_records(shipped=True)
    found = chosen(arguments.count)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1))
    if arguments.first:
        print(firsts(found))
    if arguments.against:
        before: Choices = json.loads(arguments.against.read_text())
        changed = [k for k in {**before, **found} if before.get(k) != found.get(k)]
        for name in changed:
            print(name, before.get(name), found.get(name), sep="\n  ")
        print(f"{len(found)} problems, the choices of {len(changed)} differ")
        sys.exit(bool(changed))


if __name__ == "__main__":
    main()
