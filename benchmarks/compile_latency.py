"""How long a schedule takes to become a kernel: each step, cold and warm, and in a fresh process.

Figures are medians over fresh schedules, in milliseconds. "cold" starts with an empty cache;
"warm" finds the compiled kernel in the cache on disk, kernels of this process forgotten. "fresh"
is the first kernel of a new process, with everything that is loaded for it but Tilewright's own
language: the compilers, the thread pool, the cache. New processes find Python's byte code
compiled, as after an installation.

    python benchmarks/compile_latency.py [--target llvm "cuda -arch=sm_90a"] [--out FOLDER]
    python benchmarks/compile_latency.py --target "cuda -arch=sm_90a" --tensor-cores

With ``--processor-time`` the figures are time of the processor, which other programs on the
machine disturb less; reading files and waiting for them is then left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
from latency_programs import CLOCK, TENSOR_CORES, Program, clock, programs

import tilewright
from tilewright.ir.func import Module
from tilewright.runtime.build import forget
from tilewright.target import Target
from tilewright.verify import verify

FOLDER = Path(__file__).parent

#: What a process loads or makes once, as programs: the first part is not timed.
ONCE = {
    "llvm": {
        "load LLVM": ("", "from tilewright.runtime.llvm_host import processor; processor('')"),
        "the thread pool, cold": (
            "from tilewright.runtime.llvm_host import processor; processor('')\n"
            "import os; os.environ['TILEWRIGHT_CACHE'] = 'off'",
            "from tilewright.runtime.llvm_pool import symbols; symbols()",
        ),
        "the thread pool, warm": (
            "from tilewright.runtime.llvm_host import processor; processor('')",
            "from tilewright.runtime.llvm_pool import symbols; symbols()",
        ),
    },
    "cuda": {
        "load NVRTC": (
            "",
            "from tilewright.runtime.nvrtc import load_nvrtc; load_nvrtc()",
        ),
        "first use of NVRTC": (
            "from tilewright.runtime.nvrtc import compile_cubin, load_nvrtc; load_nvrtc()",
            "compile_cubin('extern \"C\" __global__ void f() {}', 'sm_90a')",
        ),
    },
    "": {
        "import tilewright": ("", "import tilewright"),
        "load the passes and proofs": (
            "import tilewright.te",
            "import tilewright.lower.pipeline, tilewright.verify",
        ),
        "load isl": ("", "import islpy"),
        "identify the compiler": (
            "from tilewright.runtime import cache",
            "cache.compiler_tag()",
        ),
    },
}


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long ``action`` takes, and what it returns."""
    begin = clock()
    found = action()
    return (clock() - begin) * 1e3, found


@contextmanager
def empty_cache() -> Iterator[str]:
    """A new folder as the cache, with the kernels of this process forgotten."""
    before = os.environ.get("TILEWRIGHT_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE"] = folder
        forget()
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["TILEWRIGHT_CACHE"]
            else:
                os.environ["TILEWRIGHT_CACHE"] = before


def write(module: Module, target: Target) -> Any:
    """Generate the code for a module."""
    if target.kind == "llvm":
        from tilewright.codegen.llvm.module import generate
        from tilewright.runtime.llvm_host import processor

        cpu = processor(target.arch)
        return generate(module, target.threads, cpu.features, cpu.vector_bits)
    from tilewright.codegen.cuda import generate as generate_cuda

    return generate_cuda(module, target.arch)


def translate(code: Any, target: Target) -> Any:
    """Compile generated code."""
    if target.kind == "llvm":
        from tilewright.runtime.llvm_host import compile_object, processor

        return compile_object(code, processor(target.arch))
    from tilewright.runtime.nvrtc import compile_cubin

    return compile_cubin(code.text, target.arch)


def prove(module: Module) -> None:
    """Every proof about every kernel."""
    for func in module.funcs:
        verify(func)


