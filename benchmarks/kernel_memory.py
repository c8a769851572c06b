"""How much memory stays of kernels that are built and dropped: megabytes after every 1,000.

    python benchmarks/kernel_memory.py [--target llvm sim opencl "cuda -arch=sm_90a"] [--kernels N]

Every kernel is another one: shapes and constants differ, and nothing is kept on disk. For cuda the
program is lowered, proved and written as CUDA C++, and with ``--compile`` NVRTC compiles it. The
figures are of the whole process (resident pages, Linux) after a collection of garbage; beside them
are the nodes of expressions that are alive. The last line of a target says how much was added
between a tenth of the kernels, when every table and every pool of the allocator has been filled,
and the last.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path

os.environ["TILEWRIGHT_CACHE"] = "off"

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.ir import node
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.verify import verify

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> float:
    """Megabytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def program(number: int, on_gpu: bool) -> tuple[Schedule, list[te.Tensor]]:
    """One of as many programs as there are numbers: a sum over rows, and a map that follows."""
    rows, columns = 3 + number % 97, 5 + number % 89
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k] * float(number), axis=k), name="B")
    c = te.compute((rows,), lambda i: te.exp(b[i]) + 1.0, name="C")
    s = te.create_schedule(c.op)
    if on_gpu:
        outer, inner = s[c].split(c.op.axis[0], factor=16)
        s[c].bind(outer, te.thread_axis("blockIdx.x"))
        s[c].bind(inner, te.thread_axis("threadIdx.x"))
        s[b].compute_at(s[c], inner)
    return s, [a, c]


def build(number: int, target: Target, compiles: bool) -> None:
    """Build a kernel and drop it."""
    s, args = program(number, target.is_gpu)
    if target.kind != "cuda":
        tilewright.build(s, args, target)
        return
    module = tilewright.lower(s, args, target)
    for func in module.funcs:
        verify(func)
    text = generate(module, target.arch).text
    if compiles:
        compile_cubin(text, target.arch)


def measure(target: Target, kernels: int, every: int, compiles: bool) -> None:
    """Print the memory of a process that builds ``kernels`` for ``target``."""
    settled, begin = 0.0, time.perf_counter()
    for number in range(1, kernels + 1):
        build(number, target, compiles)
        if number == kernels // 10:
            settled = resident()
        if number % every == 0 or number == kernels:
            print(
                f"{target}: {number:6,} kernels, {resident():7.1f} MB, {len(node._table):,} nodes, "
                f"{time.perf_counter() - begin:.0f} s",
                flush=True,
            )
    print(f"{target}: {resident() - settled:+.1f} MB from {kernels // 10:,} to {kernels:,} kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", nargs="+", default=["llvm", "sim", "cuda -arch=sm_90a"])
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1_000)
    parser.add_argument("--compile", action="store_true", help="compile CUDA C++ with NVRTC, too")
    given = parser.parse_args()
    for name in given.target:
        measure(Target.parse(name), given.kernels, given.every, given.compile)


if __name__ == "__main__":
    main()
