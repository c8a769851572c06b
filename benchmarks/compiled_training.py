"""Training steps by `torch.compile(backend="tilewright")` on a GPU, beside PyTorch's own compiler.

Architectures of timm's and RepLKNet-31B on random images under autocast to float16, channels last:
the forward pass, cross entropy, the backward pass with a gradient scaler and a step of AdamW, with
a rate of zero so that gradients are the same in any step. Eager mode, torch.compile, by its default
and with CUDA graphs (`mode="reduce-overhead"`), and ours, which replays steps as CUDA graphs, take
turns in one process; "launched" is ours without them. Times are medians on the host's clock, which
waits for the device. Before that, gradients of the first step of each, and of one behind those in
which graphs are recorded, are compared with those of eager mode in float32: the relative error of
all of them together, which for 16 bits is what eager mode with autocast has, too.

    PYTHONPATH=src python benchmarks/compiled_training.py [--models resnet50] [--batch 64]

"MiB" is what a step allocates at its peak beyond the model and its optimizer, "graphs MiB" what
CUDA graphs keep of it between steps, "host ms" after how long the host has launched a forward and a
backward pass, "GPU ms" how long the GPU was at work in one profiled step, with how many kernels
ever. What was measured is written after each model. With `--profile` the kernels of one step of
ours are listed, the longest first; with `--together` all models compile at once, or two with
`--together 2`.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import measure
import together
import torch
from models import Side, medians
from networks import taken
from region_kernels import profile
from torch import nn

from tilewright.torch.backend import tilewright as backend

#: The first takes longest to compile.
MODELS = ("replknet_31b", "resnet50", "mobilenetv2_100", "efficientnet_b0", "convnext_tiny")
#: By how much the error of gradients may exceed that of eager mode with autocast.
_WORSE, _CLOSE = 1.5, 5e-3


def network(name: str) -> nn.Module:
    """A model of timm's, or RepLKNet-31B, with random weights."""
    if name == "replknet_31b":
        sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))
        from replknet_model import MODELS as REPLKNETS

        return REPLKNETS["31B"][0]()
    import timm

    return timm.create_model(name, num_classes=1000)


def gradients(side: Side, dtype: str) -> torch.Tensor:
    """Those of one step by all parameters, in a row."""
    side.model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", getattr(torch, dtype), dtype != "float32"):
        loss = side.loss(side.run(side.images))
    (loss * 128).backward()  # so that 16 bits keep small ones
    found = [p.grad.float().flatten() for p in side.model.parameters() if p.grad is not None]
    side.model.zero_grad(set_to_none=True)
    return torch.cat(found) / 128


def compiled(label: str, model: nn.Module, report: Callable[[Any], None]) -> Any:
    """What calls a model on one side."""
    if label == "PyTorch":
        return model
    if label == "torch.compile":
        return torch.compile(model)
    if label == "reduce-overhead":
        return torch.compile(model, mode="reduce-overhead")
    options = {"replay": label == "Tilewright"}
    return torch.compile(model, backend=functools.partial(backend, report=report, options=options))


def kept() -> float:
    """MiB that CUDA graphs keep."""
    segments = torch.cuda.memory_snapshot()
    found = (s["total_size"] for s in segments if tuple(s["segment_pool_id"]) != (0, 0))
    return float(sum(found) / 2**20)


def check(name: str, errors: dict[str, float]) -> None:
    """Raises :class:`RuntimeError` where gradients of ours are worse than those of eager mode."""
    found, allowed = errors.get("Tilewright", 0.0), errors.get("PyTorch", math.inf)
    if not found < allowed * _WORSE + _CLOSE:
        raise RuntimeError(f"gradients of {name} are off by {found:.2g}")


def enqueued(side: Side) -> float:
    """Milliseconds after which the host has launched a forward and a backward pass."""
    found = []
    for _ in range(5):
        side.optimizer.zero_grad(set_to_none=True)
        side.wait()
        begin = time.perf_counter()
        with side.autocast():
            loss = side.loss(side.run(side.images))
        side.scaler.scale(loss).backward()
        found.append((time.perf_counter() - begin) * 1e3)
    side.wait()
    return statistics.median(found)


