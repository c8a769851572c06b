"""Loops on the CPU: threads, unrolling, scratch memory, symbolic extents, C functions."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from tests.support.cpu import kernel, poisoned, ramp
from tests.support.kernels import buffer, loop, store

from tilewright.ir import Buffer, Func, Module, ops
from tilewright.ir import expr as E
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, Evaluate, For, ForKind, If, Let, Pragma, Stmt, seq
from tilewright.runtime import build
from tilewright.runtime.llvm_sequence import LLVMSequence
from tilewright.target import Target

TARGETS = ["llvm", "llvm -threads=1", "llvm -threads=3"]


def depthwise(c: int, h: int, w: int, k: int, kind: ForKind, n: Expr | int = 1) -> Module:
    """A depthwise convolution with padding, one accumulator an output."""
    pad = k // 2
    x, f = buffer("x", (n, c, h, w)), buffer("f", (c, k, k))
    y = buffer("y", (n, c, h, w))
    total = buffer("total", (1,), "local")

    def output(b: Var, ch: Var, i: Var, j: Var) -> Stmt:
        def tap(p: Var, q: Var) -> Stmt:
            row, column = i + p - pad, j + q - pad
            inside = ops.logical_and(row >= 0, row < h, column >= 0, column < w)
            value = ops.if_then_else(inside, x[b, ch, row, column], 0.0)
            return store(total, 0, total[0] + value * f[ch, p, q])

        taps = loop("p", k, lambda p: loop("q", k, lambda q: tap(p, q), kind=ForKind.UNROLLED))
        return Allocate(total, seq(store(total, 0, 0.0), taps, store(y, (b, ch, i, j), total[0])))

    body = loop(
        "b", n, lambda b: loop(
            "c", c, lambda ch: loop(
                "i", h, lambda i: loop("j", w, lambda j: output(b, ch, i, j))
            ), kind=kind,
        ),
    )  # fmt: skip
    params: tuple[Buffer | Var, ...] = (x, f, y)
    inner = (*params, n) if isinstance(n, Var) else params
    return Module("depthwise", params, (Func("depthwise", inner, body),))


def convolved(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    k, (_, _, h, w) = f.shape[-1], x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (k // 2,) * 2, (k // 2,) * 2))
    return sum(
        padded[:, :, p : p + h, q : q + w] * f[None, :, p, q, None, None]
        for p in range(k) for q in range(k)
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL])
def test_depthwise_convolution(kind: ForKind, target: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 5, 9, 13)).astype(np.float32)
    f = rng.standard_normal((5, 3, 3)).astype(np.float32)
    found = poisoned(x.shape)
    build(depthwise(5, 9, 13, 3, kind), Target.parse(target))(x, f, found)
    np.testing.assert_allclose(found, convolved(x, f), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL])
def test_a_symbolic_batch_serves_every_batch(kind: ForKind) -> None:
    run = build(depthwise(3, 5, 6, 3, kind, Var.make("n")), Target.parse("llvm"))
    rng = np.random.default_rng(0)
    for n in (1, 4, 0, 2):
        x = rng.integers(-3, 4, (n, 3, 5, 6)).astype(np.float32)
        f = rng.integers(-3, 4, (3, 3, 3)).astype(np.float32)
        found = poisoned(x.shape)
        run(x, f, found)
        np.testing.assert_array_equal(found, convolved(x, f))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_every_iteration_runs_in_exactly_one_thread(count: int) -> None:
    a = buffer("a", (count,), type="int32")
    v = Var.make("v")
    body = For(v, const(5), const(count), ForKind.PARALLEL, store(a, v - 5, a[v - 5] + v))
    run = kernel([a], body, "llvm -threads=4")
    x = np.zeros(count, np.int32)
    for _ in range(50):
        run(x)
    np.testing.assert_array_equal(x, 50 * (np.arange(count) + 5))


def test_kernels_run_from_several_threads_at_once() -> None:
    a, b = buffer("a", (64, 1024)), buffer("b", (64, 1024))
    big = buffer("big", (64, 1024), "global")

    def both(target: Buffer, source: Buffer) -> Stmt:
        row = lambda i: loop("j", 1024, lambda j: store(target, (i, j), source[i, j] + 1.0))  # noqa: E731
        return loop("i", 64, row, kind=ForKind.PARALLEL)

    run = kernel([a, b], Allocate(big, seq(both(big, a), both(b, big))), "llvm -threads=4")
    failures = []

    def work(seed: int) -> None:
        x = np.full((64, 1024), seed, np.float32)
        for _ in range(30):
            y = poisoned(x.shape)
            run(x, y)
            if not (y == seed + 2).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_the_pool_survives_a_fork() -> None:
    program = """
