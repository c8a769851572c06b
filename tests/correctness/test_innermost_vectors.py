"""Simple scalar loops become loops on vectors for the CPU, without LLVM's vectoriser of loops."""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pytest
from tests.support.cpu import kernel, poisoned
from tests.support.kernels import buffer, loop, store

import tilewright
from tilewright import te
from tilewright.codegen.llvm.module import generate
from tilewright.ir import ops
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import For, ForKind
from tilewright.lower.pipeline import lower
from tilewright.runtime.llvm_host import Processor, assembly, processor
from tilewright.te import Tensor

AVX2 = ("avx", "avx2", "f16c", "fma")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

on_x86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="LLVM compiles for x86 there"
)


def code(inputs: list[Any], out: Tensor, features: tuple[str, ...]) -> str:
    """The instructions of the default schedule of ``out`` on a processor with ``features``."""
    flags = ",".join(f"+{name}" for name in features)
    cpu = Processor(processor("").triple, "x86-64-v3", flags, frozenset(features))
    module = lower(te.create_schedule(out.op), [*inputs, out])
    return assembly(generate(module, 1, cpu.features, cpu.vector_bits), cpu)


def plus_one() -> tuple[list[Any], Tensor]:
    A = te.placeholder((1000,), name="A")
    return [A], te.compute((1000,), lambda i: A[i] + 1, name="B")


def of_symbolic_size() -> tuple[list[Any], Tensor]:
    n = te.var("n")
    A = te.placeholder((n, n), name="A")
    return [A], te.compute((n, n), lambda i, j: A[i, j] + 1, name="B")


def convolution() -> tuple[list[Any], Tensor]:
    A, W = te.placeholder((8, 34, 70), name="A"), te.placeholder((8, 3, 3), name="W")
    y, x = te.reduce_axis((0, 3), "y"), te.reduce_axis((0, 3), "x")
    return [A, W], te.compute(
        (8, 16, 34),
        lambda c, i, j: te.sum(A[c, i * 2 + y, j * 2 + x] * W[c, y, x], axis=[y, x]),
        name="B",
    )


def maxima_of_rows() -> tuple[list[Any], Tensor]:
    A = te.placeholder((10, 1000), name="A")
    k = te.reduce_axis((0, 1000), "k")
    return [A], te.compute((10,), lambda i: te.max(A[i, k], axis=k), name="B")


def minima_of_columns() -> tuple[list[Any], Tensor]:
    A = te.placeholder((1000, 64), name="A")
    k = te.reduce_axis((0, 1000), "k")
    return [A], te.compute((64,), lambda i: te.min(A[k, i], axis=k), name="B")


def products_of_matrices() -> tuple[list[Any], Tensor]:
    A, B = (te.placeholder((64, 64), name=name) for name in "AB")
    k = te.reduce_axis((0, 64), "k")
    return [A, B], te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


@on_x86
@pytest.mark.parametrize(("features", "register"), [(AVX2, "ymm"), (AVX512, "zmm")])
@pytest.mark.parametrize(
    ("program", "operation"),
    [
        (plus_one, "vaddps"),
        (of_symbolic_size, "vaddps"),
        (convolution, r"vfmadd\d+ps"),
        (maxima_of_rows, "vmaxps"),
        (minima_of_columns, "vminps"),
        (products_of_matrices, r"vfmadd\d+ps"),
    ],
)
def test_a_default_schedule_computes_on_whole_registers(
    program: Any, operation: str, features: tuple[str, ...], register: str
) -> None:
    inputs, out = program()
    assert re.search(rf"\t{operation}\t.*%{register}", code(inputs, out, features))


@on_x86
def test_sums_of_floats_keep_their_order() -> None:
    A = te.placeholder((10, 1000), name="A")
    k = te.reduce_axis((0, 1000), "k")
    B = te.compute((10,), lambda i: te.sum(A[i, k], axis=k), name="B")
    assert not re.search(r"\tvaddps\t", code([A], B, AVX512))


@on_x86
def test_llvm_vectorises_no_loop_by_itself() -> None:
    A = te.placeholder((1000, 1000), name="A")
    B = te.compute((1000, 1000), lambda i, j: A[j, i] + 1, name="B")
    text = code([A], B, AVX512)
    assert "vaddss" in text
    assert not re.search(r"vaddps|gather", text)


