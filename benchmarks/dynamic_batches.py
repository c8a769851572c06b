"""A network that is called with several batches: kernels for any batch beside those of each.

Of each batch the network is built twice: with kernels of its own, as the first batch that a model
is called with has them, and with kernels that take the number of images at the launch, as all later
ones have (docs/networks.md). With ``--host`` what the host does is timed, and no GPU is needed:
seconds until all kernels are there, for a batch that nothing is built for yet, and for more, which
share kernels. On a GPU both take turns, as replays of CUDA graphs, and are compared with PyTorch in
float32; ``--profile`` prints each kernel by itself. So do they on a thread of a CPU, in float32, by
the time of the process.

    PYTHONPATH=src python benchmarks/dynamic_batches.py --host --batch 7 8 64
    PYTHONPATH=src python benchmarks/dynamic_batches.py --batch 1 8 48 64 [--profile]
    PYTHONPATH=src python benchmarks/dynamic_batches.py --device cpu --image 64 --batch 8 7
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import measure
import torch
from graph_networks import exported, network, of_bound, relative

import tilewright
from tilewright.cli._measure.turns import of_calls
from tilewright.graph.batches import works_of
from tilewright.graph.executor import Executor, kernels_of
from tilewright.graph.kernels import build_all
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Input
from tilewright.runtime.array import view
from tilewright.select.ahead import Wanted, compile_ahead
from tilewright.target import Target
from tilewright.tune.machine import with_own_architecture

#: Where there is no GPU, and a thread of a CPU; rounds of turns, and seconds of a turn.
TARGET, CPU, _ROUNDS, _SPAN = "cuda -arch=sm_90a", "llvm -threads=1", 25, 0.01


class Network:
    """A network in float16, on a CPU in float32, from an ONNX file whose batch is open."""

    def __init__(self, name: str, image: int, target: str) -> None:
        made = network(name)
        if made is None:
            raise SystemExit(f"there is no network {name}")
        self.module, self.image, self.target = made, image, Target.parse(target)
        self.device = "cuda" if self.target.is_gpu else "cpu"
        self.dtype = "float16" if self.target.is_gpu else ""
        data = exported(made, torch.randn(2, 3, image, image))
        self.source = tilewright.load(data).source

    def graph(self, batch: int) -> Any:
        """The graph of a batch."""
        x = Input("x", (batch, 3, self.image, self.image), "float32")
        return optimized(self.source.graph([x]), target=self.target, dtype=self.dtype)


def hosted(net: Network, batches: list[int]) -> Iterator[dict[str, Any]]:
    """Seconds of the host for each batch, in this order."""
    for batch in batches:
        begin = time.perf_counter()
        graph = net.graph(batch)
        converted = time.perf_counter()
        nodes = kernels_of(graph)
        own = build_all(works_of(graph, nodes), net.target)
        between = time.perf_counter()
        free = build_all(works_of(graph, nodes, batch, ("x",)), net.target)
        end = time.perf_counter()
        yield {
            "batch": batch, "graph s": converted - begin, "own kernels s": between - converted,
            "kernels for any batch s": end - between, "kernels": len(own),
            "of them for any batch": sum(bool(x.counts) for x in free.values()),
        }  # fmt: skip


def build(net: Network, batches: list[int]) -> None:
    """Put all kernels into the cache, side by side."""
    wanted: dict[Wanted, None] = {}
    machine = with_own_architecture(net.target)
    for batch in batches:
        graph = net.graph(batch)
        for work in works_of(graph, kernels_of(graph), batch, ("x",)):
            wanted[Wanted(work.problem, machine)] = None
            if work.expected is not None:
                wanted[Wanted(work.expected[0], machine, work.expected[1])] = None
    begin = time.perf_counter()
    compile_ahead(list(wanted), "heuristic", lambda _: None)
    print(f"{len(wanted)} kernels in {time.perf_counter() - begin:.1f} s", flush=True)


def turns(net: Network, batch: int, profile: bool) -> dict[str, Any]:
    """Microseconds of a batch by both, and errors."""
    torch.manual_seed(1)
    x = torch.randn(batch, 3, net.image, net.image, device=net.device)
    with torch.no_grad():
        wanted = net.module.to(net.device)(x)
    graph = net.graph(batch)
    sides, errors, executors, seconds = {}, {}, {}, {}
    for name, images in (("own", 0), ("any", batch)):
        begin = time.perf_counter()
        made = Executor(graph, net.target, images=images, named=("x",))
        seconds[name] = time.perf_counter() - begin
        print(f"  {name}: built in {seconds[name]:.1f} s", flush=True)
        y = torch.full_like(wanted, float("nan"))
        call = made.bind({"x": view(x)}, {"y": view(y)})
        sides[name] = of_bound(call) if net.target.is_gpu else of_calls(call, time.process_time)
        sides[name](1)
        errors[name] = relative(y, wanted)
        executors[name] = made
    if profile:
        _profile(executors, x.cpu().numpy())
    times: dict[str, list[float]] = {name: [] for name in sides}
    counts = {n: max(1, int(_SPAN / max(b(1), 1e-6))) for n, b in sides.items()}
    for _ in range(_ROUNDS):
        for name, side in sides.items():
            times[name].append(side(counts[name]) * 1e6)
    found = {name: statistics.median(t) for name, t in times.items()}
    free = sum(bool(s.counts) for s in executors["any"].steps)
    return {
        "batch": batch, "own us": found["own"], "any us": found["any"],
        "any / own": found["any"] / found["own"], "own error": errors["own"],
        "any error": errors["any"], "own s": seconds["own"], "any s": seconds["any"],
        "steps": len(graph.nodes), "for any batch": free,
    }  # fmt: skip


def _profile(executors: dict[str, Executor], x: Any) -> None:
    """Print kernels whose times differ most, each launched by itself."""
    medians = {}
    for name, made in executors.items():
        runs: list[list[float]] = []
        for _ in range(9):
            times: list[float] = []
            made.run({"x": x}, times)
            runs.append(times)
        medians[name] = [statistics.median(t) * 1e6 for t in zip(*runs, strict=True)]
    rows: dict[str, tuple[float, float]] = {}
    for step, own, free in zip(executors["own"].steps, *medians.values(), strict=True):
        rows.setdefault(str(step.node.problem)[:110], (own, free))
    for key, (own, free) in sorted(rows.items(), key=lambda r: r[1][0] - r[1][1]):
        print(f"  {own:8.1f} {free:8.1f} us  {free / own:.2f}  {key}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model", default="resnet50")
    add("--batch", nargs="+", type=int, default=[1, 8, 64])
    add("--image", type=int, default=224)
    add("--host", action="store_true", help="time the host alone, which needs no GPU")
    add("--profile", action="store_true")
    add("--out", default="benchmarks/results")
    add("--device", default="cuda", choices=["cuda", "cpu"])
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    target = CPU if on_cpu else TARGET if options.host else "cuda"
    net = Network(options.model, options.image, target)
    if not options.host and not on_cpu:
        build(net, options.batch)
    rows = []
    for row in (
        hosted(net, options.batch)
        if options.host
        else (turns(net, batch, options.profile) for batch in options.batch)
    ):
        print(measure.table([row]), flush=True)
        rows.append(row)
        results = {
            "environment": measure.environment("torch", gpu=not options.host and not on_cpu),
            "model": options.model, "rows": rows,
        }  # fmt: skip
        where = "cpu_" if options.host else "h200_"
        name = "cpu_networks_of_batches" if on_cpu else f"{where}dynamic_batches"
        measure.save(name, results, options.out)


if __name__ == "__main__":
    main()
