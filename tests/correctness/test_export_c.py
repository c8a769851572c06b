"""Exported C compiles without warnings and computes what the kernel computes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.correctness.test_llvm_loops import convolved, depthwise
from tests.support.cpu import kernel, poisoned, ramp
from tests.support.kernels import buffer, loop, store

import tilewright
from tilewright import te
from tilewright.codegen.c import c_source
from tilewright.ir import Func, Module, ops
from tilewright.ir import expr as E
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Allocate, ForKind, Stmt, seq
from tilewright.runtime import Kernel, build
from tilewright.target import Target

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def compiled(run: Kernel, folder: Path, more: str = "", *flags: str) -> ctypes.CDLL:
    """The exported file as a library, included through its header in a file of its own, which has
    ``more``."""
    run.export_c(folder / "k.c")
    (folder / "use.c").write_text(f'#include "k.h"\n{more}')
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
         "-ffp-contract=off", "-shared", "-fPIC", "k.c", "use.c", "-o", "k.so", "-lm", *flags],
        cwd=folder, check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(folder / "k.so"))


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def test_a_convolution_with_a_symbolic_batch(tmp_path: Path) -> None:
    run = build(depthwise(3, 5, 6, 3, ForKind.PARALLEL, Var.make("n")), Target.parse("llvm"))
    library = compiled(run, tmp_path)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 3, 5, 6)).astype(np.float32)
    f = rng.integers(-3, 4, (3, 3, 3)).astype(np.float32)
    found = poisoned(x.shape)
    library.depthwise(*pointers(x, f, found), 2)
    np.testing.assert_array_equal(found, convolved(x, f))
    text = (tmp_path / "k.c").read_text()
    assert "tilewright" not in text.replace("Tilewright", "")


@pytest.mark.parametrize(("rows", "shared"), [(8, False), (1000, True)])
def test_a_loop_of_little_work_is_not_shared_among_threads(rows: int, shared: bool) -> None:
    a = te.placeholder((rows, 100), name="A")
    b = te.compute((rows, 100), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].parallel(b.op.axis[0])
    text = c_source(tilewright.lower(s, [a, b], "llvm"))
    assert ("#pragma omp parallel for" in text) is shared


def test_vectors_become_loops_over_their_lanes(tmp_path: Path) -> None:
    a, b = buffer("a", (20,)), buffer("b", (20,))

    def body(i: Var) -> Stmt:
        at = ramp(i * 8, 8)
        on = E.LT(at, E.Broadcast(ops.const(20), 8))
        table = E.Concat(tuple(ops.const(float(k)) for k in range(8)))
        return seq(
            store(b, (at,), E.Load(a, (at,), on) * 3.0, predicate=on),
            store(b, (at,), E.Load(b, (at,), on) + table, predicate=on),
        )

    run = kernel([a, b], loop("i", 3, body))
    x, here, there = np.arange(20, dtype=np.float32), poisoned(20), poisoned(20)
    run(x, here)
    compiled(run, tmp_path).test(*pointers(x, there))
    np.testing.assert_array_equal(here, 3 * x + np.arange(20) % 8)
    np.testing.assert_array_equal(there, here)
    assert "for (int32_t lane = 0; lane < 8; ++lane)" in (tmp_path / "k.c").read_text()


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_floats_of_16_bits(type: str, tmp_path: Path) -> None:
    n = 4096
    a, b, c = buffer("a", (n,), type=type), buffer("b", (n,)), buffer("c", (n,), type=type)
    d = buffer("d", (n,), type="float64")
    e = buffer("e", (n,), type=type)

    def body(i: Var) -> Stmt:
        return seq(
            store(b, i, ops.cast("float32", a[i])),
            store(c, i, a[i] * ops.cast(type, d[i]) + 1.5),
            store(e, i, ops.maximum(ops.unary("sqrt", ops.absolute(a[i])), 0.25)),
        )

    run = kernel([a, d, b, c, e], loop("i", n, body))
    bits = np.linspace(0, 65535, n).astype(np.uint16)
    x = bits.view(np.float16) if type == "float16" else bits
    y = np.random.default_rng(0).standard_normal(n)
    results = []
    for call in (run, compiled(run, tmp_path).test):
        out = [poisoned(n), poisoned(n, x.dtype), poisoned(n, x.dtype)]
        args = [x, y, *out]
        call(*(args if call is run else pointers(*args)))
        results.append(out)
    for here, there in zip(*results, strict=True):
        if here.dtype == np.uint16:  # NaN has many forms
            here, there = ((v.astype(np.uint32) << 16).view(np.float32) for v in (here, there))
        np.testing.assert_array_equal(there, here)


def test_integers_and_functions(tmp_path: Path) -> None:
    n = 64
    a, b = buffer("a", (n,), type="int32"), buffer("b", (n, 6), type="int64")
    c, d = buffer("c", (n,), type="bool"), buffer("d", (n,))

    def body(i: Var) -> Stmt:
        x = a[i]
        return seq(
            store(b, (i, 0), ops.cast("int64", x // -7 * 1000 + x % -7)),
            store(b, (i, 1), ops.cast("int64", ops.popcount(x)) + ops.truncmod(x, 5)),
            store(b, (i, 4), ops.reinterpret("int64", ops.cast("float64", x))),
            store(b, (i, 5), ops.cast("int64", ops.reinterpret("float32", x))),
            store(b, (i, 2), ops.absolute(ops.cast("int64", x)) // 3),
            store(b, (i, 3), ops.cast("int64", ops.absolute(ops.cast("int8", x)))),
            store(c, i, ops.logical_or(x > 40, ops.logical_and(x < 0, ops.logical_not(c[i])))),
            store(d, i, ops.unary("sigmoid", ops.cast("float32", x)) + ops.unary("erf", d[i])),
        )

    run = kernel([a, b, c, d], loop("i", n, body))
    x = np.arange(n, dtype=np.int32) * 3 - 90
    results = []
    for call in (run, compiled(run, tmp_path).test):
        out = [np.zeros((n, 6), np.int64), np.arange(n) % 2 == 0, np.linspace(-2, 2, n, dtype="f4")]
        args = [x, *out]
        call(*(args if call is run else pointers(*args)))
        results.append(out)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-6)


def test_large_and_symbolic_memory_comes_from_the_heap(tmp_path: Path) -> None:
    n = Var.make("n")
    a, b, w = buffer("a", (n,)), buffer("b", (n,)), buffer("w", (n + 1,))
    large = buffer("large", (100_000,))
    first = Func(
        "first", (a, w, n),
        Allocate(large, loop("i", n, lambda i: seq(
            store(large, i * 2, a[i]), store(w, i + 1, large[i * 2] + 1.0)
        ))),
    )  # fmt: skip
    second = Func("second", (w, b, n), loop("i", n, lambda i: store(b, i, w[i + 1] * 2.0)))
    run = build(Module("two-step", (a, b), (first, second), (w,)), Target.parse("llvm"))
    x, found = np.arange(10, dtype=np.float32), poisoned(10)
    # Blocks of more bytes than ``most`` are not to be had.
    wrapped = """