@pytest.mark.parametrize("n", [1, 3, 4, 15, 16, 17, 31, 64, 100])
def test_what_is_left_of_a_symbolic_size_is_computed_too(n: int) -> None:
    size = te.var("n")
    A = te.placeholder((size, size), "int32", name="A")
    k = te.reduce_axis((0, size), "k")
    B = te.compute((size, size), lambda i, j: A[i, j] * 2 + i - j, name="B")
    C = te.compute((size,), lambda i: te.max(A[i, k], axis=k), name="C")
    D = te.compute((size,), lambda i: te.sum(A[i, k], axis=k), name="D")
    run = tilewright.build(te.create_schedule([B.op, C.op, D.op]), [A, B, C, D], "llvm")
    a = np.random.default_rng(n).integers(-(2**30), 2**30, (n, n), np.int32)
    b, c, d = poisoned((n, n), np.int32), poisoned(n, np.int32), poisoned(n, np.int32)
    run(a, b, c, d)
    i = np.arange(n, dtype=np.int32)
    np.testing.assert_array_equal(b, a * 2 + i[:, None] - i)
    np.testing.assert_array_equal(c, a.max(1))
    np.testing.assert_array_equal(d, a.sum(1, dtype=np.int32))


@pytest.mark.parametrize("extent", [-20, -1, 0, 1, 40])
def test_a_loop_without_iterations_does_nothing(extent: int) -> None:
    a, n = buffer("a", (64,), type="int32"), Var.make("n", "int64")
    v = Var.make("i", "int64")
    body = For(v, const(3, "int64"), n - 32, ForKind.SERIAL, store(a, v, ops.cast("int32", v)))
    x = np.full(64, -1, np.int32)
    kernel([a, n], body)(x, extent + 32)
    expected = np.full(64, -1, np.int32)
    expected[3 : 3 + max(extent, 0)] = np.arange(3, 3 + max(extent, 0))
    np.testing.assert_array_equal(x, expected)


def test_a_loop_that_is_known_to_have_no_iteration_does_nothing() -> None:
    a = buffer("a", (64,), type="int32")
    v = Var.make("v", "int32")
    body = loop("i", 4, lambda i: For(v, const(0), -1 - i, ForKind.SERIAL, store(a, v, 1)))
    x = np.full(64, -1, np.int32)
    kernel([a], body)(x)
    assert (x == -1).all()


@pytest.mark.parametrize("extent", [40, 64, 200, 1001])
def test_extrema_keep_nan_of_every_lane(extent: int) -> None:
    A = te.placeholder((extent,), name="A")
    k = te.reduce_axis((0, extent), "k")
    B = te.compute((1,), lambda i: te.max(A[k], axis=k), name="B")
    run = tilewright.build(te.create_schedule(B.op), [A, B], "llvm")
    a = np.random.default_rng(0).standard_normal(extent).astype(np.float32)
    b = np.empty(1, np.float32)
    run(a, b)
    assert b[0] == a.max()
    for place in (0, 7, extent - 9, extent - 1):
        a[place], kept = np.nan, a[place]
        run(a, b)
        assert np.isnan(b[0])
        a[place] = kept


def test_an_axis_fused_of_two_is_one_run_of_memory() -> None:
    A = te.placeholder((30, 41), name="A")
    B = te.compute((30, 41), lambda i, j: A[i, j] * 2 + j, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(s[B].fuse(*s[B].op.axis))
    run = tilewright.build(s, [A, B], "llvm")
    a, b = np.random.default_rng(0).standard_normal((30, 41), np.float32), poisoned((30, 41))
    run(a, b)
    np.testing.assert_array_equal(b, a * 2 + np.arange(41, dtype=np.float32))


def test_an_iteration_that_reads_what_the_one_before_wrote_waits_for_it() -> None:
    a = buffer("a", (65,), type="int32")
    x = np.arange(65, dtype=np.int32)
    kernel([a], loop("i", 64, lambda i: store(a, i + 1, a[i] + a[i + 1])))(x)
    np.testing.assert_array_equal(x, np.cumsum(np.arange(65)))
