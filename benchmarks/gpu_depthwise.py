"""Depthwise convolutions and their gradients on a GPU, beside PyTorch's in both layouts.

Every layer of :mod:`gpu_layers` is computed by the kernels that are tried first for it (of the
records that the package brings, the fastest), checked against PyTorch in float64, and timed in turn
with PyTorch, cuDNN's search switched on and TF32 off: medians of CUDA-graph replays, inputs rotated
past the cache where they are over 8 MB. The floor is the bytes of inputs and outputs over the
bandwidth of a large copy in the same run, or the nominal operations over the peak of the type.

    PYTHONPATH=src python benchmarks/gpu_depthwise.py --gpus 1

What all kernels tried took is written beside the results, for benchmarks/ship_records.py; with
``--again`` such a file's problems and kernels are measured again, whatever the choice is by now:

    PYTHONPATH=src python benchmarks/gpu_depthwise.py --gpus 2 \\
        --again benchmarks/results/h200_gpu_depthwise_plane_bands-tried.jsonl.gz
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import sweeps
from gpu_layers import sections, traffic
from parts import run_on_gpus
from problem_parts import Named, results, run_part, wider_choices

import tilewright
from tilewright.topi.operators import conv_torch
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

#: Operations a second that matrix products reach on an H200 (docs/benchmarks.md).
PEAK = {"float32": 60e12, "float16": 700e12, "bfloat16": 700e12}
#: Replays of every graph.
_ROUNDS = 25
#: What an error may be, relative to the norm of the result; and where TF32 is allowed.
ERROR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}
_TF32_ERROR = 1e-3


def most_error(p: Conv) -> float:
    """What an error may be, relative to the norm of the result."""
    return _TF32_ERROR if p.precision == "tf32" else ERROR[p.dtype]


class Layer:
    """The operands of a problem on a device, its reference, and PyTorch's ways to compute it, with
    its epilogue.

    There are ``sets`` of operands, by default as many as go past the cache; ``tensors`` are those
    of the epilogue, in calling order, one a channel each.
    """

    def __init__(self, p: Conv, sets: int = 0, device: str = "cuda") -> None:
        import torch

        self.p, self.torch, self.device = p, torch, device
        kind = getattr(torch, p.dtype)
        images = (p.batch, p.channels, p.height, p.width)
        results = (p.batch, p.out_channels, *p.out_image)
        rotated = max(2, min(64, int(130e6 // traffic(p)) + 1)) if traffic(p) > 8e6 else 1
        self.sets = sets or rotated

        def random(shape: tuple[int, ...]) -> Any:
            return torch.randn(shape, device=device, dtype=kind)

        self.x = [random(images) for _ in range(self.sets)]
        self.dy = [random(results) for _ in range(self.sets)]
        self.w = random((p.out_channels, 1, p.kernel_h, p.kernel_w))
        shapes = list(p.shapes().values())[2:]
        self.tensors = [random(shape) for shape in shapes]
        self.result = [self.empty(images, results, kind) for _ in range(self.sets)]

    def empty(self, images: Any, results: Any, kind: Any) -> Any:
        p, torch = self.p, self.torch
        if p.pass_ == "wgrad":
            filters = p.channels, p.multiplier, p.kernel_h, p.kernel_w
            return torch.empty(filters, device=self.device, dtype=kind)
        shape = images if p.pass_ == "dgrad" else results
        return self.lying(torch.empty(shape, device=self.device, dtype=kind))

    def lying(self, t: Any) -> Any:
        """A tensor as it lies in the layout, and as its dimensions come there."""
        if self.p.layout == "NCHW":
            return t
        return t.contiguous(memory_format=self.torch.channels_last).permute(0, 2, 3, 1)

    def operands(self) -> list[tuple[Any, ...]]:
        filters = self.w.view(self.p.channels, self.p.multiplier, *self.w.shape[2:])
        x, dy = map(self.lying, self.x), map(self.lying, self.dy)
        if self.p.pass_ == "forward":
            return [(a, filters, *self.tensors) for a in x]
        if self.p.pass_ == "dgrad":
            return [(g, filters, *self.tensors) for g in dy]
        return list(zip(x, dy, strict=True))

    def convolution(self, x: Any, w: Any, dy: Any, groups: int) -> Any:
        """PyTorch's result."""
        p, torch = self.p, self.torch
        padding = (p.padding[0], p.padding[1])
        if p.pass_ == "forward":
            y = torch.nn.functional.conv2d(x, w, None, p.stride, padding, p.dilation, groups)
            return self._behind(y)
        mask = (p.pass_ == "dgrad", p.pass_ == "wgrad", False)
        found = torch.ops.aten.convolution_backward(
            dy, x, w, None, p.stride, padding, p.dilation, False, (0, 0), groups, mask
        )
        return self._behind(found[0]) if p.pass_ == "dgrad" else found[1]

    def _behind(self, y: Any) -> Any:
        rest = [t[: y.shape[1]].to(y.dtype) for t in self.tensors]
        for step in self.p.epilogue:
            y = conv_torch.apply(self.torch, step, y, [rest.pop(0) for _ in step.tensors])
        return y

    @functools.cached_property
    def right(self) -> Any:
        """The result of the first operands in some channels, in float64."""
        some = min(8, self.p.channels)
        many = some * self.p.multiplier
        x, dy, w = self.x[0][:, :some], self.dy[0][:, :many], self.w[:many]
        return self.convolution(x.double(), w.double(), dy.double(), some)

    def error(self) -> float:
        """The norm of the difference from :attr:`right`, relative to its own."""
        p, right, found = self.p, self.right, self.result[0]
        some = min(8, p.channels)
        if p.pass_ == "wgrad":
            found = found[:some].reshape(right.shape)
        else:
            found = found if p.layout == "NCHW" else found.permute(0, 3, 1, 2)
            found = found[:, : right.shape[1]]
        return float((found.double() - right).norm() / right.norm())

    def peers(self) -> dict[str, Callable[[int], Any]]:
        last = self.torch.channels_last
        operands = {"PyTorch NCHW": (self.x, self.dy)}
        x, dy = ([t.contiguous(memory_format=last) for t in ts] for ts in (self.x, self.dy))
        operands["PyTorch NHWC"] = (x, dy)

        def caller(x: Any, dy: Any) -> Callable[[int], Any]:
            n = self.sets
            return lambda i: self.convolution(x[i % n], self.w, dy[i % n], self.p.channels)

        return {name: caller(x, dy) for name, (x, dy) in operands.items()}


