"""Shapes that nobody tuned: what is chosen for them without measuring, beside a search.

Random convolutions and gradients of the kinds that networks have are drawn. The first choice of the
policy "heuristic" takes turns with what a search would try, the schedules that are ranked first and
as many random ones, all checked against PyTorch in float64: medians of CUDA-graph replays, inputs
rotated past the cache where they are over 8 MB. The fastest of many is partly so by chance: it and
the first choice take turns once more, each loaded several times, and those times are compared, of
each the least: in one of a hundred places a kernel of a microsecond takes three to five more
(loaded_again.py). The share of problems counts whose first choice takes at most 1.2 times as long
as the fastest, of large filters 1.1 times.

    PYTHONPATH=src python benchmarks/untuned_shapes.py --gpus 1 --seconds 240

Schedules that the trees of the choice know nothing of, those of new templates, are tried as well:
the first by the order of the template, and some of the random ones. ``--layout NHWC`` draws only
problems with channels last, and ``--only wgrad s2 batch=1`` takes, of those drawn, what has these
words.

What is not built and measured in that time is left out. With ``--kernels FOLDER`` nothing is built
that the folder has; ``--build --kernels FOLDER --part 0 --device "NVIDIA H200"`` builds all without
a GPU. All times are written beside the results, in the form that benchmarks/fit_ranking.py learns
from; learn from another ``--seed`` than the one that is reported.

With ``--large`` the filters have 7 to 51 rows, channels come first, and what is
tried are the schedules that the choice looks at, of all templates; benchmarks/fit_large.py learns
from them:

    PYTHONPATH=src python benchmarks/untuned_shapes.py --large --gpus 4 --count 160 --seconds 120 \
        --seed 1 --ranked 20 --random 4 --name h200_large_untuned
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import measure
from gpu_depthwise import Layer
from gpu_layers import LAYOUTS, PASSES, TYPES, traffic
from parts import run_on_gpus

import tilewright
from tilewright.cli._measure.turns import Batch, of_graph, take_turns
from tilewright.ir.errors import TilewrightError
from tilewright.select import large_filter_model
from tilewright.select.cost import DESCRIBED
from tilewright.select.first_buildable import first_buildable
from tilewright.select.knn import guesses
from tilewright.select.ranking import model, ranked, unknown
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES, templates
from tilewright.tune.machine import machine

#: Turns of every kernel, seconds of one, and of all of a problem's, about.
_ROUNDS, _SPAN, _SECONDS = 7, 0.001, 0.4
#: Seconds that another run which shares the folder may take to compile those of a problem.
_OTHERS = 25.0
#: Times that what is compared in the end is loaded.
_COPIES = 3
#: What an error may be, relative to the norm of the result.
_ERROR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}
#: Bytes of the images of a problem, by its batch: at least and at most.
_BYTES = {64: (4e6, 400e6), 1: (0.2e6, 20e6)}
#: At most this many times as long as the fastest: what is promised of small filters, and of large.
WITHIN = (1.2, 1.1)
#: Multiplications and additions of a large filter, at most: those of its dozens of schedules.
_OPERATIONS = 1.2e11

#: A template's name with its parameters.
Candidate = tuple[str, dict[str, int]]


def problems(count: int, seed: int, layout: str = "") -> Iterator[Conv]:
    """Layers of batch 64 in all passes, and of batch 1, with 3x3 to 7x7 filters; those of all
    layouts, of which there may be one only."""
    rng = random.Random(seed)
    found: set[Conv] = set()
    while len(found) < count:
        batch = rng.choice((64, 64, 64, 1))
        kernel = rng.choice((3, 3, 5, 5, 7))
        height = round(math.exp(rng.uniform(math.log(7), math.log(128))))
        p = Conv(
            batch=batch,
            channels=8 * round(math.exp(rng.uniform(math.log(2), math.log(128)))),
            height=height,
            width=height if rng.random() < 0.8 else max(7, height + rng.randint(-8, 8)),
            kernel_h=kernel,
            kernel_w=kernel,
            padding=(kernel // 2,) * 4,
            stride=(1 if kernel == 7 else rng.choice((1, 1, 2)),) * 2,
            dtype=rng.choice(TYPES),
            layout=rng.choice(LAYOUTS),
            pass_=rng.choice(PASSES) if batch > 1 else "forward",
        )
        least, most = _BYTES[batch]
        fits = least <= traffic(p) <= most and layout in ("", p.layout)
        if fits and p not in found:
            found.add(p)
            yield p


def large_problems(count: int, seed: int) -> Iterator[Conv]:
    """Layers with filters of 7 to 51 rows, at most about twice as many as the image has, most of
    them square; of batch 1 to 128, in all passes, mostly in 16 bits."""
    rng = random.Random(seed)
    found: set[Conv] = set()

    def log(least: float, most: float) -> float:
        return math.exp(rng.uniform(math.log(least), math.log(most)))

    while len(found) < count:
        height, rows = round(log(7, 72)), 2 * round(log(7, 51) / 2 - 0.5) + 1
        columns = rows if rng.random() < 0.85 else rng.choice((3, 5, 7))
        width = height if rng.random() < 0.7 else max(7, height + rng.randint(-12, 12))
        pass_ = rng.choice(PASSES)
        p = Conv(
            batch=rng.choice((64, 64, 64, 32, 128, 16, 8, 1, 1, 1)),
            channels=8 * round(log(4, 128)),
            height=height,
            width=width,
            kernel_h=rows,
            kernel_w=columns,
            padding=(rows // 2, columns // 2) * 2,
            stride=(2 if pass_ == "forward" and rng.random() < 0.1 else 1,) * 2,
            dtype=rng.choice(("float16", "float16", "float16", "bfloat16", "float32")),
            pass_=pass_,
        )
        fits = traffic(p) <= _BYTES[64][1] and p.nominal_flops <= _OPERATIONS
        if fits and rows < 2.2 * max(height, 8) and p not in found:
            found.add(p)
            yield p


def drawn(arguments: argparse.Namespace) -> Iterator[Conv]:
    """The problems that were asked for."""
    if arguments.large:
        found = large_problems(arguments.count, arguments.seed)
    else:
        found = problems(arguments.count, arguments.seed, arguments.layout)
    asked = set(arguments.only)
    return (p for p in found if asked <= {*str(p).split(), f"batch={p.batch}"})


def name_of(candidate: Candidate) -> str:
    return f"{candidate[0]} {','.join(str(v) for v in candidate[1].values())}"


def candidates(p: Conv, target: str, device: str, first: int, others: int) -> list[Candidate]:
    """What is chosen without measuring on a device, what is ranked first, as many of those that no
    tree knows, then random ones, of large filters also such as the choice does not look at."""
    place = tilewright.Target.parse(target)
    chosen = next(guesses(p, place, device))
    looked = large_filter_model.ranked_large_filters(p, place)
    order = [(r.template.name, vars(r.config)) for r in looked or ranked(p, place)]
    rest = order[first:]
    if looked:  # of which the choice has left most out
        known = {r.template.name: r.template for r in looked if r.template.name not in DESCRIBED}
        rest += [(n, vars(c)) for n, t in known.items() for c in t.candidates(p, place)]
    if looked:
        seen = {r.template.name for r in looked}
        new = [t for t in templates(p, place) if t.name in DESCRIBED and t.name not in seen]
        fresh = strange = [(t.name, vars(c)) for t in new for c in t.candidates(p, place)]
    else:
        strange = [(t.name, vars(c)) for t, c in unknown(p, place)]
        fresh = [c for c in strange if c[0] not in model()]  # others are written in another way
    rest += fresh[first:] + [c for c in strange if c[0] in model()]
    wanted = [(chosen.template, vars(chosen.config))]
    wanted += order[:first] + fresh[:first] + shuffled(rest, str(p))[:others]
    return list({name_of(c): c for c in wanted}.values())


def shuffled(given: list[Candidate], seed: str) -> list[Candidate]:
    """In a random order, in which the templates take turns."""
    of: dict[str, list[Candidate]] = {}
    for c in random.Random(seed).sample(given, len(given)):
        of.setdefault(c[0], []).append(c)
    return [c for turn in zip_longest(*of.values()) for c in turn if c is not None]


def build(p: Conv, candidate: Candidate, target: str, path: str) -> str:
    """Compile a kernel into a file: its registers and spilled bytes, or why it cannot be."""
    template = TEMPLATES[candidate[0]]
    try:
        config = template.parse(candidate[1])
        declaration = template.declare(p, config)
        schedule = template.schedule(declaration, config)
        kernel = tilewright.build(schedule, declaration.args, target, verify=False)
        kernel.save(path)
    except TilewrightError as error:
        Path(path).unlink(missing_ok=True)
        return f"{type(error).__name__}: {error}"
    return str({n: (r.registers, r.spills) for n, r in kernel.resources.items()})


def time_problem(
    p: Conv, files: dict[str, str], chosen: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds by candidate, and once more of ``chosen`` and the fastest; files that are
    missing are left out."""
    layer = Layer(p)
    operands, n = layer.operands(), layer.sets

    def loaded(name: str) -> Batch:
        kernel = tilewright.load(files[name])
        layer.result[0].fill_(math.nan)
        kernel(*operands[0], layer.result[0])
        error = layer.error()
        if not error <= _ERROR[p.dtype]:
            raise AssertionError(f"{p}: {name} has an error of {error:.2g}")
        return of_graph(lambda i: kernel(*operands[i % n], layer.result[i % n]), n)

    batches = {name: loaded(name) for name, path in files.items() if Path(path).exists()}
    times = _medians(take_turns(batches, _ROUNDS, _SPAN, _SECONDS))
    last = {min(times, key=times.__getitem__), chosen} & set(batches)
    copies = {f"{k} {name}": loaded(name) if k else batches[name]
              for name in sorted(last) for k in range(_COPIES)}  # fmt: skip
    found = _medians(take_turns(copies, 2 * _ROUNDS, _SPAN, _SECONDS / 2))
    return times, {name: min(found[f"{k} {name}"] for k in range(_COPIES)) for name in last}


