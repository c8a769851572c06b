"""Whole networks from ONNX files, beside PyTorch eager and `torch.compile`.

Networks are torchvision's where it is installed, else those of `vision_models.py`, with weights
that are random. Each is exported by `torch.onnx.export` and run by `tilewright.load`. On a GPU all
are in float16 (or --dtype), PyTorch with channels last and cuDNN's search switched on; PyTorch's
are replays of CUDA graphs, ours are calls bound to arrays of the GPU, which replay one. On a CPU
they are calls in float32, with ONNX Runtime's beside them; with `--dtype bfloat16` products of ours
are in that type, and beside it is ours in float32. All take turns in one process, and medians are
compared. Outputs are compared with those of PyTorch in float32.

    PYTHONPATH=src python benchmarks/graph_networks.py --device cuda --batch 1 8 64 [--profile]
    PYTHONPATH=src python benchmarks/graph_networks.py --device cpu --image 64
    PYTHONPATH=src python benchmarks/graph_networks.py --models resnet50 --batch 64 --dtype int8

With `--dtype int8` ours is the network in int8, by ranges of a few images, which it takes in
float32; beside it are ours and PyTorch's in float16 on a GPU, and in float32 on a CPU, where ONNX
Runtime has the same integers: its file is quantised by the same ranges, by its own tool.

With `--precision winograd` ours runs once more on a CPU, its 3x3 convolutions in fewer products.
The last lines have the geometric mean and the least of each ratio.

What was measured is written after each network, so that a run that is cut short leaves it.
"""

from __future__ import annotations

import argparse
import copy
import io
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import measure
import torch
from networks import trained
from torch import nn
from vision_models import NETWORKS, convnext_t

import tilewright
from tilewright.cli._measure.turns import (
    Batch,
    Rest,
    briefly,
    of_calls,
    of_graph,
    take_turns,
    until_idle,
)

#: By torchvision's name, what stands for it where that is missing.
OWN: dict[str, Callable[[], nn.Module]] = {
    "resnet50": NETWORKS["ResNet-50"], "resnext50_32x4d": NETWORKS["ResNeXt-50"],
    "mobilenet_v2": NETWORKS["MobileNetV2"], "convnext_tiny": convnext_t,
}  # fmt: skip
NAMES = (
    "resnet50", "mobilenet_v2", "resnet18", "efficientnet_b0", "convnext_tiny", "vgg16",
    "mobilenet_v3_large", "resnext50_32x4d",
)  # fmt: skip
#: Turns of every side, and the seconds of one turn.
_ROUNDS, _SPAN = 15, 0.01
#: Relative errors that are taken for right, by type.
_CLOSE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 6e-2, "int8": 0.2}
#: Images whose ranges int8 goes by.
_SAMPLES = 4


def network(name: str) -> nn.Module | None:
    """A network in evaluation mode; None where nobody has it."""
    torch.manual_seed(0)
    try:
        import torchvision

        made = getattr(torchvision.models, name)(weights=None)
    except (ImportError, AttributeError, RuntimeError):
        if name not in OWN:
            return None
        made = OWN[name]()
    return trained(made)


def exported(model: nn.Module, images: torch.Tensor) -> bytes:
    """The network as an ONNX file, for any number of such images."""
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (images,), file, input_names=["x"], output_names=["y"], opset_version=17,
            dynamo=False, dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
        )  # fmt: skip
    return file.getvalue()


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The norm of the difference by that of what was wanted."""
    found, wanted = found.double().cpu(), wanted.double().cpu()
    return float((found - wanted).norm() / wanted.norm())


def of_bound(call: Callable[[], None]) -> Batch:
    """A batch of calls on a stream of PyTorch's, by the GPU's clock."""
    stream = torch.cuda.Stream()

    def batch(number: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            call()  # so that the host is ahead
            start.record(stream)
            for _ in range(number):
                call()
            end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / number

    batch(3)  # records the graph
    torch.cuda.synchronize()
    return batch


class Sides:
    """What is compared of one network, at one batch: batches by name, and errors."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.cuda = options, options.device == "cuda"
        self.batches: dict[str, Batch] = {}
        self.errors: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.result: tuple[int, ...] = ()
        self.clock = time.process_time if options.cpu_time else time.perf_counter

    def add(
        self,
        name: str,
        make: Callable[[], tuple[torch.Tensor, Batch]],
        wanted: Any,
        dtype: str = "",
    ) -> None:
        """Measure one; where it fails the others go on."""
        begin = time.perf_counter()
        try:
            found, batch = make()
            self.errors[name] = relative(found, wanted)
            if not self.errors[name] < _CLOSE[dtype or self.options.dtype]:
                raise RuntimeError(f"relative error {self.errors[name]:.2g}")
            self.batches[name] = batch
        except Exception as error:  # the figures of the others are worth having
            traceback.print_exc()
            self.failed[name] = f"{type(error).__name__}: {error}"[:300]
        self.first[name] = time.perf_counter() - begin

    def theirs(self, model: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, Batch]:
        """A model of PyTorch's, captured on a GPU."""
        with torch.no_grad():
            found = model(images).clone()

        def call(_: int = 0) -> Any:
            with torch.no_grad():
                return model(images)

        return found, of_graph(call) if self.cuda else of_calls(call, self.clock)

    def ours(self, model: Any, images: torch.Tensor) -> tuple[torch.Tensor, Batch]:
        """A model of ours, bound to tensors."""
        with torch.no_grad():
            y = torch.empty(self.result, dtype=images.dtype, device=images.device)
        if self.cuda:
            call = model.bind({"x": images}, {"y": y})
            batch = of_bound(call)
        else:
            call = model.bind({"x": images.numpy()}, {"y": y.numpy()})
            batch = of_calls(call, self.clock)
            call()
        return y, batch

    def medians(self) -> dict[str, float]:
        """Milliseconds, in turns; on a CPU each begins when the threads of the others sleep."""
        rest: Rest = briefly if self.cuda else until_idle
        times = take_turns(self.batches, _ROUNDS, _SPAN, 1e9, rest)
        return {name: 1e3 * statistics.median(t) for name, t in times.items()}


