"""Dense and depthwise convolutions as products of matrices on a GPU, beside PyTorch's, in NCHW.

The 3 x 3 layers and a 1 x 1 layer of ResNet-50 at batch 64 in float16 and float32 and two depthwise
layers, each with im2col stored and implicit: checked on whole numbers against PyTorch in float64,
then all take turns with it, cuDNN's search switched on and its TF32 off: medians of CUDA-graph
replays.

    PYTHONPATH=src python benchmarks/conv2d.py
    PYTHONPATH=src compute-sanitizer --tool racecheck python benchmarks/conv2d.py --quick
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import measure

import tilewright
from tilewright import te
from tilewright.topi import nn
from tilewright.topi.gpu.conv2d_lanes import LaneTile, conv2d_lanes_tiles, schedule_conv2d_lanes
from tilewright.topi.gpu.conv2d_mma import MmaTile, conv2d_mma_tiles, schedule_conv2d_mma

#: Image, filter and groups; padding keeps the size.
LAYERS = (
    ((64, 64, 56, 56), (64, 64, 3, 3), 1),
    ((64, 128, 28, 28), (128, 128, 3, 3), 1),
    ((64, 256, 14, 14), (256, 256, 3, 3), 1),
    ((64, 512, 7, 7), (512, 512, 3, 3), 1),
    ((64, 64, 56, 56), (256, 64, 1, 1), 1),
    ((64, 384, 32, 32), (384, 1, 7, 7), 384),
    ((8, 384, 32, 32), (384, 1, 31, 31), 384),
)
QUICK = (((2, 20, 9, 7), (24, 20, 3, 3), 1), ((2, 6, 9, 7), (32, 3, 5, 3), 2),
         ((2, 3, 9, 7), (3, 1, 5, 5), 3))  # fmt: skip
#: Tiles of each way that are tried.
TRIED = 12
#: Bytes of columns that are stored, at most.
STORED = 4 << 30


def tiles(dtype: str, filters: int, groups: int) -> list[MmaTile | LaneTile]:
    """Tiles for a layer, as many of either way."""
    make = conv2d_lanes_tiles if dtype == "float32" else conv2d_mma_tiles
    every: list[MmaTile | LaneTile] = [*make(filters, groups)]
    return [t for implicit in (1, 0) for t in [t for t in every if t.implicit == implicit][:TRIED]]


def built(shape: Any, filter: Any, groups: int, dtype: str, tile: MmaTile | LaneTile) -> Any:
    """A kernel of (image, filter, result)."""
    x, f = te.placeholder(shape, dtype, name="X"), te.placeholder(filter, dtype, name="F")
    padding = filter[2] // 2, filter[3] // 2
    y = nn.conv2d_nchw(x, f, 1, padding, 1, groups)
    if isinstance(tile, MmaTile):
        return tilewright.build(schedule_conv2d_mma(y, tile), [x, f, y], "cuda")
    return tilewright.build(schedule_conv2d_lanes(y, tile), [x, f, y], "cuda")


def call(kernel: Any, arrays: tuple[Any, ...], _: int) -> None:
    """One launch, whatever its number."""
    kernel(*arrays)


def layer(torch: Any, shape: Any, filter: Any, groups: int, dtype: str, quick: bool) -> int:
    """Check the kernels of a layer, and time them; how many are wrong."""
    kind = getattr(torch, dtype)
    x, f = (torch.randint(-2, 3, s, device="cuda").to(kind) for s in (shape, filter))
    padding = filter[2] // 2, filter[3] // 2
    exact = torch.conv2d(x.double(), f.double(), None, 1, padding, 1, groups).to(kind)
    theirs = partial(torch.conv2d, x, f, None, 1, padding, 1, groups)
    calls: dict[str, Callable[[int], Any]] = {"PyTorch": partial(call, theirs, ())}
    taps, wrong = filter[1] * filter[2] * filter[3], 0
    for tile in tiles(dtype, filter[0], groups):
        windows = exact.numel() // filter[0] * groups
        if not tile.implicit and windows * taps * x.element_size() > STORED:
            continue
        kernel, y = built(shape, filter, groups, dtype, tile), torch.full_like(exact, 77)
        kernel(x, f, y)
        if torch.equal(y, exact):
            calls[str(tile)] = partial(call, kernel, (x, f, y))
        else:
            wrong += 1
            print(f"{shape} {filter} {dtype} {tile}: WRONG in {int((y != exact).sum())}")
    print(f"{shape} by {filter}, {groups} groups, {dtype}: {len(calls) - 1} right")
    if not quick:
        times = measure.graph_medians(calls)
        for name, time in sorted(times.items(), key=lambda pair: pair[1]):
            rate, ratio = 2 * exact.numel() * taps / time / 1e6, times["PyTorch"] / time
            print(f"  {time:9.1f} us {rate:6.1f} TFLOP/s {ratio:5.2f}x {name}", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small layers, checked and not timed")
    args = parser.parse_args()
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    layers = QUICK if args.quick else LAYERS
    wrong = sum(
        layer(torch, *of_layer, dtype, args.quick)
        for dtype in ("float16", "float32")
        for of_layer in layers
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
