"""Two layers and the activation between them in one kernel, beside two kernels of ours and PyTorch.

The layers are those of ConvNeXt-T's and Swin-T's first two stages, at several batches, and of a
ViT-Ti, in float16 with GELU, a bias each, and behind them a factor of channels and a residual sum.
Each of the ``--tried`` tiles that are ranked first is checked against PyTorch in float64; ours and
PyTorch's take turns: medians of CUDA-graph replays, inputs rotated past the cache or not (--warm).

    PYTHONPATH=src python benchmarks/mlp.py [--batch 1 8 64] [--tried 8]

The floor is the larger of the bytes of inputs and outputs over the bandwidth of a large copy and
the operations over what matrix products reach (docs/benchmarks.md).
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import measure
import torch

from tilewright.ir.errors import TilewrightError
from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import find
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Gemm
from tilewright.topi.epilogue import parse_epilogue
from tilewright.topi.operators.mlp import Mlp
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

#: Rows of one image, and channels, of which there are four times as many between the layers.
SHAPES = {"convnext 56": (3136, 96), "convnext 28": (784, 192), "vit": (197, 192)}
_BANDWIDTH, _PEAK, _CACHE = 4.2e12, 800e12, 150e6
_CLOSE = 2e-3
_TEMPLATE = "gpu.mlp"


def problem(name: str, batch: int) -> Mlp:
    rows, channels = SHAPES[name]
    epilogue = "bias+residual" if name == "vit" else "bias+scale_shift+residual"
    return Mlp(
        m=rows * batch, k=channels, hidden=4 * channels, n=channels, inner="bias+gelu",
        epilogue=parse_epilogue(epilogue), dtype="float16", constants=("b", "inner_bias", "c"),
    )  # fmt: skip


def apart(p: Mlp) -> tuple[Gemm, Gemm]:
    """The two products, as networks have them."""
    first = Gemm(m=p.m, n=p.hidden, k=p.k, dtype=p.dtype, epilogue=p.steps, constants=("b",))
    last = Gemm(m=p.m, n=p.n, k=p.hidden, dtype=p.dtype, epilogue=p.epilogue, constants=("b",))
    return first, last


def built(p: Mlp, tile: Any, target: Target) -> Any:
    algorithm = find(_TEMPLATE)
    assert isinstance(algorithm, Scheduled)
    return algorithm.kernel(p, tile, target)


def _ahead(job: tuple[Problem, Any, Target]) -> str:
    p, tile, target = job
    try:
        if tile is None:
            chosen_kernel(p, target)
        else:
            assert isinstance(p, Mlp)
            built(p, tile, target)
    except TilewrightError as error:
        return str(error)[:200]
    return ""


class Operands:
    """Tensors of a problem, in sets that go past a GPU's cache."""

    def __init__(self, p: Mlp, warm: bool) -> None:
        self.p, kind = p, getattr(torch, p.dtype)
        self.sets = 1 if warm else max(1, min(8, math.ceil(_CACHE / p.bytes)))
        images = ("a", "residual")

        def made(name: str, shape: tuple[int, ...]) -> Any:
            x = torch.randn(shape, device="cuda") * (shape[-1] ** -0.5 if name in "bc" else 1)
            return x.to(kind)

        shapes = p.shapes()
        fixed = {name: made(name, s) for name, s in shapes.items() if name not in images}
        self.given = [
            [fixed[n] if n in fixed else made(n, s) for n, s in shapes.items()]
            for _ in range(self.sets)
        ]
        self.results = [torch.empty(p.result.shape, device="cuda", dtype=kind) for _ in self.given]
        self.between = torch.empty((p.m, p.hidden), device="cuda", dtype=kind)
        self.turned = fixed["b"].t().contiguous()

    def ours(self, kernel: Any) -> Callable[[int], Any]:
        sets = [kernel.prepared([*g, y]) for g, y in zip(self.given, self.results, strict=True)]
        return lambda k: kernel(*sets[k % self.sets])

    def apart(self, first: Any, last: Any) -> Callable[[int], Any]:
        """By two kernels."""
        count = sum(len(step.tensors) for step in self.p.steps)
        sets = [
            (first.prepared([a, self.turned, *rest[:count], self.between]),
             last.prepared([self.between, *rest[count:], y]))
            for (a, _, *rest), y in zip(self.given, self.results, strict=True)
        ]  # fmt: skip

        def call(k: int) -> None:
            before, after = sets[k % self.sets]
            first(*before)
            last(*after)

        return call

    def theirs(self) -> Callable[[int], Any]:
        function = torch.compile(self.p.torch_function(torch))
        return lambda k: function(*self.given[k % self.sets])

    def error(self, result: Any) -> float:
        """Relative to float64, of the first set."""
        rows = slice(0, min(self.p.m, 4096))
        names = list(self.p.shapes())
        given = [
            x[rows].double() if n in ("a", "residual") else x.double()
            for n, x in zip(names, self.given[0], strict=True)
        ]
        wanted = self.p.torch_function(torch)(*given)
        return float((result[rows].double() - wanted).norm() / wanted.norm())


