"""Whole models in PyTorch, before and after `optimize_`: a training step and inference.

ConvNeXt-T and MobileNetV2 under autocast, on random images, in NCHW and channels_last, eager and
with `torch.compile(fullgraph=True)`. `optimize_` swaps their depthwise convolutions; in inference
those of MobileNetV2 take along the batch normalisation and the ReLU6 behind them, in one kernel.
Both sides take turns in one process; times are medians on the host's clock, which waits for the
device. A training step is the forward pass, cross entropy, the backward pass with a gradient scaler
and a step of AdamW. "MiB" is what a step allocates at its peak beyond the model, "GPU ms" how
long the GPU was at work in one profiled step, with how many kernels ever: a step that takes much
longer waits for the host.

Each model is measured in a process of its own, eager and compiled apart; what fails or does not
end within the budget is left out with its reason, and the results are written as they come.

    python benchmarks/models.py [--models MobileNetV2] [--engines eager] [--budget 340]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import measure
from kernel_classes import busy
from vision_models import MODELS

LAYOUTS, ENGINES, PASSES = ("NCHW", "NHWC"), ("eager", "compile"), ("inference", "training")
#: Relative error norms of the outputs: sums in 16 bits of many layers.
TOLERANCE = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 1e-3}


class Side:
    """One model with what it is fed: calling it makes one step."""

    def __init__(self, model: Any, images: Any, options: argparse.Namespace) -> None:
        import torch

        self.torch, self.model, self.run = torch, model, model
        self.images, self.device, self.options = images, images.device.type, options
        labels = torch.randint(0, 1000, (images.shape[0],), device=images.device)
        self.loss: Callable[[Any], Any] = lambda y: torch.nn.functional.cross_entropy(y, labels)
        self.step: Callable[[], Any] = self.infer

    def compile(self) -> None:
        self.run = self.torch.compile(self.model, fullgraph=True)

    def autocast(self) -> Any:
        dtype = self.options.dtype
        return self.torch.autocast(self.device, getattr(self.torch, dtype), dtype != "float32")

    def set_pass(self, name: str) -> None:
        torch = self.torch
        self.model.train(name == "training")
        self.step = self.infer
        if name == "training":
            fused = self.device == "cuda"
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-5, fused=fused)
            half = self.options.dtype == "float16"
            self.scaler = torch.amp.GradScaler(self.device, enabled=half)
            self.step = self.train

    def infer(self) -> Any:
        with self.torch.no_grad(), self.autocast():
            return self.run(self.images)

    def train(self) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.loss(self.run(self.images))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def busy(self) -> float | None:
        """Milliseconds of a step in which a GPU is at work."""
        return busy(self.step) if self.device == "cuda" else None

    def peak(self) -> float | None:
        """MiB that a step allocates at its peak beyond what is there before."""
        if self.device != "cuda":
            return None
        cuda = self.torch.cuda
        self.step()
        if self.step == self.train:
            self.optimizer.zero_grad(set_to_none=True)
        self.wait()
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        self.step()
        self.wait()
        return float((cuda.max_memory_allocated() - before) / 2**20)


def medians(sides: dict[str, Side], seconds: float) -> dict[str, float]:
    """Milliseconds a step of each: they take turns until each had about ``seconds``."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    steps = {}
    for name, side in sides.items():
        for _ in range(2):
            side.step()
        side.wait()
        begin = time.perf_counter()
        side.step()
        side.wait()
        steps[name] = max(1, int(0.1 / max(time.perf_counter() - begin, 1e-4)))
    while len(times[name]) < 5 or sum(times[name]) * steps[name] < seconds * 1e3:
        for name, side in sides.items():
            side.wait()
            begin = time.perf_counter()
            for _ in range(steps[name]):
                side.step()
            side.wait()
            times[name].append((time.perf_counter() - begin) * 1e3 / steps[name])
    return {name: statistics.median(found) for name, found in times.items()}


