"""Dense convolutions and their gradients on a GPU, channels last, beside PyTorch's in both layouts.

The 23 layers of ResNet-50, or with ``--layers`` those of ResNeXt in groups, of stems and few
channels, and the linear ones of a vision transformer and of ConvNeXt (PyTorch's as products of
matrices, too), in all passes: the first choice without measuring, and the fastest of
the ``--tried`` schedules that are ranked first, each checked against PyTorch in float32, take turns
with PyTorch, cuDNN's search switched on: medians of CUDA-graph replays, inputs rotated past the
cache. The regret is by how much the first choice is slower than the fastest. The floor is the bytes
of inputs and outputs over the bandwidth of a large copy, or the operations over what matrix
products reach (docs/benchmarks.md).

Of tf32x3 PyTorch's is float32 without TF32. Of float8, which PyTorch has no convolutions of, the
forward pass with results in float16 takes turns with our own in float16, and PyTorch's in it.

    PYTHONPATH=src python benchmarks/gpu_dense.py [--layers resnet groups few linear] [--batch 64]
    PYTHONPATH=src python benchmarks/gpu_dense.py --dtype float8_e4m3fn [--precision half]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import measure
from gpu_depthwise import ERROR, PEAK
from gpu_layers import PASSES

import tilewright
from tilewright.cli._measure.turns import of_graph
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import TilewrightError
from tilewright.report.results import geometric_mean
from tilewright.topi import Conv
from tilewright.topi.templates import candidates

TARGET = "cuda -arch=sm_90a"
#: Channels of x and of y, filter, stride, height and width of x, and groups where there are some.
_RESNET = (
    (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
    (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (256, 512, 1, 2, 56), (128, 512, 1, 1, 28),
    (512, 128, 1, 1, 28), (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28),
    (512, 1024, 1, 2, 28), (256, 1024, 1, 1, 14), (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14),
    (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (1024, 2048, 1, 2, 14), (512, 2048, 1, 1, 7),
    (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7), (3, 64, 7, 2, 224),
)  # fmt: skip
_GROUPS = (
    (128, 128, 3, 1, 56, 32), (128, 128, 3, 2, 56, 32), (256, 256, 3, 1, 28, 32),
    (256, 256, 3, 2, 56, 32), (512, 512, 3, 1, 14, 32), (512, 512, 3, 2, 28, 32),
    (1024, 1024, 3, 1, 7, 32), (1024, 1024, 3, 2, 14, 32),
)  # fmt: skip
_FEW = (
    (3, 64, 7, 2, 224), (3, 32, 3, 2, 224), (3, 96, 4, 4, 224), (3, 64, 3, 1, 112),
    (8, 64, 3, 1, 112), (16, 64, 3, 1, 112), (32, 64, 3, 1, 112),
)  # fmt: skip
#: For each pixel, those of ViT-B at 14x14, and of ConvNeXt-T.
_LINEAR = (
    (768, 2304, 1, 1, 14), (768, 768, 1, 1, 14), (768, 3072, 1, 1, 14), (3072, 768, 1, 1, 14),
    (96, 384, 1, 1, 56), (384, 96, 1, 1, 56), (192, 768, 1, 1, 28), (768, 192, 1, 1, 28),
    (384, 1536, 1, 1, 14), (1536, 384, 1, 1, 14), (768, 3072, 1, 1, 7), (3072, 768, 1, 1, 7),
)  # fmt: skip
LAYERS = {"resnet": _RESNET, "groups": _GROUPS, "few": _FEW, "linear": _LINEAR}
#: Bytes a second of a large copy, what goes past the cache, and turns of every graph.
_BANDWIDTH, _CACHE, _ROUNDS = 4.2e12, 150e6, 9


#: Of TF32: the relative error of results, operations a second that matrix products reach, and
#: products of it for one, by precision.
_ERROR, _TF32 = {"tf32": 2e-3}, 400e12
_TIMES = {"tf32": 1, "tf32x3": 3}
#: By precision, the error of float8, of whose sums Hopper's tensor cores keep fewer digits than
#: float32 has; and how many times as many operations of it matrix products reach as of float16.
_FLOAT8_ERROR, _FLOAT8_RATE = {"exact": 2e-3, "half": 2e-2}, 2


def _rate(p: Conv) -> float:
    if p.is_float8:
        return _FLOAT8_RATE * PEAK["float16"]
    return _TF32 / _TIMES[p.precision] if p.precision in _TIMES else PEAK[p.dtype]


def _allowed(p: Conv) -> float:
    return (
        _FLOAT8_ERROR[p.precision]
        if p.is_float8
        else _ERROR.get(p.precision, ERROR.get(p.dtype, 0))
    )


def problem(
    layer: tuple[int, ...], pass_: str, batch: int, dtype: str, precision: str = "exact"
) -> Conv:
    c, m, kernel, stride, image, groups = layer if len(layer) == 6 else (*layer, 1)
    precision, dtype = (dtype, "float32") if dtype in _TIMES else (precision, dtype)
    return Conv.parse(
        (batch, c, image, image), (m, c // groups, kernel, kernel), groups, stride=stride,
        padding=kernel // 2 if kernel != stride else 0, pass_=pass_, dtype=dtype,
        precision=precision, layout="NHWC", out_dtype="float16" if dtype in FLOAT8 else "",
    )  # fmt: skip


def in_float16(p: Conv) -> Conv:
    """What a problem of float8 is compared with; others are compared with PyTorch alone."""
    return p.replace(dtype="float16", precision="exact") if p.is_float8 else p


def built(p: Conv, rank: int) -> Any:
    """The kernel of the candidate of that rank, and its name; None where there is none."""
    found = [pair for k, pair in zip(range(rank + 1), candidates(p, TARGET), strict=False)]
    if len(found) <= rank:
        return None
    template, tile = found[rank]
    declared = template.declare(p, tile)
    try:
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, TARGET)
    except TilewrightError as error:
        return None, f"{template.name}: {error}"
    return kernel, f"{template.name} {tile}"


def _ahead(job: tuple[Conv, int]) -> None:
    built(*job)  # which the cache of kernels then has


class Operands:
    """Tensors of a problem, ``sets`` of images, and PyTorch's calls on them."""

    def __init__(self, p: Conv) -> None:
        import torch

        self.p, self.torch, kind = p, torch, getattr(torch, p.dtype)
        shapes = (p.batch, *p.image, p.channels), (p.batch, *p.out_image, p.out_channels)
        moved = sum(math.prod(s) for s in shapes) * kind.itemsize
        self.sets = max(1, min(8, math.ceil(_CACHE / moved)))

        def random(shape: tuple[int, ...], scale: float) -> Any:
            return (torch.randn(shape, device="cuda") * scale).to(kind)

        self.x, self.dy = ([random(s, 1.0) for _ in range(self.sets)] for s in shapes)
        taps = math.prod(p.kernel)
        own = p.channels // p.groups
        filters = (p.out_channels, *p.kernel, own)
        self.w = random(filters, 1.0 if p.is_float8 else (own * taps) ** -0.5)
        wanted = {"forward": shapes[1], "dgrad": shapes[0], "wgrad": filters}[p.pass_]
        made = getattr(torch, p.result.dtype)
        self.results = [torch.full(wanted, math.nan, device="cuda", dtype=made)] * self.sets
        if p.pass_ != "wgrad":
            self.results = [torch.full_like(self.results[0], math.nan) for _ in range(self.sets)]

    def ours(self, kernel: Any, number: int) -> None:
        k, pass_ = number % self.sets, self.p.pass_
        first = self.dy[k] if pass_ == "dgrad" else self.x[k]
        kernel(first, self.dy[k] if pass_ == "wgrad" else self.w, self.results[k])

    def theirs(self, last: bool, wide: bool = False) -> Callable[[int], Any]:
        """PyTorch's call, in either layout; in float32 where it is ``wide``."""
        p, torch = self.p, self.torch
        form = torch.channels_last if last else torch.contiguous_format

        def lying(t: Any) -> Any:
            t = t.permute(0, 3, 1, 2).contiguous(memory_format=form)
            return t.double() if wide and p.dtype == "float32" else t.float() if wide else t

        count = 1 if wide else self.sets
        x, dy = ([lying(t) for t in all_[:count]] for all_ in (self.x, self.dy))
        w = lying(self.w)
        mask = [p.pass_ == "dgrad", p.pass_ == "wgrad", False]

        def call(number: int) -> Any:
            k = number % count
            if p.pass_ == "forward":
                return torch.conv2d(x[k], w, None, p.stride, p.padding[:2], groups=p.groups)
            found = torch.ops.aten.convolution_backward(
                dy[k], x[k], w, None, p.stride, p.padding[:2], [1, 1], False, [0, 0], p.groups, mask
            )
            return found[0] if p.pass_ == "dgrad" else found[1]

        return call

    def products(self) -> Callable[[int], Any]:
        """PyTorch's product of matrices for a 1x1 convolution."""
        x, dy = ([t.flatten(0, 2) for t in all_] for all_ in (self.x, self.dy))
        w, pass_ = self.w.flatten(1), self.p.pass_

        def call(number: int) -> Any:
            k = number % self.sets
            if pass_ == "forward":
                return self.torch.nn.functional.linear(x[k], w)
            return dy[k] @ w if pass_ == "dgrad" else dy[k].T @ x[k]

        return call