def row(p: Mlp, tiles: list[Any], target: Target, options: argparse.Namespace) -> dict[str, Any]:
    operands = Operands(p, options.warm)
    first, last = (chosen_kernel(x, target) for x in apart(p))
    calls = {"apart": operands.apart(first, last)}
    if not options.no_compile:
        calls["torch.compile"] = operands.theirs()
    for tile in tiles:
        try:
            calls[str(tile)] = operands.ours(built(p, tile, target))
        except TilewrightError as error:
            print("   ", tile, str(error)[:100])
    errors = {}
    for name, call in list(calls.items()):
        operands.results[0].fill_(math.nan)
        call(0)
        if name == "torch.compile":
            continue
        errors[name] = operands.error(operands.results[0])
        if not errors[name] < _CLOSE:
            print("   ", name, "is wrong:", errors[name], flush=True)
            del calls[name]
    times = measure.graph_medians(calls)
    ours = {name: us for name, us in times.items() if name.startswith("MlpTile")}
    for name, us in sorted(ours.items(), key=lambda x: x[1]):
        print(f"    {us:8.2f} {name}", flush=True)
    floor = max(p.bytes / _BANDWIDTH, p.flops / _PEAK) * 1e6
    best = min(ours, key=lambda name: ours[name])
    chosen = str(tiles[0])
    return {
        "problem": str(p), "chosen us": ours.get(chosen, math.nan), "best us": ours[best],
        "best": best, "apart us": times["apart"],
        "torch.compile us": times.get("torch.compile", math.nan),
        "apart / chosen": times["apart"] / ours.get(chosen, math.nan),
        "apart / best": times["apart"] / ours[best], "best / floor": ours[best] / floor,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--shapes", nargs="+", default=list(SHAPES))
    add("--batch", nargs="+", type=int, default=[8, 64, 1])
    add("--tried", type=int, default=8)
    add("--warm", action="store_true", help="on the same inputs, which the cache may have")
    add("--no-compile", action="store_true")
    add("--out", default="benchmarks/results")
    options = parser.parse_args()
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("fork"))
    list(pool.map(abs, range(len(os.sched_getaffinity(0)))))  # before this process has a GPU
    from tilewright.runtime.cuda import resolve_arch

    cuda = Target.parse("cuda")
    target = cuda.with_arch(resolve_arch(cuda))
    template = TEMPLATES[_TEMPLATE]
    problems = [problem(name, batch) for batch in options.batch for name in options.shapes]
    tiles = {p: list(template.candidates(p, target))[: options.tried] for p in problems}
    jobs: list[tuple[Problem, Any, Target]] = [
        job for p in problems
        for job in (*((x, None, target) for x in apart(p)), *((p, t, target) for t in tiles[p]))
    ]  # fmt: skip
    list(pool.map(_ahead, jobs))
    pool.shutdown(wait=False)
    rows = []
    for p in problems:
        rows.append(row(p, tiles[p], target, options))
        print(rows[-1], flush=True)
        found = {"environment": measure.environment("torch"), "rows": rows}
        path = measure.save(f"h200_mlp{'_warm' * options.warm}", found, options.out)
        torch.cuda.empty_cache()
    print(measure.table(rows))
    print(path)


if __name__ == "__main__":
    main()
