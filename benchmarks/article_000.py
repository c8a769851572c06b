"""Article 000 on a GPU: its four rows at 1x256x96x96 against PyTorch, and the fused operator.

The article's schedule is searched by the article's loop (all combinations of thread counts,
virtual threads and blocks), and so is topi's schedule of strips in registers. The best of each is
then timed beside PyTorch (NCHW and channels_last) and a plain copy of the same bytes, in one run of
CUDA-graph replays over rotating buffers. "article" is the article's schedule, "own" the one of
topi; a tile is (block rows, columns, threads in y, x, virtual threads in y, x), or (rows and
columns of a thread, threads in y, x).

    python benchmarks/article_000.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import measure

import tilewright
from tilewright import te
from tilewright.topi.declare import declare
from tilewright.topi.elementwise import relu
from tilewright.topi.epilogue import parse_epilogue
from tilewright.topi.nn import depthwise_conv2d_nchw, scale_shift
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.register_tiles import StripTile
from tilewright.topi.sketches.registers import schedule_registers

sys.path.append(str(Path(__file__).parents[1]))  # where the examples are

C, H, W = 256, 96, 96
ROWS = [(3, 1), (5, 1), (3, 2), (5, 2)]  # (K, channel multiplier)
SETS = 4  # buffers in rotation: more than the second-level cache holds


def problem(k: int, m: int, fused: bool) -> Conv:
    """One row, as the library's own schedules take it."""
    return Conv(
        batch=1, channels=C, height=H, width=W, multiplier=m, kernel_h=k, kernel_w=k,
        padding=(k // 2,) * 4, epilogue=parse_epilogue("scale_shift+relu" if fused else ""),
    )  # fmt: skip


def declaration(k: int, m: int, fused: bool) -> list[Any]:
    """The tensors of one row as the article declares it: input, filter, (scale, shift,) output."""
    data = te.placeholder((1, C, H, W), name="Input")
    weight = te.placeholder((C, m, k, k), name="Filter")
    conv = depthwise_conv2d_nchw(data, weight, 1, "SAME")
    if not fused:
        return [data, weight, conv]
    scale = te.placeholder((C * m,), name="Scale")
    shift = te.placeholder((C * m,), name="Shift")
    return [data, weight, scale, shift, relu(scale_shift(conv, scale, shift))]


def build(job: tuple[str, tuple[int, ...], int, int, bool, str]) -> Any:
    """A kernel; run in a pool first, which fills the cache of compiled kernels."""
    family, tile, k, m, fused, target = job
    if family == "article":
        from examples.article_000 import SharedTile, schedule_shared

        args = declaration(k, m, fused)
        schedule = schedule_shared(args[-1], SharedTile(*tile))
    else:
        declared = declare(problem(k, m, fused))
        args = declared.args
        rows, vector, threads_y, threads_x = tile
        strip = StripTile(rows, vector, threads_y, threads_x, taps=k)
        schedule = schedule_registers(declared, strip)
    return tilewright.build(schedule, args, target=target, name=f"depthwise_{family}")


def warm(job: Any) -> str:
    """Build in another process; the reason where it fails."""
    try:
        build(job)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def article_space(quick: bool) -> list[tuple[int, ...]]:
    """The article's parameters: blocks, threads, virtual threads."""
    blocks = [(32, 32), (16, 32), (32, 96), (16, 96), (48, 48), (24, 96)]
    threads = [(8, 8), (4, 32), (8, 16), (8, 32), (4, 48), (8, 24), (8, 48), (4, 24), (16, 16)]
    vthreads = [(1, 1), (1, 2), (1, 4), (2, 1)]
    found: list[tuple[int, ...]] = []
    for (bh, bw), (ty, tx), (vy, vx) in itertools.product(blocks, threads, vthreads):
        if bh % (ty * vy) == 0 and bw % (tx * vx) == 0:
            found.append((bh, bw, ty, tx, vy, vx))
    return found[::8] if quick else found


def register_space(quick: bool) -> list[tuple[int, ...]]:
    """Rows of a strip, its width, strips of a block in both directions."""
    found: list[tuple[int, ...]] = []
    for rows, vector in itertools.product((1, 2, 3, 4, 6, 8), (4, 2)):
        for ty, tx in (
            (4, 24),
            (8, 24),
            (2, 24),
            (4, 48),
            (6, 24),
            (3, 24),
            (16, 8),
            (8, 8),
            (16, 12),
        ):
            if (W // vector) % tx == 0 and ty * rows <= H:
                found.append((rows, vector, ty, tx))
    return found[::6] if quick else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few candidates only")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    major, minor = torch.cuda.get_device_capability()
    target = f"cuda -arch=sm_{major}{minor}{'a' if major == 9 else ''}"
    spaces = {"article": article_space(options.quick), "own": register_space(options.quick)}
    jobs = [
        (family, tile, k, m, fused, target)
        for k, m in ROWS
        for fused in (False, True)
        if not fused or (k, m) == (3, 1)
        for family, tiles in spaces.items()
        for tile in tiles
    ]
    failures: dict[str, int] = {}
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        reasons = list(pool.map(warm, jobs, chunksize=8))
    for reason in filter(None, reasons):
        failures[reason] = failures.get(reason, 0) + 1
    print(f"{len(jobs)} candidates, refused: {failures or 'none'}")
    usable = {job for job, reason in zip(jobs, reasons, strict=True) if not reason}

    found = [Row(k, m, target, usable).measure() for k, m in ROWS]
    rows = [row for row, _ in found]
    fused_row = next(fused for _, fused in found if fused)
    print(measure.table(rows))
    print(measure.table([fused_row]))
    results = {"environment": measure.environment("torch"), "rows": rows, "fused": fused_row}
    print(measure.save("article_000", results, options.out))


class Row:
    """One row of the article's table: its data, the candidates, their times."""

    def __init__(self, k: int, m: int, target: str, usable: set[Any]) -> None:
        import torch

        self.k, self.m, self.target = k, m, target
        self.jobs = [job for job in usable if job[2:5] == (k, m, False)]
        self.data = [torch.randn(1, C, H, W, device="cuda") for _ in range(SETS)]
        self.last = [x.to(memory_format=torch.channels_last) for x in self.data]
        self.weight = torch.randn(C, m, k, k, device="cuda")
        self.outs = [torch.empty(1, C * m, H, W, device="cuda") for _ in range(SETS)]
        half = (self.data[0].numel() + self.outs[0].numel()) // 2
        self.source = [torch.randn(half, device="cuda") for _ in range(SETS)]
        self.sink = [torch.empty(half, device="cuda") for _ in range(SETS)]
        self.exact = self.torch_conv(self.data[0].double(), self.weight.double())

    def torch_conv(self, x: Any, weight: Any) -> Any:
        """PyTorch's convolution."""
        import torch

        flat = weight.reshape(C * self.m, 1, self.k, self.k)
        return torch.nn.functional.conv2d(x, flat, padding=self.k // 2, groups=C)

    def call(self, kernel: Any, *extra: Any) -> Callable[[int], Any]:
        """``kernel`` on the buffers whose turn it is."""
        return lambda i: kernel(self.data[i % SETS], self.weight, *extra, self.outs[i % SETS])

    def check(self, kernel: Any, wanted: Any, *extra: Any) -> None:
        """Raise where a kernel is wrong, or leaves an element unwritten."""
        self.outs[0].fill_(float("nan"))
        self.call(kernel, *extra)(0)
        error = float((self.outs[0] - wanted).norm() / wanted.norm())
        if not error < 1e-5:
            raise AssertionError(f"relative error {error}: {kernel.source}")

    def best(self, family: str) -> tuple[Any, tuple[int, ...]]:
        """The fastest kernel of a family, and its parameters."""
        kernels = {job[1]: build(job) for job in self.jobs if job[0] == family}
        for kernel in kernels.values():
            self.check(kernel, self.exact)
        calls = {str(tile): self.call(kernel) for tile, kernel in kernels.items()}
        times = measure.graph_medians(calls)
        tile = min(kernels, key=lambda t: times[str(t)])
        return kernels[tile], tile

    def measure(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The row, and the one of the fused operator where the article has it."""
        flat = self.weight
        article, article_tile = self.best("article")
        own, own_tile = self.best("own")
        times = measure.graph_medians(
            {
                "PyTorch NCHW": lambda i: self.torch_conv(self.data[i % SETS], flat),
                "PyTorch channels_last": lambda i: self.torch_conv(self.last[i % SETS], flat),
                "article": self.call(article),
                "own": self.call(own),
                "copy": lambda i: self.sink[i % SETS].copy_(self.source[i % SETS]),
            }
        )
        row = {
            "input": f"1x{C}x{H}x{W}",
            "filter": f"{C}x{self.m}x{self.k}x{self.k}",
            **{f"{name} us": us for name, us in times.items()},
            "PyTorch NCHW / article": times["PyTorch NCHW"] / times["article"],
            "PyTorch NCHW / own": times["PyTorch NCHW"] / times["own"],
            "article tile": str(article_tile),
            "own tile": str(own_tile),
        }
        if (self.k, self.m) != (3, 1):
            return row, {}
        return row, self.fused({"article": (article, article_tile), "own": (own, own_tile)})

    def fused(self, best: dict[str, tuple[Any, tuple[int, ...]]]) -> dict[str, Any]:
        """Convolution, scale and shift, ReLU in one kernel, beside the convolution alone."""
        import torch

        scale, shift = torch.randn(C, device="cuda"), torch.randn(C, device="cuda")
        wanted = (self.exact * scale[:, None, None] + shift[:, None, None]).relu()
        candidates: dict[str, Callable[[int], Any]] = {}
        for family, (alone, tile) in best.items():
            kernel = build((family, tile, 3, 1, True, self.target))
            self.check(kernel, wanted, scale, shift)
            candidates[family] = self.call(alone)
            candidates[f"{family} fused"] = self.call(kernel, scale, shift)
        times = measure.graph_medians(candidates)
        row: dict[str, Any] = {f"{name} us": us for name, us in times.items()}
        for family in best:
            row[f"fused / alone ({family})"] = times[f"{family} fused"] / times[family]
        return row


if __name__ == "__main__":
    main()
