"""Kernels of records as another version compiles them, and as this one does: code and times.

    python benchmarks/old_and_new.py --old main --templates gpu.toeplitz_rows --build /tmp/both
    python benchmarks/old_and_new.py --time /tmp/both --name h200_banded

The first line takes every schedule of these templates that the package has on record, and that is
for the architecture, compiles it with both versions (NVRTC is needed, a GPU is not), and says what
differs of instructions, registers and bytes of memory, and how many spill. ``--old`` is a commit,
or a folder with a checkout. The second line times both kernels of each on the GPU at hand, in turns
in one process, after their results were compared with a float64 reference; a ratio is the new time
by the old one. Code that is equal to the last instruction is timed too, for the noise that the
others are to be judged by.

With ``--choices`` they are the first choices for the layers of the benchmarks, of large filters
too, and for 200 shapes that nobody tuned, as each version chooses with its own records. Only where
the CUDA C++, or the shared memory that a launch asks for, is another are they compiled and timed:
the ratio of all others is reckoned as 1.

A folder that was built elsewhere may be copied, and a run that was cut goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.runtime.sass import opcodes
from tilewright.target import Target
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES
from tilewright.tune.tuned import shipped

if TYPE_CHECKING:  # what old versions lack
    from tilewright.tune.tuned import Ranked

#: What multiplies, moves, branches and waits, and what loads and stores registers in memory.
COUNTED = ("HMMA", "HGMMA", "LDSM", "LDS", "LDG", "STS", "STG", "PRMT", "BRA", "BAR", "LDL", "STL")
_SIDES = ("old", "new")
#: What both versions call it, a problem, and what says a template's name and parameters for it.
Found: TypeAlias = "tuple[str, Problem, Callable[[], tuple[str, dict[str, int]]]]"
#: Rounds of a problem, seconds of a batch of launches, and seconds a problem, about.
_ROUNDS, _SPAN, _SECONDS = 25, 0.002, 1.0
#: The seed of the shapes that nobody tuned, and how many have small filters, and large ones.
_SEED, _SMALL, _LARGE = 5101, 150, 50


def code(path: str) -> dict[str, Any]:
    """What a kernel in a file consists of."""
    kernel = tilewright.load(path)
    counts: Counter[str] = Counter()
    order = opcodes(kernel.assembly)
    for name, count in order.items():
        counts[name.partition(".")[0]] += count
    used = list(kernel.resources.values())
    return {
        **{name: counts[name] for name in COUNTED},
        "registers": max(u.registers or 0 for u in used),
        "shared": max(u.shared_memory or 0 for u in used),
        "asked": getattr(kernel.program, "asked_shared", 0),
        "spills": max(u.spills or 0 for u in used),
        "instructions": sum(counts.values()),
        "text": hashlib.sha256(_operations(kernel.assembly).encode()).hexdigest()[:16],
    }


def _operations(assembly: str) -> str:
    """Instructions with their operands, without names of kernels and addresses."""
    lines = (line.split("*/", 1)[-1].split("/*", 1)[0].strip() for line in assembly.splitlines())
    return "\n".join(line for line in lines if line.endswith(";"))


def on_record(wanted: tuple[str, ...], best: int, target: Target) -> Iterator[Found]:
    """The schedules that the package has on record, of each problem the ``best`` first."""
    for t in shipped("cuda"):
        for r in t.best[:best]:
            fits = TEMPLATES[r.template].fits(t.problem, target)
            if (r.template in wanted or not wanted) and fits:
                key = json.dumps([str(t.problem), r.template, dict(r.values)], sort_keys=True)

                def known(r: Ranked = r) -> tuple[str, dict[str, int]]:
                    return r.template, dict(r.values)

                yield key, t.problem, known


def first_choices(target: Target) -> Iterator[Found]:
    """The first choices of tables and of shapes that nobody tuned, in that order."""
    import gpu_layers
    import large_kernels
    import untuned_shapes

    from tilewright.select.knn import guesses  # which versions before it lack

    tables = (*gpu_layers.sections(), *large_kernels.sections())
    drawn = untuned_shapes.problems(_SMALL, _SEED), untuned_shapes.large_problems(_LARGE, _SEED)
    for k, p in enumerate((*(p for _, p in tables), *chain(*drawn))):

        def choice(p: Problem = p) -> tuple[str, dict[str, int]]:
            first = next(guesses(p, target, "NVIDIA H200"))
            return first.template, dict(vars(first.config))

        yield f"{k} {p}", p, choice


def make(folder: Path, found: Iterator[Found], arguments: argparse.Namespace) -> None:
    """Compile schedules with the version that runs, or with ``--texts`` only write them, and say
    what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    target = Target.parse(f"cuda -arch={arguments.arch}")
    wanted = [one for one in found if re.search(arguments.only, str(one[1]))]
    for key, p, choice in wanted[arguments.first :: arguments.every]:
        k = hashlib.sha256(key.encode()).hexdigest()[:16]  # what both versions call it
        path, said = folder / f"{k}.kernel", folder / f"{k}.json"
        if said.exists() and (path.exists() or arguments.texts):  # of a run that was cut
            continue
        if said.exists() and not _differs(folder.parent, k):
            continue
        name, values = choice()
        row: dict[str, Any] = {"problem": p.to_dict(), "template": name, "values": values}
        template = TEMPLATES[name]
        config = template.parse(values)
        try:
            d = template.declare(p, config)
            s = template.schedule(d, config)
            if arguments.texts:
                made = generate(tilewright.lower(s, d.args, target), arguments.arch)
                asked = [[kernel.dynamic_shared, kernel.asked] for kernel in made.kernels]
                row["text"] = hashlib.sha256(f"{made.text}{asked}".encode()).hexdigest()[:16]
            else:
                tilewright.build(s, d.args, target).save(str(path))
                row["code"] = code(str(path))
        except tilewright.ir.errors.TilewrightError as error:
            row["error"] = str(error)
        said.write_text(json.dumps(row))
        print(k, p, name, row.get("error", ""), flush=True)


