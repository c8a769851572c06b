"""What the first call of an optimised model costs on a CPU, cold: seconds of the processor.

Each model and layout has a process and an empty cache of its own. "first call" is what the first
call after ``optimize_`` costs more than the second: choosing, lowering, proving, compiling. Prints
a table; needs timm, whose models have random weights here.

    python benchmarks/first_call.py [--models mobilenetv3_large_100 ghostnetv2_100] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["mobilenetv3_large_100", "ghostnetv2_100"])
    parser.add_argument("--out", help="a folder for first_call.json")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(first_call(*options.one)))
        return
    rows = []
    print(f"{'model':24} {'layout':14} {'kernels':>7} {'CPU seconds':>11} {'error':>8}")
    for name in options.models:
        for layout in LAYOUTS:
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, __file__, "--one", name, layout],
                    check=True, stdout=subprocess.PIPE, text=True,
                    env={**os.environ, "TILEWRIGHT_CACHE": cache},
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