def _medians(found: dict[str, list[float]]) -> dict[str, float]:
    """In microseconds."""
    return {name: statistics.median(seconds) * 1e6 for name, seconds in found.items()}


def prepare(
    p: Conv, target: str, device: str, first: int, others: int, end: float, stem: str
) -> dict[str, tuple[str, str]]:
    """The candidates of a problem, and behind them those that were compiled before, in files that
    begin with ``stem``: by name the file and what :func:`build` says; none where there is no time
    for all of them until ``end``. Of runs that share a folder, one compiles them."""
    said, late = Path(f"{stem}.json"), 0.0
    try:
        Path(f"{stem}.claim").touch(exist_ok=False)
    except FileExistsError:  # another run is at it, or was
        late = min(end, time.monotonic() + _OTHERS)
    while not said.exists() and time.monotonic() < late:
        time.sleep(0.1)
    known: dict[str, str] = json.loads(said.read_text()) if said.exists() else {}
    wanted = {name_of(c): c for c in candidates(p, target, device, first, others)}
    for name in [name for name in wanted if name not in known]:
        if time.monotonic() > end:
            return {}
        known[name] = build(p, wanted[name], target, f"{stem}-{len(known)}.kernel")
    whole = Path(f"{stem}.part-{os.getpid()}")
    whole.write_text(json.dumps(known))
    whole.replace(said)
    place = {name: f"{stem}-{k}.kernel" for k, name in enumerate(known)}
    return {name: (place[name], known[name]) for name in {**wanted, **known}}