def _differs(folder: Path, name: str) -> bool:
    """Whether a schedule's text was another, where only texts were written."""
    sides = [json.loads((folder / side / f"{name}.json").read_text()) for side in _SIDES]
    texts = [row.get("text") for row in sides]
    return None in texts or texts[0] != texts[1]


def build(arguments: argparse.Namespace) -> None:
    """Compile with both versions, and compare."""
    here = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as folder:
        old = Path(arguments.old)
        if not (old / "src").is_dir():
            old = Path(folder)
            packed = subprocess.run(
                ["git", "archive", arguments.old, "src"], cwd=here, check=True, capture_output=True
            )
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
                archive.extractall(old, filter="data")
        steps = (["--choices", "--texts"], ["--choices"]) if arguments.choices else ([],)
        for step, (side, root) in product(steps, zip(_SIDES, (old, here), strict=True)):
            command = [
                sys.executable, __file__, "--make", str(Path(arguments.build) / side),
                "--templates", arguments.templates, "--arch", arguments.arch,
                "--every", str(arguments.every), "--first", str(arguments.first),
                "--only", arguments.only, "--best", str(arguments.best), *step,
            ]  # fmt: skip
            path = os.pathsep.join((str(root / "src"), os.environ.get("PYTHONPATH", "")))
            found = {**os.environ, "PYTHONPATH": path}
            subprocess.run(command, env=found, check=True, stdout=subprocess.DEVNULL)
    compare(Path(arguments.build))