def row(name: str, batch: int, model: nn.Module, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a network at one batch."""
    whole = options.dtype == "int8"
    beside = options.dtype if not whole else "float16" if options.device == "cuda" else "float32"
    kind = getattr(torch, beside)
    torch.manual_seed(1)
    plain = torch.randn(batch, 3, options.image, options.image)
    with torch.no_grad():
        wanted = model.to(options.device)(plain.to(options.device)).float().cpu()
    model.cpu()
    real = exported(model, plain[:1]) if whole else b""
    one = plain[:1].to(options.device, kind)
    by_policy = options.device == "cpu" and beside != "float32"  # ONNX's bfloat16 is young
    data = exported(copy.deepcopy(model).to(options.device, kind), one) if not by_policy else b""
    images = plain.to(options.device, kind)
    last = images.contiguous(memory_format=torch.channels_last)
    theirs = copy.deepcopy(model).to(options.device, kind).to(memory_format=torch.channels_last)

    sides = Sides(options)
    sides.result = wanted.shape
    target = options.device if options.device == "cuda" else "llvm"
    target += f" -threads={options.threads}" * (target == "llvm" and options.threads > 0)
    if by_policy:
        data = exported(model, plain[:1])
        floats, loaded = (tilewright.load(data, target=target, dtype=x) for x in (None, beside))
        sides.add("ours", lambda: sides.ours(loaded, plain), wanted)
        sides.add("ours float32", lambda: sides.ours(floats, plain), wanted, "float32")
    else:
        loaded = tilewright.load(data, target=target)
    if whole:
        floats, loaded = loaded, quantised(real, target, plain)
        sides.add("ours", lambda: sides.ours(loaded, plain.to(options.device)), wanted)
        sides.add(f"ours {beside}", lambda: sides.ours(floats, images), wanted, beside)
    elif not by_policy:
        sides.add("ours", lambda: sides.ours(loaded, images), wanted)
    if options.precision:
        fewer = tilewright.load(data, target=target, precision=options.precision)
        side = f"ours {options.precision}"
        sides.add(side, lambda: sides.ours(fewer, images), wanted, beside)
    sides.add("PyTorch", lambda: sides.theirs(theirs, last), wanted, beside)
    if not options.no_compile:
        compiled = torch.compile(copy.deepcopy(theirs))
        sides.add("torch.compile", lambda: sides.theirs(compiled, last), wanted, beside)
    if not sides.cuda and (whole or not by_policy):
        file = made_int8(real, plain) if whole else data
        sides.add(
            "ONNX Runtime", lambda: runtime(file, plain, options.threads, sides.clock), wanted
        )
    found = sides.medians()
    if options.profile and "ours" in found:
        profile(loaded, plain if whole or by_policy else images)
    made: dict[str, Any] = {"model": name, "batch": batch, "dtype": options.dtype}
    made |= {f"{side} ms": found.get(side, float("nan")) for side in sides.first}
    second = f"ours {options.precision}"
    for own in (side for side in ("ours", second) if side in found):
        for side in found:
            if side not in ("ours", own):
                made[f"{side} / {own}"] = found[side] / found[own]
    made |= {"error": sides.errors.get("ours", float("nan")), "first call s": sides.first["ours"]}
    if second in sides.errors:
        made[f"error {options.precision}"] = sides.errors[second]
    if sides.failed:
        made["failed"] = sides.failed
    return made


def quantised(data: bytes, target: str, images: torch.Tensor) -> Any:
    """A network in int8, whose ranges are measured where it runs."""
    from tilewright.graph.calibrate import calibrated

    known = calibrated(tilewright.load(data, target=target), [images[:_SAMPLES].numpy()], None)
    print(known, flush=True)
    return tilewright.load(data, target=target).quantized(known)


def made_int8(data: bytes, images: torch.Tensor) -> bytes:
    """The network in int8 by ONNX Runtime's tool, as its documentation says."""
    import tempfile
    from pathlib import Path

    import onnx
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = [{"x": images[:_SAMPLES].numpy()}]

        def get_next(self) -> Any:
            return self.rest.pop() if self.rest else None

    with tempfile.TemporaryDirectory() as folder:
        plain, made = Path(folder, "plain.onnx"), Path(folder, "int8.onnx")
        onnx.save(onnx.load_from_string(data), plain)
        quantization.shape_inference.quant_pre_process(plain, plain, skip_symbolic_shape=True)
        quantization.quantize_static(
            plain, made, Samples(), per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
        )  # fmt: skip
        return made.read_bytes()


def runtime(
    file: bytes, images: torch.Tensor, threads: int, clock: Callable[[], float]
) -> tuple[torch.Tensor, Batch]:
    """A network by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {"x": images.numpy()}
    (y,) = session.run(["y"], given)
    return torch.from_numpy(y), of_calls(lambda: session.run(["y"], given), clock)


def profile(model: Any, images: torch.Tensor) -> None:
    """Print the kernels by their times, each launched by itself."""
    host = images.cpu().numpy()
    executor = model.compile({"x": host})
    runs: list[list[float]] = []
    for _ in range(5):
        times: list[float] = []
        executor.run({"x": host}, times)
        runs.append(times)
    count: Counter[str] = Counter()
    total: defaultdict[str, float] = defaultdict(float)
    for step, taken in zip(executor.steps, zip(*runs, strict=True), strict=True):
        key = str(step.node.problem)[:150]
        count[key] += 1
        total[key] += statistics.median(taken) * 1e3
    print(f"  {sum(count.values())} kernels, {sum(total.values()):.3f} ms one by one")
    for key, ms in sorted(total.items(), key=lambda row: -row[1])[:25]:
        print(f"  {ms:8.4f} ms  {count[key]:3d} x  {key}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", default=list(NAMES))
    add("--batch", nargs="+", type=int, default=[1])
    add("--image", type=int, default=224)
    add("--device", default="cuda", choices=["cpu", "cuda"])
    add("--dtype", default="", choices=["", *_CLOSE])
    add("--threads", type=int, default=0, help="of a CPU; by default all")
    add("--cpu-time", action="store_true", help="of the process, on one thread of a CPU in use")
    add("--precision", default="", help="what else is allowed in a run more of ours: winograd")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add("--profile", action="store_true", help="print our kernels by their times")
    add("--out", default="benchmarks/results")
    options = parser.parse_args()
    options.dtype = options.dtype or ("float16" if options.device == "cuda" else "float32")
    torch.backends.cudnn.benchmark = True
    if options.threads:
        torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    label = "h200" if options.device == "cuda" else "cpu"
    for name in options.models:
        model = network(name)
        if model is None:
            print(f"{name}: torchvision is not installed", file=sys.stderr)
            continue
        for batch in options.batch:
            try:
                rows.append(row(name, batch, model, options))
            except Exception as error:  # the figures of the others are worth having
                traceback.print_exc()
                rows.append({"model": name, "batch": batch, "failed": str(error)[:300]})
            print(rows[-1], flush=True)
            where = measure.environment("torch", "onnx", gpu=options.device == "cuda")
            found = {"environment": where, "rows": rows}
            narrow = options.dtype == "int8" or (label == "cpu" and options.dtype != "float32")
            what = "graph_networks" + f"_{options.dtype}" * narrow
            path = measure.save(f"{label}_{what}", found, options.out)
            if options.device == "cuda":
                torch.cuda.empty_cache()
    print(measure.table(rows))
    for name in dict.fromkeys(name for row in rows for name in row if " / " in name):
        ratios = [row[name] for row in rows if name in row]
        mean, least = statistics.geometric_mean(ratios), min(ratios)
        print(f"{name}: {mean:.3f} in the geometric mean of {len(ratios)}, least {least:.3f}")
    print(path)


if __name__ == "__main__":
    main()
