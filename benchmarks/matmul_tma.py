"""Products of matrices on Hopper, C = A B^T in float16, beside `torch.matmul`: right, and how fast.

Tiles of A and B come by TMA into shared memory, swizzled by 128 bytes, some steps ahead of the
tensor cores, which read them there; what a tile has beyond a matrix is zero. Checked on whole
numbers, whose sums are exact, against PyTorch in float32; then the two take turns, medians of CUDA
events.

    PYTHONPATH=src python benchmarks/matmul_tma.py
    PYTHONPATH=src compute-sanitizer --tool racecheck python benchmarks/matmul_tma.py --quick
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import tilewright
from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load, wgmma

#: Rows and columns of C, and the length of the sums.
SIZES = ((4096, 4096, 4096), (8192, 8192, 4096), (2048, 2048, 8192), (4000, 1000, 3000))
QUICK = ((256, 512, 192), (200, 300, 328), (64, 8, 8))
#: Rows and columns of a block's tile, and how many steps have tiles of their own.
TILES = ((128, 128, 3), (128, 128, 4), (128, 256, 3), (128, 256, 4), (192, 128, 4), (256, 128, 4))
#: Of k, in one step: a row of 128 bytes.
STEP = 64


def product(
    m: int, n: int, k: int, rows: int = 128, columns: int = 128, stages: int = 3
) -> tuple[Schedule, list[Any]]:
    """``C[i, j] = sum(A[i, k] * B[j, k])`` for any m and n, and k that is a multiple of 8.

    A block of ``rows`` / 64 warpgroups computes ``rows`` by ``columns``, with ``stages`` copies of
    its tiles of A and B in shared memory.
    """
    a = te.placeholder((m, k), "float16", name="A")
    b = te.placeholder((n, k), "float16", name="B")

    def padded(t: Any, size: int, tile: int) -> Any:
        zero = te.const(0, "float16")
        shape = (math.ceil(size / tile) * tile, math.ceil(k / STEP) * STEP)
        return te.compute(
            shape,
            lambda i, x: te.if_then_else(te.all(i < size, x < k), t[i, x], zero),
            name=f"{t.name}_tile",
        )

    left, right = padded(a, m, rows), padded(b, n, columns)
    r = te.reduce_axis((0, int(left.shape[1])), name="k")
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(left[i, r].astype("float32") * right[j, r].astype("float32"), axis=r),
        name="total",
    )
    c = te.compute((m, n), lambda i, j: total[i, j].astype("float16"), name="C")

    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    block_i, i = s[c].split(i, rows)
    block_j, j = s[c].split(j, columns)
    group, i = s[c].split(i, 64)
    s[c].reorder(block_i, block_j, group, i, j)
    s[c].bind(block_i, te.thread_axis("blockIdx.y"))
    s[c].bind(block_j, te.thread_axis("blockIdx.x"))
    s[c].bind(group, te.thread_axis((0, rows // 64), "threadIdx.y"))
    if n % 2 == 0:
        s[c].vectorize(s[c].split(j, 2)[1])

    s[total].set_scope("fragment")
    s[total].compute_at(s[c], group)
    (i, j), (x,) = s[total].op.axis, s[total].op.reduce_axis
    s[total].align_bounds(i, 64)
    s[total].align_bounds(j, columns)
    step, x = s[total].split(x, STEP)
    part, x = s[total].split(x, 16)
    ko, ki = s[total].split(x, 8)
    io, ii = s[total].split(i, 8)
    jo, ji = s[total].split(j, 8)
    s[total].reorder(step, part, io, ii, jo, ji, ko, ki)
    s[total].unroll(part)
    s[total].tensorize(io, wgmma(columns, "float16", left="k", right="k", swizzles=(128, 128)))

    for tile, size in ((left, rows), (right, columns)):
        s[tile].set_scope("shared")
        s[tile].compute_at(s[total], step)
        s[tile].align_bounds(s[tile].op.axis[0], size)
        s[tile].swizzle(128)
        s[tile].pipeline(stages)
        s[tile].tensorize(s[tile].op.axis[0], tma_load((size, STEP), "float16", swizzle=128))
    return s, [a, b, c]


def _operands(torch: Any, m: int, n: int, k: int) -> list[Any]:
    return [torch.randint(-4, 5, shape, device="cuda").half() for shape in ((m, k), (n, k))] + [
        torch.full((m, n), 77.0, device="cuda").half()
    ]


def _milliseconds(torch: Any, calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The median of each, in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            call()
            begin.record()
            for _ in range(10):
                call()
            end.record()
            torch.cuda.synchronize()
            own.append(begin.elapsed_time(end) / 10)
    return [statistics.median(own) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, checked and not timed")
    args = parser.parse_args()
    import torch

    wrong = 0
    for m, n, k in QUICK if args.quick else SIZES:
        a, b, c = _operands(torch, m, n, k)
        exact = (a.float() @ b.float().T).half()
        calls: dict[str, Callable[[], Any]] = {"torch": partial(torch.matmul, a, b.T)}
        for rows, columns, stages in TILES:
            kernel = tilewright.build(*product(m, n, k, rows, columns, stages), "cuda -arch=sm_90a")
            c.fill_(77)
            kernel(a, b, c)
            torch.cuda.synchronize()
            name = f"{rows} x {columns}, {stages} stages"
            if not torch.equal(c, exact):
                wrong += 1
                differ = int((c != exact).sum())
                print(f"{m} x {n} x {k}, {name}: WRONG in {differ} of {c.numel()}")
                continue
            calls[name] = partial(kernel, a, b, c)
        if args.quick:
            print(f"{m} x {n} x {k}: {len(calls) - 1} of {len(TILES)} right")
            continue
        times = _milliseconds(torch, list(calls.values()), 7)
        print(f"{m} x {n} x {k}")
        for name, time in zip(calls, times, strict=True):
            rate = 2 * m * n * k / time / 1e9
            print(f"  {name:24} {time * 1000:8.1f} us {rate:6.0f} TFLOP/s {times[0] / time:5.2f}x")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
