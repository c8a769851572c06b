"""Whole networks in inference, before and after `optimize_`: on a CPU in float32, or on a GPU.

ResNet-50, ResNeXt-50 and MobileNetV2 on random images: in PyTorch as they are, after `optimize_`,
after `optimize_(dense=True)` without and with what convolutions take along, and with `--compile`
by `torch.compile`. All of them take turns in one process, and medians are compared; "faster" is
PyTorch's time in the same layout by that after `optimize_(dense=True)`. The load is how many
processes wanted a core in the last minute, before and after the times of a row were taken: on a
machine where others work, figures say little.

    PYTHONPATH=src python benchmarks/networks.py [--threads 1 2] [--layouts NCHW NHWC] [--compile]

With ``--device cuda`` they are in float16 with channels last, cuDNN's search switched on, and what
is measured are replays of CUDA graphs, in which the host costs nothing.

    PYTHONPATH=src python benchmarks/networks.py --device cuda --batch 64 [--compile]

With ``--backend tilewright`` they are architectures of timm's instead, with random weights,
by `torch.compile(backend="tilewright")` in inference, on a CPU in float32 or on a GPU as above: how
far outputs are from PyTorch's, how many of the operators were taken, and times beside PyTorch and,
with `--compile`, its own compiler.

    PYTHONPATH=src python benchmarks/networks.py --backend tilewright --threads 1 [--compile]

With ``--calls`` calls on a GPU are timed by the clock, the host's time included.
On a GPU all of them compile at once with `--together`, or eight with `--together 8`.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import measure
import together
import torch
from models import Side, check, medians
from region_kernels import profile
from torch import nn
from vision_models import NETWORKS

import tilewright.torch
from tilewright.cli._measure.turns import of_graph
from tilewright.torch.backend import tilewright as backend

#: By column, what is said to `optimize_`.
VARIANTS: dict[str, dict[str, Any]] = {
    "optimize_": {},
    "dense, each alone": {"dense": True, "fuse": False},
    "dense": {"dense": True},
}
#: Of timm, each of another family of blocks.
ARCHITECTURES = (
    "resnet18", "resnet50", "resnext50_32x4d", "seresnet50", "vgg11_bn", "densenet121",
    "inception_v3", "mobilenetv2_100", "mobilenetv3_small_100", "mnasnet_100", "regnety_004",
    "efficientnet_b0", "tf_efficientnetv2_b0", "ghostnet_100", "mixnet_s", "hrnet_w18_small",
    "repvgg_a0", "convnext_atto", "convnextv2_atto", "edgenext_xx_small", "mobilevit_xxs",
    "poolformer_s12", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224",
)  # fmt: skip
#: Relative error norms of outputs in float32.
_TOLERANCE = 1e-5
#: Turns of the replays of every graph; calls of a turn by the clock, and before the first.
_ROUNDS, _CALLS, _WARM = 15, 20, 5


def trained(model: nn.Module) -> nn.Module:
    """In evaluation mode, with statistics that are those of no batch."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.running_mean, 0, 0.1)
            nn.init.uniform_(m.running_var, 0.5, 2)
            nn.init.uniform_(m.weight, 0.2, 0.6)
    return model.eval()


