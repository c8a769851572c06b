"""Makes a file of records that the package brings, of measured sweeps over candidates.

A sweep is JSON lines, a problem each: ``{"problem": {...}, "times": {"template v, v, ...": us}}``,
compressed or not, or the results of ``large_kernels.py``, which have the fastest of each problem;
what a later file says of a candidate counts. bfloat16 takes the times of schedules that were only
measured in float16: the kernels differ in their conversions only.

    PYTHONPATH=src python benchmarks/ship_records.py SWEEP... --device "NVIDIA H200"

With ``--add``, what the file already has of other problems stays; with ``--merge``, what it has of
other schedules of the same problems too, with the times of then: for sweeps of new schedules alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from large_kernels import sections

from tilewright import __version__
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES
from tilewright.tune.measure import Device
from tilewright.tune.tuned import FOLDER, LEAST, MOST, WITHIN, Ranked, Tuned, file_name, read, write

Candidate = tuple[str, tuple[tuple[str, int], ...]]


def sweep(path: str) -> Iterator[tuple[Problem, dict[Candidate, float]]]:
    """The problems of a file with the microseconds of every candidate that was right."""
    if path.endswith(".json"):
        yield from _best(json.loads(Path(path).read_text())["rows"])
        return
    with gzip.open(path, "rt") if path.endswith(".gz") else Path(path).open() as lines:
        for line in lines:
            given = json.loads(line)
            if "times" not in given:
                continue
            times = {}
            for name, micros in given["times"].items():
                found = candidate(name)
                if found is not None:
                    times[found] = float(micros)
            yield Problem.from_dict(_plain(given["problem"])), times


def _best(rows: list[dict[str, Any]]) -> Iterator[tuple[Conv, dict[Candidate, float]]]:
    """The fastest candidate of each row of results of ``large_kernels.py``."""
    problems = {
        (section, p.pass_, f"{p.batch}x{p.channels}x{p.height}x{p.width}", p.kernel_h): p
        for section, p in sections()
    }
    for row in rows:
        found = candidate(row["tile"])
        if found is not None:
            place = (row["section"], row["pass"], row["shape"], row["kernel"])
            yield problems[place], {found: float(row["tilewright us"])}


def _plain(problem: dict[str, Any]) -> dict[str, Any]:
    return {k.rstrip("_"): v for k, v in problem.items()}


def candidate(name: str) -> Candidate | None:
    """The template and parameters that ``"gpu.strips 4, 4, ..."`` stands for; parameters that the
    template got later have their defaults. None for what is no candidate of ours."""
    template, _, numbers = name.partition(" ")
    if template not in TEMPLATES:
        return None
    config = TEMPLATES[template].config(*(int(v) for v in numbers.split(",")))
    return template, tuple(sorted(asdict(config).items()))


def whole(r: Ranked) -> Candidate:
    """A record's schedule, with defaults for parameters that its template got later."""
    return r.template, tuple(sorted(asdict(TEMPLATES[r.template].parse(dict(r.values))).items()))


def fastest(times: dict[Candidate, float]) -> tuple[Ranked, ...]:
    ranked = sorted((micros, c) for c, micros in times.items())[:MOST]
    kept = [r for k, r in enumerate(ranked) if k < LEAST or r[0] <= WITHIN * ranked[0][0]]
    return tuple(Ranked(template, values, micros * 1e-6) for micros, (template, values) in kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--target", default="cuda -arch=sm_90a")
    parser.add_argument("--driver", default="CUDA 13.0")
    parser.add_argument("--add", action="store_true", help="keep the records of other problems")
    parser.add_argument("--merge", action="store_true", help="keep other schedules, too")
    arguments = parser.parse_args()
    found: dict[Problem, dict[Candidate, float]] = {}
    for path in arguments.sweeps:
        for problem, times in sweep(path):
            found.setdefault(problem, {}).update(times)
    path = FOLDER / file_name(arguments.target, arguments.device)
    old = read(path) if arguments.add or arguments.merge else []
    if any(t.target != arguments.target for t in old):
        raise SystemExit(f"{path} has records of another target than {arguments.target}")
    before = {t.problem: {whole(r): r.seconds * 1e6 for r in t.best} for t in old}
    known = before if arguments.merge else {}
    for problem in [p for p in found if p.dtype == "float16"]:
        alike = replace(problem, dtype="bfloat16")
        found[alike] = {**found[problem], **known.get(alike, {}), **found.get(alike, {})}
    measured = {p: {**known.get(p, {}), **times} for p, times in found.items()}
    found = {**before, **measured}
    tuned = [
        Tuned(problem, arguments.target, arguments.device, fastest(times))
        for problem, times in found.items()
        if times
    ]
    write(path, tuned, Device(arguments.device, arguments.driver, __version__))
    print(f"{path}: {len(tuned)} problems")


if __name__ == "__main__":
    main()
