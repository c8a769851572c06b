"""Convolutions of 8-bit integers on a GPU, beside the same layers in float16.

The 23 layers of ResNet-50, forward, channels last and in blocks of 32: sums of int8 with a bias,
requantised to int8 in the same kernel, by the first choice without measuring, exact on all
elements; the same choice in float16 with channels last; with ``--inference`` filters and what else
is a layer's own are constants of both, prepared before; cuDNN's own int8, the fastest of its first
``--plans`` plans, where the package nvidia-cudnn-frontend is installed (cudnn_bytes.py); and
PyTorch in float16, cuDNN's search switched on. Medians of CUDA-graph replays that take turns,
inputs rotated past the cache.

    PYTHONPATH=src python benchmarks/gpu_bytes.py [--batch 64 1] [--layouts NHWC NCHW32] [--tried 3]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any

import measure
from cudnn_bytes import CudnnBytes, Unavailable
from gpu_dense import LAYERS, Operands, built, problem

from tilewright.cli._measure.turns import of_graph
from tilewright.report.results import geometric_mean
from tilewright.topi import Conv
from tilewright.topi.operators.conv_shapes import BLOCKED
from tilewright.topi.operators.convolution import Convolution

#: What goes past the cache, turns of every graph, and bytes a second of a large copy.
_CACHE, _ROUNDS, _BANDWIDTH = 150e6, 9, 4.2e12
#: Operations a second that tensor cores reach with bytes, of those that they could.
_PEAK = 0.8 * 1979e12
_STEPS = "bias+dequantize+relu+quantize(1)"


def quantised(layer: tuple[int, ...], batch: int, layout: str, inference: bool) -> Conv:
    """The problem of a layer; of few channels, images with channels last have results in blocks."""
    p = problem(layer, "forward", batch, "int8").replace(epilogue=_STEPS)
    assert isinstance(p, Conv)
    block = int(layout.strip("NCHW") or 1)
    p = p.replace(**{"layout" if p.channels % block == 0 else "out_layout": layout})
    own = tuple(name for name in p.inputs() if name != "data")
    return p.replace(constants=own if inference else ())


def halved(layer: tuple[int, ...], batch: int, inference: bool) -> Convolution:
    """The same layer in float16, without an epilogue."""
    constants = ("filter",) if inference else ()
    return problem(layer, "forward", batch, "float16", constants=constants)


class Bytes:
    """Tensors of a problem, ``sets`` of images, and what results are, exactly."""

    def __init__(self, p: Conv) -> None:
        import torch

        self.p, self.torch = p, torch
        shape, made = p.input_shape, p.output_shape
        self.sets = max(1, min(8, math.ceil(_CACHE / (math.prod(shape) + math.prod(made)))))

        def random(shape: tuple[int, ...], bound: int, kind: Any) -> Any:
            return torch.randint(-bound, bound + 1, shape, device="cuda", dtype=kind)

        self.x = [random(shape, 7, torch.int8) for _ in range(self.sets)]
        self.w = random(p.filter_shape, 7, torch.int8)
        self.bias = random((p.out_channels,), 500, torch.int32)
        depth = p.channels // p.groups * math.prod(p.kernel)
        self.scale = torch.rand(p.out_channels, device="cuda") * 4 / math.sqrt(depth)
        self.results = [torch.full(made, 99, device="cuda", dtype=torch.int8) for _ in self.x]

    def ours(self, kernel: Any) -> Callable[[int], Any]:
        """The kernel's call; what it computes of constants alone is computed now."""
        own = self.w, self.bias, self.scale
        pairs = zip(self.x, self.results, strict=True)
        every = [kernel.prepared((x, *own, result)) for x, result in pairs]
        return lambda number: kernel(*every[number % self.sets])

    def exact(self) -> Any:
        """The result of the first images; in float64, of which no algorithm rounds such sums."""
        torch, p = self.torch, self.p
        x, w = (channels_first(t).double() for t in (self.x[0], self.w))
        y = torch.conv2d(x, w, None, p.stride, p.padding[:2], groups=p.groups)
        y = (y.round().permute(0, 2, 3, 1) + self.bias).float() * self.scale
        y = y.clamp(0, 127).round().to(torch.int8)
        block = BLOCKED.get(p.result_layout, 0)
        return y.unflatten(3, (-1, block)).permute(0, 3, 1, 2, 4) if block else y

    def cudnn(self, plans: int) -> Callable[[int], Any]:
        """cuDNN's call, where it has one of this problem; its results are rounded otherwise by 1 at
        most, its bias being added behind the scale."""
        if self.p.channels_last is not True:
            raise Unavailable("cuDNN: measured with channels last")
        peer, bias = CudnnBytes(self.p, plans), self.bias * self.scale

        def call(number: int) -> None:
            k = number % self.sets
            peer.call(self.x[k], self.w, self.scale, bias, self.results[k])

        peer.search(call, self.sets)
        call(0)
        wrong = (self.results[0].int() - self.exact().int()).abs().max()
        if int(wrong) > 1:
            raise Unavailable(f"cuDNN: its results are wrong by {int(wrong)}")
        return call


