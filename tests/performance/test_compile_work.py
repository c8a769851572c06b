"""What compiling costs, counted in calls of Python's functions: a guard against blow-ups.

Times are in ``benchmarks/compile_latency.py``. The bounds here are about twice what was counted
when they were written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from examples.article_000 import SharedTile, schedule_shared
from tests.support.layers import Program, lines, scheduled, strips

from tilewright import te
from tilewright.codegen.cuda import generate as generate_cuda
from tilewright.codegen.llvm.module import generate as generate_llvm
from tilewright.ir.func import Module
from tilewright.lower.pipeline import lower
from tilewright.verify import verify

CUDA = "cuda -arch=sm_90a"


def shared(out: te.Tensor) -> Any:
    return schedule_shared(out, SharedTile(32, 32, 8, 16, 1, 2))


def parts(out: te.Tensor) -> Any:
    """Article 000's division of work: a tile fused and split by parts that do not divide it,
    virtual threads in both directions."""
    s = te.create_schedule(out.op)
    padded = out.op.inputs[0]
    s[padded].compute_inline()
    tile = s.cache_read(padded, "shared", [out])
    ty, tx = (te.thread_axis((0, 8), f"threadIdx.{d}") for d in "yx")
    n, c, h, w = out.op.axis
    outer, virtual, threads, inner = [], [], [], []
    for axis in (h, w):
        block, rest = s[out].split(axis, factor=32)
        v, rest = s[out].split(rest, nparts=2)
        t, rest = s[out].split(rest, nparts=8)
        outer.append(block)
        virtual.append(v)
        threads.append(t)
        inner.append(rest)
    s[out].reorder(*outer, *virtual, *threads, *inner)
    for v, t, thread in zip(virtual, threads, (ty, tx), strict=True):
        s[out].bind(v, te.thread_axis((0, 2), "vthread"))
        s[out].bind(t, thread)
    block = s[out].fuse(*outer)
    s[out].bind(s[out].fuse(n, c), te.thread_axis("blockIdx.y"))
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[tile].compute_at(s[out], block)
    y, rest = s[tile].split(s[tile].fuse(*s[tile].op.axis[2:]), nparts=8)
    x, _ = s[tile].split(rest, nparts=8)
    s[tile].bind(y, ty)
    s[tile].bind(x, tx)
    return s


def calls(action: Callable[[], Any]) -> tuple[int, Any]:
    """How many functions of Python ``action`` calls, and what it returns."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        found = action()
    finally:
        sys.setprofile(before)
    return count, found


def work(program: Program, target: str, channels: int, size: int, k: int) -> dict[str, int]:
    """Calls by step of the way to generated code."""
    s, args = program(channels, size, k)
    generate: Callable[[Module], Any] = generate_llvm if target == "llvm" else generate_cuda
    lowering, module = calls(lambda: lower(s, args, target))
    proving, _ = calls(lambda: list(map(verify, module.funcs)))
    writing, _ = calls(lambda: generate(module))
    return {"lower": lowering, "verify": proving, "generate": writing}


#: Thousands of calls to lower, to prove and to write the code: about twice those counted.
BOUNDS: dict[str, tuple[Program, str, int, tuple[int, int, int]]] = {
    "shared": (scheduled(shared), CUDA, 3, (190, 30, 50)),
    "parts": (scheduled(parts), CUDA, 3, (220, 80, 60)),
    "strips": (strips, CUDA, 3, (110, 10, 30)),
    "lines": (lines, "llvm", 3, (120, 8, 65)),
    "lines, 7 x 7": (lines, "llvm", 7, (150, 11, 180)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_schedule_is_compiled_with_bounded_work(name: str) -> None:
    program, target, k, bounds = BOUNDS[name]
    found = work(program, target, 256, 96, k)
    limits = dict(zip(found, (1000 * bound for bound in bounds), strict=True))
    assert {step for step, n in found.items() if n > limits[step]} == set(), (found, limits)


@pytest.mark.parametrize("name", BOUNDS)
def test_the_work_does_not_depend_on_the_size_of_the_tensors(name: str) -> None:
    program, target, k, _ = BOUNDS[name]
    small, large = (work(program, target, *size, k) for size in ((64, 384), (256, 1536)))
    assert all(large[step] < 1.2 * n for step, n in small.items()), (small, large)
