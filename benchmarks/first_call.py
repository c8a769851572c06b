"""What the first call of an optimised model costs on a CPU, cold: seconds of the processor.

Each model and layout has a process and an empty cache of its own. "first call" is what the first
call after ``optimize_`` costs more than the second: choosing, lowering, proving, compiling. Prints
a table; needs timm, whose models have random weights here.

With ``--shapes`` there are no models: random depthwise layers of all passes, each called for the
first time in one process whose cache is empty, by the clock and until its result is there. What
PyTorch imports at its first gradient is imported before.

    python benchmarks/first_call.py [--models mobilenetv3_large_100 ghostnetv2_100] [--out FOLDER]
    python benchmarks/first_call.py --shapes 100 --device cuda [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import measure

LAYOUTS = ("NCHW", "channels_last")


def first_call(name: str, layout: str) -> dict[str, Any]:
    """The figures of one model in one layout, in this process and with its cache."""
    import timm
    import torch

    import tilewright.torch
    from tilewright.torch import kernels

    torch.set_num_threads(1)
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    torch.manual_seed(0)
    model = timm.create_model(name).eval().to(memory_format=form)
    x = torch.randn(1, 3, 224, 224).contiguous(memory_format=form)
    with torch.inference_mode():
        expected = model(x)
        report = tilewright.torch.optimize_(model)
        times = []
        for _ in range(2):
            begin = time.process_time()
            found = model(x)
            times.append(time.process_time() - begin)
    return {
        "model": name,
        "layout": layout,
        "replaced": len(report.replaced),
        "kernels": len(kernels._state.kernels),
        "first call": round(times[0] - times[1], 2),
        "error": float((found - expected).norm() / expected.norm()),
    }


def first_calls(count: int, device: str) -> list[dict[str, Any]]:
    """How long the first call of each of ``count`` layers takes, after that of another."""
    import torch
    from choice_latency import problems

    import tilewright.torch
    from tilewright.topi.operators import Conv

    # At the first gradient of a process PyTorch imports packages for seconds.
    y = torch.zeros(1, device=device, requires_grad=True) + 1.0
    torch.autograd.grad(y, y, torch.ones_like(y))
    rows: list[dict[str, Any]] = []
    for p in problems(20 * count, 0):
        # What the function takes: padding that is the same before and behind, and no epilogue.
        if not isinstance(p, Conv) or p.operator != "depthwise_conv2d":
            continue
        if p.padding[:2] != p.padding[2:]:
            continue
        p = p.replace(epilogue=())
        form = torch.channels_last if p.layout == "NHWC" else torch.contiguous_format
        given = {"dtype": getattr(torch, p.dtype), "device": device}
        x = torch.randn(p.batch, p.channels, p.height, p.width, **given).to(memory_format=form)
        w = torch.randn(p.out_channels, 1, *p.kernel, **given)
        x.requires_grad_(p.pass_ == "dgrad")
        w.requires_grad_(p.pass_ == "wgrad")

        def call(of: Any = (p, x, w)) -> float:
            p, x, w = of
            _finish(device)
            begin = time.perf_counter()
            y = tilewright.torch.depthwise_conv2d(x, w, None, p.stride, p.padding[:2], p.dilation)
            if p.pass_ != "forward":
                _finish(device)
                dy = torch.ones_like(y)
                begin = time.perf_counter()
                torch.autograd.grad(y, x if p.pass_ == "dgrad" else w, dy)
            _finish(device)
            return time.perf_counter() - begin

        first, second = call(), call()
        rows.append({"problem": p.key, "first call": first, "second": second})
        if len(rows) > count:
            break
    return rows[1:]


def _finish(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def shapes(count: int, device: str, out: str | None) -> None:
    """Print how long first calls take, and write each to ``out``."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE"] = cache
        rows = first_calls(count, device)
    times = sorted(row["first call"] for row in rows)
    if len(times) < 2:
        raise SystemExit("--shapes takes two or more")
    ninth = statistics.quantiles(times, n=10, method="inclusive")[-1]
    print(f"first calls of {len(times)} layers on {device}: median "
          f"{statistics.median(times):.2f} s, 90th percentile {ninth:.2f} s, most "
          f"{times[-1]:.2f} s")  # fmt: skip
    if out:
        environment = measure.environment("torch", gpu=device == "cuda")
        found = {"environment": environment, "rows": rows}
        print(
            measure.save("h200_first_calls" if device == "cuda" else "cpu_first_calls", found, out)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, help="random layers, in place of models")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of --shapes")
    parser.add_argument("--models", nargs="+", default=["mobilenetv3_large_100", "ghostnetv2_100"])
    parser.add_argument("--out", help="a folder for the results")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shapes:
        shapes(options.shapes, options.device, options.out)
        return
    if options.one:
        print(json.dumps(first_call(*options.one)))
        return
    rows = []
    installed = measure.as_installed()
    print(f"{'model':24} {'layout':14} {'kernels':>7} {'CPU seconds':>11} {'error':>8}")
    for name in options.models:
        for layout in LAYOUTS:
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, __file__, "--one", name, layout],
                    check=True, stdout=subprocess.PIPE, text=True,
                    env={**installed, "TILEWRIGHT_CACHE": cache},
                )  # fmt: skip
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(
                f"{name:24} {layout:14} {row['kernels']:7} {row['first call']:11.2f} "
                f"{row['error']:8.1e}",
                flush=True,
            )
    if options.out:
        environment = measure.environment("torch", "timm", "llvmlite", gpu=False)
        print(measure.save("first_call", {"environment": environment, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
