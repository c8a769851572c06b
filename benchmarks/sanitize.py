"""The kernels of the GPU benchmarks, those for large kernels too, under NVIDIA's compute-sanitizer.

Each layer's first choice is compiled, then launched once on arrays with allocations of their own,
so that an access beside an array is one beside all memory; the tools run side by side. Layers are
taken in an order of chance: where a tool is cut short, it has seen some of every kind.

    PYTHONPATH=src python benchmarks/sanitize.py --every 4 --tools memcheck,racecheck --gpus 2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import measure
from gpu_depthwise import Layer
from gpu_layers import sections
from large_kernels import sections as large_sections
from problem_parts import build, first_choices

import tilewright
from tilewright.runtime.cuda import device_name
from tilewright.topi.problem import Problem

_TARGET = "cuda -arch=sm_90a"


def prepare(folder: Path, every: int, only: str) -> int:
    """Compile kernels into ``folder``, with a list of them."""
    both = (*sections(), *large_sections())
    wanted = [p for section, p in both if only in f"{section} {p}"][::every]
    random.Random(0).shuffle(wanted)
    jobs = []
    with ProcessPoolExecutor() as pool:
        for k, p in enumerate(wanted):
            template, values = first_choices(p, _TARGET)[0]
            path = str(folder / f"{k}.kernel")
            jobs.append((p, path, pool.submit(build, p, template, values, _TARGET, path)))
        listed = [(p.to_dict(), path) for p, path, built in jobs if not built.result()]
    (folder / "list.json").write_text(json.dumps(listed))
    return len(listed)


def launch(folder: Path, seconds: float) -> None:
    """Launch every kernel of the list once, or as many as there is time for."""
    import torch

    end = time.monotonic() + seconds
    for problem, path in json.loads((folder / "list.json").read_text()):
        if time.monotonic() > end:
            print(f"stopped after {seconds:g} s", flush=True)
            return
        layer = Layer(Problem.from_dict(problem), sets=1)
        kernel = tilewright.load(path)
        kernel(*layer.operands()[0], layer.result[0])
        torch.cuda.synchronize()
        print(f"{layer.p}", flush=True)
        del layer


def begin(tool: str, folder: str, log: Path, gpu: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start a tool over all kernels of the list; what it says goes to ``log``."""
    # Libraries ask the driver for functions that it lacks, which is no error of ours.
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    with log.open("ab") as out:
        return subprocess.Popen(
            ["compute-sanitizer", "--tool", tool, *quiet, "--kernel-name",
             "kernel_substring=main_kernel", "--error-exitcode", "3", sys.executable,
             __file__, "--launch", folder, "--seconds", f"{seconds}"],
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                 "CUDA_VISIBLE_DEVICES": f"{gpu}"},
            stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take one layer of so many")
    parser.add_argument("--only", default="", help="sections and problems that contain this")
    parser.add_argument("--tools", default="memcheck,racecheck,synccheck")
    parser.add_argument("--gpus", type=int, default=1, help="the tools take turns among so many")
    parser.add_argument("--seconds", type=float, default=3600.0, help="to stop launching after")
    parser.add_argument("--out", default="benchmarks/results")
    parser.add_argument("--launch", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch:
        launch(Path(arguments.launch), arguments.seconds)
        return
    failed = False
    with TemporaryDirectory() as name:
        count = prepare(Path(name), arguments.every, arguments.only)
        known = measure.environment() | {"device": device_name()}
        header = "".join(f"{key}: {value}\n" for key, value in known.items())
        running = {}
        for k, tool in enumerate(arguments.tools.split(",")):
            log = Path(arguments.out) / f"h200_sanitizer_{tool}.log"
            log.write_text(f"{header}kernels: {count}\n")
            running[tool] = log, begin(tool, name, log, k % arguments.gpus, arguments.seconds)
        for tool, (log, process) in running.items():
            failed |= process.wait() != 0
            lines = log.read_text().splitlines()
            launched = sum(line.startswith("depthwise_") for line in lines)
            last = [line for line in lines if "SUMMARY" in line] or lines[-5:]
            print(f"{tool}, {launched} of {count} kernels: {' '.join(last)}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
