"""Programs and small products of matrices on a GPU, beside PyTorch's kernels for the same.

What stands between the convolutions of networks, in float16: normalisations of rows, means over
pixels, elementwise functions, images to channels last, and products with few rows. By the first
choices without measuring, right to a tolerance against PyTorch in float32, beside PyTorch (several
kernels where it has no single one) and what memory needs for the bytes. Medians of CUDA-graph
replays that take turns, inputs rotated past the cache.

    PYTHONPATH=src python benchmarks/gpu_programs.py [--batch 64 1] [--tried 3] [--only ConvNeXt]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import measure

from tilewright.cli._measure.turns import of_graph
from tilewright.ir.dtype import dtype
from tilewright.select import options as choices
from tilewright.topi import Gemm
from tilewright.topi.epilogue import Step
from tilewright.topi.operators import Program
from tilewright.topi.problem import Problem
from tilewright.tune.machine import with_architecture

#: What goes past the cache, turns of every graph, and bytes a second of a large copy.
_CACHE, _ROUNDS, _BANDWIDTH = 150e6, 9, 4.2e12
#: Relative errors that are taken for right.
_CLOSE = 1e-2
#: Computes a result with PyTorch, of the operands.
Torch = Callable[..., Any]
Case = tuple[str, Problem, Torch]


def _half(*shapes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"float16[{'x'.join(map(str, s))}]" for s in shapes)


def normalisation(rows: tuple[int, ...], residual: bool) -> Case:
    """A layer normalisation, as ONNX files have it, behind a scaled residual or not."""
    n, axis = rows[-1], len(rows) - 1
    first = 2 if residual else 0
    more = ("multiply(a0, a1)", "add(t0, a2)") if residual else ()
    source = f"t{first - 1}" if residual else "a0"
    scale, shift = (f"a{k + 1 + first}" for k in (0, 1))
    t = [f"t{k + first}" for k in range(11)]
    body = (
        *more, f"cast({source}, dtype='float32')", f"sum({t[0]}, axis=({axis},), keepdims=True)",
        f"divide({t[1]}, {n})", f"subtract({t[0]}, {t[2]})", f"multiply({t[3]}, {t[3]})",
        f"sum({t[4]}, axis=({axis},), keepdims=True)", f"divide({t[5]}, {n})",
        f"add({t[6]}, 1e-06)", f"sqrt({t[7]})", f"divide({t[3]}, {t[8]})",
        f"cast({t[9]}, dtype='float16')", f"multiply({t[10]}, {scale})",
        f"add(t{11 + first}, {shift})",
    )  # fmt: skip
    images = ((n,), rows, rows) if residual else (rows,)

    def torch(*given: Any) -> Any:
        from torch.nn import functional

        x = given[0] * given[1] + given[2] if residual else given[0]
        return functional.layer_norm(x, (n,), given[-2], given[-1], eps=1e-6)

    name = f"ConvNeXt: {'residual, ' if residual else ''}normalisation"
    return name, Program(operands=_half(*images, (n,), (n,)), body=body), torch


def mean(n: int, h: int, c: int) -> Case:
    body = ("sum(a0, axis=(1, 2), keepdims=True)", f"divide(t0, {h * h})")
    # The sum is rounded to float16, as the operators of a file are; inputs are small for that.
    p = Program(operands=_half((n, h, h, c)), body=body)
    return "EfficientNet: mean", p, lambda x: x.mean((1, 2), keepdim=True)


def scaled(n: int, pixels: int, c: int) -> Case:
    p = Program(operands=_half((n, 1, c), (n, pixels, c)), body=("sigmoid(a0)", "multiply(t0, a1)"))
    return "EfficientNet: sigmoid, multiply", p, lambda s, x: s.sigmoid() * x


def residual(rows: int, c: int) -> Case:
    operands = _half((1, c), (rows, c), (rows, c))
    p = Program(operands=operands, body=("multiply(a0, a1)", "add(t0, a2)"))
    return "ConvNeXt: multiply, add", p, lambda s, x, y: s * x + y


def channels_last(n: int) -> Case:
    p = Program(operands=_half((n, 3, 224, 224)), body=("transpose(a0, axes=(0, 2, 3, 1))",))
    return "images to channels last", p, lambda x: x.permute(0, 2, 3, 1).contiguous()


def pooled(n: int) -> Case:
    p = Program(operands=_half((n, 112, 112, 64)), body=(
        "max_pool(a0, size=(3, 3), strides=(2, 2), padding=(1, 1), dilation=(1, 1), out=(56, 56),"
        " last=True)",
    ))  # fmt: skip

    def torch(x: Any) -> Any:
        from torch.nn import functional

        return functional.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)

    return "ResNet: pooling", p, torch


def product(m: int, n: int, k: int) -> Case:
    p = Gemm(m=m, n=n, k=k, transpose_b=True, dtype="float16", epilogue=(Step("bias"),))

    def torch(a: Any, b: Any, bias: Any) -> Any:
        from torch.nn import functional

        return functional.linear(a, b, bias)

    return "few rows: product", p, torch


def cases(batch: int) -> Iterator[Case]:
    """Those of the networks at a batch."""
    stages = ((56, 96), (28, 192), (14, 384), (7, 768))
    yield from (normalisation((batch, h, h, c), False) for h, c in stages)
    yield from (normalisation((batch, h, h, c), True) for h, c in stages[:3])
    yield from (residual(batch * h * h, c) for h, c in stages)
    squeezed = ((112, 32), (56, 96), (56, 144), (28, 240), (14, 480), (14, 672), (7, 1152))
    yield from (mean(batch, h, c) for h, c in squeezed)
    yield from (scaled(batch, h * h, c) for h, c in squeezed)
    yield from (channels_last(batch), pooled(batch))
    narrow = ((6, 144), (20, 480), (28, 672), (48, 1152))
    for n, k in (*narrow, *((k, n) for n, k in narrow), (1000, 1280), (1000, 2048)):
        yield product(batch, n, k)


class Operands:
    """Tensors of a problem: ``sets`` of them, and results."""

    def __init__(self, p: Problem) -> None:
        import torch

        sizes = {n: math.prod(t.shape) * dtype(t.dtype).bytes for n, t in p.inputs().items()}
        result = p.result
        self.moved = sum(sizes.values()) + math.prod(result.shape) * dtype(result.dtype).bytes
        self.sets = max(1, min(8, math.ceil(_CACHE / self.moved)))
        self.given = [
            [torch.rand(t.shape, device="cuda").sub(0.4).to(getattr(torch, t.dtype))
             for t in p.inputs().values()]
            for _ in range(self.sets)
        ]  # fmt: skip
        kind = getattr(torch, result.dtype)
        self.results = [
            torch.full(result.shape, math.nan, device="cuda", dtype=kind) for _ in self.given
        ]

    def ours(self, kernel: Any, number: int) -> None:
        k = number % self.sets
        kernel(*self.given[k], self.results[k])

    def theirs(self, torch: Torch, number: int) -> Any:
        return torch(*self.given[number % self.sets])

    def error(self, torch: Torch) -> float:
        """Relative, of the first results."""
        wanted = torch(*(x.float() for x in self.given[0]))
        return float((self.results[0].float() - wanted).norm() / wanted.norm())


def row(case: Case, batch: int, tried: int) -> dict[str, Any]:
    """What one of them takes."""
    name, p, torch = case
    given = Operands(p)
    calls: dict[str, Callable[[int], Any]] = {}
    names: dict[str, str] = {}
    for rank, choice in enumerate(choices(p, with_architecture("cuda"))):
        if rank == tried:
            break
        kernel = choice.build()
        given.results[0].fill_(math.nan)
        given.ours(kernel, 0)
        error = given.error(torch)
        if not error < _CLOSE:
            raise SystemExit(f"{p} {choice}: the error is {error:.2g}")
        calls[str(rank)], names[str(rank)] = partial(given.ours, kernel), str(choice)
    calls["PyTorch"] = partial(given.theirs, torch)
    batches = {name: of_graph(call, given.sets) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for side, batch_of in batches.items():
            times[side].append(batch_of(1) * 1e6)
    us = {side: statistics.median(t) for side, t in times.items()}
    best = min(names, key=lambda side: us[side])
    return {
        "program": name, "operands": ", ".join(
            "x".join(map(str, t.shape)) for t in p.inputs().values()
        ), "batch": batch, "us": us["0"], "tried us": us[best], "PyTorch us": us["PyTorch"],
        "PyTorch / ours": us["PyTorch"] / us["0"], "floor us": given.moved / _BANDWIDTH * 1e6,
        "kernel": names["0"], "best": names[best],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--tried", type=int, default=1, help="schedules of each problem")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    rows = []
    for batch in options.batch:
        for case in cases(batch):
            if options.only in case[0]:
                rows.append(row(case, batch, options.tried))
                print({k: v for k, v in rows[-1].items() if k != "best"}, flush=True)
    print(measure.table(rows))
    results = {"environment": measure.environment("torch"), "settings": vars(options), "rows": rows}
    print(measure.save("h200_gpu_programs", results, options.out))


if __name__ == "__main__":
    main()