def time_layer(p: Conv, files: dict[str, str], bandwidth: float) -> dict[str, Any]:
    """The row of a problem; ``files`` are kernels by what they are called."""
    layer = Layer(p)
    operands, n = layer.operands(), layer.sets
    calls: dict[str, Callable[[int], Any]] = layer.peers()
    errors = {}
    for name, path in files.items():
        kernel = tilewright.load(path)
        layer.result[0].fill_(math.nan)
        kernel(*operands[0], layer.result[0])
        errors[name] = layer.error()
        if not errors[name] <= most_error(p):
            raise AssertionError(f"{p}: {name} has an error of {errors[name]:.2g}")

        def call(i: int, kernel: Any = kernel) -> None:
            kernel(*operands[i % n], layer.result[i % n])

        calls[name] = call
    # Graphs of a millisecond or so: of small layers they hold more launches.
    measure.ROUNDS = _ROUNDS
    measure.LAUNCHES = max(4, min(40, int(1.5e9 / traffic(p))))
    times = measure.graph_medians(calls)
    best = min(files, key=lambda name: times[name])
    ours, other = times[best], min(times["PyTorch NCHW"], times["PyTorch NHWC"])
    operations = 2 * p.batch * p.out_channels * math.prod(p.out_image) * math.prod(p.kernel)
    floor = max(traffic(p) / bandwidth, operations / PEAK[p.dtype]) * 1e6
    return {
        "pass": p.pass_, "shape": f"{p.batch}x{p.channels}x{p.height}x{p.width}",
        "kernel": p.kernel_h, "stride": p.stride[0], "multiplier": p.multiplier,
        "dtype": p.dtype, "layout": p.layout, "tilewright us": ours, "floor us": floor,
        "PyTorch NCHW us": times["PyTorch NCHW"], "PyTorch NHWC us": times["PyTorch NHWC"],
        "best peer / tilewright": other / ours, "tilewright / floor": ours / floor,
        "error": errors[best], "tile": best, "tried": {n: times[n] for n in files},
    }  # fmt: skip


def says(row: dict[str, Any]) -> str:
    """What is printed of a row."""
    ratio, floor = row["best peer / tilewright"], row["tilewright / floor"]
    return f"{row['tilewright us']:.1f} us, {floor:.2f} of the floor, {ratio:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine to use")
    parser.add_argument("--only", nargs="+", default=[""], help="what contains one of these")
    parser.add_argument("--tries", type=int, default=8, help="kernels tried for each problem")
    parser.add_argument("--own", type=int, default=0, help="of each template by its own order")
    parser.add_argument("--of", nargs="+", default=[], help="only of these templates")
    parser.add_argument("--again", default="", help="only what a NAME-tried.jsonl.gz has")
    parser.add_argument("--name", default="h200_gpu_depthwise", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--arch", default="", help="of the GPUs, by default sm_90a")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    if arguments.part >= 0:
        named = [(s, p, f"{s} {p}") for s, p in sections()]
        wanted = [(s, p) for s, p, name in named if any(o in name for o in arguments.only)]
        wider = {"count": arguments.tries, "own": arguments.own, "of": arguments.of}
        if arguments.again:
            tried = read_tried(arguments.again)
            wanted = [(section, p) for section, p in wanted if p in tried]
            known = {p for _, p in wanted}
            wanted += [(f"Others, {p.pass_}, {p.dtype}", p) for p in tried if p not in known]

            def first(p: Conv, target: str) -> list[Named]:
                return tried[p]

        else:
            first = functools.partial(wider_choices, **wider)
        target = f"cuda -arch={arguments.arch or 'sm_90a'}"
        run_part(arguments, target, wanted, time_layer, says, first)
        return
    found = run_on_gpus(arguments.gpus, arguments.out)
    order = {(s, str(p)): k for k, (s, p) in enumerate(sections())}
    made = results(arguments, found, lambda row: _place(order, row))
    print(measure.save(arguments.name, made, arguments.out))


def read_tried(path: str) -> dict[Conv, list[Named]]:
    """The problems of a file of what was tried, with all templates and parameters."""
    found: dict[Conv, list[Named]] = {}
    for m in sweeps.read([path]):
        for template, rows in m.tables.items():
            names = [f.name for f in dataclasses.fields(TEMPLATES[template].config)]
            named = [(template, dict(zip(names, map(int, row), strict=False))) for row in rows]
            found.setdefault(m.problem, []).extend(named)
    return found


def _place(order: dict[tuple[str, str], int], row: dict[str, Any]) -> tuple[int, str]:
    first = [k for (section, _), k in order.items() if section == row["section"]]
    return min(first, default=len(order)), row["layout"]


if __name__ == "__main__":
    main()
