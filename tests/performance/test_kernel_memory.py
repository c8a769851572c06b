"""A kernel that is dropped leaves nothing behind: counted in objects, in tables, and, for what
LLVM's library holds, in bytes of the process. ``benchmarks/kernel_memory.py`` has the figures."""

from __future__ import annotations

import collections
import functools
import gc
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.codegen.llvm import Generated
from tilewright.runtime import llvm_host, llvm_link
from tilewright.verify import verify

#: What ``functools.cache`` makes.
_CACHED = type(functools.cache(len))
TARGETS = [
    "llvm",
    "sim",
    "cuda -arch=sm_90a",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
]


@pytest.fixture(autouse=True)
def nothing_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")


@pytest.fixture(autouse=True)
def what_was_there_before_is_left_out() -> Iterator[None]:
    """Of collections, which other tests' objects make slow, and of counts."""
    gc.freeze()
    yield
    gc.unfreeze()


def build_and_drop(number: int, target: str) -> None:
    """Each program is another one: a sum over rows, guarded, and a map that follows."""
    rows, columns = 3 + number % 7, 5 + number % 5
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k] * float(number), axis=k), name="B")
    c = te.compute((rows,), lambda i: te.exp(b[i]) + 1.0, name="C")
    s = te.create_schedule(c.op)
    if target != "llvm":
        outer, inner = s[c].split(c.op.axis[0], factor=4)
        s[c].bind(outer, te.thread_axis("blockIdx.x"))
        s[c].bind(inner, te.thread_axis("threadIdx.x"))
        s[b].compute_at(s[c], inner)
    if not target.startswith("cuda"):
        tilewright.build(s, [a, c], target)
        return
    module = tilewright.lower(s, [a, c], target)
    for func in module.funcs:
        verify(func)
    generate(module, "sm_90a")


def collect() -> None:
    # A node's key holds its operands until the node is gone: each round frees one level of cycles.
    for _ in range(8):
        gc.collect()


def objects() -> collections.Counter[str]:
    """Objects of this package's and of llvmlite's classes, by class."""
    collect()
    kinds = collections.Counter(map(type, gc.get_objects()))
    named = {f"{kind.__module__}.{kind.__qualname__}": n for kind, n in kinds.items()}
    return collections.Counter({
        name: n for name, n in named.items() if name.startswith(("tilewright.", "llvmlite."))
    })  # fmt: skip


def tables() -> dict[str, int]:
    """The sizes of everything at the level of modules that can grow."""
    found: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("tilewright.") and module is not None:
            for key, value in vars(module).items():
                if isinstance(value, (Mapping, list, set)) and not key.startswith("__"):
                    found[f"{name}.{key}"] = len(value)
                elif isinstance(value, _CACHED) and value.cache_info().maxsize is None:
                    found[f"{name}.{key}"] = value.cache_info().currsize
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_is_dropped_leaves_no_object_and_no_entry_of_a_table(target: str) -> None:
    kernels = 12
    for number in range(kernels):
        build_and_drop(number, target)
    before, sizes = objects(), tables()
    for number in range(kernels, 2 * kernels):
        build_and_drop(number, target)
    after, grown = objects(), tables()
    # a few more small integers and instructions may have been used
    assert {kind: n for kind, n in (after - before).items() if n >= kernels} == {}
    more = {name: n - sizes.get(name, 0) for name, n in grown.items()}
    assert {name: n for name, n in more.items() if n >= kernels} == {}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much it is")
def test_compiling_leaves_no_memory_of_llvms_behind() -> None:
    """A pass manager is 140 KiB, what a linker keeps of an object 9; llvmlite frees neither."""
    import ctypes

    cpu = llvm_host.processor("")

    def compile_and_link(times: int) -> int:
        for _ in range(times):
            data = llvm_host.compile_object(_ADDITION, cpu)
            for _ in range(20):
                llvm_link.link(data, ["f"], {})
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    settled = compile_and_link(40)
    assert compile_and_link(40) - settled < 3000  # KiB; 40 * (140 + 20 * 9) were 12,800


_ADDITION = Generated("define i32 @f(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n")