class Tried:
    """The kernels of a problem that are ranked first: calls and names by rank, the largest error,
    and why others are not built."""

    def __init__(self, given: Operands, tried: int) -> None:
        p, exact = given.p, given.theirs(True, wide=True)(0).permute(0, 2, 3, 1)
        self.calls: dict[str, Callable[[int], Any]] = {}
        self.names: dict[str, str] = {}
        self.refused: list[str] = []
        self.error = 0.0
        for rank in range(tried):
            found = built(p, rank)
            if found is None:
                break
            kernel, name = found
            if kernel is None:
                self.refused.append(name)
                continue
            given.results[0].fill_(math.nan)
            given.ours(kernel, 0)
            error = float((given.results[0].float() - exact).norm() / exact.norm())
            if not error < _allowed(p):
                raise SystemExit(f"{p} {name}: relative error {error:.2g}")
            key = f"{p.dtype} {rank}"
            self.calls[key], self.names[key] = partial(given.ours, kernel), name
            self.error = max(self.error, error)

    def best(self, found_us: dict[str, float]) -> str:
        """The fastest of them."""
        return min(self.names, key=lambda name: found_us[name])


def row(p: Conv, tried: int, linear: bool) -> dict[str, Any]:
    """What one problem takes, beside PyTorch's product of matrices, too, if it is ``linear``."""
    given = Operands(p)
    ours = Tried(given, tried)
    compared = Operands(in_float16(p)) if p.is_float8 else given
    wide = Tried(compared, tried) if p.is_float8 else ours
    calls = {"NCHW": compared.theirs(False), "NHWC": compared.theirs(True)}
    if linear:
        calls["product"] = compared.products()
    peers = list(calls)
    calls |= ours.calls | wide.calls
    sets = math.lcm(given.sets, compared.sets)
    batches = {name: of_graph(call, sets) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for name, batch in batches.items():
            times[name].append(batch(1) * 1e6)
    found_us = {name: statistics.median(t) for name, t in times.items()}
    peer = min(found_us[name] for name in peers)
    first, best = next(iter(ours.names)), ours.best(found_us)
    floor = max(p.bytes / _BANDWIDTH, p.nominal_flops / _rate(p)) * 1e6
    found: dict[str, Any] = {
        "pass": p.pass_, "layer": f"{p.short}", **{f"{name} us": found_us[name] for name in peers},
        "untuned us": found_us[first], "tried us": found_us[best],
        "best peer / untuned": peer / found_us[first], "best peer / tried": peer / found_us[best],
        "untuned / tried": found_us[first] / found_us[best],
        "tried / floor": found_us[best] / floor, "kernel": ours.names[best],
        "refused": "; ".join(ours.refused),
    }  # fmt: skip
    if p.is_float8:
        narrow_us = found_us[wide.best(found_us)]
        found |= {"float16 us": narrow_us, "float16 / tried": narrow_us / found_us[best],
                  "error": ours.error}  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", nargs="+", default=["resnet"], choices=list(LAYERS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--dtype", default="float16", choices=["float16", "bfloat16", *_TIMES, *FLOAT8]
    )
    parser.add_argument("--precision", default="exact", choices=["exact", "half"])
    parser.add_argument("--tried", type=int, default=6, help="schedules of each problem")
    parser.add_argument("--passes", nargs="+", default=list(PASSES), choices=PASSES)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    if options.dtype in FLOAT8:  # which has no gradients
        options.passes = ["forward"]
    problems = [
        problem(layer, pass_, options.batch, options.dtype, options.precision)
        for name in options.layers
        for pass_ in options.passes
        for layer in LAYERS[name]
    ]
    every = dict.fromkeys([*problems, *map(in_float16, problems)])
    jobs = [(p, rank) for p in every for rank in range(options.tried)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(_ahead, jobs, chunksize=4))
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = options.dtype == "tf32"
    names = [name for name in options.layers for _ in options.passes for _ in LAYERS[name]]
    rows = [
        {"layers": name, **row(p, options.tried, name == "linear")}
        for name, p in zip(names, problems, strict=True)
    ]
    print(measure.table(rows))
    for name, pass_ in product(options.layers, options.passes):
        own = [r for r in rows if (r["layers"], r["pass"]) == (name, pass_)]
        ratios = ["float16 / tried"] if options.dtype in FLOAT8 else []
        for column in ("best peer / untuned", "best peer / tried", *ratios):
            values = [r[column] for r in own]
            mean = f"{geometric_mean(values):.2f} in the mean of {len(own)}"
            print(f"{name} {pass_}: {column}: {mean}, {min(values):.2f} at least")
        regrets = [r["untuned / tried"] - 1 for r in own]
        print(f"{name} {pass_}: regret: {statistics.mean(regrets):.1%}, {max(regrets):.1%} at most")
    environment = measure.environment("torch")
    results = {"environment": environment, "settings": vars(options), "rows": rows}
    file = "_".join(["h200_gpu_dense", *(n for n in options.layers if n != "resnet")])
    file += f"_{options.dtype}" + ("_half" if options.precision == "half" else "")
    print(measure.save(f"{file}_{options.batch}", results, options.out))


if __name__ == "__main__":
    main()