#include <stddef.h>
size_t most = -1;
void* __real_malloc(size_t bytes);
void* __wrap_malloc(size_t bytes) { return bytes > most ? NULL : __real_malloc(bytes); }
"""
    library = compiled(run, tmp_path, wrapped, "-Wl,--wrap=malloc")
    given = *pointers(x, found), 10
    assert library.two_step(*given) == 0
    np.testing.assert_array_equal(found, 2 * x + 2)
    for most in (0, 100):  # of the workspace, and inside of a kernel
        ctypes.c_size_t.in_dll(library, "most").value = most
        assert library.two_step(*given) == 1


def test_simulated_kernels_have_no_c(tmp_path: Path) -> None:
    a = buffer("a", (4,))
    run = kernel([a], store(a, 0, 1.0), "sim")
    with pytest.raises(TargetError, match="no single file of a kernel for sim"):
        run.export_c(tmp_path / "k.c")


@pytest.mark.needs_nvrtc
def test_a_cuda_file_comes_with_its_header(tmp_path: Path) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [a, b], "cuda -arch=sm_80", name="plus")
    kernel.export_c(tmp_path / "plus.cu")
    header = (tmp_path / "plus.h").read_text()
    assert "cudaError_t plus(const float* a, float* b, int32_t n, cudaStream_t stream);" in header
    assert 'extern "C" cudaError_t plus(' in (tmp_path / "plus.cu").read_text()
