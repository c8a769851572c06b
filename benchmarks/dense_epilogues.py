"""Dense convolutions with an epilogue in the same kernel, on a GPU: what the epilogue costs.

The layers of ResNet-50 in float16 and channels last, with scale and shift (a normalisation) and
ReLU, and with a residual too, take turns with our convolution alone and with `torch.compile` of the
same composite. Schedules are the first choice for each, which nothing measured; results are checked
against PyTorch in float32. The bytes of a residual are added to the convolution's time, at the
bandwidth of a large copy, before an epilogue with one is compared with it: medians of CUDA-graph
replays, inputs rotated past the cache.

    PYTHONPATH=src python benchmarks/dense_epilogues.py [--batch 64] [--without-peers]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import measure
from gpu_dense import LAYERS, built, problem

from tilewright.cli._measure import torch_peer
from tilewright.cli._measure.turns import of_graph
from tilewright.report.results import geometric_mean
from tilewright.topi.operators.convolution import Convolution

#: What follows a convolution, by name.
EPILOGUES = {"normalisation": "scale_shift+relu", "residual": "scale_shift+residual+relu"}
#: Bytes a second of a large copy, what goes past the cache, turns, and the error allowed.
_BANDWIDTH, _CACHE, _ROUNDS, _ERROR = 4.2e12, 150e6, 9, 3e-3


def _ahead(p: Convolution) -> None:
    built(p, 0)  # which the cache of kernels then has


class Operands:
    """Tensors of a problem, ``sets`` of those that are as large as images."""

    def __init__(self, p: Convolution) -> None:
        import torch

        self.p, self.torch = p, torch
        kinds = {name: (t.shape, getattr(torch, t.dtype)) for name, t in p.inputs().items()}
        wide = [n for n in kinds if n in ("data", "residual")]
        size = sum(math.prod(kinds[n][0]) * 2 for n in wide) + math.prod(p.result.shape) * 2
        self.sets = max(1, min(8, math.ceil(_CACHE / size)))
        scale = (p.channels * math.prod(p.kernel)) ** -0.5

        def made(name: str) -> list[Any]:
            shape, kind = kinds[name]
            count = self.sets if name in wide else 1
            factor = scale if name == "filter" else 1.0
            return [(torch.randn(shape, device="cuda") * factor).to(kind) for _ in range(count)]

        self.tensors = {name: made(name) for name in kinds}
        self.results = [
            torch.full(p.result.shape, math.nan, device="cuda", dtype=torch.float16)
            for _ in range(self.sets)
        ]

    def of(self, number: int) -> list[Any]:
        return [t[number % len(t)] for t in self.tensors.values()]

    def ours(self, kernel: Any, number: int) -> None:
        kernel(*self.of(number), self.results[number % self.sets])

    def theirs(self) -> Callable[[int], Any]:
        """The composite by ``torch.compile``."""
        torch = self.torch
        torch._dynamo.reset()  # its limit on compilations counts from layer to layer
        call = torch.compile(torch_peer.function(self.p), fullgraph=True, dynamic=False)
        given = [self._lying(self.of(k)) for k in range(self.sets)]

        def run(number: int) -> Any:
            with torch.no_grad():
                return call(*given[number % self.sets])

        run(0)
        return run

    def _lying(self, tensors: list[Any]) -> list[Any]:
        return [t.permute(0, 3, 1, 2) if t.dim() == 4 else t for t in tensors]

    def error(self, kernel: Any) -> float:
        """The relative error of a kernel, beside PyTorch in float32."""
        self.ours(kernel, 0)
        given = self._lying([t.float() for t in self.of(0)])
        exact = torch_peer.function(self.p.replace(dtype="float32"))(*given).permute(0, 2, 3, 1)
        return float((self.results[0].float() - exact).norm() / exact.norm())


def row(plain: Convolution, peers: bool) -> dict[str, Any]:
    """What one layer takes, alone and with each epilogue."""
    problems = {"alone": plain} | {n: plain.replace(epilogue=e) for n, e in EPILOGUES.items()}
    calls: dict[str, Callable[[int], Any]] = {}
    sets = {}
    for name, p in problems.items():
        operands, found = Operands(p), built(p, 0)
        assert found is not None
        kernel, what = found
        if kernel is None:
            raise SystemExit(f"{p}: {what}")
        if not (error := operands.error(kernel)) < _ERROR:
            raise SystemExit(f"{p} {what}: relative error {error:.2g}")
        calls[name], sets[name] = partial(operands.ours, kernel), operands.sets
        if peers and name != "alone":
            calls[f"{name} compiled"] = operands.theirs()
            sets[f"{name} compiled"] = operands.sets
    batches = {name: of_graph(call, sets[name]) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for name, batch in batches.items():
            times[name].append(batch(1) * 1e6)
    us = {name: statistics.median(t) for name, t in times.items()}
    more = {"normalisation": 0.0, "residual": math.prod(plain.result.shape) * 2 / _BANDWIDTH * 1e6}
    found_row: dict[str, Any] = {"layer": plain.short, "alone us": us["alone"]}
    for name in EPILOGUES:
        found_row |= {
            f"{name} us": us[name],
            f"{name} / alone": us[name] / (us["alone"] + more[name]),
        }
        if peers:
            found_row[f"compiled / {name}"] = us[f"{name} compiled"] / us[name]
    return found_row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    layers = [problem(layer, "forward", options.batch, "float16") for layer in LAYERS["resnet"]]
    every = [p.replace(epilogue=e) for p in layers for e in ("", *EPILOGUES.values())]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(_ahead, every, chunksize=4))
    import torch

    torch.backends.cudnn.benchmark = True
    rows = [row(p, not options.without_peers) for p in layers]
    print(measure.table(rows))
    for column in rows[0]:
        if "/" in column:
            values = [r[column] for r in rows]
            print(f"{column}: {geometric_mean(values):.3f}, {min(values):.2f} to {max(values):.2f}")
    results = {
        "environment": measure.environment("torch"), "settings": vars(options), "rows": rows,
    }  # fmt: skip
    print(measure.save(f"h200_dense_epilogues_{options.batch}", results, options.out))


if __name__ == "__main__":
    main()