def row(name: str, layout: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one network."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    form = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    model = trained(NETWORKS[name]()).to(memory_format=form)
    images = torch.randn(options.batch, 3, options.image, options.image)
    images = images.contiguous(memory_format=form)
    models = {"PyTorch": model}
    begin = time.perf_counter()
    for label, settings in VARIANTS.items():
        models[label] = copy.deepcopy(model)
        tilewright.torch.optimize_(models[label], example=images, **settings)
    ahead = time.perf_counter() - begin
    sides = {label: Side(made, images, options) for label, made in models.items()}
    if options.compile:
        sides["torch.compile"] = Side(copy.deepcopy(model), images, options)
        sides["torch.compile"].compile()
    wanted = sides["PyTorch"].step()
    for side in sides.values():
        check(wanted, side.step(), "float32")
    before = os.getloadavg()[0]
    found = medians(sides, options.seconds)
    return {
        "model": name, "layout": layout, "threads": threads,
        **{f"{label} ms": ms for label, ms in found.items()},
        "faster": found["PyTorch"] / found["dense"],
        "compiled ahead s": ahead, "load": f"{before:.1f}, {os.getloadavg()[0]:.1f}",
    }  # fmt: skip


def on_gpu(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one network on a GPU, by replays of graphs that hold a call; with ``--calls`` by the
    clock, calls as a user's loop makes them, of compilers in their mode "reduce-overhead"."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = trained(of_timm(name) if options.backend else NETWORKS[name]())
    model = model.cuda().half().to(memory_format=torch.channels_last)
    images = torch.randn(options.batch, 3, options.image, options.image, device="cuda").half()
    images = images.contiguous(memory_format=torch.channels_last)
    models: dict[str, Any] = {"PyTorch": model}
    ours, graphs = "Tilewright" if options.backend else "dense", list[Any]()
    mode = "reduce-overhead" if options.calls else None
    if options.backend:
        run = functools.partial(backend, report=graphs.append, mode=mode)
        models[ours] = torch.compile(copy.deepcopy(model), backend=run)
    for label, settings in {} if options.backend else VARIANTS.items():
        models[label] = copy.deepcopy(model)
        tilewright.torch.optimize_(models[label], **settings)
    if options.compile:
        models["torch.compile"] = torch.compile(copy.deepcopy(model), mode=mode)
    with torch.no_grad():
        wanted = model(images).float()
        first = {}
        for label, made in models.items():
            begin = time.perf_counter()
            error = float((made(images).float() - wanted).norm() / wanted.norm())
            first[label] = time.perf_counter() - begin
            if not error < 2e-2:
                raise RuntimeError(f"{name}, {label}: relative error {error:.2g}")
        together.wait()
        batches, uncaptured = dict[str, Any](), {}
        for label, made in models.items():
            if options.calls:
                batches[label] = functools.partial(_of_calls, made, images)
                batches[label](_WARM)
                continue

            def call(_: int, model: Any = made) -> Any:
                return model(images)

            try:
                batches[label] = of_graph(call)
            except RuntimeError as error:  # it waits for the GPU, or copies to it
                if label == ours:
                    raise
                uncaptured[label] = f"no graph of it: {error}"[:120]
        times: dict[str, list[float]] = {label: [] for label in batches}
        for _ in range(_ROUNDS):
            for label, batch in batches.items():
                times[label].append(batch(_CALLS if options.calls else 1) * 1e3)
    if options.profile:
        profile(graphs, options.profile)
    found = {label: statistics.median(t) for label, t in times.items()}
    return {
        "model": name, "batch": options.batch, **({"mode": mode} if mode else {}), **taken(graphs),
        **{f"{label} ms": found.get(label, uncaptured.get(label)) for label in models},
        **{
            text: found[label] / found[ours]
            for text, label in (("faster", "PyTorch"), ("than compiled", "torch.compile"))
            if label in found
        },
        "first call s": first[ours],
    }  # fmt: skip


def _of_calls(call: Any, images: torch.Tensor, count: int) -> float:
    """Seconds of a call, of ``count`` one after the other, until the last result is there."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call(images)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def one(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a network, or why there is none: the figures of the others are worth having."""
    try:
        return on_gpu(name, options)
    except Exception as error:
        return {"model": name, "failed": f"{type(error).__name__}: {error}"[:300]}
    finally:
        torch.cuda.empty_cache()


def of_timm(name: str) -> nn.Module:
    import timm

    return timm.create_model(name, num_classes=10)


def taken(graphs: Sequence[Any]) -> dict[str, Any]:
    """How many of the operators of graphs we took, in how many regions."""
    if not graphs:
        return {}
    count = sum(sum(g.taken.values()) for g in graphs)
    return {
        "operators": f"{count} of {count + sum(sum(g.left.values()) for g in graphs)}",
        "regions": sum(len(g.regions) for g in graphs),
    }


def compiled(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one architecture by `torch.compile(backend="tilewright")`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = trained(of_timm(name))
    known = model.default_cfg
    image = known["input_size"][-1] if known.get("fixed_input_size") else options.image
    images = torch.randn(options.batch, 3, image, image)
    graphs: list[Any] = []
    sides = {"PyTorch": Side(model, images, options), "Tilewright": Side(model, images, options)}
    sides["Tilewright"].run = torch.compile(
        model, backend=functools.partial(backend, report=graphs.append)
    )
    if options.compile:
        sides["torch.compile"] = Side(model, images, options)
        sides["torch.compile"].run = torch.compile(model)
    wanted, first, errors = sides["PyTorch"].step(), {}, {}
    for label, side in sides.items():
        begin = time.perf_counter()
        found = side.step()
        first[label] = time.perf_counter() - begin
        errors[label] = float((found - wanted).norm() / wanted.norm())
    if not errors["Tilewright"] < _TOLERANCE:
        raise SystemExit(f"{name}: relative error {errors['Tilewright']:.2g}")
    load = os.getloadavg()[0]
    times = medians(sides, options.seconds)
    return {
        "model": name, "image": image, "batch": options.batch, "threads": threads,
        **taken(graphs), "error": errors["Tilewright"],
        **{f"{label} ms": ms for label, ms in times.items()},
        "faster": times["PyTorch"] / times["Tilewright"],
        **({"than compiled": times["torch.compile"] / times["Tilewright"]}
           if options.compile else {}),
        "first call s": first["Tilewright"], "load": f"{load:.1f}, {os.getloadavg()[0]:.1f}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", help="of this file, or of timm with --backend")
    parser.add_argument("--backend", choices=["tilewright"], help="of torch.compile")
    parser.add_argument("--layouts", nargs="+", default=["NCHW", "NHWC"], choices=["NCHW", "NHWC"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=4, help="of measuring, for each time")
    parser.add_argument("--profile", type=int, default=0, help="how many of our kernels to list")
    parser.add_argument(
        "--together", type=int, nargs="?", const=-1, default=0, metavar="N",
        help="compile N at once on a GPU, or all",
    )  # fmt: skip
    parser.add_argument("--calls", action="store_true", help="by the clock, on a GPU")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    known = ARCHITECTURES if options.backend else tuple(NETWORKS)
    options.models = options.models or list(known)
    if not options.backend and (strange := sorted(set(options.models) - set(known))):
        parser.error(f"there are {', '.join(known)}, and no {', '.join(strange)}")
    if options.device == "cuda":
        torch.backends.cudnn.benchmark = True
        what, rows = "compiled_networks" if options.backend else "networks", []
        what = "called_networks" if options.calls else what
        alone = (one(name, options) for name in options.models)
        several = options.together and len(options.models) > 1
        for made in together.rows(options.models, max(options.together, 0)) if several else alone:
            rows.append(made)
            print(json.dumps(made), flush=True)
            if together.is_started():
                return
            found = {"environment": measure.environment("torch"), "rows": rows}
            path = measure.save(f"h200_{what}_{options.batch}", found, options.out)
        print(measure.table(rows), path, sep="\n")
        return
    options.dtype = "float32"
    rows = []
    if options.backend:
        for threads in options.threads:
            for name in options.models:
                rows.append(compiled(name, threads, options))
                print(rows[-1], flush=True)
        print(measure.table(rows))
        settings = {"batch": options.batch, "image": options.image}
        results = {
            "environment": measure.environment("torch", "timm", "llvmlite", gpu=False),
            "settings": settings, "rows": rows,
        }  # fmt: skip
        print(measure.save("cpu_compiled_networks", results, options.out))
        return
    for threads in options.threads:
        for layout in options.layouts:
            for name in options.models:
                rows.append(row(name, layout, threads, options))
                print(rows[-1], flush=True)
    print(measure.table(rows))
    results = {
        "environment": measure.environment("torch", "llvmlite", gpu=False),
        "settings": {"batch": options.batch, "image": options.image},
        "rows": rows,
    }
    print(measure.save("cpu_networks", results, options.out))


if __name__ == "__main__":
    main()
