"""Attention beside PyTorch's ``scaled_dot_product_attention``, and two products and a softmax.

Queries, keys and values are three of one tensor, as models have them: of ViT-Ti, S and B, of the
windows of a Swin-T with their bias, and of 1,024 and 4,096 tokens, with a causal mask, with a mask
of numbers, and without.
The first choice without measuring and the fastest of the ``--tried`` schedules that are ranked
first, each checked against PyTorch in float64, take turns with each of PyTorch's backends that
takes the problem, and with our own kernels for the products and the softmax, of heads that were
transposed before. On a GPU: medians of CUDA-graph replays, inputs rotated past the cache; on a CPU:
on the host's clock.

The floor is the bytes of inputs and outputs over the bandwidth of a large copy, or the operations
over what matrix products reach (docs/benchmarks.md).

    PYTHONPATH=src python benchmarks/attention.py [--shapes vit swin long] [--dtype bfloat16]
    PYTHONPATH=src python benchmarks/attention.py --device cpu --dtype float32 --threads 1
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import measure
from gpu_depthwise import ERROR, PEAK

import tilewright
from tilewright.ir.errors import TilewrightError
from tilewright.report.results import geometric_mean
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Attention, Gemm
from tilewright.topi.operators import Program
from tilewright.topi.templates import templates

#: Batch, heads, tokens, elements of a head, and whether a bias is added.
_VIT = tuple((batch, heads, 197, 64, False) for batch in (64, 1) for heads in (3, 6, 12))
_SWIN = ((4096, 3, 49, 32, True), (1024, 6, 49, 32, True), (64, 3, 49, 32, True))
_LONG = ((16, 12, 1024, 64, False), (1, 12, 1024, 64, False), (4, 12, 4096, 64, False),
         (1, 12, 4096, 64, False), (1, 16, 4096, 128, False))  # fmt: skip
_MASKED = ((16, 12, 1024, 64, True), (4, 12, 1024, 64, True), (1, 12, 1024, 64, True),
           (1, 12, 2048, 64, True), (1, 16, 1024, 128, True))  # fmt: skip
SHAPES = {"vit": _VIT, "swin": _SWIN, "long": _LONG, "causal": _LONG, "masked": _MASKED}
#: Bytes a second of a large copy, and what goes past the cache, of a GPU.
_BANDWIDTH, _CACHE = 4.2e12, 150e6
#: PyTorch's backends.
_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def problem(name: str, shape: tuple[Any, ...], dtype: str) -> Attention:
    batch, heads, tokens, depth, biased = shape
    return Attention(
        batch=batch, heads=heads, rows=tokens, keys=tokens, depth=depth, dtype=dtype,
        layout="BS3HD", mask=(1, heads, tokens, tokens) if biased else (),
        causal=name == "causal",
    )  # fmt: skip


def target_of(device: str, threads: int) -> Target:
    if device == "cpu":
        return Target.parse("llvm" + f" -threads={threads}" * (threads > 0))
    from tilewright.runtime.cuda import resolve_arch

    cuda = Target.parse("cuda")
    return cuda.with_arch(resolve_arch(cuda))


def built(p: Attention, rank: int, target: Target) -> tuple[Any, str] | None:
    """The kernel of the preferred template with its candidate of that rank, or None, and its name
    or why it is not built; None where there is no such candidate."""
    template = templates(p, target)[0]
    tiles = template.candidates(p, target)
    if rank >= len(tiles):
        return None
    tile = tiles[rank]
    declared = template.declare(p, tile)
    try:
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    except TilewrightError as error:
        return None, f"{template.name}: {error}"
    return kernel, f"{template.name} {tile}"


def _ahead(job: tuple[Attention, int, Target]) -> None:
    built(*job)  # which the cache of kernels then has


class Operands:
    """Tensors of a problem, in sets that go past a GPU's cache, and calls on them."""

    def __init__(self, p: Attention, device: str) -> None:
        import torch

        self.p, self.torch = p, torch
        kind = getattr(torch, p.dtype)
        self.sets = 1 if device == "cpu" else max(1, min(8, math.ceil(_CACHE / p.bytes)))
        shapes = p.shapes()
        self.qkv = [torch.randn(shapes["qkv"], device=device).to(kind) for _ in range(self.sets)]
        self.mask = [torch.randn(shapes["mask"], device=device).to(kind)] if p.mask else []
        self.results = [torch.empty(p.result.shape, device=device, dtype=kind) for _ in self.qkv]

    def ours(self, kernel: Any) -> Callable[[int], Any]:
        def call(number: int) -> None:
            k = number % self.sets
            kernel(self.qkv[k], *self.mask, self.results[k])

        return call

    def heads(self, number: int) -> Any:
        """Queries, keys and values as PyTorch takes them: views."""
        return self.qkv[number % self.sets].permute(2, 0, 3, 1, 4).unbind(0)

    def theirs(self, name: str) -> Callable[[int], Any] | None:
        """PyTorch's call by one of its backends; None where that does not take the problem."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention

        def call(number: int) -> Any:
            with sdpa_kernel(getattr(SDPBackend, name)):
                return attend(*self.heads(number), *self.mask, is_causal=self.p.causal)

        try:
            call(0)
        except RuntimeError:
            return None
        return call

    def exact(self) -> Any:
        """The result of the first set."""
        q, k, v = (x.double() for x in self.heads(0))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        masks = [m.double() for m in self.mask]
        return attend(q, k, v, *masks, is_causal=self.p.causal).transpose(1, 2)

    def apart(self, target: Target) -> Callable[[int], Any]:
        """Our kernels for both products and the softmax, of heads that lie one after the other."""
        p, count = self.p, self.p.batch * self.p.heads
        shape = (count, p.rows, p.depth)
        kernels = [
            chosen_kernel(Gemm(m=p.rows, n=p.keys, k=p.depth, batch=count, dtype=p.dtype,
                               transpose_b=True), target),
            chosen_kernel(_softmax(p), target),
            chosen_kernel(Gemm(m=p.rows, n=p.depth, k=p.keys, batch=count, dtype=p.dtype), target),
        ]  # fmt: skip
        first, soft, last = kernels
        assert first is not None
        assert soft is not None
        assert last is not None
        dense = [[x.contiguous().reshape(shape) for x in self.heads(k)] for k in range(self.sets)]
        scores = dense[0][0].new_empty(count, p.rows, p.keys)
        powers, whole = self.torch.empty_like(scores), (p.batch, p.heads, p.rows, p.keys)
        result = dense[0][0].new_empty(shape)

        def call(number: int) -> None:
            q, k, v = dense[number % self.sets]
            first(q, k, scores)
            soft(scores.reshape(whole), *self.mask, powers.reshape(whole))
            last(powers, v, result)

        return call


def _softmax(p: Attention) -> Program:
    shape = "x".join(map(str, (p.batch, p.heads, p.rows, p.keys)))
    body = [f"multiply(a0, {p.scaled_by!r})"]
    operands = [f"{p.dtype}[{shape}]"]
    if p.mask:
        operands.append(f"{p.dtype}[{'x'.join(map(str, p.mask))}]")
        body.append("add(t0, a1)")
    return Program(operands=tuple(operands), body=(*body, f"softmax(t{len(body) - 1}, axis=3)"))


def _calls(given: Operands, tried: int, target: Target) -> tuple[dict[str, Any], list[str]]:
    """What takes turns, by name, ours by its parameters; and why others of ours are not built."""
    calls: dict[str, Any] = {}
    refused = []
    exact = given.exact()
    for rank in range(tried):
        found = built(given.p, rank, target)
        if found is None:
            break
        kernel, name = found
        if kernel is None:
            refused.append(name)
            continue
        call = given.ours(kernel)
        given.results[0].fill_(math.nan)
        call(0)
        error = float((given.results[0].double() - exact).norm() / exact.norm())
        if not error < ERROR[given.p.dtype]:
            raise SystemExit(f"{given.p} {name}: relative error {error:.2g}")
        calls[name] = call
    return calls, refused


def row(p: Attention, tried: int, device: str, target: Target) -> dict[str, Any]:
    """What one problem takes."""
    given = Operands(p, device)
    ours, refused = _calls(given, tried, target)
    theirs = {name: call for name in _BACKENDS if (call := given.theirs(name)) is not None}
    calls = {**ours, **theirs}
    if not p.causal:
        calls["apart"] = given.apart(target)
    if device == "cpu":
        found = measure.host_medians({n: partial(call, 0) for n, call in calls.items()})
    else:
        found = measure.graph_medians(calls)
    first, best = next(iter(ours)), min(ours, key=found.__getitem__)
    peer = min(theirs, key=found.__getitem__)
    made: dict[str, Any] = {
        "batch": p.batch, "heads": p.heads, "tokens": p.rows, "depth": p.depth,
        "bias": bool(p.mask), "untuned us": found[first], "tried us": found[best],
        "PyTorch us": found[peer], "backend": peer,
        "PyTorch / untuned": found[peer] / found[first],
        "PyTorch / tried": found[peer] / found[best],
        "TFLOPS": p.flops / found[best] / 1e6,
    }  # fmt: skip
    if "apart" in found:
        made |= {"apart us": found["apart"], "apart / untuned": found["apart"] / found[first]}
    if device != "cpu":
        floor = max(p.bytes / _BANDWIDTH, p.flops / PEAK[p.dtype]) * 1e6
        made["tried / floor"] = found[best] / floor
    return made | {"kernel": best, "refused": "; ".join(refused)}


def _rows(options: argparse.Namespace, target: Target) -> Iterator[dict[str, Any]]:
    for name in options.shapes:
        for shape in SHAPES[name]:
            p = problem(name, shape, options.dtype)
            if p.flops <= options.most * 1e9:
                made = {"shapes": name, **row(p, options.tried, options.device, target)}
                print(made, flush=True)
                yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    parser.add_argument("--tried", type=int, default=6, help="schedules of each problem")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; by default all")
    parser.add_argument("--most", type=float, default=math.inf, help="operations, in 1e9")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options.device, options.threads)
    if options.device == "cuda":
        problems = [
            problem(name, s, options.dtype) for name in options.shapes for s in SHAPES[name]
        ]
        jobs = [(p, rank, target) for p in problems for rank in range(options.tried)]
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(_ahead, jobs, chunksize=4))
    rows = list(_rows(options, target))
    print(measure.table(rows))
    for column in ("PyTorch / untuned", "PyTorch / tried", "apart / untuned"):
        values = [r[column] for r in rows if column in r]
        if not values:
            continue
        mean = f"{geometric_mean(values):.2f} in the mean of {len(rows)}"
        print(f"{column}: {mean}, {min(values):.2f} at least")
    environment = measure.environment("torch", gpu=options.device == "cuda")
    results = {"environment": environment, "settings": vars(options), "rows": rows}
    print(measure.save(f"{options.device}_attention_{options.dtype}", results, options.out))


if __name__ == "__main__":
    main()
