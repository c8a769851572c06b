"""Run random programs by the thousand: ``python -m tests.fuzz --target llvm --programs 30000``.

Each program is decided by one integer, its seed: a declaration, a schedule of it and its inputs
(``tests/support/fuzzing.py``). It is lowered and proved, run, and compared with what the
declaration means in the machine's arithmetic (``tests/support/declared.py``). It runs in a process
of its own kind, so that one which dies, hangs or takes too much memory is counted like any other.

``--target onnx`` is for ONNX files with mistakes in them (``tests/support/model_mutants.py``), each
in a folder with data beside it and outside of it, which the process may not open; it has 2 GiB.

``--target problems-llvm`` and the like draw problems of the library's operators, each with any of
its schedules (``tests/support/drawn_problems.py``).

``--plain`` does not optimise the code for CPUs, so that a program takes half the time: it asks what
programs mean, and not what LLVM makes of the attributes of their code.

``--show SEED`` prints a program and what becomes of it, ``--shrink SEED`` a smaller one that fails
alike. The exit status is 1 where a program was wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from tests.support.shrinking import shrink
from tests.support.workers import GOOD, Result, Workers, program_of

MEANING = {
    "right": "computed what was declared",
    "refused": "the schedule or its lowering was refused",
    "rejected": "verify refused what promised nothing",
    "doubted": "verify refused what is right",
    "unproved": "lowering made what sim and verify refute",
    "wrong": "another result",
    "missed": "proved, and sim or the declaration refutes it",
    "internal": "an error that is not Tilewright's own, or source that does not compile",
    "large": "a model, or a program for sim, that is made, and is too large to run here",
    "memory": "an error of memory that is not Tilewright's own",
    "escaped": "a file outside of the model's folder was read",
    "died": "the process ended",
    "timeout": "the process did not come to an end",
}


def signature(found: Result) -> str:
    """What failures of one cause have in common: the message without names and numbers."""
    lines = [line.strip() for line in found.detail.strip().splitlines()] or [""]
    text = lines[-1] if found.kind == "internal" else " ".join(lines[:2])
    if finding := re.search(r"the simulation found .*?: (?:- )?([a-z ]*) in kernel", text):
        text = f"sim finds {finding[1]}"
    elif finding := re.search(r"[0-9]+ findings?:\s*- (could not prove|[a-z ]*)", text):
        text = f"verify finds {finding[1]}"
    text = re.sub(r"`[^`]*`|'[^']*'|\(.*\)|\[.*\]|[A-Z][a-z]*[0-9_]+\S*", "..", text)
    return f"{found.kind}: {re.sub(r'-?[0-9.]+', '#', text)[:110]}"


class Tally:
    """Outcomes counted, by kind and by signature."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.seeds: dict[str, list[int]] = defaultdict(list)
        self.samples: dict[str, Result] = {}

    def add(self, found: Result) -> None:
        assert isinstance(found.task, int)
        self.kinds[found.kind] += 1
        if found.kind != "right":
            self.seeds[signature(found)].append(found.task)
            self.samples.setdefault(signature(found), found)

    @property
    def bad(self) -> int:
        return sum(n for kind, n in self.kinds.items() if kind not in GOOD)

    def __str__(self) -> str:
        lines = [f"{n:8,}  {kind:9} {MEANING[kind]}" for kind, n in self.kinds.most_common()]
        for good in (True, False):
            for name, seeds in sorted(self.seeds.items(), key=lambda item: -len(item[1])):
                if (self.samples[name].kind in GOOD) == good:
                    shown = " ".join(map(str, sorted(seeds)[:8]))
                    lines.append(f"{len(seeds):8,}  {name}" + ("" if good else f"\n{'':10}{shown}"))
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        failures = {
            name: {"seeds": sorted(seeds), "detail": self.samples[name].detail[:2000]}
            for name, seeds in self.seeds.items()
        }
        return {"outcomes": dict(self.kinds), "by_message": failures}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    kinds = ["llvm", "sim", "opencl", "registers", "lowered", "onnx"]
    kinds += [f"{kind}-windows" for kind in kinds[:3]]
    kinds += [f"problems-{kind}" for kind in (*kinds[:3], "cuda")]
    parser.add_argument("--target", choices=kinds, default="llvm")
    parser.add_argument("--stages", help="only those of this name in tests/support, as spread")
    parser.add_argument("--plain", action="store_true", help="code that LLVM does not optimise")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one program")
    parser.add_argument("--within", type=float, default=math.inf, help="seconds to begin programs")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--shrink", type=int, metavar="SEED")
    parser.add_argument("--tries", type=int, default=400, help="programs that --shrink may run")
    chosen = parser.parse_args()
    if chosen.stages:
        chosen.target += f"/{chosen.stages}"
    return chosen


def show(target: str, seed: int) -> None:
    from tests.support.pocl import name_processors

    if "opencl" in target:
        name_processors()
    program = program_of(target)(target, seed)
    found = program.outcome()
    print(f"# {found.kind}: {found.detail}\n{program}")


def smaller(target: str, seed: int, tries: int, limit: float, plain: bool) -> None:
    program = program_of(target)(target, seed)
    program.draw()
    workers = Workers(target, 1, limit, plain=plain)
    (first,) = workers.run([seed])
    like = signature(first)

    def fails(rolled: list[int]) -> bool:
        (found,) = workers.run([rolled])
        return signature(found) == like

    best = shrink(program.dice.rolled, fails, tries)
    (last,) = workers.run([best])
    workers.close()
    print(f"# seed {seed}: {last.kind}: {last.detail}\n{program_of(target)(target, best).draw()}")


def main() -> int:
    chosen = arguments()
    if chosen.show is not None:
        show(chosen.target, chosen.show)
        return 0
    if chosen.shrink is not None:
        smaller(chosen.target, chosen.shrink, chosen.tries, chosen.limit, chosen.plain)
        return 0
    tally, start = Tally(), time.monotonic()
    workers = Workers(chosen.target, chosen.jobs, chosen.limit, plain=chosen.plain)
    seeds = range(chosen.seed, chosen.seed + chosen.programs)
    for found in workers.run(takewhile(lambda _: time.monotonic() - start < chosen.within, seeds)):
        tally.add(found)
        count = tally.kinds.total()
        if count % 500 == 0 and sys.stderr.isatty():
            print(f"{count} programs, {tally.bad} bad", file=sys.stderr)
    workers.close()
    seconds = time.monotonic() - start
    programs = tally.kinds.total()
    print(f"{tally}\n{programs:,} programs on {chosen.target} in {seconds:.0f} s")
    if chosen.json:
        head = {
            "command": " ".join(["python -m tests.fuzz", *sys.argv[1:]]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.platform(), "python": platform.python_version(),
            "target": chosen.target, "programs": programs, "seconds": round(seconds),
        }  # fmt: skip
        chosen.json.write_text(json.dumps({**head, **tally.as_json()}, indent=1) + "\n")
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