import os, numpy as np
from tests.correctness.test_llvm_loops import *
run = build(depthwise(4, 6, 6, 3, ForKind.PARALLEL), Target.parse("llvm -threads=2"))
x, f = np.ones((1, 4, 6, 6), np.float32), np.ones((4, 3, 3), np.float32)
for _ in range(3): run(x, f, poisoned(x.shape))
child = os.fork()
found = poisoned(x.shape)
for _ in range(3): run(x, f, found)
good = (found == convolved(x, f)).all()
if child == 0: os._exit(0 if good else 1)
assert good and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("size", [7, 1000, 100_000])
@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.PARALLEL])
def test_scratch_of_any_size_belongs_to_its_iteration(kind: ForKind, size: int) -> None:
    a = buffer("a", (6, 3))
    scratch = buffer("scratch", (size,), "local")

    def body(i: Var) -> Stmt:
        fill = loop("k", size, lambda k: store(scratch, k, ops.cast("float32", i * 10 + k % 3)))
        keep = loop("k", 3, lambda k: store(a, (i, k), scratch[const(size) - 1 - k]))
        return Allocate(scratch, seq(fill, keep))

    found = poisoned((6, 3))
    kernel([a], loop("i", 6, body, kind=kind), "llvm -threads=3")(found)
    last = (size - 1 - np.arange(3)) % 3
    np.testing.assert_array_equal(found, np.arange(6)[:, None] * 10 + last)


def test_scratch_of_symbolic_size() -> None:
    n = Var.make("n")
    a, b = buffer("a", (n,)), buffer("b", (n,))
    scratch = buffer("scratch", (n + 3,), "global")
    body = Allocate(
        scratch,
        seq(
            loop("i", n, lambda i: store(scratch, i + 3, a[i] * 2.0)),
            loop("i", n, lambda i: store(b, i, scratch[i + 3] + 1.0), kind=ForKind.PARALLEL),
        ),
    )
    func = Func("f", (a, b, n), body)
    run = build(Module("f", (a, b), (func,)), Target.parse("llvm"))
    for size in (1, 5, 70_000):
        x, found = np.arange(size, dtype=np.float32), poisoned(size)
        run(x, found)
        np.testing.assert_array_equal(found, 2 * x + 1)


def test_scratch_that_cannot_be_had_is_an_error() -> None:
    n = Var.make("n", "int64")
    a = buffer("a", (4,))
    scratch = buffer("scratch", (n * (1 << 50),), "global")
    func = Func("f", (a, n), Allocate(scratch, store(a, 0, 1.0)))
    run = build(Module("f", (a, n), (func,)), Target.parse("llvm"))
    with pytest.raises(MemoryError, match="kernel f"):
        run(np.zeros(4, np.float32), 1 << 10)


def test_programs_in_sequence_run_in_order_up_to_one_without_memory() -> None:
    a, b = buffer("a", (4,)), buffer("b", (4,))
    scratch = buffer("scratch", (1 << 50,), "global")

    def program(name: str, source: Buffer, to: Buffer, body: Stmt) -> Any:
        made = Module(name, (source, to), (Func(name, (source, to), body),))
        return build(made, Target.parse("llvm")).program

    double = program("double", a, b, loop("i", 4, lambda i: store(b, i, a[i] * 2.0)))
    add = program("add", b, a, loop("i", 4, lambda i: store(a, i, b[i] + 1.0)))
    huge = program("huge", a, b, Allocate(scratch, store(b, 0, 0.0)))
    x, y = np.arange(4, dtype=np.float32), poisoned(4)
    pointers = [y.ctypes.data, x.ctypes.data]
    twice = LLVMSequence([double, add, double], [(1, 0), (0, 1), (1, 0)])
    twice.place(pointers)
    twice()
    np.testing.assert_array_equal(x, [1, 3, 5, 7])
    np.testing.assert_array_equal(y, [2, 6, 10, 14])
    broken = LLVMSequence([add, huge, double], [(0, 1), (1, 0), (1, 0)])
    broken.place(pointers)
    with pytest.raises(MemoryError, match="kernel huge"):
        broken()
    np.testing.assert_array_equal(x, [3, 7, 11, 15])
    np.testing.assert_array_equal(y, [2, 6, 10, 14])