def channels_first(t: Any) -> Any:
    """Images or filters in either layout."""
    if t.ndim == 5:
        return t.permute(0, 1, 4, 2, 3).flatten(1, 2)
    return t.permute(0, 3, 1, 2)


def row(
    layer: tuple[int, ...], batch: int, layout: str, tried: int, plans: int, inference: bool
) -> dict[str, Any]:
    """What one layer takes."""
    p, half = quantised(layer, batch, layout, inference), halved(layer, batch, inference)
    given, halves = Bytes(p), Operands(half)
    exact, calls, names = given.exact(), dict[str, tuple[Callable[[int], Any], int]](), {}
    for rank in range(tried):
        found = built(p, rank)
        if found is None or found[0] is None:
            continue
        given.results[0].fill_(99)
        call = given.ours(found[0])
        call(0)
        wrong = int((given.results[0] != exact).sum())
        if wrong:
            raise SystemExit(f"{p} {found[1]}: {wrong} results are not exact")
        calls[str(rank)], names[str(rank)] = (call, given.sets), found[1]
    kernel, _ = built(half, 0)
    calls["float16"] = halves.ours(kernel), halves.sets
    calls["PyTorch"] = halves.theirs(True), halves.sets
    skipped = ""
    try:
        if plans:
            calls["cuDNN"] = given.cudnn(plans), given.sets
    except Unavailable as error:
        skipped = str(error)
    batches = {name: of_graph(call, sets) for name, (call, sets) in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for name, batch_of in batches.items():
            times[name].append(batch_of(1) * 1e6)
    us = {name: statistics.median(t) for name, t in times.items()}
    best = min(names, key=lambda name: us[name])
    floor = max(p.bytes / _BANDWIDTH, p.nominal_flops / _PEAK) * 1e6
    return {
        "layer": p.short.partition(" +")[0], "batch": batch, "layout": layout, "int8 us": us["0"],
        "tried us": us[best], "float16 us": us["float16"], "PyTorch float16 us": us["PyTorch"],
        "float16 / int8": us["float16"] / us["0"], "PyTorch / int8": us["PyTorch"] / us["0"],
        "TOP/s": p.nominal_flops / us["0"] / 1e6, "int8 / floor": us["0"] / floor,
        "kernel": names["0"],
        **(
            {"cuDNN us": us["cuDNN"], "cuDNN / int8": us["cuDNN"] / us["0"]}
            if "cuDNN" in us else {"skipped": skipped} if skipped else {}
        ),
    }  # fmt: skip


def _ahead(job: tuple[Convolution, int]) -> None:
    built(*job)  # which the cache of kernels then has


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--plans", type=int, default=9, help="of cuDNN's own; 0 leaves it out")
    parser.add_argument("--layouts", nargs="+", default=["NHWC", "NCHW32"])
    parser.add_argument("--tried", type=int, default=1, help="schedules of each problem")
    parser.add_argument("--inference", action="store_true", help="of constant filters")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    layers = list(product(LAYERS["resnet"], options.batch, options.layouts))
    layers.sort(key=lambda x: (options.layouts.index(x[2]), options.batch.index(x[1])))
    jobs: list[tuple[Convolution, int]] = [
        (quantised(layer, batch, layout, options.inference), rank)
        for layer, batch, layout in layers
        for rank in range(options.tried)
    ]
    halves = dict.fromkeys((layer, batch) for layer, batch, _ in layers)
    jobs += [(halved(layer, batch, options.inference), 0) for layer, batch in halves]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(_ahead, jobs, chunksize=4))
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    rows = []
    for layer, batch, layout in layers:
        rows.append(row(layer, batch, layout, options.tried, options.plans, options.inference))
        shown = {k: v if isinstance(v, str) else round(v, 2) for k, v in rows[-1].items()}
        print(*shown.values(), sep=" | ", flush=True)
    print(measure.table(rows))
    for layout, batch in product(options.layouts, options.batch):
        own = [r for r in rows if (r["batch"], r["layout"]) == (batch, layout)]
        for column in ("float16 / int8", "PyTorch / int8", "cuDNN / int8"):
            values = [r[column] for r in own if column in r]
            if values:
                mean = f"{geometric_mean(values):.2f} in the mean of {len(values)}"
                print(f"{layout}, batch {batch}: {column}: {mean}, {min(values):.2f} at least")
    results = {"environment": measure.environment("torch"), "settings": vars(options), "rows": rows}
    only = "".join(f"_{n}" for n in options.batch) if len(options.batch) == 1 else ""
    what = "_inference" if options.inference else ""
    print(measure.save(f"h200_gpu_bytes{what}{only}", results, options.out))


if __name__ == "__main__":
    main()