def prepared(
    found: dict[int, Conv], processes: int, given: tuple[str, str, int, int, float], folder: str,
    end: float,
) -> Iterator[tuple[Conv, dict[str, tuple[str, str]]]]:  # fmt: skip
    """Each problem with what :func:`prepare` makes of it, all of them in processes beside this one,
    until the time ``end``. A compiler that dies takes its pool along: the problem that was waited
    for is then prepared alone, and left out where that fails too; the others are begun again."""
    pool, jobs = _pool(processes), dict[int, Future[dict[str, tuple[str, str]]]]()
    try:
        for k, p in found.items():
            if time.monotonic() > end:
                return
            try:
                for j in (j for j in found if j >= k and j not in jobs):
                    jobs[j] = pool.submit(prepare, found[j], *given, f"{folder}/{j}")
                yield p, jobs[k].result(end - time.monotonic())
            except TimeoutError:
                return
            except BrokenProcessPool:
                print(f"{p}: a process that compiled died", flush=True)
                pool.shutdown(wait=False, cancel_futures=True)
                pool = _pool(processes)
                jobs = {j: job for j, job in jobs.items() if job.done() and not _failed(job)}
                with contextlib.suppress(BrokenProcessPool, TimeoutError), _pool(1) as alone:
                    job = alone.submit(prepare, p, *given, f"{folder}/{k}")
                    yield p, job.result(end - time.monotonic())
            except TilewrightError as error:
                print(f"{p}: {error!r}", flush=True)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _failed(job: Future[Any]) -> bool:
    return job.cancelled() or job.exception() is not None


