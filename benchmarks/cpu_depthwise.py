"""Depthwise convolution on a CPU against PyTorch and ONNX Runtime, NCHW fp32, same threads.

For each shape the tiles of the CPU schedule are searched, then the best is timed beside the peers,
in turn, in one process. Figures are medians; compare the ratios.

    python benchmarks/cpu_depthwise.py [--threads 1 2] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import measure
import numpy as np

import tilewright
from tilewright import te
from tilewright.cli._measure.turns import until_idle
from tilewright.topi.cpu.depthwise_conv2d import RowTile, schedule_rows
from tilewright.topi.nn import depthwise_conv2d_nchw

#: (C, H, W, K, stride), batch 1.
SHAPES = [
    (256, 96, 96, 3, 1),
    (256, 96, 96, 5, 1),
    (144, 56, 56, 3, 1),
    (144, 56, 56, 3, 2),
    (384, 14, 14, 3, 1),
    (96, 56, 56, 7, 1),
    (384, 32, 32, 31, 1),
]


def tiles(k: int) -> list[RowTile]:
    """What is searched."""
    taps = sorted({min(k, 3), min(k, 4), min(k, 7), min(k, 8)})
    return [
        RowTile(rows, vectors, 16, t)
        for rows in (2, 4, 6, 7, 8)
        for vectors in (1, 2)
        for t in taps
    ]


def peers(x: Any, w: Any, k: int, stride: int, threads: int) -> dict[str, Callable[[], Any]]:
    """The same convolution by PyTorch and by ONNX Runtime, with ``threads`` threads."""
    import torch

    from tilewright.cli._measure.onnx import depthwise_session

    torch.set_num_threads(threads)
    tx, tw = torch.from_numpy(x), torch.from_numpy(w)
    session = depthwise_session(x.shape, w, k, stride, threads)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    return {
        "PyTorch": lambda: torch.nn.functional.conv2d(
            tx, tw, padding=k // 2, stride=stride, groups=x.shape[1]
        ),
        "ONNX Runtime": lambda: session.run_with_iobinding(binding),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for c, h, width, k, stride in SHAPES:
        x = rng.standard_normal((1, c, h, width), dtype=np.float32)
        w = rng.standard_normal((c, 1, k, k), dtype=np.float32)
        exact = torch.nn.functional.conv2d(
            torch.from_numpy(x).double(), torch.from_numpy(w).double(),
            padding=k // 2, stride=stride, groups=c,
        ).numpy()  # fmt: skip
        for threads in options.threads:
            kernels: dict[RowTile, Any] = {}
            y = np.empty(exact.shape, np.float32)
            for tile in tiles(k):
                data = te.placeholder(x.shape, name="Input")
                weight = te.placeholder(w.shape, name="Filter")
                out = depthwise_conv2d_nchw(data, weight, stride, k // 2)
                kernel = tilewright.build(
                    schedule_rows(out, tile), [data, weight, out], f"llvm -threads={threads}"
                )
                y.fill(np.nan)
                kernel(x, w, y)
                error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
                if not error < 1e-5:
                    raise AssertionError((tile, error))
                kernels[tile] = kernel.bind(x, w, y)
            found = measure.host_medians({str(t): k for t, k in kernels.items()}, 5, 0.003)
            best = min(kernels, key=lambda t: found[str(t)])
            times = measure.host_medians(
                {"tilewright": kernels[best], **peers(x, w, k, stride, threads)}, rest=until_idle
            )
            ours = times["tilewright"]
            fastest = min(us for name, us in times.items() if name != "tilewright")
            rows.append(
                {
                    "shape": f"1x{c}x{h}x{width}",
                    "K": k,
                    "stride": stride,
                    "threads": threads,
                    **{f"{name} us": us for name, us in times.items()},
                    "best peer / tilewright": fastest / ours,
                    "tile": f"{best.rows}x{best.vectors}, taps {best.taps}",
                }
            )
            print(rows[-1], flush=True)
    mean = {
        threads: math.exp(
            sum(math.log(r["best peer / tilewright"]) for r in rows if r["threads"] == threads)
            / len(SHAPES)
        )
        for threads in options.threads
    }
    print(measure.table(rows))
    print("geometric means by threads:", {t: round(v, 3) for t, v in mean.items()})
    results = {
        "environment": measure.environment("torch", "onnxruntime", "llvmlite", gpu=False),
        "rows": rows,
        "geometric mean": mean,
    }
    print(measure.save("cpu_depthwise", results, options.out))


if __name__ == "__main__":
    main()
