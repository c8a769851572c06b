"""One function becomes the kernels of a module."""

import numpy as np
import pytest
from tests.support.interpreter import interpret

from tilewright.ir import Buffer, Func, dtype
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Var
from tilewright.ir.ops import const, minimum
from tilewright.ir.stmt import Allocate, For, ForKind, If, Produce, Stmt, Store, Sync, seq
from tilewright.ir.visit import allocated, walk
from tilewright.lower.loops.split_kernels import split_kernels
from tilewright.target import Target

F32 = dtype("float32")


def buffer(name: str, *shape: object, scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(n) if isinstance(n, int) else n for n in shape), F32, scope)


def thread(var: Var, extent: object, tag: str, body: Stmt, low: int = 0) -> For:
    size = const(extent) if isinstance(extent, int) else extent
    return For(var, const(low), size, ForKind.THREAD, body, tag)


def gpu(body: Stmt, *params: object) -> Func:
    return Func("main", params, body, target=Target.parse("sim"))


def test_each_top_level_nest_becomes_a_kernel_and_what_lies_between_them_a_workspace() -> None:
    a, t, b = buffer("A", 8), buffer("T", 8), buffer("B", 8)
    i, j = Var.make("i"), Var.make("j")
    first = Produce("T", thread(i, 8, "threadIdx.x", Store(t, (i,), a[i] * 2.0)))
    second = Produce("B", thread(j, 8, "blockIdx.x", Store(b, (j,), t[7 - j] + 1.0)))
    module = split_kernels(gpu(Allocate(t, seq(first, second)), a, b))
    assert [f.name for f in module.funcs] == ["main_kernel", "main_kernel_1"]
    assert module.workspaces == (t,)
    assert [f.params for f in module.funcs] == [(a, t), (b, t)]
    x = np.arange(8, dtype="float32")
    middle = interpret(module.funcs[0], {"A": x, "T": np.zeros_like(x)})["T"]
    done = interpret(module.funcs[1], {"T": middle, "B": np.zeros_like(x)})["B"]
    assert (done == 2 * x[::-1] + 1).all()


def test_loops_of_one_tag_share_one_index_and_the_smaller_are_guarded() -> None:
    s, b = buffer("S", 8, scope="shared"), buffer("B", 4)
    i, j = Var.make("i"), Var.make("j")
    body = seq(
        thread(i, 8, "threadIdx.x", Store(s, (i,), i.astype("float32"))),
        Sync("shared"),
        thread(j, 4, "threadIdx.x", Store(b, (j,), s[7 - j])),
    )
    k = Var.make("k")
    (kernel,) = split_kernels(gpu(thread(k, 1, "blockIdx.x", Allocate(s, body)), b)).funcs
    assert [(x.tag, int(x.extent)) for x in kernel.launch] == [
        ("blockIdx.x", 1),
        ("threadIdx.x", 8),
    ]
    assert sum(isinstance(n, If) for n in walk(kernel.body)) == 1
    assert (interpret(kernel, {"B": np.zeros(4, "float32")})["B"] == [7, 6, 5, 4]).all()


def test_the_minimum_of_a_thread_loop_is_added_to_the_index() -> None:
    b, i = buffer("B", 8), Var.make("i")
    (kernel,) = split_kernels(gpu(thread(i, 4, "threadIdx.x", Store(b, (i,), 1.0 + i), 3), b)).funcs
    found = interpret(kernel, {"B": np.zeros(8, "float32")})["B"]
    assert (found == [0, 0, 0, 4, 5, 6, 7, 0]).all()


def test_an_extent_that_varies_inside_the_kernel_is_launched_at_its_bound() -> None:
    b, i, j = buffer("B", 10), Var.make("i"), Var.make("j")
    rest = minimum(const(4), const(10) - i * 4)
    inner = thread(j, rest, "threadIdx.x", Store(b, (i * 4 + j,), const(1.0)))
    (kernel,) = split_kernels(gpu(thread(i, 3, "blockIdx.x", inner), b)).funcs
    assert int(kernel.extent("threadIdx.x")) == 4
    assert interpret(kernel, {"B": np.zeros(10, "float32")})["B"].all()


def test_a_symbolic_extent_is_a_parameter_of_the_kernels_that_use_it() -> None:
    n, i = Var.make("n"), Var.make("i")
    a, b = buffer("A", n), buffer("B", n)
    (kernel,) = split_kernels(gpu(thread(i, n, "blockIdx.x", Store(b, (i,), a[i])), a, b)).funcs
    assert kernel.params == (a, b, n)
    assert kernel.extent("blockIdx.x") is n
    assert not any(isinstance(s, If) for s in walk(kernel.body))


def test_on_a_cpu_there_is_one_function_and_its_buffers_are_workspaces() -> None:
    a, t, b = buffer("A", 8), buffer("T", 8), buffer("B", 8)
    i, j = Var.make("i"), Var.make("j")
    first = For(i, const(0), const(8), ForKind.SERIAL, Store(t, (i,), a[i]))
    second = For(j, const(0), const(8), ForKind.SERIAL, Store(b, (j,), t[j]))
    func = Func("main", (a, b), Allocate(t, seq(first, second)), target=Target("llvm"))
    module = split_kernels(func)
    (kernel,) = module.funcs
    assert (kernel.name, kernel.params, module.workspaces) == ("main", (a, b, t), (t,))
    assert not allocated(kernel.body)


def test_a_nest_without_threads_names_its_stage_and_the_mend() -> None:
    b, i = buffer("B", 8), Var.make("i")
    nest = Produce("B", For(i, const(0), const(8), ForKind.SERIAL, Store(b, (i,), b[i])))
    with pytest.raises(LoweringError, match=r"stage 'B' binds no axis to threads.*compute_inline"):
        split_kernels(gpu(nest, b))


def test_an_extent_without_a_bound_names_the_axis() -> None:
    n, i, j = Var.make("n"), Var.make("i"), Var.make("j")
    b = buffer("B", n, n)
    inner = thread(j, i + 1, "threadIdx.x", Store(b, (i, j), const(0.0)))
    with pytest.raises(LoweringError, match=r"axis 'j'.*threadIdx\.x.*varies with i"):
        split_kernels(gpu(thread(i, n, "blockIdx.x", inner), b))


def test_shared_memory_does_not_outlive_a_kernel() -> None:
    s, b = buffer("S", 8, scope="shared"), buffer("B", 8)
    i, j = Var.make("i"), Var.make("j")
    body = seq(
        thread(i, 8, "threadIdx.x", Store(s, (i,), const(0.0))),
        thread(j, 8, "threadIdx.x", Store(b, (j,), s[j])),
    )
    # Under one loop they are one kernel; as two nests they would be two.
    with pytest.raises(LoweringError, match="lasts for one kernel"):
        split_kernels(gpu(Allocate(s, body), b))


def test_a_thread_axis_on_a_cpu_is_an_error() -> None:
    b, i = buffer("B", 8), Var.make("i")
    nest = thread(i, 8, "threadIdx.x", Store(b, (i,), const(0.0)))
    with pytest.raises(LoweringError, match="axis 'i' is bound to threadIdx.x"):
        split_kernels(Func("main", (b,), nest, target=Target("llvm")))