def pairs(folder: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What both versions made of each record, by what they call it."""
    made = [{p.stem for p in (folder / side).glob("*.json")} for side in _SIDES]
    names = sorted(made[0] & made[1])
    return [
        (name, *(json.loads((folder / side / f"{name}.json").read_text()) for side in _SIDES))
        for name in names
    ]


def _is_equal(old: dict[str, Any], new: dict[str, Any]) -> bool:
    if "code" not in old:
        return True  # of texts only those that differ are compiled
    return all(old["code"].get(k) == new["code"].get(k) for k in ("text", "asked"))


def compare(folder: Path) -> None:
    """Print what differs."""
    count = same = equal = spilling = texts = 0
    for name, old, new in pairs(folder):
        count += 1
        if "text" in old or "text" in new:
            texts += old.get("text") == new.get("text")
            continue
        if "error" in old or "error" in new:
            print(name, Problem.from_dict(old["problem"]), old.get("error"), new.get("error"))
            continue
        what = {
            k: (v, new["code"][k])
            for k, v in old["code"].items()
            if v != new["code"][k] and k != "text"
        }
        counted = {k: v for k, v in what.items() if k != "instructions"}
        same += not counted
        spilling += new["code"]["spills"] > 0
        equal += _is_equal(old, new)
        if counted:
            p = Problem.from_dict(old["problem"])
            print(name, p, old["template"], old["values"].values(), what)
    known = f"{texts} with equal texts, " if texts else ""
    print(f"{count}: {known}{equal} with equal code, {same} with equal counts; {spilling} spill")


def timed(p: Problem, files: dict[str, Path]) -> dict[str, float]:
    """Microseconds by side, of kernels in files, each of which is right."""
    import gpu_depthwise

    from tilewright.cli._measure.turns import of_graph, take_turns
    from tilewright.topi.operators.conv import Conv

    assert isinstance(p, Conv)
    subject = gpu_depthwise.Layer(p)
    operands, n = subject.operands(), subject.sets
    batches = {}
    for side, path in files.items():
        kernel = tilewright.load(path)
        subject.result[0].fill_(math.nan)
        kernel(*operands[0], subject.result[0])
        error = subject.error()
        if not error <= gpu_depthwise.most_error(p):
            raise AssertionError(f"{p}: the {side} kernel has an error of {error:.2g}")

        def call(i: int, kernel: Any = kernel) -> None:
            kernel(*operands[i % n], subject.result[i % n])

        batches[side] = of_graph(call, n)
    found = take_turns(batches, _ROUNDS, _SPAN, _SECONDS)
    return {side: statistics.median(seconds) * 1e6 for side, seconds in found.items()}


def time(arguments: argparse.Namespace) -> None:
    """Time both kernels of each record, and save what they took."""
    import measure
    import torch

    folder, rows, begin = Path(arguments.time), [], monotonic()
    found = [pair for pair in pairs(folder) if "error" not in pair[1] | pair[2]]
    random.Random(0).shuffle(found)
    known = [pair for pair in found if all("code" in row for row in pair[1:])]
    # What differs comes first, where there is no time for all.
    for name, old, new in sorted(known, key=lambda pair: _is_equal(*pair[1:])):
        if monotonic() - begin > arguments.within:
            break
        p = Problem.from_dict(old["problem"])
        micros = timed(p, {side: folder / side / f"{name}.kernel" for side in _SIDES})
        row = {
            "problem": str(p), "template": old["template"], "values": [*old["values"].values()],
            **{f"{side} us": micros[side] for side in _SIDES},
            "ratio": micros["new"] / micros["old"],
            "equal code": _is_equal(old, new),
        }  # fmt: skip
        if (now := [new["template"], *new["values"].values()]) != [row["template"], *row["values"]]:
            row["chosen now"] = now
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    alike = sum("text" in old and old.get("text") == new.get("text") for _, old, new in found)
    ratios = sorted([row["ratio"] for row in rows] + [1.0] * alike)
    summary = {
        "records": len(ratios),
        "equal texts, reckoned as 1": alike,
        "geometric mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
        "95 % at most": ratios[math.ceil(0.95 * len(ratios)) - 1],
        "within 1.02": sum(r <= 1.02 for r in ratios) / len(ratios),
        "equal code": sum(row["equal code"] for row in rows),
        "left out": len(found) - alike - len(rows),
    }
    print(json.dumps(summary))
    result = {"environment": measure.environment("torch"), "summary": summary, "rows": rows}
    print(measure.save(arguments.name, result, arguments.out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--old", default="main", help="a commit, or a folder with a checkout")
    parser.add_argument(
        "--templates",
        default="",
        help="their names, with commas between; by default all",
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="of problems, by name")
    parser.add_argument("--every", type=int, default=1, help="take every N-th record")
    parser.add_argument("--first", type=int, default=0, help="from this one on")
    parser.add_argument("--best", type=int, default=99, help="records of a problem to take")
    parser.add_argument("--arch", default="sm_90a", help="of the GPU")
    parser.add_argument("--build", metavar="FOLDER", help="compile both versions into it")
    parser.add_argument("--compare", metavar="FOLDER", help="say what differs there again")
    parser.add_argument("--time", metavar="FOLDER", help="time what is there")
    parser.add_argument(
        "--within", type=float, default=math.inf, metavar="SECONDS", help="and time no more then"
    )
    parser.add_argument("--choices", action="store_true", help="first choices, not records")
    parser.add_argument("--make", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--texts", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--name", default="h200_old_and_new", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    if arguments.make:
        target = Target.parse(f"cuda -arch={arguments.arch}")
        wanted = tuple(filter(None, arguments.templates.split(",")))
        records = on_record(wanted, arguments.best, target)
        found = first_choices(target) if arguments.choices else records
        make(Path(arguments.make), found, arguments)
    elif arguments.build:
        build(arguments)
    elif arguments.compare:
        compare(Path(arguments.compare))
    elif arguments.time:
        time(arguments)
    else:
        parser.error("give --build, --compare or --time")


if __name__ == "__main__":
    main()
