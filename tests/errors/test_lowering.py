"""Schedules that cannot become a program say so at the line that is to blame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.found import agree
from tests.support.misuse import cannot_lower

import tilewright
from tilewright import te
from tilewright.ir.errors import LoweringError, TargetError, VerificationError
from tilewright.schedule import Schedule


def program() -> tuple[Schedule, Any, Any, Any]:
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 6), lambda i, j: b[i, 5 - j] * 2.0, name="C")
    return te.create_schedule(c.op), a, b, c


class TestArguments:
    def test_a_missing_input(self) -> None:
        s, a, _, c = program()
        cannot_lower(
            s, [c], "llvm", "'A' is an input of the schedule, but not among the arguments",
            cause=a.op.where, stage="A", mend="Add it to the list",
        )  # fmt: skip

    def test_a_missing_output(self) -> None:
        s, a, _, c = program()
        cannot_lower(
            s, [a], "llvm", "'C' is an output of the schedule, but not among the arguments",
            cause=c.op.where, stage="C", mend="Add it to the list",
        )  # fmt: skip

    def test_one_of_several_outputs_is_missing(self) -> None:
        a = te.placeholder((8,), name="A")
        b, c = te.compute((8,), lambda i: (a[i], a[i] + 1.0), name="B")
        s = te.create_schedule(b.op)
        cannot_lower(
            s, [a, b], "llvm", "'B.v1' is an output of the schedule",
            cause=c.op.where, stage="B", mend="Add it to the list",
        )  # fmt: skip

    def test_how_often_a_reduction_runs_is_an_argument(self) -> None:
        a, x = te.placeholder((8,), "int32", name="A"), te.placeholder((9,), name="X")

        def program(often: Any) -> tuple[Schedule, Any]:
            def total(i: Any) -> Any:
                k = te.reduce_axis((0, often[i]))
                return te.sum(x[te.max(te.min(k, 8), 0)], axis=k)

            b = te.compute((8,), total, name="B")
            return te.create_schedule(b.op), b

        s, b = program(a)
        cannot_lower(
            s, [x, b], "llvm", "'A' is an input of the schedule, but not among the arguments",
            cause=a.op.where, stage="A", mend="Add it to the list",
        )  # fmt: skip
        s, b = program(te.compute((8,), lambda i: a[i] + 1, name="M"))
        cannot_lower(
            s, [a, x, b], "llvm", "how often a reduction runs is read from 'M', which is computed",
            cause=b.op.where, stage="B", mend="Make 'M' an output of the schedule",
        )  # fmt: skip

    def test_an_argument_twice(self) -> None:
        s, a, _, c = program()
        cannot_lower(s, [a, c, a], "llvm", "argument 'A' is listed twice", mend="List it once")

    @pytest.mark.parametrize("thing", [None, 3, "A"])
    def test_what_is_no_argument(self, thing: Any) -> None:
        s, a, _, c = program()
        cannot_lower(
            s, [a, c, thing], "llvm", "arguments are tensors and symbolic variables",
            mend="List what te.placeholder, te.compute and te.var made",
        )  # fmt: skip

    def test_an_operation_in_place_of_its_tensor(self) -> None:
        s, a, _, c = program()
        cannot_lower(
            s, [a, c.op], "llvm", "got ComputeOp(C)", mend="te.placeholder, te.compute and te.var"
        )

    def test_a_tensor_of_another_program(self) -> None:
        s, a, _, c = program()
        other = te.compute((3,), lambda i: i, name="other")
        cannot_lower(
            s, [a, c, other], "llvm", "'other' is not computed by this schedule",
            cause=other.op.where, stage="other", mend="leave it out of the arguments",
        )  # fmt: skip

    def test_an_inlined_stage(self) -> None:
        s, a, b, c = program()
        s[b].compute_inline()
        cannot_lower(
            s, [a, b, c], "llvm", "'B' is not computed by this schedule, or inlined",
            cause=b.op.where, stage="B", mend="leave it out of the arguments",
        )  # fmt: skip

    def test_a_placeholder_that_nothing_reads_is_an_argument_all_the_same(self) -> None:
        s, a, _, c = program()
        unused = te.placeholder((3,), name="unused")
        kernel = tilewright.build(s, [a, unused, c], "llvm")
        x, out = np.ones((8, 6), np.float32), np.zeros((8, 6), np.float32)
        kernel(x, np.zeros(3, np.float32), out)
        np.testing.assert_array_equal(out, (x + 1) * 2)

    def test_no_arguments(self) -> None:
        s, *_ = program()
        with pytest.raises(TargetError, match=r"build needs the arguments.*build\(s, \["):
            tilewright.build(s, target="llvm")

    def test_a_constant_that_is_no_argument(self) -> None:
        s, a, b, c = program()
        with pytest.raises(TargetError, match=r"a constant is none of the arguments"):
            tilewright.build(s, [a, c], "llvm", constants=[b])

    def test_a_variable_that_no_argument_gives(self) -> None:
        m = te.var("m")
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i] * m, name="B")
        s = te.create_schedule(b.op)
        cannot_lower(
            s, [a, b], "llvm", "variable 'm' is in use, but neither an argument nor an extent",
            mend="Add it to the list of arguments",
        )  # fmt: skip

    def test_a_variable_that_only_an_expression_of_an_extent_has(self) -> None:
        n = te.var("n")
        a = te.placeholder((n + 1,), name="A")
        b = te.compute((n + 1,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b.op)
        cannot_lower(
            s, [a, b], "llvm", "variable 'n' is in use, but neither an argument nor an extent",
            mend="Add it to the list of arguments",
        )  # fmt: skip


class TestTargets:
    def test_threads_on_a_cpu(self) -> None:
        s, a, _, c = program()

        def bind() -> None:
            s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))

        bind()
        cannot_lower(
            s, [a, c], "llvm", "bound to blockIdx.x, which target 'llvm' does not have",
            cause=bind, stage="C", axis="i", mend="Use parallel() and vectorize() on a CPU",
        )  # fmt: skip

    def test_env_threads_on_a_cpu(self) -> None:
        s, a, _, c = program()

        def launch() -> None:
            s[c].env_threads([te.thread_axis((0, 8), "threadIdx.x")])

        launch()
        cannot_lower(
            s, [a, c], "llvm", "env_threads launches threadIdx.x, which target 'llvm'",
            cause=launch, stage="C", mend="Use parallel() and vectorize() on a CPU",
        )  # fmt: skip

    @pytest.mark.parametrize("target", ["sim", "cuda", "opencl"])
    def test_no_threads_on_a_gpu(self, target: str) -> None:
        s, a, b, c = program()
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
        cannot_lower(
            s, [a, c], target, f"binds no axis to threads, so target '{target}' cannot run it",
            cause=b.op.where, stage="B", mend="te.thread_axis('blockIdx.x')",
        )  # fmt: skip

    def test_virtual_threads_are_none(self) -> None:
        s, a, b, c = program()
        s[b].compute_inline()
        s[c].bind(c.op.axis[0], te.thread_axis("vthread"))
        cannot_lower(
            s, [a, c], "sim", "binds no axis to threads",
            cause=c.op.where, stage="C", mend="te.thread_axis('blockIdx.x')",
        )  # fmt: skip

    def test_virtual_threads_run_on_a_cpu(self) -> None:
        s, a, _, c = program()
        s[c].bind(c.op.axis[0], te.thread_axis("vthread"))
        x, out = np.ones((8, 6), np.float32), np.zeros((8, 6), np.float32)
        tilewright.build(s, [a, c], "llvm")(x, out)
        np.testing.assert_array_equal(out, (x + 1) * 2)

    def test_parallel_on_a_gpu(self) -> None:
        s, a, b, c = program()
        s[b].compute_inline()
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))

        def run() -> None:
            s[c].parallel(c.op.axis[1])

        run()
        cannot_lower(
            s, [a, c], "sim", "the axis is parallel, which is for the threads of a CPU",
            cause=run, stage="C", axis="j", mend="te.thread_axis('blockIdx.x')",
        )  # fmt: skip

    def test_an_unknown_target(self) -> None:
        s, a, _, c = program()
        with pytest.raises(TargetError, match="unknown target 'tpu': the kinds are llvm, cuda"):
            tilewright.build(s, [a, c], "tpu")


class TestMemory:
    def test_global_memory_inside_a_kernel(self) -> None:
        s, a, b, c = program()
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].compute_at(s[c], c.op.axis[0])

        def keep() -> None:
            s[b].set_scope("global")

        keep()
        cannot_lower(
            s, [a, c], "sim", "inside a kernel, but kept in global memory",
            cause=keep, stage="B", axis="i", mend="set_scope('shared') or set_scope('local')",
        )  # fmt: skip

    def test_memory_of_no_threads_in_particular(self) -> None:
        """Where nothing is said, memory is that of the threads around, and there are none."""
        s, a, b, c = program()
        s[c].bind(c.op.axis[1], te.thread_axis("threadIdx.x"))

        def attach() -> None:
            s[b].compute_at(s[c], c.op.axis[0])

        attach()
        cannot_lower(
            s, [a, c], "sim", "inside a kernel, but kept in global memory",
            cause=attach, stage="B", axis="i", mend="set_scope('shared') or set_scope('local')",
        )  # fmt: skip

    @pytest.mark.parametrize("scope", ["shared", "local", "warp"])
    def test_memory_on_chip_between_kernels(self, scope: str) -> None:
        s, a, b, c = program()
        for t in (b, c):
            s[t].bind(t.op.axis[0], te.thread_axis("blockIdx.x"))

        def keep() -> None:
            s[b].set_scope(scope)

        keep()
        cannot_lower(
            s, [a, c], "sim", f"kept in {scope} memory, which lasts for one kernel",
            cause=keep, stage="B", mend="Compute it inside its consumer with compute_at()",
        )  # fmt: skip

    def test_a_copy_on_chip_that_is_placed_nowhere(self) -> None:
        s, a, b, c = program()

        def copy() -> Any:
            return s.cache_read(a, "shared", [b])

        cached = copy()
        for t in (cached, b, c):
            s[t].bind(t.op.axis[0], te.thread_axis("blockIdx.x"))
        cannot_lower(
            s, [a, c], "sim", "kept in shared memory, which lasts for one kernel",
            cause=copy, stage="A.shared", mend="Compute it inside its consumer",
        )  # fmt: skip

    def test_more_shared_memory_than_a_block_has(self) -> None:
        a = te.placeholder((2, 1 << 18), name="A")
        b = te.compute((2, 1 << 18), lambda i, j: a[i, (1 << 18) - 1 - j], name="B")
        s = te.create_schedule(b.op)
        copy = s.cache_read(a, "shared", [b])
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].bind(s[b].split(b.op.axis[1], 256)[1], te.thread_axis("threadIdx.x"))
        s[copy].compute_at(s[b], b.op.axis[0])
        with pytest.raises(VerificationError, match="shared memory"):
            tilewright.build(s, [a, b], "sim")

    def test_more_threads_than_a_block_has(self) -> None:
        a = te.placeholder((2048,), name="A")
        b = te.compute((2048,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b.op)
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
        with pytest.raises(VerificationError, match="2048 threads"):
            tilewright.build(s, [a, b], "sim")


class TestReductions:
    def test_a_data_axis_inside_of_threads_that_reduce(self) -> None:
        a = te.placeholder((8, 32), name="A")
        k = te.reduce_axis((0, 32), "k")
        b = te.compute((8,), lambda i: te.sum(a[i, k], k), name="B")
        s = te.create_schedule(b.op)
        s[b].reorder(k, b.op.axis[0])

        def bind() -> None:
            s[b].bind(k, te.thread_axis("threadIdx.x"))

        bind()
        cannot_lower(
            s, [a, b], "sim", "a data axis stands inside a reduction whose axis 'k' is bound",
            cause=bind, stage="B", axis="i", mend="Reorder the data axes to the outside",
        )  # fmt: skip


class TestProofs:
    def test_a_read_out_of_bounds(self) -> None:
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i + 1], name="B")
        with pytest.raises(VerificationError, match=r"reads A\[8\], outside of its shape"):
            tilewright.build(te.create_schedule(b.op), [a, b], "llvm")

    def test_what_was_built_without_proof_is_proved_when_that_is_asked_for(self) -> None:
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i + 1], name="B")
        s = te.create_schedule(b.op)
        tilewright.build(s, [a, b], "llvm", verify=False)
        with pytest.raises(VerificationError, match="out of bounds"):
            tilewright.build(s, [a, b], "llvm")

    def test_threads_that_race(self) -> None:
        """An extern statement can store what it likes."""
        from tilewright.ir.expr import Var
        from tilewright.ir.ops import const
        from tilewright.ir.stmt import For, ForKind, Store

        a = te.placeholder((8,), name="A")
        t = Var.make("t")

        def fill(ins: Any, outs: Any) -> Any:
            store = Store(outs[0], (t // 2,), ins[0][t])
            return For(t, const(0), const(8), ForKind.THREAD, store, "threadIdx.x")

        b = te.extern((8,), [a], fill, name="B")
        s = te.create_schedule(b.op)
        with pytest.raises(VerificationError, match="race on buffer B"):
            tilewright.build(s, [a, b], "sim")


@pytest.mark.parametrize("own", [True, False])
def test_threads_share_no_reduction_of_elements_of_their_own(own: bool) -> None:
    A, W = te.placeholder((7, 4), "int32", name="A"), te.placeholder((4, 4), "int32", name="W")
    r = te.reduce_axis((0, 4), "r")
    body = lambda i, j: te.sum(A[i, r] * (W[r, j] if own else 1), axis=r)  # noqa: E731
    T = te.compute((7, 4), body, name="T")
    B = te.compute((7, 4), lambda i, j: T[i, j if own else 0] + j, name="B")
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    s[B].reorder(j, i)
    s[B].bind(j, te.thread_axis("threadIdx.x"))
    s[T].compute_at(s[B], j)
    s[T].set_scope("local")
    s[T].bind(r, te.thread_axis("threadIdx.x"))
    if not own:
        agree(s, [A], [B], "sim")
        return
    with pytest.raises(LoweringError, match="threads along threadIdx.x share the reduction"):
        tilewright.lower(s, [A, W, B], "sim")
