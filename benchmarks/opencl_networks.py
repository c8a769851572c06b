"""Article 004's networks on an OpenCL device: VGG-16, MobileNet and ResNet-18, in two types.

Weights are random, by a seed, and images are of 224 by 224; each network goes through ONNX, as a
user's would, and its kernels are chosen without a search. float32 and, where the device computes in
it, float16 take turns with what CUDA takes in both, where there is a GPU of NVIDIA's, whose OpenCL
has neither float16 nor tensor cores: calls that are bound to arrays of the device, medians of
interleaved batches, until the queue is empty. ``host`` is what a call takes before it returns, and
``kernels`` how many it launches. Outputs are compared with PyTorch's in float32.

    PYTHONPATH=src python benchmarks/opencl_networks.py [--batch 1] [--profile] [--out FOLDER]

With ``--profile`` the steps are printed by the device's clock, the slowest first.

On an NVIDIA GPU, whose driver brings OpenCL, name its library in an ICD file first:

    mkdir -p /tmp/icd && echo libnvidia-opencl.so.1 > /tmp/icd/nvidia.icd
    OCL_ICD_VENDORS=/tmp/icd PYTHONPATH=src python benchmarks/opencl_networks.py
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import measure
import numpy as np
import torch
from graph_networks import exported, network, of_bound
from networks import trained
from torch import nn

import tilewright
from tilewright.cli._measure.turns import Batch, take_turns
from tilewright.runtime import array
from tilewright.runtime.opencl_device import Device, device

NAMES = ("vgg16", "mobilenet", "resnet18")
#: Relative errors that are taken for right.
_CLOSE = {"float32": 1e-4, "float16": 2e-2}
_CUDA = {"cuda float16": "float16", "cuda float32": "float32"}
#: Runs of which a profile has the medians, and calls of which the host's time is one.
_RUNS = 7


def mobilenet() -> nn.Module:
    """MobileNet of width 1 (arXiv:1704.04861): 4.2 million parameters."""

    def unit(channels: int, out: int, size: int, stride: int, groups: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(out), nn.ReLU()]

    layers, channels = unit(3, 32, 3, 2), 32
    for out, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2),
        (1024, 1),
    ):  # fmt: skip
        layers += unit(channels, channels, 3, stride, channels) + unit(channels, out, 1, 1)
        channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    torch.manual_seed(0)
    return trained(nn.Sequential(*layers))


def on_opencl(
    data: bytes, images: np.ndarray[Any, Any], place: Device, dtype: str, told: dict[str, Any]
) -> tuple[np.ndarray[Any, Any], Batch]:
    """What a model of this type makes of images, and batches of its calls; ``told`` takes what the
    host does for one, and is asked for a profile."""
    model = tilewright.load(data, target="opencl", dtype=dtype if dtype != "float32" else None)
    (name,) = model.outputs
    x = array(images, model.device)
    y = array(np.full((len(images), 1000), np.nan, "float32"), model.device)
    call = model.bind({"x": x}, {name: y})
    call()
    found = y.numpy()
    host = []
    for _ in range(_RUNS):
        place.queue.finish()
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
    told["host ms"] = 1e3 * statistics.median(host)
    told["kernels"] = len(getattr(call, "commands", ()))
    if told.pop("profile"):
        profile(model, images)
    return found, _until_done(call, place)


def profile(model: Any, images: np.ndarray[Any, Any]) -> None:
    """Print the steps of a model by the device's clock, the slowest first."""
    executor = model.compile({"x": images})
    runs: list[list[float]] = []
    for _ in range(_RUNS):
        runs.append([])
        executor.run({"x": images}, runs[-1])
    times = [1e6 * statistics.median(t) for t in zip(*runs, strict=True)]
    print(f"{len(times)} steps, {sum(times):.1f} us one by one")
    for k in sorted(range(len(times)), key=lambda k: -times[k]):
        step = executor.steps[k]
        grids = [
            f"{func.name} {'x'.join(str(axis.extent) for axis in func.launch)}"
            for func in step.kernel.program.module.funcs
        ]
        print(f"{times[k]:8.1f} us  {step.node.problem}  [{'; '.join(grids)}]", flush=True)


def _until_done(call: Callable[[], None], place: Device) -> Batch:
    def batch(number: int) -> float:
        place.queue.finish()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        place.queue.finish()
        return (time.perf_counter() - begin) / number

    return batch


def on_cuda(
    model: nn.Module, images: torch.Tensor, dtype: str
) -> tuple[np.ndarray[Any, Any], Batch]:
    """The same by CUDA, replayed as a graph."""
    kind = getattr(torch, dtype)
    given, model = images.to("cuda", kind), copy.deepcopy(model).to("cuda", kind)
    loaded = tilewright.load(exported(model, given[:1]), target="cuda")
    y = torch.empty(len(images), 1000, dtype=given.dtype, device="cuda")
    (name,) = loaded.outputs
    batch = of_bound(loaded.bind({"x": given}, {name: y}))
    return y.float().cpu().numpy(), batch


def row(name: str, place: Device, args: argparse.Namespace) -> dict[str, Any]:
    """The times of one network in milliseconds."""
    model = mobilenet() if name == "mobilenet" else network(name)
    if model is None:
        return {"network": name, "failed": "torchvision is not installed"}
    torch.manual_seed(1)
    images = torch.randn(args.batch, 3, args.image, args.image)
    with torch.no_grad():
        wanted = model(images).numpy()
    data = exported(model, images[:1])
    sides: dict[str, tuple[str, Callable[[], tuple[np.ndarray[Any, Any], Batch]]]] = {}
    told: dict[str, dict[str, Any]] = {}
    for dtype in ("float32", "float16")[: 1 + place.half]:
        told[dtype] = {"profile": args.profile}
        of = partial(on_opencl, data, images.numpy(), place, dtype, told[dtype])
        sides[dtype] = dtype, of
    if torch.cuda.is_available():
        for side, dtype in _CUDA.items():
            sides[side] = dtype, partial(on_cuda, model, images, dtype)
    batches, errors = {}, {}
    for side, (dtype, make) in sides.items():
        found, batches[side] = make()
        errors[side] = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        if not errors[side] < _CLOSE[dtype]:
            raise SystemExit(f"{name} in {side}: relative error {errors[side]:.2g}")
    turns = take_turns(batches, span=0.05, limit=args.seconds)
    ms = {side: 1e3 * statistics.median(times) for side, times in turns.items()}
    ratios = {f"{side} / float32": ms["float32"] / ms[side] for side in ms if side != "float32"}
    for side, dtype in _CUDA.items():
        if {side, dtype} <= set(ms):
            ratios[f"of CUDA's time in {dtype}"] = ms[dtype] / ms[side]
    return {"network": name, **{f"{s} ms": v for s, v in ms.items()}, **ratios,
            **{f"{s} {n}": v for s, found in told.items() for n, v in found.items()},
            "error": max(errors.values())}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--device", default="", help="part of its name; the first one by default")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=5, help="of measuring a network")
    parser.add_argument("--profile", action="store_true", help="print the steps by their times")
    parser.add_argument("--out", default="benchmarks/results", help="the folder of the results")
    args = parser.parse_args()
    place = device(args.device)
    rows = []
    for name in args.networks:
        rows.append(row(name, place, args))
        print(rows[-1], flush=True)
        found = {"environment": measure.environment("torch", "onnx", "pyopencl"), "rows": rows}
        label = "cpu" if place.host else "h200"
        path = measure.save(f"{label}_opencl_networks", found, args.out)
    print(measure.table(rows))
    print(path)


if __name__ == "__main__":
    main()
