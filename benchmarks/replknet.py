"""RepLKNet-31B in PyTorch, as it is and after `optimize_`: a training step and inference.

Batch 64 under autocast on random images, in NCHW and channels_last, eager and with
`torch.compile(fullgraph=True)`: steps of all variants take turns, each in a process of its own;
medians on the host's clock, which waits for the device. A training step is the forward pass, cross
entropy, the backward pass with a gradient scaler and a step of AdamW. "merged inference" is after
`merge_branches_`, on both sides. The profile has the time of one eager step by whose kernels take
it: Tilewright's, those of PyTorch's depthwise convolutions, all others.

A variant that fails, or that is not compiled in time, is left out with its reason.

    python benchmarks/replknet.py [--engines eager] [--seconds 150]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measure
from kernel_classes import OTHERS, OURS, THEIRS
from model_variants import MERGED, PASSES, Failed, Variant, Worker, serve
from models import ENGINES, LAYOUTS, TOLERANCE

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from replknet_model import MODELS  # in examples

SIDES = ("PyTorch", "tilewright")
#: Parts of the seconds after which nothing is waited for any more, and nothing more is timed.
_READY, _TIMED = 0.62, 0.88
#: Seconds that one variant's turn in a round lasts, about.
_TURN = 0.25

Times = dict[tuple[str, Variant], list[float]]


def variants(options: argparse.Namespace) -> list[Variant]:
    """All variants, each compiled pass one of its own: compiling takes longest."""
    found = []
    for side, layout in itertools.product(SIDES, options.layouts):
        for engine in options.engines:
            if engine == "eager":
                found.append(Variant(side, engine, layout, tuple(options.passes)))
                continue
            for name in options.passes:
                if name != MERGED:
                    found.append(Variant(side, engine, layout, (name,)))
    return found


class Run:
    """All variants of one run, what they measured, and which of them had to be left out."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.begin = options, time.monotonic()
        self.left_out: list[dict[str, Any]] = []
        self.times: Times = {}
        self.profiles: list[dict[str, Any]] = []
        self.outputs: list[list[float]] = []
        self.workers = []
        wanted = variants(options)
        compiling = sum(variant.engine == "compile" for variant in wanted)
        threads = max(1, (os.cpu_count() or 1) // max(1, compiling))
        self.workers = [Worker(variant, threads) for variant in wanted]

    def left(self, part: float) -> float:
        """Seconds until a part of those given is over."""
        return float(self.begin + part * self.options.seconds - time.monotonic())

    def leave_out(self, worker: Worker, name: str, error: Failed) -> None:
        line = {"variant": str(worker.variant), "pass": name, "failed": str(error)}
        print(line, flush=True)
        self.left_out.append(line)

    def prepare(self) -> None:
        """Get every variant ready for its passes, all at the same time."""
        for worker in self.workers:
            for name in worker.variant.passes:
                worker.tell(do="prepare", name=name)
        for worker in self.workers:
            for name in worker.variant.passes:
                try:
                    found = worker.answer(self.left(_READY))
                    self.check(found["output"])
                except Failed as error:
                    self.leave_out(worker, name, error)
                    continue
                self.times[name, worker.variant] = []
                about = f"{found['replaced']} convolutions replaced" if found["replaced"] else ""
                print(f"{worker.variant} {name}: {found['seconds']:.0f} s {about}", flush=True)
        for worker in self.workers:
            if worker.busy:  # it would disturb the others
                worker.end()
                self.times = {key: ms for key, ms in self.times.items() if key[1] != worker.variant}
        self.workers = [w for w in self.workers if not w.busy]

    def check(self, output: list[float]) -> None:
        """Raise :class:`Failed` unless outputs agree as far as the type can tell."""
        if not output:
            return
        self.outputs.append(output)
        wanted = self.outputs[0]
        norm = sum(x * x for x in wanted) ** 0.5
        apart = sum((x - y) ** 2 for x, y in zip(wanted, output, strict=True)) ** 0.5
        if not apart < TOLERANCE[self.options.dtype] * norm:
            raise Failed(f"the outputs differ by {apart / norm:.1e}")

    def take_turns(self, name: str, end: float) -> None:
        """Time a pass until a part of the seconds is over, every variant equally often."""
        able = [w for w in self.workers if (name, w.variant) in self.times]
        steps: dict[Variant, int] = {}
        for round_ in range(self.options.rounds + 1):
            begin = time.monotonic()
            for worker in list(able):
                count = steps.get(worker.variant, 1)
                try:
                    ms = worker.ask(max(self.left(1), 5), do="time", name=name, steps=count)["ms"]
                except Failed as error:
                    self.leave_out(worker, name, error)
                    able.remove(worker)
                    self.times.pop((name, worker.variant))
                    continue
                if round_:
                    self.times[name, worker.variant].append(ms)
                else:  # the clocks rise, and it is seen how long a step takes
                    steps[worker.variant] = max(1, min(20, int(_TURN * 1e3 / ms)))
            if round_ >= 3 and self.left(end) < time.monotonic() - begin:
                break

    def profile(self, name: str) -> None:
        """Profile the eager variants of a pass."""
        for worker in self.workers:
            if worker.variant.engine != "eager" or (name, worker.variant) not in self.times:
                continue
            try:
                ms = worker.ask(max(self.left(1), 1), do="profile", name=name)["ms"]
            except Failed as error:
                self.leave_out(worker, f"profile of {name}", error)
                continue
            step = {f"{kind} ms": ms[kind] for kind in (OURS, THEIRS, OTHERS)}
            line = {
                "pass": name,
                "variant": str(worker.variant),
                **step,
                "sum ms": sum(ms.values()),
            }
            print(line, flush=True)
            self.profiles.append(line)

    def results(self) -> dict[str, Any]:
        """What is written."""
        options = self.options
        settings = {
            key: getattr(options, key) for key in ("model", "batch", "image", "dtype", "policy")
        }
        medians = {key: statistics.median(ms) for key, ms in self.times.items() if ms}
        return {
            "environment": measure.environment("torch", "triton"),
            "settings": settings,
            "rows": rows(medians),
            "best": best(medians, options.batch),
            "profile": self.profiles,
            "left out": self.left_out,
        }


def rows(medians: dict[tuple[str, Variant], float]) -> list[dict[str, Any]]:
    """Both sides of each pass, engine and layout beside one another."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for (name, variant), ms in medians.items():
        what = {"pass": name, "engine": variant.engine, "layout": variant.layout}
        found.setdefault((name, variant.engine, variant.layout), what)[f"{variant.side} ms"] = ms
    columns = [f"{side} ms" for side in SIDES]
    for row in found.values():
        theirs, ours = (row.pop(column, None) for column in columns)
        row |= dict(zip(columns, (theirs, ours), strict=True))
        row["faster"] = theirs / ours if theirs and ours else None
    return [found[key] for key in sorted(found, key=lambda k: (PASSES.index(k[0]), k[1:]))]


def best(medians: dict[tuple[str, Variant], float], batch: int) -> list[dict[str, Any]]:
    """Of each pass, the fastest variant of either side."""
    found = []
    for name in PASSES:
        row: dict[str, Any] = {"pass": name}
        for side in SIDES:
            mine = [
                (ms, variant)
                for (p, variant), ms in medians.items()
                if (p, variant.side) == (name, side)
            ]
            if mine:
                ms, variant = min(mine, key=lambda pair: pair[0])
                row |= {
                    f"{side} variant": f"{variant.engine} {variant.layout}", f"{side} ms": ms,
                    f"{side} images/s": batch / ms * 1e3,
                }  # fmt: skip
        if all(f"{side} ms" in row for side in SIDES):
            row["faster"] = row["PyTorch ms"] / row["tilewright ms"]
        if len(row) > 1:
            found.append(row)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="31B", choices=list(MODELS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--passes", nargs="+", default=list(PASSES), choices=PASSES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="", choices=["", *TOLERANCE])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--image", type=int, default=0, help="side, by default the model's")
    parser.add_argument("--policy", default="heuristic", help="how kernels are chosen")
    parser.add_argument("--rounds", type=int, default=11, help="at most, of a pass")
    parser.add_argument("--seconds", type=float, default=150, help="for everything, about")
    parser.add_argument("--name", default="h200_replknet", help="of the file of results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--lock", default="", help=argparse.SUPPRESS)
    parser.add_argument("--variant", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtype = options.dtype or ("float16" if options.device == "cuda" else "bfloat16")
    options.image = options.image or MODELS[options.model][1]
    return options


def main() -> None:
    options = parse()
    if options.variant:
        serve(MODELS[options.model][0], options)
        return
    with TemporaryDirectory() as folder:
        sys.argv += ["--lock", f"{folder}/lock"]
        run = Run(options)
        try:
            run.prepare()
            passes = [p for p in PASSES if p in options.passes]
            for k, name in enumerate(passes):
                share = (k + 1) / len(passes)
                run.take_turns(name, _READY + share * (_TIMED - _READY))
                measure.save(options.name, run.results(), options.out)
            for name in passes:
                run.profile(name)
        finally:
            for worker in run.workers:
                worker.end()
    del sys.argv[-2:]
    results = run.results()
    for key in ("rows", "best", "profile", "left out"):
        print(f"\n{key}\n{measure.table(results[key])}")
    print(measure.save(options.name, results, options.out))


if __name__ == "__main__":
    main()