def _pool(processes: int) -> ProcessPoolExecutor:
    """Processes that were never near a GPU, also where this one is."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))


def run_part(arguments: argparse.Namespace) -> None:
    """Every ``--gpus``-th problem from the ``--part``-th on, on the first visible GPU; rows are
    written as they come, so that a run that is cut leaves what it had."""
    end, target = time.monotonic() + arguments.seconds, f"cuda -arch={arguments.arch}"
    mine = dict(list(enumerate(drawn(arguments)))[arguments.part :: arguments.gpus])
    rows: list[dict[str, Any]] = []
    written = Path(f"{arguments.out}/part-{arguments.part}.json")
    written.write_text("[]")
    shared_by = 1 if arguments.build else arguments.gpus
    processes = max(2, len(os.sched_getaffinity(0)) // shared_by)
    at_hand = machine(tilewright.Target.parse(target), probe=False) if not arguments.device else {}
    device = arguments.device or str(at_hand["device"])
    given = (target, device, arguments.ranked, arguments.random, end)
    with TemporaryDirectory() as empty:
        folder = arguments.kernels or empty
        Path(folder).mkdir(parents=True, exist_ok=True)
        for p, kernels in prepared(mine, processes, given, folder, end):
            if not kernels:
                break
            if arguments.build:
                print(f"{p}: {len(kernels)} kernels", flush=True)
                continue
            try:
                chosen = taken({n: note for n, (_, note) in kernels.items()})
                files = {n: path for n, (path, _) in kernels.items()}
                notes = {n: note for n, (_, note) in kernels.items()}
                rows.append(row(p, *time_problem(p, files, chosen), notes, chosen))
            except Exception as error:  # one problem must not cost the others
                print(f"{p}: {error!r}", flush=True)
                continue
            written.write_text(json.dumps(rows))
            took, times_best = rows[-1]["chosen us"], rows[-1]["chosen / fastest"]
            print(
                f"{len(rows)}/{len(mine)} {p}: {took:.1f} us, {times_best:.2f}x of the fastest, "
                f"{rows[-1]['fastest']}",
                flush=True,
            )


class Built(NamedTuple):
    """A candidate that nobody measured."""

    name: str
    seconds: float | None = None
    held: float = 0.0


def taken(notes: dict[str, str]) -> str:
    """What is taken of the candidates, in their order, by what :func:`build` said of each."""

    def spills(one: Built) -> int:
        return max((n for _, n in ast.literal_eval(notes[one.name]).values()), default=0)

    def build(one: Built) -> Built:
        if not notes[one.name].startswith("{"):
            raise TilewrightError(notes[one.name])
        return one

    try:
        found = first_buildable(map(Built, notes), build, spills)
    except TilewrightError:
        found = None
    return next(iter(notes)) if found is None else found[0].name


def row(
    p: Conv, times: dict[str, float], last: dict[str, float], notes: dict[str, str], chosen: str
) -> dict[str, Any]:
    """``chosen`` is the first choice; one that cannot be built is as bad as can be. ``last`` has
    the times that are compared."""
    fastest = min(last, key=last.__getitem__)
    took = last.get(chosen, math.inf)
    return {
        "name": str(p), "problem": p.to_dict(), "tried": len(times),
        "chosen": chosen, "chosen us": took, "chosen / fastest": took / last[fastest],
        "fastest": fastest, "fastest us": last[fastest], "times": times, "notes": notes,
    }  # fmt: skip


def shares(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By kind of problem, how many there were and the share within :data:`WITHIN`."""
    kinds: dict[str, list[float]] = {}
    for r in rows:
        p = r["problem"]
        for kind in ("all", p["pass"], p["layout"], p["dtype"], f"batch {p['batch']}",
                     f"K {p['kernel_h']}"):  # fmt: skip
            kinds.setdefault(kind, []).append(r["chosen / fastest"])
    return [
        {
            "kind": kind,
            "problems": len(found),
            **{f"share within {w}": sum(f <= w for f in found) / len(found) for w in WITHIN},
            "geometric mean": math.exp(sum(map(math.log, found)) / len(found)),
        }
        for kind, found in sorted(kinds.items(), key=lambda pair: (pair[0] != "all", pair[0]))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="problems to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true", help="large filters")
    parser.add_argument("--layout", default="", choices=("", *LAYOUTS), help="of all problems")
    parser.add_argument("--only", nargs="+", default=[], help="of these, what has all the words")
    parser.add_argument("--ranked", type=int, default=30, help="of the first, to be tried")
    parser.add_argument("--random", type=int, default=30, help="of the others, to be tried")
    parser.add_argument("--seconds", type=float, default=240.0, help="to stop after")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine to use")
    parser.add_argument("--kernels", default="", metavar="FOLDER", help="of compiled candidates")
    parser.add_argument("--build", action="store_true", help="measure nothing")
    parser.add_argument("--device", default="", help="whose records count, else the one at hand's")
    parser.add_argument("--name", default="h200_untuned_shapes", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--arch", default="sm_90a", help="of the GPUs")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.large and arguments.layout:
        parser.error("large filters are drawn with channels first: leave out --layout")
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    if arguments.part >= 0:
        run_part(arguments)
        return
    count = sum(1 for _ in drawn(arguments))
    if not count:
        parser.error(f"of {arguments.count} problems none has all of {' '.join(arguments.only)}")
    found_rows = run_on_gpus(arguments.gpus, arguments.out)
    rows: list[dict[str, Any]] = [row for part in found_rows for row in part]
    if not rows:
        sys.exit("nothing was measured in that time: give more --seconds, or fewer --ranked")
    found = shares(rows)
    with Path(f"{arguments.out}/{arguments.name}-tried.jsonl").open("w") as tried:
        for r in rows:
            line = {key: r.pop(key) for key in ("problem", "times", "notes")}
            tried.write(json.dumps(line) + "\n")
    print(measure.table(found))
    results = {
        "environment": measure.environment("torch"), "seed": arguments.seed,
        "drawn": count, "shares": found, "rows": rows,
    }  # fmt: skip
    print(measure.save(arguments.name, results, arguments.out))


if __name__ == "__main__":
    main()
