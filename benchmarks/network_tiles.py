"""Within a network on a GPU: what each kernel adds to its time, and what other tiles would.

A kernel's time alone says little of what it adds: the next one begins while it still runs, where
there is room for both. So the network is replayed as a CUDA graph, and of each kernel the
profiler's clock tells when it ended: what it adds is from the end of the one before, with branches
one after the other. Then, of each problem, the kernel is replaced by those that are ranked next,
one at a time, in all its places, and whole networks take turns with the present one. Last, the best
of each problem are taken together.

    PYTHONPATH=src python benchmarks/network_tiles.py --model resnet50 --batch 8 --tried 6

The floor of a kernel is the larger of its bytes over the bandwidth of a large copy and its
operations over what matrix products reach (docs/benchmarks.md).
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import measure
import torch
from graph_networks import exported, network, of_bound, relative

import tilewright
from tilewright.graph.executor import Executor, _step
from tilewright.graph.kernels import Built
from tilewright.graph.pipeline import optimized
from tilewright.graph.views import VIEWS, views
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.select.algorithm import BuiltKernel
from tilewright.select.choice import Choice, options
from tilewright.select.first_buildable import SPILLED, spills_of
from tilewright.target import Target
from tilewright.topi.problem import Problem
from tilewright.tune.machine import with_own_architecture

#: Bytes and operations a second.
_BANDWIDTH, _PEAK = 4.2e12, 800e12
#: Replays that are profiled, rounds in which networks take turns, and replays of a turn.
_PROFILED, _ROUNDS, _REPLAYS = 20, 7, 12
#: Candidates of one template, at most, and a relative difference of outputs that is an error.
_EACH, _CLOSE = 4, 2e-2


def floor(p: Problem) -> float:
    """Microseconds that a problem takes at least."""
    return max(p.bytes / _BANDWIDTH, p.flops / _PEAK) * 1e6


def others(p: Problem, target: Target, tried: int) -> list[Choice]:
    """The present choice and those behind it, of several templates."""
    found: list[Choice] = []
    count: Counter[str] = Counter()
    for choice in itertools.islice(options(p, target, "heuristic"), 60):
        count[choice.algorithm.name] += 1
        if count[choice.algorithm.name] <= _EACH and str(choice) not in map(str, found):
            found.append(choice)
        if len(found) > tried:
            break
    return found


def kernel_of(choice: Choice) -> Kernel | None:
    """Its kernel; None where it is none, cannot be built, or keeps registers in memory."""
    try:
        built = choice.build()
    except TilewrightError:
        return None
    if not isinstance(built, BuiltKernel) or spills_of(built.kernel) >= SPILLED:
        return None
    return built.kernel


def ahead(job: tuple[Problem, Target, int, int]) -> float:
    """Put a kernel into the cache; the seconds that took."""
    p, target, tried, rank = job
    begin = time.perf_counter()
    kernel_of(others(p, target, tried)[rank])
    return time.perf_counter() - begin


class Networks:
    """A network, and what becomes of it with other kernels: all share constants."""

    def __init__(self, model: Any, given: Mapping[str, Any], images: Any, outputs: int) -> None:
        self.images = images
        self.y = torch.empty((len(images), outputs), dtype=images.dtype, device=images.device)
        self.base: Executor = model.compile(given)
        self.known = self.base.known

    def replaced(self, kernels: Mapping[str, Kernel]) -> Executor:
        """The network with other kernels, by the keys of their problems."""
        made, lies = copy.copy(self.base), views(self.base.graph)
        made.steps = tuple(
            s if (k := kernels.get(s.node.problem.key)) is None
            else _step(s.node, s.node.problem, Built(k), lies, self.base.index, self.known)
            for s in self.base.steps
        )  # fmt: skip
        made.constants = self.known.arrays
        made.buffers = len(made.index) + len(self.known.arrays)
        made._own_states()
        return made

    def one_by_one(self) -> Executor:
        """The network without branches that run beside one another."""
        made = self.replaced({})
        made.branches = None
        return made

    def bound(self, executor: Executor) -> Callable[[], None]:
        from tilewright.runtime.array import view

        (x,), (y,) = executor.graph.inputs, executor.graph.outputs
        return executor.bind({x.name: view(self.images)}, {y: view(self.y)})


def ends(call: Callable[[], None], count: int) -> list[float]:
    """Microseconds that each of ``count`` kernels adds, in order: from the end of the one before;
    the first its own time."""
    from torch.profiler import ProfilerActivity, profile

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(_PROFILED):
                call()
                torch.cuda.synchronize()
    events = [
        e for e in found.profiler.kineto_results.events() if "cuda" in str(e.device_type()).lower()
    ]
    spans = sorted((e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in events)
    spans = [s for s in spans if "Memset" not in s[2] and "Memcpy" not in s[2]]
    runs = [spans[k : k + count] for k in range(0, len(spans), count)]
    if len(spans) != count * _PROFILED:
        found_ = Counter(name for *_, name in spans)
        raise RuntimeError(f"{len(spans)} kernels in {_PROFILED} replays of {count}: {found_}")
    each = []
    for run in runs:
        begins = [run[0][0], *(end for _, end, _ in run[:-1])]
        each.append([(end - b) * 1e-3 for b, (_, end, _) in zip(begins, run, strict=True)])
    return [statistics.median(times) for times in zip(*each, strict=True)]


def in_turns(batches: Mapping[str, Callable[[int], float]]) -> dict[str, float]:
    """Microseconds by name."""
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(_ROUNDS):
        for name, batch in batches.items():
            times[name].append(batch(_REPLAYS) * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def beside(networks: Networks) -> None:
    """Print what branches that run beside others bring."""
    now, serial = networks.base, networks.one_by_one()
    batches = {
        "beside": of_bound(networks.bound(now)),
        "one by one": of_bound(networks.bound(serial)),
    }
    print({name: round(us, 2) for name, us in in_turns(batches).items()}, flush=True)


def profiled(networks: Networks, rows: dict[str, dict[str, Any]]) -> None:
    """Print what each kernel adds, and keep that by problem."""
    steps = networks.base.steps
    added = ends(networks.bound(networks.one_by_one()), sum(len(launches(s.kernel)) for s in steps))
    each = iter(added)
    for k, step in enumerate(steps):
        us = sum(next(each) for _ in launches(step.kernel))
        row = rows[step.node.problem.key]
        row["adds us"] = row.get("adds us", 0.0) + us
        print(
            f"{k:3d} {us:7.2f} us, floor {row['floor us']:6.2f}  {row['problem'][:110]}", flush=True
        )
    print(f"    {sum(added):7.2f} us")


def launches(kernel: Kernel) -> list[Any]:
    """The kernels that a call launches."""
    return list(kernel.resources)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model", default="resnet50")
    add("--batch", type=int, default=8)
    add("--tried", type=int, default=6, help="candidates of each problem behind the present one")
    add("--seconds", type=float, default=75, help="no more candidates are built after that")
    add("--out", default="benchmarks/results")
    options_ = parser.parse_args()
    begin = time.perf_counter()
    cores = len(os.sched_getaffinity(0))
    pool = ProcessPoolExecutor(cores, mp_context=get_context("fork"))
    list(pool.map(abs, range(cores)))  # before this process has a GPU
    torch.manual_seed(1)
    images = torch.randn(options_.batch, 3, 224, 224)
    module = network(options_.model)
    assert module is not None
    data = exported(module.to("cuda", torch.float16), images[:1].to("cuda", torch.float16))
    images = images.to("cuda", torch.float16)
    model = tilewright.load(data, target="cuda")
    graph = optimized(model.graph({"x": images}), target=model.target)
    problems = {n.problem.key: n.problem for n in graph.nodes if n.operator not in VIEWS}
    target = with_own_architecture(model.target)
    # The most time first, by what is known before: candidates of the same rank at one time.
    order = sorted(problems.values(), key=lambda p: -floor(p))
    known = {p.key: others(p, target, options_.tried) for p in order}
    jobs = [
        (p, target, options_.tried, rank)
        for rank in range(options_.tried + 1) for p in order if rank < len(known[p.key])
    ]  # fmt: skip
    rows: dict[str, dict[str, Any]] = {
        p.key: {"problem": str(p), "floor us": floor(p)} for p in order
    }
    print(f"{len(problems)} problems, {len(jobs)} kernels, {time.perf_counter() - begin:.1f} s")
    networks: Networks | None = None
    done: dict[str, set[int]] = defaultdict(set)
    waiting = {pool.submit(ahead, job): job for job in jobs}
    for future in as_completed(waiting):
        p, _, _, rank = waiting[future]
        done[p.key].add(rank)
        if networks is None and all(0 in done[k] for k in problems):
            networks = Networks(model, {"x": images}, images, 1000)
            print(f"the network: {time.perf_counter() - begin:.1f} s", flush=True)
            base = of_bound(networks.bound(networks.base))
            print("ms", base(20) * 1e3)
            beside(networks)
            wanted = networks.y.clone()
            for step in networks.base.steps:
                row = rows[step.node.problem.key]
                row["count"] = row.get("count", 0) + 1
            try:
                profiled(networks, rows)
            except Exception as error:  # the tiles are worth having
                print("no profile:", error, flush=True)
        if networks is not None and time.perf_counter() - begin > options_.seconds:
            break
    pool.shutdown(wait=False, cancel_futures=True)
    assert networks is not None
    beside(networks)  # while nothing is built
    print(f"{sum(map(len, done.values()))} built: {time.perf_counter() - begin:.1f} s", flush=True)
    best: dict[str, Kernel] = {}
    for p in sorted(order, key=lambda p: -rows[p.key].get("adds us", 0.0)):
        row = rows[p.key]
        row["tiles"] = []
        print(f"{row.get('count')} x {row['problem'][:120]}: adds {row.get('adds us', 0):.2f} us")
        gained = 0.0
        for rank, choice in enumerate(known[p.key]):
            if rank not in done[p.key] or (kernel := kernel_of(choice)) is None:
                print(f"      -        {choice}")
                continue
            networks.y.zero_()
            batch = of_bound(networks.bound(networks.replaced({p.key: kernel})))
            wrong = relative(networks.y, wanted)
            found = in_turns({"now": base, "other": batch})
            more = found["other"] - found["now"]
            row["tiles"].append({"tile": str(choice), "more us": more, "error": wrong})
            print(f"  {more:+8.2f} us  {wrong:.1e} {choice}", flush=True)
            if more < gained - 0.3 and rank and wrong < _CLOSE:
                gained, best[p.key] = more, kernel
    batch = of_bound(networks.bound(networks.replaced(best)))
    found = in_turns({"now": base, "best of each": batch})
    print(found, f"error {relative(networks.y, wanted):.1e}, {time.perf_counter() - begin:.1f} s")
    where = measure.environment("torch", "onnx")
    whole = {"model": options_.model, "batch": options_.batch, **found}
    made = {"environment": where, "network": whole, "rows": list(rows.values())}
    name = f"h200_network_tiles_{options_.model}_{options_.batch}"
    print(measure.save(name, made, options_.out))


if __name__ == "__main__":
    main()
