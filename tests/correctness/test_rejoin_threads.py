"""Threads that branch behind a barrier meet again where PoCL takes it that they do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.gpu_programs import buffer, kernel, loop, store

import tilewright
from tilewright import te
from tilewright.codegen.opencl import generate
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Module
from tilewright.ir.stmt import If, Stmt, Sync, seq
from tilewright.runtime.build import backend
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import outputs
from tilewright.target import Target

y, r, n = (Var.make(name) for name in ("threadIdx_x", "r", "n"))
B, SIZE = buffer("B", (4,), "int32"), buffer("Size", (n,), "int32")
BARRIER = Sync("shared")


def some(bound: int, value: int | Expr) -> Stmt:
    """Those threads that are below ``bound`` store a value."""
    return If(y < bound, store(B, y, value))


#: A loop of two iterations behind which the threads branch as they did in it.
TAIL = loop(r, 2, seq(BARRIER, some(3, B[y] + r + 1)))
#: A barrier under what all threads agree on.
HELD = If(n < 5, seq(BARRIER, some(2, 2)))
#: The body of a kernel of four threads, and what they make of ones.
KERNELS = {
    "guarded sum of two": (seq(TAIL, some(3, B[y] * 10)), [40, 40, 40, 1]),
    "conditional barrier": (seq(HELD, some(3, B[y] * 10)), [20, 20, 10, 1]),
    "conditional barrier in a loop": (
        loop(r, 7, seq(BARRIER, If(r < 3, seq(BARRIER, some(2, r))))), [2, 2, 1, 1],
    ),
    "condition in a condition": (If(n < 6, seq(HELD, some(1, 7))), [7, 2, 1, 1]),
}  # fmt: skip


def module(body: Stmt) -> Module:
    return kernel("main", (B, SIZE), seq(store(B, y, 1), body), threadIdx_x=(y, 4))


@pytest.mark.needs_opencl
@pytest.mark.parametrize("target", ["opencl", "sim"])
@pytest.mark.parametrize("name", KERNELS)
def test_threads_that_branch_behind_a_barrier_all_go_on(name: str, target: str) -> None:
    body, expected = KERNELS[name]
    made, machine = module(body), Target.parse(target)
    run = Kernel(backend(machine).compile_module(made, machine), outputs(made))
    found = np.zeros(4, np.int32)
    run(found, np.zeros(4, np.int32))
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("body", "barriers"),
    [
        (seq(HELD, some(3, 7)), 2),
        (seq(HELD, BARRIER, some(3, 7)), 2),
        (HELD, 1),
        (seq(TAIL, some(3, 7)), 2),
        (TAIL, 1),
        (seq(loop(r, 2, seq(BARRIER, store(B, y, r))), some(3, 7)), 1),
        (seq(some(3, 7), some(3, 8)), 0),
    ],
    ids=["if", "barrier behind", "last", "loop", "last loop", "loop without a branch", "none"],
)
def test_a_barrier_stands_only_where_threads_may_part(body: Stmt, barriers: int) -> None:
    assert generate(module(body)).text.count("barrier(") == barriers


@pytest.mark.needs_opencl
def test_what_one_iteration_of_a_loop_stores_is_kept() -> None:
    """LLVM takes the loop for a choice from what was never stored (llvm-project issue 62565)."""
    A = te.placeholder((13,), "int32", name="A")
    S = te.compute((13,), lambda i: A[i] + 1, name="S")
    L = te.compute((13,), lambda i: S[i] * 2, name="L")
    C = te.compute((13,), lambda i: L[i] + 3, name="C")
    s = te.create_schedule(C.op)
    (i,) = s[C].op.axis
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    for T, scope in ((S, "shared"), (L, "local")):
        s[T].compute_at(s[C], i)
        s[T].set_scope(scope)
    s[L].split(s[L].op.axis[0], nparts=3)
    given, found = np.arange(13, dtype=np.int32), np.zeros(13, np.int32)
    tilewright.build(s, [A, C], "opencl")(given, found)
    np.testing.assert_array_equal(found, given * 2 + 5)
