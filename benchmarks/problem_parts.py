"""Many problems measured one after another, while kernels for the next ones are built beside it.

A part is what one GPU of several does of them (:mod:`parts`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import measure

import tilewright
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.templates import TEMPLATES, templates

#: Kernels tried for a problem.
_TRIED = 5
#: Kernels under way: by what they are called, the file and what compiles into it.
Builds: TypeAlias = "dict[str, tuple[str, Future[str]]]"
#: A template's name with parameters.
Named: TypeAlias = "tuple[str, dict[str, int]]"
#: Measures a problem: with kernels by what they are called, and bytes a second of a large copy.
Row: TypeAlias = Callable[[Conv, dict[str, str], float], dict[str, Any]]


def build(p: Convolution, template: str, values: dict[str, int], target: str, path: str) -> str:
    """Compile a kernel into a file; why not, where it cannot be."""
    try:
        chosen = TEMPLATES[template]
        config = chosen.parse(values)
        declaration = chosen.declare(p, config)
        schedule = chosen.schedule(declaration, config)
        kernel = tilewright.build(schedule, declaration.args, target)
        kernel.save(path)
    except tilewright.ir.errors.TilewrightError as error:
        return str(error)
    return ""


def first_choices(p: Conv, target: str, count: int = _TRIED) -> list[Named]:
    """Templates with parameters, in the order in which the heuristic prefers them, each once."""
    from tilewright.select.choice import options

    found: list[Named] = []
    for choice in options(p, tilewright.Target.parse(target)):
        named = choice.algorithm.name, choice.algorithm.to_values(choice.config)
        if choice.algorithm.name in TEMPLATES and named not in found:
            found.append(named)
            if len(found) == count:
                break
    return found


def wider_choices(
    p: Conv, target: str, count: int, own: int, of: Sequence[str] = ()
) -> list[Named]:
    """:func:`first_choices`, and of every template, or of those of these names, ``own`` by its own
    order that are none of them: what records and trees do not know yet."""
    found = first_choices(p, target, count)
    for template in templates(p, target):
        if of and template.name not in of:
            continue
        for config in template.candidates(p, tilewright.Target.parse(target))[:own]:
            if (named := (template.name, dict(vars(config)))) not in found:
                found.append(named)
    return found


def begin_builds(
    pool: ProcessPoolExecutor, stem: Path, p: Conv, target: str,
    choices: list[Named] | None = None,
) -> Builds:  # fmt: skip
    """Compile the first choices for a problem, or others, into files that begin with ``stem``."""
    begun: Builds = {}
    for template, values in first_choices(p, target) if choices is None else choices:
        name = f"{template} {', '.join(f'{v}' for v in values.values())}"
        path = f"{stem}-{len(begun)}.kernel"
        begun[name] = path, pool.submit(build, p, template, values, target, path)
    return begun


def built(begun: Builds) -> dict[str, str]:
    """The files of the kernels that could be compiled."""
    return {name: path for name, (path, failure) in begun.items() if not failure.result()}


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of PyTorch's addition of a number to 2 GB."""
    import torch

    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    rounds = measure.ROUNDS, measure.LAUNCHES
    measure.ROUNDS, measure.LAUNCHES = 20, 2
    found = measure.graph_medians({"copy": lambda _: torch.add(source, 1.0, out=target)})
    measure.ROUNDS, measure.LAUNCHES = rounds
    return float(8.0 * source.numel() / (found["copy"] * 1e-6))


def run_part(
    arguments: argparse.Namespace,
    target: str,
    problems: Sequence[tuple[str, Conv]],
    row: Row,
    says: Callable[[dict[str, Any]], str],
    choices: Callable[[Conv, str], list[Named]] = first_choices,
) -> None:
    """Every ``--gpus``-th problem from the ``--part``-th on, on the first visible GPU or the CPU.

    Rows go to ``part-K.json`` in ``--out``, each with its section and its problem, as soon as they
    are there: a run that is cut leaves what it had. ``says`` is what is printed of one.
    """
    mine = problems[arguments.part :: arguments.gpus]
    gpu = not target.startswith("llvm")
    rows: list[dict[str, Any]] = []
    processes = max(2, len(os.sched_getaffinity(0)) // arguments.gpus)
    with TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        list(pool.map(abs, range(processes * 4)))  # made before this process opens the GPU
        jobs = [
            begin_builds(pool, Path(folder) / str(k), p, target, choices(p, target))
            for k, (_, p) in enumerate(mine)
        ]
        import torch

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        bandwidth = copy_bandwidth() if gpu else float("nan")
        environment = measure.environment("torch")
        begin = time.perf_counter()
        for (section, p), kernels in zip(mine, jobs, strict=True):
            try:
                found = row(p, built(kernels), bandwidth)
            except Exception as error:  # one problem must not cost the others
                print(f"{p}: {error!r}", flush=True)
                continue
            rows.append({"section": section, "problem": p.to_dict(), **found})
            seconds = time.perf_counter() - begin
            print(f"{len(rows)}/{len(mine)} {seconds:.0f}s {p}: {says(found)}", flush=True)
            if gpu:
                torch.cuda.empty_cache()
            result = {
                "environment": environment, "bandwidth GB/s": bandwidth / 1e9, "rows": rows
            }  # fmt: skip
            Path(f"{arguments.out}/part-{arguments.part}.json").write_text(json.dumps(result))


def results(
    arguments: argparse.Namespace,
    found: Sequence[dict[str, Any]],
    place: Callable[[dict[str, Any]], Any],
) -> dict[str, Any]:
    """The results of all parts, the rows by their ``place``.

    What all kernels tried took goes to ``NAME-tried.jsonl`` in ``--out``, and from the rows.
    """
    rows = sorted((row for part in found for row in part["rows"]), key=place)
    with Path(f"{arguments.out}/{arguments.name}-tried.jsonl").open("w") as tried:
        for row in rows:
            line = {"problem": row.pop("problem"), "times": row.pop("tried")}
            tried.write(json.dumps(line) + "\n")
    return {
        "environment": found[0]["environment"],
        "bandwidth GB/s": statistics.median(part["bandwidth GB/s"] for part in found),
        "GPUs": arguments.gpus,
        "rows": rows,
    }