def test_several_functions_share_workspaces() -> None:
    n = Var.make("n")
    a, b, w = buffer("a", (n,)), buffer("b", (n,)), buffer("w", (n,))
    first = Func("first", (a, w, n), loop("i", n, lambda i: store(w, i, a[i] + 1.0)))
    second = Func("second", (w, b, n), loop("i", n, lambda i: store(b, i, w[i] * w[i])))
    run = build(Module("two", (a, b), (first, second), (w,)), Target.parse("llvm"))
    x, found = np.arange(100, dtype=np.float32), poisoned(100)
    run(x, found)
    np.testing.assert_array_equal(found, (x + 1) ** 2)


def test_scalar_parameters() -> None:
    n, shift = Var.make("n"), Var.make("shift", "int64")
    a = buffer("a", (8,), type="int64")
    body = loop("i", n, lambda i: store(a, i, ops.cast("int64", i) + shift))
    run = build(Module("f", (a, n, shift), (Func("f", (a, n, shift), body),)), Target.parse("llvm"))
    x = np.zeros(8, np.int64)
    run(x, 5, 1 << 40)
    np.testing.assert_array_equal(x[:5] - (1 << 40), np.arange(5))
    assert not x[5:].any()


@pytest.mark.parametrize("kind", [ForKind.UNROLLED, ForKind.SERIAL])
def test_unrolled_loops_over_registers(kind: ForKind) -> None:
    a, b = buffer("a", (4, 16)), buffer("b", (16,))
    sums = buffer("sums", (4, 16), "local")
    row = ramp(0, 16)
    body = Allocate(
        sums,
        seq(
            loop("i", 4, lambda i: store(sums, (i, row), E.Load(a, (i, row), None)), kind=kind),
            loop("i", 3, lambda i: store(
                sums, (i + 1, row), E.Load(sums, (i + 1, row), None) + E.Load(sums, (i, row), None)
            ), kind=kind),
            store(b, (row,), E.Load(sums, (const(3), row), None)),
        ),
    )  # fmt: skip
    x, found = np.arange(64, dtype=np.float32).reshape(4, 16), poisoned(16)
    kernel([a, b], body)(x, found)
    np.testing.assert_array_equal(found, x.sum(0))


def test_pragmas_and_large_unrolled_loops() -> None:
    a = buffer("a", (3, 9000), type="int32")
    large = loop("j", 9000, lambda j: store(a, (0, j), j), kind=ForKind.UNROLLED)
    u, v = Var.make("j"), Var.make("j")
    small = For(u, const(0), const(9), ForKind.SERIAL, store(a, (1, u), u * u),
                annotations=((Pragma.AUTO_UNROLL_MAX_STEP, 16),))  # fmt: skip
    pragmas = ((Pragma.AUTO_UNROLL_MAX_STEP, 8), (Pragma.UNROLL_EXPLICIT, True))
    marked = For(v, const(2), const(4), ForKind.SERIAL, store(a, (2, v), v),
                 annotations=pragmas)  # fmt: skip
    x = np.zeros((3, 9000), np.int32)
    kernel([a], seq(large, small, marked))(x)
    np.testing.assert_array_equal(x[0], np.arange(9000))
    np.testing.assert_array_equal(x[1, :9], np.arange(9) ** 2)
    np.testing.assert_array_equal(x[2, :7], [0, 0, 2, 3, 4, 5, 0])


def test_branches_lets_and_loops_that_start_late() -> None:
    a = buffer("a", (10, 10), type="int32")
    i, j, t = Var.make("i"), Var.make("j"), Var.make("t")
    inner = For(
        j, i + 1, ops.maximum(const(7) - i, 0), ForKind.SERIAL,
        Let(t, i * 100 + j, If(t % 3 > 0, store(a, (i, j), t), store(a, (i, j), -t))),
    )  # fmt: skip
    x = np.zeros((10, 10), np.int32)
    kernel([a], For(i, const(0), const(10), ForKind.SERIAL, inner))(x)
    expected = np.zeros((10, 10), int)
    for p in range(10):
        for q in range(p + 1, p + 1 + max(7 - p, 0)):
            value = p * 100 + q
            expected[p, q] = value if value % 3 else -value
    np.testing.assert_array_equal(x, expected)


