"""Depthwise convolutions with an epilogue in the same kernel, on a GPU: what the epilogue costs.

The depthwise layers of MobileNetV2 with scale, shift and ReLU, and with bias and SiLU, at batch 64
and 1, beside our convolution alone, and beside `torch.compile` of the same composite in NCHW and in
channels_last (`best peer / tilewright` is of the better one). Of each, with an epilogue and
without, as many kernels are tried: those that the choice prefers for it, in turn with those that it
prefers for the other two. They are checked against PyTorch in float64; the fastest of each then
take turns with all others: medians of CUDA-graph replays, inputs rotated past the cache where they
are over 8 MB.

    PYTHONPATH=src python benchmarks/fused_epilogues.py --gpus 4
    PYTHONPATH=src python benchmarks/fused_epilogues.py --target llvm --batches 1 --only 7x7

The second line goes through all of it on a CPU, where times are those of calls. What all kernels
took is written beside the results, for benchmarks/ship_records.py. To look for faster ones:

    PYTHONPATH=src python benchmarks/fused_epilogues.py --gpus 4 --tries 10 --own 2 --without-peers
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import grouped
import measure
from gpu_depthwise import ERROR, Layer
from gpu_layers import LAYOUTS, MOBILENETV2, layer, traffic
from parts import run_on_gpus
from problem_parts import Builds, Named, begin_builds, built, wider_choices

import tilewright
from tilewright.cli._measure import torch_peer
from tilewright.cli._measure.turns import until_idle
from tilewright.topi.operators.conv import Conv

#: By what the sections are called; "" is the convolution alone.
EPILOGUES = {"ReLU": "scale_shift+relu", "SiLU": "bias+silu"}
TYPES = ("float32", "float16")
#: Replays of every graph, while kernels are tried and when the fastest are compared.
_TRY_ROUNDS, _ROUNDS = 7, 25
#: How many of each problem are compared.
_COMPARED = 2
#: Seconds that a GPU takes before the first case, for torch.compile of one, and for each kernel
#: that is tried for its problems.
_START, _COMPILED, _CASE = 15.0, 6.0, 0.4

#: A layer and its epilogues in one layout, by what follows the convolution.
Problems: TypeAlias = dict[str, Conv]
Calls: TypeAlias = dict[str, Callable[[int], Any]]


class Fused(Layer):
    """A layer whose PyTorch ways are compiled as well."""

    def compiled(self, last: bool) -> Callable[[int], Any]:
        """The composite by ``torch.compile``, with inputs in one memory format."""
        torch, n = self.torch, self.sets
        form = torch.channels_last if last else torch.contiguous_format
        x = [a.contiguous(memory_format=form) for a in self.x]
        call = torch.compile(torch_peer.function(self.p), fullgraph=True, dynamic=False)

        def run(i: int) -> Any:
            with torch.no_grad():
                return call(x[i % n], self.w, *self.tensors)

        run(0)
        return run

    def kernels(self, files: Mapping[str, str]) -> tuple[Calls, dict[str, float]]:
        """A call each kernel, and its error; raises :class:`AssertionError` for a wrong one."""
        operands, n = self.operands(), self.sets
        calls: Calls = {}
        errors: dict[str, float] = {}
        for name, path in files.items():
            kernel = tilewright.load(path)
            self.result[0].fill_(math.nan)
            kernel(*operands[0], self.result[0])
            errors[name] = self.error()
            if not errors[name] <= ERROR[self.p.dtype]:
                raise AssertionError(f"{self.p}: {name} has an error of {errors[name]:.2g}")

            def call(i: int, kernel: Any = kernel) -> None:
                kernel(*operands[i % n], self.result[i % n])

            calls[name] = call
        if not calls:
            raise AssertionError(f"{self.p}: no kernel could be built")
        return calls, errors


def cases(batches: Sequence[int], only: str) -> list[dict[str, Problems]]:
    """A layer, batch and type each: by layout its problems."""
    found = []
    for batch in batches:
        for dtype in TYPES:
            for channels, image, stride in MOBILENETV2:
                text = f"{batch}x{channels}x{image}x{image} s{stride} {dtype}"
                if only in text:
                    plain = {
                        layout: layer(channels, image, 3, stride, 1, batch, dtype, layout)
                        for layout in LAYOUTS
                    }
                    found.append(
                        {
                            layout: {"": p}
                            | {name: p.replace(epilogue=e) for name, e in EPILOGUES.items()}
                            for layout, p in plain.items()
                        }
                    )
    return found


def choices(problems: Problems, target: str, tries: int, own: int) -> dict[str, list[Named]]:
    """For a layer in one layout and each of its epilogues, what is tried: as many kernels for each,
    since what one of them is known to be fast with, the others may be as well."""
    found = {name: wider_choices(p, target, tries, own) for name, p in problems.items()}
    wanted = {}
    for name, mine in found.items():
        others = [those for other, those in found.items() if other != name]
        each = itertools.chain.from_iterable(itertools.zip_longest(mine, *others))
        distinct = {str(named): named for named in each if named is not None}
        wanted[name] = list(distinct.values())[: max(map(len, found.values()))]
    return wanted


def medians(calls: Calls, p: Conv, device: str, rounds: int) -> dict[str, float]:
    """Microseconds by name."""
    if device == "cpu":
        once = {name: functools.partial(call, 0) for name, call in calls.items()}
        return measure.host_medians(once, rounds, 0.002, until_idle)
    measure.ROUNDS = rounds
    measure.LAUNCHES = max(4, min(40, int(1.5e9 / traffic(p))))
    return measure.graph_medians(calls)


def time_case(
    case: dict[str, Problems], builds: dict[tuple[str, str], Builds], device: str, peers: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a case, one a layout and epilogue, and what all kernels of its problems took."""
    import torch

    torch._dynamo.reset()  # its limit on compilations counts from case to case
    one = case[LAYOUTS[0]][""]
    calls: Calls = {}
    tried: dict[tuple[str, str], dict[str, float]] = {}
    errors: dict[tuple[str, str], dict[str, float]] = {}
    for layout, problems in case.items():
        for name, p in problems.items():
            subject = Fused(p, device=device)
            mine, errors[layout, name] = subject.kernels(built(builds[layout, name]))
            times = tried[layout, name] = medians(mine, p, device, _TRY_ROUNDS)
            for tile in sorted(times, key=times.__getitem__)[:_COMPARED]:
                calls[f"{layout} {name} {tile}"] = mine[tile]
            if name and peers:
                calls[f"{layout} {name} compiled"] = subject.compiled(layout == "NHWC")
    compared = medians(calls, one, device, _ROUNDS)
    fastest = {}
    for (layout, name), times in tried.items():
        again = {t: us for t in times if (us := compared.get(f"{layout} {name} {t}")) is not None}
        times |= again
        fastest[layout, name] = min(again, key=again.__getitem__)
    rows = []
    for (layout, name), tile in fastest.items():
        if name:
            p, plain = case[layout][name], fastest[layout, ""]
            ours, alone = tried[layout, name][tile], tried[layout, ""][plain]
            theirs = {x: compared.get(f"{x} {name} compiled", math.nan) for x in LAYOUTS}
            rows.append({
                "section": f"{EPILOGUES[name]}, batch {p.batch}, {p.dtype}", "pass": p.pass_,
                "shape": f"{p.batch}x{p.channels}x{p.height}x{p.width}", "kernel": p.kernel_h,
                "stride": p.stride[0], "dtype": p.dtype, "layout": layout,
                "tilewright us": ours, "convolution alone": alone, "fused / alone": ours / alone,
                **{f"torch.compile {x} us": us for x, us in theirs.items() if peers},
                "best peer / tilewright": min(theirs.values()) / ours if peers else None,
                "error": errors[layout, name][tile], "tile": tile, "tile alone": plain,
                "problem": p.to_dict(),
            })  # fmt: skip
    lines = [
        {"problem": case[layout][name].to_dict(), "times": times}
        for (layout, name), times in tried.items()
    ]
    return rows, lines


