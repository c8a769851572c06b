"""The kernels of the GPU benchmarks, those for large kernels too, under NVIDIA's compute-sanitizer.

Each layer's first choice is compiled, then launched once on arrays with allocations of their own,
so that an access beside an array is one beside all memory; the tools run side by side, and begin
with the first kernels while others are still compiled. Layers are taken in an order of chance:
where a tool is cut short, it has seen some of every kind. With ``--batch 8`` layers of more images
have 8, with the schedule for all of them, for tools that take seconds for each.

    PYTHONPATH=src python benchmarks/sanitize.py --every 4 --tools memcheck,racecheck --gpus 2

With ``--each`` it is one kernel of each template, type and pass instead, of what the package has on
record the problem with the fewest products, and of templates without records their first choice;
with ``--dense`` of `gpu_dense.py`'s layers, of one image, each by every template's first candidate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, TypeAlias

import gpu_dense
import measure
from gpu_depthwise import Layer
from gpu_layers import sections
from large_kernels import sections as large_sections
from problem_parts import Named, build, first_choices

import tilewright
from tilewright.runtime.cuda import device_name
from tilewright.target import Target
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem
from tilewright.topi.templates import templates
from tilewright.tune.tuned import shipped

_TARGET = "cuda -arch=sm_90a"

#: Kernels of one process under a tool: after some fifty, PyTorch found no memory for their arrays.
#: What breaks a process costs the rest of these alone.
_PART = 24
#: Seconds until a process has started under a tool and loaded PyTorch, and that the last kernel
#: before the end may take.
_START, _LAST = 8.0, 20.0
#: What a line of a kernel that ran begins with.
_LAUNCHED = "launched: "

#: For templates without records.
_UNRECORDED = tuple(
    Conv(operator="depthwise_conv2d", batch=8, channels=16, height=28, width=28, kernel_h=9,
         kernel_w=9, padding=4, pass_=pass_, precision="tf32")
    for pass_ in ("forward", "dgrad")
)  # fmt: skip

#: Templates whose wgmma reads rows of an operand that overlap. memcheck takes as many bytes from
#: its start as the operand would have without that, and stops the program where memory ends
#: before: so they come last.
_OVERLAPPING = ("gpu.whole_gradient",)

#: A problem, the file of its kernel, and why there is none.
Compiled: TypeAlias = tuple[dict[str, Any], str, str]


def wanted(every: int, only: str) -> list[Conv]:
    """The layers, in an order of chance."""
    both = (*sections(), *large_sections())
    found = [p for section, p in both if only in f"{section} {p}"][::every]
    random.Random(0).shuffle(found)
    return found


def wanted_dense() -> list[tuple[Convolution, Named]]:
    """A small problem with a schedule of each GPU template of convolutions, type and pass."""
    found: dict[tuple[str, str, str], tuple[Convolution, Named]] = {}
    target = Target.parse(_TARGET)
    for dtype in ("float16", "bfloat16", "tf32", "tf32x3", "float8_e4m3fn"):
        problems = [
            gpu_dense.problem(layer, pass_, 1, dtype)
            for layer in itertools.chain(*gpu_dense.LAYERS.values())
            for pass_ in ("forward", "dgrad", "wgrad")
            if not (pass_ != "forward" and dtype.startswith("float8"))
        ]
        for p in sorted(problems, key=lambda p: p.flops):
            for template in templates(p, _TARGET):
                kind = (template.name, dtype, p.pass_)
                if kind not in found and (tiles := template.candidates(p, target)):
                    found[kind] = p, (template.name, dict(vars(tiles[0])))
    chosen = list(found.values())
    random.Random(0).shuffle(chosen)
    return sorted(chosen, key=lambda row: row[1][0] in _OVERLAPPING)


def wanted_each() -> list[tuple[Conv, Named]]:
    """A problem with a schedule of each GPU template of depthwise convolution, type and pass."""
    found: dict[tuple[str, str, str], list[tuple[Conv, Named]]] = {}
    for t in shipped("cuda"):
        for r in t.best:
            kind = (r.template, t.problem.dtype, t.problem.pass_)
            found.setdefault(kind, []).append((t.problem, (r.template, dict(r.values))))
    for p in _UNRECORDED:
        for template in templates(p, _TARGET):
            kind = (template.name, p.dtype, p.pass_)
            if kind not in found and (tiles := template.candidates(p, Target.parse(_TARGET))):
                found[kind] = [(p, (template.name, dict(vars(tiles[0]))))]
    chosen = [sorted(rows, key=lambda row: row[0].flops)[len(rows) // 2] for rows in found.values()]
    random.Random(0).shuffle(chosen)
    return chosen


def parts(jobs: list[Future[Compiled]], size: int, folder: Path) -> Iterator[Path]:
    """Lists in ``folder`` of ``size`` kernels, as soon as as many are compiled."""
    for k in range(0, len(jobs), size):
        made = [job.result() for job in jobs[k : k + size]]
        for problem, _, why in made:
            if why:
                print(f"left out: {Problem.from_dict(problem)}: {why}", flush=True)
        part = folder / f"part{k:05d}.json"
        part.write_text(json.dumps([(problem, path) for problem, path, why in made if not why]))
        yield part


def first_choice(p: Convolution, named: Named | None, batch: int, path: str) -> Compiled:
    """Compile a schedule for a layer, or the first choice, of at most ``batch`` images, or all."""
    if named is None:
        assert isinstance(p, Conv)
        named = first_choices(p, _TARGET, 1)[0]
    template, values = named
    p = p.replace(batch=min(p.batch, batch or p.batch))
    return p.to_dict(), path, build(p, template, values, _TARGET, path)


def launch(listed: str, seconds: float) -> None:
    """Launch every kernel of a list once, or as many as there is time for."""
    import torch

    end = time.monotonic() + seconds
    for problem, path in json.loads(Path(listed).read_text()):
        if time.monotonic() > end:
            return
        p, kernel = Problem.from_dict(problem), tilewright.load(path)
        if p.operator.startswith("depthwise_"):
            layer = Layer(p, sets=1)
            kernel(*layer.operands()[0], layer.result[0])
        else:
            gpu_dense.Operands(p).ours(kernel)(0)
        torch.cuda.synchronize()
        print(f"{_LAUNCHED}{p}", flush=True)


def check(tool: str, listed: Path, gpu: int, seconds: float) -> tuple[int, str]:
    """A tool over the kernels of a list, in a process of its own: its exit status and its words."""
    # Libraries ask the driver for functions that it lacks, which is no error of ours.
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    said = listed.with_suffix(f".{tool}")
    with said.open("wb") as out:
        process = subprocess.Popen(
            ["compute-sanitizer", "--tool", tool, *quiet, "--kernel-name",
             "kernel_substring=main_kernel", "--error-exitcode", "3", "--print-limit", "4",
             sys.executable,
             __file__, "--launch", str(listed), "--seconds", f"{seconds}"],
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                 "CUDA_VISIBLE_DEVICES": f"{gpu}"},
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        status: int | None = None
        try:
            status = process.wait(seconds + _LAST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the program that the tool watches
            process.wait()
            out.write(b"stopped in the last of these\n")
    words = said.read_text(errors="replace")
    if status is None:  # it had no time to sum up what it saw until then
        status = 3 * ("========= " in words.replace("========= COMPUTE-SANITIZER", ""))
    return status, words


def check_all(tool: str, queue: Queue[Path | None], log: Path, gpus: list[int], end: float) -> bool:
    """Whether a tool finds nothing in what it sees of the parts in a queue, up to None, until
    ``end``; its words go to ``log``."""
    lock, clean = Lock(), list[bool]()

    def work(gpu: int) -> None:
        while (part := queue.get()) is not None:
            left = end - time.monotonic()
            if left <= _START:
                break
            status, said = check(tool, part, gpu, left - _START)
            clean.append(status == 0)
            with lock, log.open("a") as out:
                out.write(f"{said}exit status: {status}\n")
        queue.put(None)  # for the next one

    with ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(work, gpus))
    return bool(clean) and all(clean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every N-th layer")
    parser.add_argument("--each", action="store_true", help="each template, type and pass")
    parser.add_argument("--dense", action="store_true", help="dense and grouped convolutions")
    parser.add_argument("--only", default="", help="sections and problems that contain this")
    parser.add_argument("--batch", type=int, default=0, help="the most images, 0 for all")
    parser.add_argument("--tools", default="memcheck,racecheck,synccheck")
    parser.add_argument("--gpus", type=int, default=1, help="to share the work of each tool")
    parser.add_argument("--processes", type=int, default=1, help="of a tool, on each GPU")
    parser.add_argument("--seconds", type=float, default=3600.0, help="to stop launching after")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--launch", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch:
        launch(arguments.launch, arguments.seconds)
        return
    failed, end = False, time.monotonic() + arguments.seconds
    layers: list[tuple[Convolution, Named | None]]
    layers = [(p, None) for p in wanted(arguments.every, arguments.only)]
    stem = "h200_sanitizer"
    if arguments.each:
        layers, stem = [*wanted_each()], f"{stem}_each"
    elif arguments.dense:
        layers, stem = [*wanted_dense()], f"{stem}_dense"
    with TemporaryDirectory() as name:
        known = measure.environment() | {"device": device_name()}
        header = "".join(f"{key}: {value}\n" for key, value in known.items())
        gpus = list(range(arguments.gpus)) * arguments.processes
        size = min(_PART, -(-len(layers) // len(gpus)))
        logs, queues = {}, {}
        for tool in arguments.tools.split(","):
            logs[tool] = Path(arguments.out) / f"{stem}_{tool}.log"
            logs[tool].write_text(f"{header}kernels: {len(layers)}\n")
            queues[tool] = Queue[Path | None]()
        # Half of the cores: the tools have programs of their own. Fresh processes: the driver,
        # which the choice asks for the device, does not answer in a fork of one that asked it.
        workers = max(1, (os.cpu_count() or 1) // 2)
        fresh = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        with fresh as builders, ThreadPoolExecutor() as watchers:
            jobs = [
                builders.submit(first_choice, *layer, arguments.batch, f"{name}/{k}.kernel")
                for k, layer in enumerate(layers)
            ]
            sound = {
                tool: watchers.submit(check_all, tool, queues[tool], log, gpus, end)
                for tool, log in logs.items()
            }
            try:
                for part in parts(jobs, size, Path(name)):
                    for queue in queues.values():
                        queue.put(part)
                    if time.monotonic() > end:
                        break
            finally:  # whatever fails, nobody waits for the tools without end
                builders.shutdown(wait=False, cancel_futures=True)
                for queue in queues.values():
                    queue.put(None)
        for tool, log in logs.items():
            failed |= not sound[tool].result()
            lines = log.read_text().splitlines()
            launched = sum(line.startswith(_LAUNCHED) for line in lines)
            found = Counter(line for line in lines if "SUMMARY" in line)
            words = "; ".join(f"{times} times {line}" for line, times in found.items())
            print(f"{tool}, {launched} of {len(layers)} kernels: {words}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