def test_masked_tail_of_a_symbolic_loop() -> None:
    n = Var.make("n")
    a, b = buffer("a", (n,)), buffer("b", (n,))

    def body(i: Var) -> Stmt:
        at = ramp(i * 8, 8)
        on = E.LT(at, E.Broadcast(n, 8))
        return store(b, (at,), E.Load(a, (at,), on) * 3.0, predicate=on)

    func = Func("f", (a, b, n), loop("i", (n + 7) // 8, body))
    run = build(Module("f", (a, b), (func,)), Target.parse("llvm"))
    for size in (0, 1, 7, 8, 9, 100):
        x, found = np.arange(size, dtype=np.float32), poisoned(size)
        run(x, found)
        np.testing.assert_array_equal(found, 3 * x)


def test_predicates_of_whole_vectors_are_branches() -> None:
    a, b = buffer("a", (32,)), buffer("b", (32,))

    def body(i: Var) -> Stmt:
        at = (ramp(i * 8, 8),)
        on = E.Broadcast(i < 2, 8)
        return store(b, at, E.Load(a, at, on), predicate=on)

    x, found = np.arange(32, dtype=np.float32), np.full(32, -1, np.float32)
    kernel([a, b], loop("i", 4, body))(x, found)
    np.testing.assert_array_equal(found, np.where(x < 16, x, -1))


def test_c_functions_are_called_with_pointers_and_scalars() -> None:
    from tilewright.runtime.llvm_link import register_symbol

    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_float),
        ctypes.c_int32, ctypes.c_char_p,
    )  # fmt: skip

    @kind
    def scale(source, target, n, what):
        factor = {b"double": 2, b'triple "x"': 3}[what]
        for k in range(n):
            target[k] = source[k] * factor
        return 7

    register_symbol("tw_test_scale", scale)
    a, b, c = buffer("a", (4,)), buffer("b", (4,)), buffer("c", (1,), type="int32")
    for text, factor in (("double", 2), ('triple "x"', 3)):
        args = (
            E.Call(E.dtype("handle"), "address_of", (a[1],)),
            E.Call(E.dtype("handle"), "address_of", (b[0],)),
            const(3),
            E.StringImm(text),
        )
        run = kernel([a, b, c], store(c, 0, E.Call(E.INT32, "extern:tw_test_scale", args)))
        x, found, status = np.arange(4, dtype=np.float32), poisoned(4), np.zeros(1, np.int32)
        run(x, found, status)
        np.testing.assert_array_equal(found[:3], x[1:] * factor)
        assert status[0] == 7


def test_functions_of_libm_can_be_called_and_missing_ones_are_named() -> None:
    a = buffer("a", (1,), type="float64")
    call = E.Call(E.dtype("float64"), "extern:hypot", (a[0], const(4.0, "float64")))
    x = np.array([3.0])
    kernel([a], store(a, 0, call))(x)
    assert x[0] == 5
    missing = Evaluate(E.Call(E.INT32, "extern:tw_no_such_function", ()))
    with pytest.raises(TargetError, match="tw_no_such_function"):
        kernel([a], missing)


def test_threads_of_a_gpu_are_refused() -> None:
    a = buffer("a", (4,))
    v = Var.make("t")
    body = For(v, const(0), const(4), ForKind.THREAD, store(a, v, 1.0), "threadIdx.x")
    with pytest.raises(TargetError, match=r"threadIdx\.x"):
        kernel([a], body)


def test_what_a_kernel_shows_of_itself() -> None:
    run = build(depthwise(3, 5, 6, 3, ForKind.PARALLEL), Target.parse("llvm"))
    assert "define i32 @tw_entry" in run.source
    assert "depthwise" in run.ir
    assert "tw_entry" in run.assembly
    (found,) = run.resources.values()
    assert found.spills == 0
    x, f = np.ones((1, 3, 5, 6), np.float32), np.ones((3, 3, 3), np.float32)
    timing = run.time(x, f, poisoned(x.shape), repeat=3, number=2)
    assert 0 < timing.min <= timing.median <= timing.max
    assert timing.number == 2
    assert len(timing.times) == 3
    assert run.time_evaluator(number=1, repeat=2)(x, f, poisoned(x.shape)).mean > 0