def run_part(arguments: argparse.Namespace) -> None:
    """Every ``--gpus``-th case from the ``--part``-th on, on the first visible GPU or the CPU."""
    target, device = arguments.target, "cpu" if arguments.target.startswith("llvm") else "cuda"
    mine = cases(arguments.batches, arguments.only)[arguments.part :: arguments.gpus]
    rows: list[dict[str, Any]] = []
    tried: list[dict[str, Any]] = []
    processes = max(2, len(os.sched_getaffinity(0)) // arguments.gpus)
    begin = time.perf_counter()
    with TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        list(pool.map(abs, range(processes * 4)))  # made before this process opens the GPU
        jobs: list[dict[tuple[str, str], Builds]] = [{} for _ in mine]
        for k, (case, job) in enumerate(zip(mine, jobs, strict=True)):
            for layout, problems in case.items():
                wanted = choices(problems, target, arguments.tries, arguments.own)
                for name, p in problems.items():
                    stem = Path(folder) / f"{k}-{layout}-{name}"
                    job[layout, name] = begin_builds(pool, stem, p, target, wanted[name])
        import torch

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        for k, (case, builds) in enumerate(zip(mine, jobs, strict=True), 1):
            try:
                found, lines = time_case(case, builds, device, not arguments.without_peers)
            except Exception as error:  # one case must not cost the others
                print(f"{case[LAYOUTS[0]]['']}: {error!r}", flush=True)
                continue
            rows += found
            tried += lines
            for row in found:
                print(
                    f"{k}/{len(mine)} {time.perf_counter() - begin:.0f}s {row['shape']} "
                    f"s{row['stride']} {row['layout']}, {row['section']}: "
                    f"{row['tilewright us']:.2f} us, {row['fused / alone']:.3f} of the convolution "
                    f"alone, {row['best peer / tilewright'] or math.nan:.2f}x",
                    flush=True,
                )
            if device == "cuda":
                torch.cuda.empty_cache()
    part = {"rows": rows, "tried": tried}
    Path(f"{arguments.out}/part-{arguments.part}.json").write_text(json.dumps(part))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of this machine to use")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--only", default="", help="cases that contain this: 64x96x112x112 s2 f")
    parser.add_argument("--tries", type=int, default=6, help="kernels tried for each problem")
    parser.add_argument("--own", type=int, default=0, help="of each template by its own order")
    parser.add_argument("--without-peers", action="store_true", help="leave out torch.compile")
    parser.add_argument("--target", default="cuda -arch=sm_90a", help="or llvm, to try it out")
    parser.add_argument("--name", default="h200_fused_epilogues", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    if arguments.part >= 0:
        run_part(arguments)
        return
    wanted = cases(arguments.batches, arguments.only)
    each = 0.0 if arguments.without_peers else _COMPILED
    each += _CASE * (arguments.tries + 3 * arguments.own)
    seconds = _START + each * math.ceil(len(wanted) / arguments.gpus)
    print(
        f"{len(wanted) * len(LAYOUTS) * len(EPILOGUES)} composites of {len(wanted)} layers, "
        f"{arguments.gpus} GPUs: about {seconds:.0f} s",
        flush=True,
    )
    parts = run_on_gpus(arguments.gpus, arguments.out)
    with Path(f"{arguments.out}/{arguments.name}-tried.jsonl").open("w") as tried:
        tried.writelines(json.dumps(line) + "\n" for part in parts for line in part["tried"])
    found = [row for part in parts for row in part["rows"]]
    order = [f"{e}, batch {b}, {t}" for e in EPILOGUES.values() for b in arguments.batches
             for t in TYPES]  # fmt: skip
    rows = sorted(found, key=lambda r: (order.index(r["section"]), r["layout"]))
    print(grouped.text(rows))
    missing = len(wanted) * len(LAYOUTS) * len(EPILOGUES) - len(rows)
    results: dict[str, Any] = {
        "environment": measure.environment("torch", "triton"),
        "GPUs": arguments.gpus,
        "rows": rows,
    }
    print(measure.save(arguments.name, results, arguments.out))
    if missing:
        raise SystemExit(f"{missing} composites failed, see above")


if __name__ == "__main__":
    main()
