"""Article 000 on a GPU: its four rows at 1x256x96x96 against PyTorch, and the fused operator.

The article's schedule is searched by the article's loop (all combinations of thread counts,
virtual threads and blocks), and so is the register schedule of topi. The best of each is then
timed beside PyTorch (NCHW and channels_last) and a plain copy of the same bytes, in one run of
CUDA-graph replays over rotating buffers.

    python benchmarks/article_000.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import measure

import tilewright
from tilewright import te
from tilewright.topi.elementwise import relu
from tilewright.topi.gpu.depthwise_registers import RegisterTile, schedule_registers
from tilewright.topi.gpu.depthwise_shared import SharedTile, schedule_shared
from tilewright.topi.nn import depthwise_conv2d_nchw, scale_shift

C, H, W = 256, 96, 96
ROWS = [(3, 1), (5, 1), (3, 2), (5, 2)]  # (K, channel multiplier)
SETS = 4  # buffers in rotation: more than the second-level cache holds


def declaration(k: int, m: int, fused: bool) -> list[Any]:
    """The tensors of one row: input, filter, (scale, shift,) output."""
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
    args = declaration(k, m, fused)
    if family == "article":
        schedule = schedule_shared(args[-1], SharedTile(*tile))
    else:
        schedule = schedule_registers(args[-1], RegisterTile(*tile))
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
    found = []
    for (bh, bw), (ty, tx), (vy, vx) in itertools.product(blocks, threads, vthreads):
        if bh % (ty * vy) == 0 and bw % (tx * vx) == 0:
            found.append((bh, bw, ty, tx, vy, vx))
    return found[::8] if quick else found


def register_space(quick: bool) -> list[tuple[int, ...]]:
    """Rows of a strip, its width, strips of a block in both directions."""
    found = []
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

    rows: list[dict[str, Any]] = []
    fused_row: dict[str, Any] = {}
    for k, m in ROWS:
        data = [torch.randn(1, C, H, W, device="cuda") for _ in range(SETS)]
        weight = torch.randn(C, m, k, k, device="cuda")
        flat = weight.reshape(C * m, 1, k, k)
        outs = [torch.empty(1, C * m, H, W, device="cuda") for _ in range(SETS)]
        exact = torch.nn.functional.conv2d(
            data[0].double(), flat.double(), padding=k // 2, groups=C
        )
        channels_last = [x.to(memory_format=torch.channels_last) for x in data]

        def conv(i: int, xs: Any = data, w: Any = flat, p: int = k // 2) -> Any:
            return torch.nn.functional.conv2d(xs[i % SETS], w, padding=p, groups=C)

        def bound(kernel: Any, extra: tuple[Any, ...] = ()) -> Callable[[int], Any]:
            return lambda i: kernel(data[i % SETS], weight, *extra, outs[i % SETS])

        best: dict[str, tuple[float, Any, tuple[int, ...]]] = {}
        for family in spaces:
            mine = [j for j in jobs if j in usable and j[0] == family and j[2:5] == (k, m, False)]
            kernels = {j: build(j) for j in mine}
            for job, kernel in kernels.items():
                outs[0].fill_(float("nan"))
                kernel(data[0], weight, outs[0])
                error = float((outs[0] - exact).norm() / exact.norm())
                assert error < 1e-5, (job, error)
            times = measure.graph_medians({str(j[1]): bound(kn) for j, kn in kernels.items()})
            tile = min(times, key=lambda name: times[name])
            job = next(j for j in mine if str(j[1]) == tile)
            best[family] = (times[tile], kernels[job], job[1])

        copy = (data[0].numel() + outs[0].numel()) // 2
        source = [torch.randn(copy, device="cuda") for _ in range(SETS)]
        sink = [torch.empty(copy, device="cuda") for _ in range(SETS)]
        final = measure.graph_medians(
            {
                "PyTorch NCHW": conv,
                "PyTorch channels_last": lambda i: conv(i, channels_last),
                "article": bound(best["article"][1]),
                "own": bound(best["own"][1]),
                "copy": lambda i: sink[i % SETS].copy_(source[i % SETS]),
            }
        )
        rows.append(
            {
                "input": f"1x{C}x{H}x{W}",
                "filter": f"{C}x{m}x{k}x{k}",
                **{f"{name} us": us for name, us in final.items()},
                "PyTorch NCHW / article": final["PyTorch NCHW"] / final["article"],
                "PyTorch NCHW / own": final["PyTorch NCHW"] / final["own"],
                "article tile": str(best["article"][2]),
                "own tile": str(best["own"][2]),
            }
        )
        if (k, m) == (3, 1):
            scale, shift = torch.randn(C, device="cuda"), torch.randn(C, device="cuda")
            fused_row = _fused(best, target, bound, (scale, shift), outs, exact)
    print(measure.table(rows))
    print(measure.table([fused_row]))
    results = {"environment": measure.environment("torch"), "rows": rows, "fused": fused_row}
    print(measure.save("article_000", results, options.out))


def _fused(
    best: Any, target: str, bound: Any, extra: tuple[Any, Any], outs: Any, exact: Any
) -> dict[str, Any]:
    """Convolution, scale and shift, ReLU in one kernel, beside the convolution alone."""
    scale, shift = extra
    candidates = {}
    wanted = (exact * scale.double()[:, None, None] + shift.double()[:, None, None]).relu()
    for family in ("article", "own"):
        tile = best[family][2]
        kernel = build((family, tile, 3, 1, True, target))
        call = bound(kernel, (scale, shift))
        outs[0].fill_(float("nan"))
        call(0)
        error = float((outs[0] - wanted).norm() / wanted.norm())
        assert error < 1e-5, (family, error)
        candidates[family] = bound(best[family][1])
        candidates[f"{family} fused"] = call
    times = measure.graph_medians(candidates)
    row: dict[str, Any] = {f"{name} us": us for name, us in times.items()}
    for family in ("article", "own"):
        row[f"fused / alone ({family})"] = times[f"{family} fused"] / times[family]
    return row


if __name__ == "__main__":
    main()