def steps(make: Program, target: Target) -> dict[str, float]:
    """Every step for one program, in this process."""
    found: dict[str, float] = {}
    s, args = make()
    found["lower"], module = milliseconds(lambda: tilewright.lower(s, args, target))
    found["verify"], _ = milliseconds(lambda: prove(module))
    found["codegen"], code = milliseconds(lambda: write(module, target))
    found["compile"], _ = milliseconds(lambda: translate(code, target))
    with empty_cache():
        found["cold"] = build(make, target)
        found["warm"] = build(make, target)
    return found


def build(make: Program, target: Target) -> float:
    """From a fresh schedule to the kernel, no kernel of this process being known."""
    s, args = make()
    forget()
    return milliseconds(lambda: tilewright.build(s, args, target))[0]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """By name."""
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


class Fresh:
    """Runs programs in processes of their own, which find their byte code in a common folder."""

    def __init__(self, codes: str) -> None:
        self.environment = {**os.environ, "PYTHONPYCACHEPREFIX": codes}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *args: str, cache: str = "off") -> str:
        """What Python prints when run with ``args``."""
        environment = {**self.environment, "TILEWRIGHT_CACHE": cache}
        done = subprocess.run(
            [sys.executable, *args], check=True, capture_output=True, text=True, env=environment
        )
        return done.stdout

    def timed(self, setup: str, program: str, cache: str) -> float:
        """Milliseconds of ``program`` after ``setup``."""
        lines = (
            setup, f"import os, time; clock = getattr(time, {os.environ[CLOCK]!r})",
            "begin = clock()", program, "print((clock() - begin) * 1e3)",
        )  # fmt: skip
        return float(self.run("-c", "\n".join(lines), cache=cache))

    def first(self, name: str, target: str) -> dict[str, float]:
        """The first kernel of a process, with an empty cache and with one that has it."""
        script = str(FOLDER / "latency_programs.py")
        with tempfile.TemporaryDirectory() as cache:
            cold = json.loads(self.run(script, name, target, cache=cache))
            warm = json.loads(self.run(script, name, target, cache=cache))
        return {"fresh cold": cold["build"], "fresh warm": warm["build"]} | (
            {"first call": warm["call"]} if "call" in warm else {}
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", nargs="+", default=["llvm"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--tensor-cores", action="store_true", help="programs for these alone")
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    os.environ[CLOCK] = "process_time" if options.processor_time else "perf_counter"
    results: dict[str, Any] = {"environment": measure.environment()}
    with tempfile.TemporaryDirectory() as folder:
        fresh = Fresh(folder)
        for text in options.target:
            rows = list(table(text, fresh, options.repeats, options.tensor_cores))
            print(f"\n{text}\n\n{measure.table(rows)}")
            results[text] = rows
        kinds = {Target.parse(text).kind for text in options.target}
        costs: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as cache:
            for kind, parts in ONCE.items():
                if not kind or kind in kinds:
                    for what, (setup, program) in parts.items():
                        fresh.timed(setup, program, cache)
                        found = [fresh.timed(setup, program, cache) for _ in range(options.repeats)]
                        costs[what] = statistics.median(found)
    print("\nonce a process\n")
    print(measure.table([{"what": what, "ms": ms} for what, ms in costs.items()]))
    results["once a process"] = costs
    name = "compile_latency_tensor_cores" if options.tensor_cores else "compile_latency"
    print(measure.save(name, results, options.out))


def table(text: str, fresh: Fresh, repeats: int, tensor_cores: bool) -> Iterator[dict[str, Any]]:
    """One row a program of the target ``text``, those for tensor cores or the others; programs
    take turns."""
    target = Target.parse(text)
    chosen = {n: make for n, make in programs(text).items() if (n in TENSOR_CORES) == tensor_cores}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    firsts: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for turn in range(repeats + 1):
        for name, make in chosen.items():
            found = steps(make, target)
            if turn:  # the first loads what is loaded once
                rounds[name].append(found)
    for turn in range(max(3, repeats // 3) + 1):
        for name in chosen:
            found = fresh.first(name, text)
            if turn:
                firsts[name].append(found)
    for name in chosen:
        yield {"program": name, **medians(rounds[name]), **medians(firsts[name])}


if __name__ == "__main__":
    main()
