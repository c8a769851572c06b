"""Article 001's im2col and implicit GEMM of a depthwise convolution, on tensor cores.

    python examples/article_001/products.py [--batch 64 --channels 384 --image 32 --filter 31]

builds both for sim, checks them against the direct sums of :mod:`direct`, and prints what each
moves: im2col stores a column for each window before it multiplies, implicit GEMM makes the columns
in shared memory, tile by tile. A channel has one filter, so of the sixteen rows that a tensor core
multiplies, one is used: what article 001 says against them, and why the library multiplies by
Toeplitz matrices.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from direct import TEMPLATE

import tilewright
from tilewright import te
from tilewright.target import Target
from tilewright.topi import Conv, nn
from tilewright.topi.gpu.conv2d_mma import MmaTile, schedule_conv2d_mma


def declare(p: Conv, implicit: int) -> tuple[Any, list[Any]]:
    """A schedule of a forward problem in NCHW, and the tensors of its kernel."""
    tile = MmaTile(rows=16, columns=128, depth=32, down=1, across=4, implicit=implicit)
    x = te.placeholder(p.input_shape, p.dtype, name="data")
    f = te.placeholder((p.out_channels, 1, *p.kernel), p.dtype, name="filter")
    y = nn.conv2d_nchw(x, f, p.stride, p.padding, p.dilation, p.channels)
    return schedule_conv2d_mma(y, tile), [x, f, y]


def main(argv: Sequence[str] | None = None) -> None:
    """Build, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("batch", 2), ("channels", 3), ("image", 16), ("filter", 7)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(argv)
    k, image = given.filter, (given.image, given.image)
    p = Conv.parse(
        (given.batch, given.channels, *image), (given.channels, 1, k, k), padding=k // 2,
        dtype="float16",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, s).astype("float16") for s in p.shapes().values()]
    sim = Target.parse("sim")
    tile = TEMPLATE.candidates(p, sim)[0]
    made = TEMPLATE.declare(p, tile)
    programs = {"direct": (TEMPLATE.schedule(made, tile), made.args)}
    programs |= {name: declare(p, n) for n, name in enumerate(("im2col", "implicit GEMM"))}
    results = {}
    for name, (s, args) in programs.items():
        kernel = tilewright.build(s, args, sim)
        results[name] = np.empty(p.result_shape, "float16")
        report = kernel.simulate(*arrays, results[name])
        assert report.ok, report
        moved = sum(a.transactions for a in report.accesses if a.scope == "global")
        print(f"{name}: right, {moved} sectors of global memory")
    for name, found in results.items():
        assert (found == results["direct"]).all(), name


if __name__ == "__main__":
    main(sys.argv[1:])
