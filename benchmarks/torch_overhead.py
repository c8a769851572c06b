"""What an eager call from PyTorch costs on the host: depthwise_conv2d and F.conv2d.

Images are so small that a call is over when the host is done with it, and the calls of both take
turns: medians of many short batches. "With what follows" are modules, a convolution, BatchNorm2d
and ReLU6, which `optimize_` makes one kernel. A training call records its gradients, and runs them
where it says so. "In a region" of autocast is a batch, in which one parameter comes again and
again; else each call has its own. Modules in a row are a model in channels_last whose images have
16 bits, as those have that other layers make under autocast, and whose parameters have 32. On a GPU
the calls of a batch are queued behind one another and waited for outside of the time.

    python benchmarks/torch_overhead.py [--device cuda] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import measure

#: Calls in a batch, and rounds in which every candidate has its turn.
CALLS, ROUNDS = 20, 400
#: What a name of a case ends in whose batches are regions of autocast.
REGION = "in a region"

#: Modules in a row.
LAYERS = 8

Candidates = Mapping[str, Callable[[], Any]]


def cases(device: str) -> dict[str, Candidates]:
    """By kind of call, ours and PyTorch's; names that end in :data:`REGION` are for one."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from tilewright.torch import (
        DepthwiseConv2d,
        depthwise_conv1d,
        depthwise_conv2d,
        depthwise_conv_transpose2d,
        optimize_,
    )

    x = torch.randn(1, 4, 4, 4, device=device)
    w, g = torch.randn(4, 1, 3, 3, device=device), torch.randn(1, 4, 4, 4, device=device)
    v, z = w.clone().requires_grad_(), x.clone().requires_grad_()
    last = x.to(memory_format=torch.channels_last)
    line, taps = torch.randn(1, 4, 16, device=device), torch.randn(4, 1, 3, device=device)
    ours = DepthwiseConv2d(4, padding=1, device=device)
    theirs = nn.Conv2d(4, 4, 3, padding=1, groups=4, device=device)
    row = nn.Sequential(copy.deepcopy(theirs), nn.BatchNorm2d(4, device=device), nn.ReLU6()).eval()
    fused = copy.deepcopy(row)
    optimize_(fused)
    half = x.to(torch.bfloat16)

    def backward(conv: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(conv(), (z, v), g)

    def infer(module: Any, x: Any = x) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                return module(x)

        return run

    def autocast(run: Callable[[], Any]) -> Callable[[], Any]:
        def cast() -> Any:
            with torch.autocast(device, torch.bfloat16):
                return run()

        return cast

    def pair(x: Any, w: Any) -> dict[str, Callable[[], Any]]:
        return {
            "tilewright": lambda: depthwise_conv2d(x, w, None, 1, 1),
            "PyTorch": lambda: F.conv2d(x, w, None, 1, 1, 1, 4),
        }

    def lines() -> dict[str, Callable[[], Any]]:
        return {
            "tilewright": lambda: depthwise_conv1d(line, taps, None, 1, 1),
            "PyTorch": lambda: F.conv1d(line, taps, None, 1, 1, 1, 4),
        }

    def transposed() -> dict[str, Callable[[], Any]]:
        return {
            "tilewright": lambda: depthwise_conv_transpose2d(x, w, None, 1, 1),
            "PyTorch": lambda: F.conv_transpose2d(x, w, None, 1, 1, 0, 4),
        }

    def in_a_row(module: Any) -> tuple[Any, Any]:
        """Modules like this one, and their image."""
        model = torch.nn.Sequential(*(copy.deepcopy(module) for _ in range(LAYERS)))
        image = last.to(torch.bfloat16, memory_format=torch.channels_last)
        return model.to(memory_format=torch.channels_last), image

    def forward(module: Any) -> Callable[[], Any]:
        model, image = in_a_row(module)
        cast = autocast(lambda: model(image))

        def run() -> Any:
            with torch.no_grad():
                return cast()

        return run

    def step(module: Any) -> Callable[[], Any]:
        model, image = in_a_row(module)
        run, parameters = autocast(lambda: model(image)), list(model.parameters())
        return lambda: torch.autograd.grad(run(), parameters, image)

    def each(change: Callable[[Any], Any], found: dict[str, Any]) -> Candidates:
        return {name: change(run) for name, run in found.items()}

    modules = {"tilewright": ours, "PyTorch": theirs}
    return {
        "inference": pair(x, w),
        "inference, channels_last": pair(last, w),
        "inference, a module": each(infer, modules),
        "inference, with what follows": each(infer, {"tilewright": fused, "PyTorch": row}),
        f"inference, with what follows, autocast {REGION}": each(
            lambda module: infer(module, half), {"tilewright": fused, "PyTorch": row}
        ),
        "inference, one dimension": lines(),
        "inference, transposed": transposed(),
        "inference, autocast": each(autocast, pair(x, w)),
        "training, forward": pair(x, v),
        "training, forward, channels_last": pair(last, v),
        "training, forward, autocast": each(autocast, pair(x, v)),
        f"training, forward, autocast {REGION}": pair(x, v),
        "training, forward and backward": each(backward, pair(z, v)),
        f"training, forward and backward, autocast {REGION}": each(backward, pair(z, v)),
        f"inference, {LAYERS} modules in a row, autocast": each(forward, modules),
        f"training, {LAYERS} modules in a row, autocast": each(step, modules),
    }


def medians(
    candidates: Candidates, wait: Callable[[], Any], region: Callable[[], Any]
) -> dict[str, float]:
    """Microseconds a call of each, whose batches run in a ``region`` each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        with region():
            for _ in range(3 * CALLS):
                run()
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            wait()
            begin = time.perf_counter()
            with region():
                for _ in range(CALLS):
                    run()
            times[name].append((time.perf_counter() - begin) * 1e6 / CALLS)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if options.device == "cuda" else int
    rows: list[dict[str, Any]] = []
    for name, candidates in cases(options.device).items():
        autocast = functools.partial(torch.autocast, options.device, torch.bfloat16)
        region = autocast if name.endswith(REGION) else contextlib.nullcontext
        found = medians(candidates, wait, region)
        ratio = found["tilewright"] / found["PyTorch"]
        us = {f"{label} us": value for label, value in found.items()}
        rows.append({"call": name, **us, "tilewright / PyTorch": ratio})
        print(rows[-1], flush=True)
    print(measure.table(rows))
    worst = max(row["tilewright / PyTorch"] for row in rows)
    print(f"at most {worst:.2f} times a call of PyTorch's")
    environment = measure.environment("torch", gpu=options.device == "cuda")
    results = {"environment": environment, "rows": rows}
    print(measure.save(f"{options.device}_torch_overhead", results, options.out))


if __name__ == "__main__":
    main()
