"""Depthwise convolutions with large filters on a GPU, beside PyTorch's in both layouts.

Filters of 7 to 31 rows on images of 16 to 64, 384 channels, batch 64 and 1, and the layers of
RepLKNet-31B, forward and both gradients, in float16 (the largest filter in bfloat16 and float32
too, and with products in TF32 allowed). Of each, up to 20 of our kernels are tried, checked against
PyTorch in float64; they take turns with PyTorch, cuDNN's search switched on and its TF32 off:
medians of CUDA-graph replays, inputs rotated past the cache where they are over 8 MB. "of peak" is
what the taps that meet the image take of the peak of matrix products in that type (in float32 on
CUDA cores), "of bandwidth" what images take of a large copy's.

    PYTHONPATH=src python benchmarks/large_kernels.py --gpus 4

With ``--also`` some tiles of other templates are tried too, and what the best of each takes is
printed; ``--layers`` are problems of one's own, batch x channels x image x filter:

    PYTHONPATH=src python benchmarks/large_kernels.py --also gpu.strips --dtype float32 --only K31
    PYTHONPATH=src python benchmarks/large_kernels.py --also gpu.planes --layers 64x384x14x27
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gpu_depthwise
import grouped
import measure
from gpu_layers import PASSES, layer, traffic
from parts import run_on_gpus
from problem_parts import first_choices, results, run_part

import tilewright
from tilewright.cli._measure.turns import of_calls, of_graph, take_turns
from tilewright.select.ranking import ranked
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

KERNELS, IMAGES, BATCHES, CHANNELS = (7, 9, 13, 17, 21, 25, 31), (16, 32, 48, 64), (64, 1), 384
#: Of RepLKNet-31B: image, filter, channels.
REPLKNET = ((56, 31, 128), (28, 29, 256), (14, 27, 512), (7, 13, 1024))
#: Kernels of a problem that are tried: of each template for tensor cores, for many images and for
#: few, of the choice, and of the choice among those for CUDA cores.
_MANY = {
    "gpu.toeplitz": 4, "gpu.toeplitz_staged": 7, "gpu.toeplitz_warps": 2, "gpu.row_products": 8,
    "gpu.toeplitz_wgrad": 1, "gpu.toeplitz_tf32": 4, "gpu.toeplitz_tf32_wgrad": 6,
    "gpu.plane_products": 18, "gpu.plane_gradient": 14,
}  # fmt: skip
_FEW = {
    "gpu.toeplitz_rows": 6, "gpu.toeplitz_wgrad": 6, "gpu.row_products": 4,
    "gpu.toeplitz_tf32_rows": 4, "gpu.toeplitz_tf32_wgrad": 4,
}  # fmt: skip
_CHOSEN = 3
#: Tiles of a template that is asked for.
_ALSO = 8
#: Rounds, and seconds a problem, about; PyTorch's slowest take five rounds whatever it costs.
_ROUNDS, _SECONDS = 15, 0.6


def sections() -> Iterator[tuple[str, Conv]]:
    """Every problem with the heading that it stands under."""
    for batch, pass_, image, kernel in itertools.product(BATCHES, PASSES, IMAGES, KERNELS):
        p = layer(CHANNELS, image, kernel, batch=batch, dtype="float16", pass_=pass_)
        yield f"{image} square, batch {batch}, {pass_}", p
    for dtype, pass_ in itertools.product(("bfloat16", "float32"), PASSES):
        yield f"K 31, {dtype}", layer(CHANNELS, 32, 31, dtype=dtype, pass_=pass_)
    for pass_ in PASSES:
        p = layer(CHANNELS, 32, 31, pass_=pass_).replace(precision="tf32")
        yield "K 31, float32, TF32 allowed", p
    for pass_, (image, kernel, channels) in itertools.product(PASSES, REPLKNET):
        yield f"RepLKNet-31B, {pass_}", layer(channels, image, kernel, dtype="float16", pass_=pass_)


def tried(p: Conv, target: str, also: tuple[str, ...] = ()) -> list[tuple[str, dict[str, int]]]:
    """Templates with parameters; some of ``also`` among them."""
    machine = tilewright.Target.parse(target)
    found = [
        (name, vars(config))
        for name, count in {
            **(_MANY if p.batch >= 16 else _FEW),
            **dict.fromkeys(also, _ALSO),
        }.items()
        if TEMPLATES[name].fits(p, machine)
        for config in TEMPLATES[name].candidates(p, machine)[:count]
    ]
    found += first_choices(p, target, _CHOSEN)
    found += [(r.template.name, vars(r.config)) for r in ranked(p, machine)[:_CHOSEN]]
    return [c for k, c in enumerate(found) if c not in found[:k]]


def operations(p: Conv) -> float:
    """Multiplications and additions of the taps that meet the image, each as one.

    >>> operations(layer(1, 3, 3, batch=1))
    98.0
    """
    inside = [
        sum(
            0 <= o * s + k * d - before < extent
            for o in range(out)
            for k in range(size)
        )
        for out, s, size, d, before, extent in zip(
            p.out_image, p.stride, p.kernel, p.dilation, p.padding, p.image, strict=False
        )
    ]  # fmt: skip
    return float(2.0 * p.batch * p.out_channels * math.prod(inside))


def time_problem(
    p: Conv, files: dict[str, str], bandwidth: float, device: str = "cuda",
    rounds: int = _ROUNDS, limit: float = _SECONDS,
) -> dict[str, Any]:  # fmt: skip
    """The row of a problem; ``files`` are kernels by what they are called."""
    subject = gpu_depthwise.Layer(p, device=device)
    operands, n = subject.operands(), subject.sets
    calls: dict[str, Callable[[int], Any]] = subject.peers()
    errors = {}
    for name, path in files.items():
        kernel = tilewright.load(path)
        subject.result[0].fill_(math.nan)
        kernel(*operands[0], subject.result[0])
        errors[name] = subject.error()
        if not errors[name] <= gpu_depthwise.most_error(p):
            raise AssertionError(f"{p}: {name} has an error of {errors[name]:.2g}")

        def call(i: int, kernel: Any = kernel) -> None:
            kernel(*operands[i % n], subject.result[i % n])

        calls[name] = call
    if not errors:
        raise AssertionError(f"{p}: no kernel could be built")
    batches = {
        name: of_graph(call, n) if device == "cuda" else of_calls(functools.partial(call, 0))
        for name, call in calls.items()
    }
    found = take_turns(batches, rounds, 0.002, limit)
    times = {name: statistics.median(seconds) * 1e6 for name, seconds in found.items()}
    best = min(errors, key=lambda name: times[name])
    ours, other = times[best], min(times["PyTorch NCHW"], times["PyTorch NHWC"])
    return {
        "pass": p.pass_, "shape": f"{p.batch}x{p.channels}x{p.height}x{p.width}",
        "kernel": p.kernel_h, "dtype": p.dtype, "tilewright us": ours,
        "PyTorch NCHW us": times["PyTorch NCHW"], "PyTorch NHWC us": times["PyTorch NHWC"],
        "best peer / tilewright": other / ours,
        "of peak": operations(p) / (ours * 1e-6) / gpu_depthwise.PEAK[p.dtype],
        "of bandwidth": traffic(p) / (ours * 1e-6) / bandwidth,
        "error": errors[best], "tile": best, "tried": {name: times[name] for name in errors},
    }  # fmt: skip


def says(row: dict[str, Any]) -> str:
    """What is printed of a row."""
    return (
        f"{row['tilewright us']:.1f} us, {row['of peak']:.0%} of the peak, "
        f"{row['best peer / tilewright']:.1f}x, {row['tile']}"
    )


def says_each(row: dict[str, Any], also: tuple[str, ...]) -> str:
    """What is printed of a row where some templates were asked for."""
    best = [
        min((micros, name) for name, micros in row["tried"].items() if name.split(" ")[0] == each)
        for each in also
        if any(name.split(" ")[0] == each for name in row["tried"])
    ]
    return "; ".join([says(row), *(f"{name}: {micros:.1f} us" for micros, name in best)])


def wanted(only: str, dtype: str = "", layers: str = "") -> list[tuple[str, Conv]]:
    """The sections and problems whose text contains ``only``, each once, or those of ``layers``;
    all of ``dtype`` where one is given.

    >>> [str(p) for _, p in wanted("dgrad", "bfloat16", "8x3x64x63")]
    ['depthwise_conv2d dgrad 8x3x64x64 K63 s1 p31,31,31,31 bfloat16 NCHW']
    """
    every: Iterable[tuple[str, Conv]] = sections()
    if layers:
        numbers = [map(int, text.split("x")) for text in layers.split(",")]
        every = [
            (f"Of one's own, {pass_}", layer(channels, image, kernel, batch=batch, pass_=pass_))
            for batch, channels, image, kernel in numbers
            for pass_ in PASSES
        ]
    found = [(s, p.replace(dtype=dtype) if dtype else p) for s, p in every]
    return list(dict.fromkeys((s, p) for s, p in found if only in f"{s} {p}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine to use")
    parser.add_argument("--only", default="", help="sections and problems that contain this")
    parser.add_argument("--also", default="", help="templates to try too, with commas between")
    parser.add_argument("--dtype", default="", help="of all problems, in place of their own")
    parser.add_argument("--layers", default="", help="in place of all problems: 64x384x64x63,...")
    parser.add_argument("--name", default="h200_large_kernels", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--arch", default="sm_90a", help="of the GPUs")
    parser.add_argument("--join", action="store_true", help="what a run that was cut has left")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    problems = wanted(arguments.only, arguments.dtype, arguments.layers)
    if arguments.part >= 0:
        target = f"cuda -arch={arguments.arch}"
        also = tuple(name for name in arguments.also.split(",") if name)
        run_part(
            arguments, target, problems, time_problem,
            functools.partial(says_each, also=also), functools.partial(tried, also=also),
        )  # fmt: skip
        return
    if arguments.join:
        left = sorted(Path(arguments.out).glob("part-*.json"))
        found = [json.loads(path.read_text()) for path in left]
    else:
        found = run_on_gpus(arguments.gpus, arguments.out)
    order = {str(w): k for k, w in enumerate(problems)}
    made = results(
        arguments,
        found,
        lambda row: order[str((row["section"], Problem.from_dict(row["problem"])))],
    )
    print(grouped.text(made["rows"]))
    print(measure.save(arguments.name, made, arguments.out))


if __name__ == "__main__":
    main()
