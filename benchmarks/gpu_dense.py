"""Dense convolutions and their gradients on a GPU, channels last, beside PyTorch's in both layouts.

The 23 layers of ResNet-50, or with ``--layers`` those of ResNeXt in groups, of stems and few
channels, the linear ones of a vision transformer and of ConvNeXt (PyTorch's as products of
matrices, too), those in three dimensions (dense, and depthwise as in X3D and MoViNet) and in one,
in all passes: the first choice without measuring, and the fastest of the ``--tried`` schedules that
are ranked first, each checked against PyTorch in float32, take turns with PyTorch, cuDNN's search
switched on: medians of CUDA-graph replays, inputs rotated past the cache. Volumes and lines have
batches of their own; PyTorch's images of one dimension with channels last are of height 1. The
regret is by how much the first choice is slower than the fastest. The floor is the bytes of inputs
and outputs over the bandwidth of a large copy, or the operations over what matrix products reach
(docs/benchmarks.md).

Of tf32x3 PyTorch's is float32 without TF32. Of float8, which PyTorch has no convolutions of, the
forward pass with results in float16 takes turns with our own in float16, and PyTorch's in it.

    PYTHONPATH=src python benchmarks/gpu_dense.py [--layers resnet groups few linear] [--batch 64]
    PYTHONPATH=src python benchmarks/gpu_dense.py --layers volumes depthwise_volumes lines
    PYTHONPATH=src python benchmarks/gpu_dense.py --dtype float8_e4m3fn [--precision half]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any, NamedTuple

import measure
from gpu_depthwise import ERROR, PEAK
from gpu_layers import PASSES

import tilewright
from tilewright.cli._measure.turns import of_graph
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import TilewrightError
from tilewright.report.results import geometric_mean
from tilewright.topi import Conv, Conv3d
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.templates import candidates

TARGET = "cuda -arch=sm_90a"


class Layer(NamedTuple):
    """Channels of x and of y, filter, stride and extents of x, along each dimension, or height and
    width that are equal; groups; the batch where it is the layer's own; and whether all padding,
    which keeps the size, comes first."""

    channels: int
    filters: int
    kernel: int | tuple[int, ...]
    stride: int | tuple[int, ...]
    image: int | tuple[int, ...]
    groups: int = 1
    batch: int = 0
    causal: bool = False


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
_VOLUMES = tuple(Layer(n, n, (3, 3, 3), 1, (32, 32, 32), batch=4) for n in (16, 64, 128))
#: X3D's first two, then as in MoViNet.
_DEPTHWISE_VOLUMES = (
    Layer(54, 54, (3, 3, 3), (1, 2, 2), (16, 112, 112), 54, 8),
    Layer(54, 54, (3, 3, 3), 1, (16, 56, 56), 54, 8),
    Layer(216, 216, (3, 3, 3), 1, (16, 14, 14), 216, 8),
    Layer(80, 80, (5, 3, 3), (1, 2, 2), (16, 56, 56), 80, 8),
    Layer(184, 184, (5, 3, 3), 1, (16, 28, 28), 184, 8),
)
_LINES = (
    Layer(64, 64, (7,), 1, (8192,), batch=16), Layer(256, 256, (11,), 1, (8192,), batch=16),
    Layer(512, 512, (3,), 1, (8192,), batch=16), Layer(2048, 2048, (4,), 1, (2048,), 2048, 8, True),
)  # fmt: skip
LAYERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "resnet": _RESNET, "groups": _GROUPS, "few": _FEW, "volumes": _VOLUMES,
    "depthwise_volumes": _DEPTHWISE_VOLUMES, "lines": _LINES, "linear": _LINEAR,
}  # fmt: skip
#: Bytes a second of a large copy, what goes past the cache, and turns of every graph.
_BANDWIDTH, _CACHE, _ROUNDS = 4.2e12, 150e6, 9


#: Of TF32: the relative error of results, operations a second that matrix products reach, and
#: products of it for one, by precision.
_ERROR, _TF32 = {"tf32": 2e-3}, 400e12
_TIMES = {"tf32": 1, "tf32x3": 3}
#: By precision, the error of float8, of whose sums Hopper's tensor cores keep fewer digits than
#: float32 has; and how many times as many operations of it matrix products reach as of float16.
_FLOAT8_ERROR, _FLOAT8_RATE = {"exact": 2e-3, "half": 2e-2}, 2


def _rate(p: Convolution) -> float:
    if p.is_float8:
        return _FLOAT8_RATE * PEAK["float16"]
    return _TF32 / _TIMES[p.precision] if p.precision in _TIMES else PEAK[p.dtype]


def _allowed(p: Convolution) -> float:
    return (
        _FLOAT8_ERROR[p.precision]
        if p.is_float8
        else _ERROR.get(p.precision, ERROR.get(p.dtype, 0))
    )


def problem(
    given: tuple[Any, ...], pass_: str, batch: int, dtype: str, precision: str = "exact",
    constants: tuple[str, ...] = (),
) -> Convolution:  # fmt: skip
    """The problem of a :class:`Layer`."""
    layer = Layer(*given)
    precision, dtype = (dtype, "float32") if dtype in _TIMES else (precision, dtype)
    image, kernel = (n if isinstance(n, tuple) else (n, n) for n in (layer.image, layer.kernel))
    padding = [k // 2 if layer.kernel != layer.stride else 0 for k in kernel]
    if layer.causal:
        padding = [*(k - 1 for k in kernel), *[0] * len(kernel)]
    made = Conv3d if len(image) == 3 else Conv
    return made.parse(
        (layer.batch or batch, layer.channels, *image),
        (layer.filters, layer.channels // layer.groups, *kernel), layer.groups,
        stride=layer.stride, padding=padding, pass_=pass_, dtype=dtype, precision=precision,
        layout=("NWC", "NHWC", "NDHWC")[len(image) - 1],
        out_dtype="float16" if dtype in FLOAT8 else "", constants=constants,
    )  # fmt: skip


def in_float16(p: Convolution) -> Convolution:
    """What a problem of float8 is compared with; others are compared with PyTorch alone."""
    return p.replace(dtype="float16", precision="exact") if p.is_float8 else p


def built(p: Convolution, rank: int) -> Any:
    """The kernel of the candidate of that rank, and its name; None where there is none."""
    found = [pair for k, pair in zip(range(rank + 1), candidates(p, TARGET), strict=False)]
    if len(found) <= rank:
        return None
    template, tile = found[rank]
    declared = template.declare(p, tile)
    known = [declared.inputs[name] for name in p.constants]
    try:
        kernel = tilewright.build(
            template.schedule(declared, tile), declared.args, TARGET, constants=known
        )
    except TilewrightError as error:
        return None, f"{template.name}: {error}"
    return kernel, f"{template.name} {tile}"


def _ahead(job: tuple[Convolution, int]) -> None:
    built(*job)  # which the cache of kernels then has


class Operands:
    """Tensors of a problem, ``sets`` of images, and PyTorch's calls on them."""

    def __init__(self, p: Convolution) -> None:
        import torch

        self.p, self.torch, kind = p, torch, getattr(torch, p.dtype)
        shapes = p.input_shape, p.output_shape
        moved = sum(math.prod(s) for s in shapes) * kind.itemsize
        self.sets = max(1, min(8, math.ceil(_CACHE / moved)))

        def random(shape: tuple[int, ...], scale: float) -> Any:
            return (torch.randn(shape, device="cuda") * scale).to(kind)

        self.x, self.dy = ([random(s, 1.0) for _ in range(self.sets)] for s in shapes)
        taps = p.channels // p.groups * math.prod(p.kernel)
        self.w = random(p.filter_shape, 1.0 if p.is_float8 else taps**-0.5)
        made = getattr(torch, p.result.dtype)
        self.results = [torch.full(p.result_shape, math.nan, device="cuda", dtype=made)] * self.sets
        if p.pass_ != "wgrad":
            self.results = [torch.full_like(self.results[0], math.nan) for _ in range(self.sets)]

    def ours(self, kernel: Any) -> Callable[[int], Any]:
        """The kernel's call; what it computes of constants alone is computed now."""
        pass_ = self.p.pass_
        first = self.dy if pass_ == "dgrad" else self.x
        second = self.dy if pass_ == "wgrad" else [self.w] * self.sets
        every = [kernel.prepared(args) for args in zip(first, second, self.results, strict=True)]
        return lambda number: kernel(*every[number % self.sets])

    def theirs(self, last: bool, wide: bool = False) -> Callable[[int], Any]:
        """PyTorch's call, in either layout; in float32 where it is ``wide``."""
        p, torch = self.p, self.torch
        forms = [torch.contiguous_format] * 2
        if last:
            forms = [torch.channels_last, torch.channels_last_3d]
        flat = p.rank == 1 and last  # an image of height 1

        def lying(t: Any, filter: bool = False) -> Any:
            name = "data" if not filter else "result" if p.pass_ == "wgrad" else "filter"
            if p.permutation(name) is not None:
                t = t.movedim(-1, 1)
            elif filter:
                t = t.reshape(p.out_channels, p.channels // p.groups, *t.shape[2:])
            t = t.unsqueeze(2) if flat else t
            t = t.contiguous(memory_format=forms[t.dim() == 5]) if t.dim() > 3 else t.contiguous()
            return t.double() if wide and p.dtype == "float32" else t.float() if wide else t

        count = 1 if wide else self.sets
        x, dy = ([lying(t) for t in all_[:count]] for all_ in (self.x, self.dy))
        w = lying(self.w, filter=True)
        mask = [p.pass_ == "dgrad", p.pass_ == "wgrad", False]
        even = all(d.before == d.after for d in p.dims)
        sides = [side for d in reversed(p.dims) for side in (d.before, d.after)]
        whole = [*([0] if flat else []), *(d.before if even else 0 for d in p.dims)]
        steps = [*([1] if flat else []), *(d.stride for d in p.dims)]
        ones, none = [1] * len(whole), [0] * len(whole)

        def padded(t: Any) -> Any:
            return t if even else torch.nn.functional.pad(t, sides)

        shaped = padded(x[0])

        def call(number: int) -> Any:
            k = number % count
            if p.pass_ == "forward":
                return torch.convolution(
                    padded(x[k]), w, None, steps, whole, ones, False, none, p.groups
                )
            read = padded(x[k]) if p.pass_ == "wgrad" else shaped
            found = torch.ops.aten.convolution_backward(
                dy[k], read, w, None, steps, whole, ones, False, none, p.groups, mask
            )
            if p.pass_ == "wgrad":
                return found[1]
            dx = found[0]
            for at, d in enumerate(p.dims, -p.rank):
                dx = dx if even else dx.narrow(at, d.before, d.extent)
            return dx

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

    def exact(self) -> Any:
        """PyTorch's result in a wider type, as ours lies."""
        found, p = self.theirs(False, wide=True)(0), self.p
        return found.movedim(1, -1) if p.permutation("result") else found.reshape(p.result_shape)


class Tried:
    """The kernels of a problem that are ranked first: calls and names by rank, the largest error,
    and why others are not built."""

    def __init__(self, given: Operands, tried: int) -> None:
        p, exact = given.p, given.exact()
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
            call = given.ours(kernel)
            call(0)
            error = float((given.results[0].float() - exact).norm() / exact.norm())
            if not error < _allowed(p):
                raise SystemExit(f"{p} {name}: relative error {error:.2g}")
            key = f"{p.dtype} {rank}"
            self.calls[key], self.names[key] = call, name
            self.error = max(self.error, error)

    def best(self, found_us: dict[str, float]) -> str:
        """The fastest of them."""
        return min(self.names, key=lambda name: found_us[name])


def row(p: Convolution, tried: int, linear: bool) -> dict[str, Any]:
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
    parser.add_argument("--inference", action="store_true", help="forward, of constant filters")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    if options.dtype in FLOAT8 or options.inference:  # which have no gradients
        options.passes = ["forward"]
    constants = ("filter",) if options.inference else ()
    problems = [
        problem(layer, pass_, options.batch, options.dtype, options.precision, constants)
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
    if options.dtype not in FLOAT8 and options.passes != list(PASSES):
        passes = ["inference"] if options.inference else options.passes
        file += "".join(f"_{pass_}" for pass_ in passes)
    file += f"_{options.dtype}" + ("_half" if options.precision == "half" else "")
    if not all(Layer(*layer).batch for name in options.layers for layer in LAYERS[name]):
        file += f"_{options.batch}"
    print(measure.save(file, results, options.out))


if __name__ == "__main__":
    main()