def row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one model."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.backends.cudnn.benchmark = False  # searching takes long where other models compile
    form = torch.channels_last
    model = network(name).cuda().to(memory_format=form)
    images = torch.randn(options.batch, 3, options.image, options.image, device="cuda")
    images = images.contiguous(memory_format=form)
    graphs: list[Any] = []
    unheard: list[Any] = []
    sides = {label: Side(copy.deepcopy(model), images, options) for label in options.sides}
    labels = next(iter(sides.values())).loss
    for label, side in sides.items():
        side.loss = labels
        side.set_pass("training")
        for group in side.optimizer.param_groups:
            group["lr"] = 0.0  # gradients are those of the first step in any later one
        report = graphs.append if label == "Tilewright" else unheard.append
        side.run = compiled(label, side.model, report)
    first: dict[str, float] = {}
    errors: dict[str, float] = {}
    exact = Side(model, images, options)
    exact.loss, wanted = labels, None
    if "PyTorch" in sides:
        allowed = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False
        wanted = gradients(exact, "float32")
        torch.backends.cudnn.allow_tf32 = allowed
    for label, side in sides.items():
        begin = time.perf_counter()
        found = gradients(side, "float16")
        side.wait()
        first[label] = time.perf_counter() - begin
        print(f"{name}, {label}: first step {first[label]:.1f} s", flush=True)
        if wanted is not None:
            errors[label] = float((found - wanted).norm() / wanted.norm())
    print({"model": name, "first step s": first, "errors": errors, **taken(graphs)}, flush=True)
    if options.left:
        for graph in graphs:
            print(graph, flush=True)
    check(name, errors)
    del exact, found
    torch.cuda.empty_cache()
    together.wait()
    torch.backends.cudnn.benchmark = True
    peak, held = {}, {}
    for label, side in sides.items():
        before = kept()
        peak[label] = side.peak()  # of a step that is recorded, or that is launched
        for _ in range(3):
            side.step()
        held[label] = kept() - before
        found = gradients(side, "float16")
        if wanted is not None:
            errors[label] = max(errors[label], float((found - wanted).norm() / wanted.norm()))
    check(name, errors)
    del wanted, found
    torch.cuda.empty_cache()
    host = {label: enqueued(side) for label, side in sides.items()}
    times = medians(sides, options.seconds)
    busy = {label: side.busy() for label, side in sides.items()}
    ours = times.get("Tilewright", math.nan)
    made = {
        "model": name, "batch": options.batch, **taken(graphs),
        **{f"{label} ms": ms for label, ms in times.items()},
        **{f"{label} error": e for label, e in errors.items()},
        **{f"{label} host ms": ms for label, ms in host.items()},
        **{f"{label} GPU ms": ms for label, ms in busy.items()},
        **{f"{label} MiB": mib for label, mib in peak.items()},
        **{f"{label} graphs MiB": mib for label, mib in held.items() if mib},
        **({"faster": times["PyTorch"] / ours} if "PyTorch" in times else {}),
        **({"than compiled": times["torch.compile"] / ours} if "torch.compile" in times else {}),
        **({"than graphs": times["reduce-overhead"] / ours} if "reduce-overhead" in times else {}),
        "first step s": first.get("Tilewright"),
    }  # fmt: skip
    if options.profile:
        profile(graphs, options.profile)
    return made


def one(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a model, or why there is none: the figures of the others are worth having."""
    try:
        return row(name, options)
    except Exception as error:
        return {"model": name, "failed": f"{type(error).__name__}: {error}"[:1000]}
    finally:
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--models", nargs="+", default=list(MODELS), help="of timm, or of this list"
    )
    parser.add_argument(
        "--sides", nargs="+", default=["PyTorch", "torch.compile", "reduce-overhead", "Tilewright"],
        help='or "launched", too',
    )  # fmt: skip
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=2, help="of measuring, for each time")
    parser.add_argument("--profile", type=int, default=0, help="how many kernels to list")
    parser.add_argument(
        "--together", type=int, nargs="?", const=-1, default=0, metavar="N",
        help="compile N models at once, or all",
    )  # fmt: skip
    parser.add_argument(
        "--ready", type=float, default=300, help="seconds that a model may compile, with others"
    )
    parser.add_argument("--left", action="store_true", help="list the operators of each graph")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    options.dtype = "float16"
    rows: list[dict[str, Any]] = []
    alone = (one(name, options) for name in options.models)
    several = options.together and len(options.models) > 1
    at_once = max(options.together, 0)
    beside = together.rows(options.models, at_once, options.ready) if several else alone
    for made in beside:
        rows.append(made)
        print(json.dumps(made), flush=True)
        if together.is_started():
            return
        results = {"environment": measure.environment("torch", "triton", "timm"), "rows": rows}
        path = measure.save(f"h200_compiled_training_{options.batch}", results, options.out)
    print(measure.table(rows), path, sep="\n")


if __name__ == "__main__":
    main()