def rows(name: str, engine: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure one model with one engine; a row for each layout and pass."""
    import torch

    import tilewright.torch

    torch.backends.cudnn.benchmark = True
    tilewright.torch.set_policy(options.policy)
    for layout in options.layouts:
        form = torch.channels_last if layout == "NHWC" else torch.contiguous_format
        torch.manual_seed(0)
        with torch.device(options.device):
            model = MODELS[name]().to(memory_format=form)
            images = torch.randn(options.batch, 3, options.image, options.image)
        images = images.contiguous(memory_format=form)
        after = copy.deepcopy(model)
        replaced = len(tilewright.torch.optimize_(after).replaced)
        sides = {"before": Side(model, images, options), "after": Side(after, images, options)}
        for kind in sorted(options.passes):  # inference first: training draws random numbers
            what = {"model": name, "pass": kind, "layout": layout, "engine": engine}
            try:
                torch._dynamo.reset()
                for label, side in sides.items():
                    begin = time.perf_counter()
                    side.set_pass(kind)
                    if engine == "compile":
                        side.compile()
                    side.step()
                    side.wait()
                    took = time.perf_counter() - begin
                    print(f"{name} {engine} {layout} {kind} {label}: first step {took:.1f} s")
                    sys.stdout.flush()
                if kind == "inference":
                    first, second = (side.step() for side in sides.values())
                    check(first, second, options.dtype)
                peak = {label: side.peak() for label, side in sides.items()}
                found = medians(sides, options.seconds)
            except Exception as error:
                text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                yield {**what, "failed": text}
                continue
            busy: dict[str, float | None] = {}
            with contextlib.suppress(Exception):  # times are of use without a profile
                busy = {label: side.busy() for label, side in sides.items()}
            yield {
                **what,
                **{f"{label} ms": ms for label, ms in found.items()},
                "faster": found["before"] / found["after"],
                **{f"{label} GPU ms": ms for label, ms in busy.items() if ms is not None},
                **{f"{label} MiB": mib for label, mib in peak.items() if mib is not None},
                "convolutions": replaced,
            }


def check(wanted: Any, found: Any, dtype: str) -> None:
    """The outputs agree as far as 16-bit numbers do."""
    wanted, found = wanted.float(), found.float()
    error = float((wanted - found).norm() / wanted.norm())
    if not error < TOLERANCE[dtype]:
        raise AssertionError(f"the outputs differ by {error:.1e}")


def child(name: str, engine: str, limit: float) -> Iterator[dict[str, Any]]:
    """The rows of a process of its own, which has ``limit`` seconds; at last why it ended early."""
    command = [sys.executable, "-u", __file__, *sys.argv[1:], "--child", f"{name},{engine}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    timer = threading.Timer(limit, process.kill)
    timer.start()
    begin = time.monotonic()
    try:
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
            else:
                print(f"  {line.rstrip()}", flush=True)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
    if code:
        late = time.monotonic() - begin >= limit
        why = f"not done in {limit:.0f} s" if late else f"the process ended with {code}"
        yield {"model": name, "engine": engine, "failed": why}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=LAYOUTS)
    parser.add_argument("--passes", nargs="+", default=list(PASSES), choices=PASSES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="", choices=list(TOLERANCE))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--policy", default="heuristic", help="how kernels are chosen")
    parser.add_argument("--seconds", type=float, default=1.5, help="of measuring, for each time")
    parser.add_argument("--budget", type=float, default=340, help="seconds for everything")
    parser.add_argument("--name", default="models", help="of the file of results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtype = options.dtype or ("float16" if options.device == "cuda" else "bfloat16")
    return options


def main() -> None:
    options = parse()
    if options.child:
        name, _, engine = options.child.partition(",")
        for row in rows(name, engine, options):
            print(json.dumps(row), flush=True)
        return
    end = time.monotonic() + options.budget
    results: dict[str, Any] = {
        "environment": measure.environment("torch", "triton", gpu=options.device == "cuda"),
        "settings": {k: getattr(options, k) for k in ("batch", "image", "dtype", "policy")},
        "rows": [], "left out": [],
    }  # fmt: skip
    work = [(name, engine) for engine in options.engines for name in options.models]
    for k, (name, engine) in enumerate(work):
        left = end - time.monotonic()
        # Eager ones are quick; those that compile share what is left.
        share = left if engine == "eager" else left / (len(work) - k)
        print(f"{name} {engine}, at most {max(share, 0):.0f} s", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            for row in child(name, engine, max(share, 0.1)):
                results["left out" if "failed" in row else "rows"].append(row)
                print(row, flush=True)
                measure.save(options.name, results, options.out)
    done = results["rows"]
    print(measure.table(done))
    if done:
        mean = math.exp(statistics.fmean(math.log(row["faster"]) for row in done))
        results["geometric mean of faster"] = {"all": mean}
        print(f"geometric mean: {mean:.2f}")
    for row in results["left out"]:
        print("left out:", row)
    print(measure.save(options.name, results, options.out))


if __name__ == "__main__":
    main()
