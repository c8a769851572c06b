"""A call with an argument that does not fit says which, what was expected, and writes nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.cpu import kernel
from tests.support.kernels import buffer, loop, store

import tilewright
from tilewright import runtime, te
from tilewright.ir import Buffer, Func, Layout, Module, dtype
from tilewright.ir.errors import ArgumentError, ScheduleError, TargetError, TilewrightError
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.runtime import Kernel, build
from tilewright.target import Target


def double() -> Kernel:
    a, b = buffer("a", (2, 3)), buffer("b", (2, 3))
    return kernel(
        [a, b],
        loop("i", 2, lambda i: loop("j", 3, lambda j: store(b, (i, j), a[i, j] * 2.0))),
        name="double",
    )


def symbolic() -> Kernel:
    n = Var.make("n")
    a, b = buffer("a", (n, 4)), buffer("b", (n + n,))
    func = Func("sym", (a, b, n), loop("i", n, lambda i: store(b, i, a[i, 0])))
    return build(Module("sym", (a, b), (func,)), Target.parse("llvm"))


def good() -> np.ndarray:
    return np.ones((2, 3), np.float32)


def _readonly() -> np.ndarray:
    made = good()
    made.setflags(write=False)
    return made


_WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (
        lambda: np.ones((2, 4), np.float32),
        r"argument 0 \(a\): expected float32\[2, 3\], got float32\[2, 4\]",
    ),
    "rank": (lambda: np.ones(6, np.float32), r"expected 2 dimensions.*got 1"),
    "type": (lambda: np.ones((2, 3)), r"argument 0 \(a\).*got float64.*convert it to float32"),
    "strides": (
        lambda: np.ones((3, 2), np.float32).T,
        r"expected strides \[3, 1\].*got \[1, 2\].*ascontiguousarray",
    ),
    "negative strides": (lambda: good()[::-1], r"strides"),
    "byte order": (lambda: good().astype(">f4"), r"big-endian"),
    "alignment": (
        lambda: np.frombuffer(bytearray(33), np.uint8)[1:25].view(np.float32).reshape(2, 3),
        r"not aligned to 4 bytes",
    ),
    "a list": (lambda: [[1, 2, 3]] * 2, r"argument 0 \(a\): a list is not an array"),
    "objects": (lambda: np.ones((2, 3), object), r"argument 0 \(a\).*not supported"),
    "a number": (lambda: 3.5, r"a float is not an array"),
}


@pytest.mark.parametrize("problem", _WRONG)
def test_wrong_input_is_explained_and_nothing_written(problem: str) -> None:
    make, message = _WRONG[problem]
    out = np.full((2, 3), 7, np.float32)
    with pytest.raises(ArgumentError, match=f"kernel double.*{message}"):
        double()(make(), out)
    assert (out == 7).all()


def test_wrong_output_is_refused() -> None:
    run = double()
    with pytest.raises(ArgumentError, match=r"argument 1 \(b\) is written, but.*read-only"):
        run(good(), _readonly())
    run(_readonly(), good())
    with pytest.raises(ArgumentError, match=r"argument 1 \(b\).*shares memory with argument 0"):
        same = good()
        run(same, same)
    memory = np.ones(7, np.float32)
    with pytest.raises(ArgumentError, match="shares memory"):
        run(memory[:6].reshape(2, 3), memory[1:].reshape(2, 3))


def test_number_of_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"takes 2 arguments \(a, b\), got 1"):
        double()(good())
    with pytest.raises(ArgumentError, match="got 3"):
        double()(good(), good(), good())


def test_device() -> None:
    class OnGPU:
        __cuda_array_interface__ = {  # noqa: RUF012
            "data": (4096, False), "shape": (2, 3), "typestr": "<f4", "version": 3,
        }  # fmt: skip

    with pytest.raises(ArgumentError, match=r"expected an array on cpu, got .* on cuda:0"):
        double()(OnGPU(), good())


@pytest.mark.parametrize("kept", [False, True])
def test_an_extent_is_at_most_what_was_promised(kept: bool) -> None:
    """Also where the kernel comes from the cache."""

    def make() -> Kernel:
        n = te.var("n", most=3)
        a = te.placeholder((n, 2), name="a")
        b = te.compute((n, 2), lambda i, j: a[i, j] + 1.0, name="b")
        return tilewright.build(te.create_schedule(b.op), [a, b], "llvm")

    run = make()
    if kept:
        run = make()
    for n in (3, 4, 3):
        x, y = np.ones((n, 2), np.float32), np.zeros((n, 2), np.float32)
        if n > 3:
            with pytest.raises(ArgumentError, match=r"n is 4 by dimension 0 of a.*at most 3"):
                run(x, y)
        else:
            run(x, y)
            assert (y == 2).all()


def test_symbolic_extents_agree_among_arguments() -> None:
    run = symbolic()
    out = np.zeros(6, np.float32)
    run(np.ones((3, 4), np.float32), out)
    np.testing.assert_array_equal(out, [1, 1, 1, 0, 0, 0])
    with pytest.raises(ArgumentError, match=r"argument 1 \(b\): expected float32\[.*= \[8\], got"):
        run(np.ones((4, 4), np.float32), out)
    with pytest.raises(ArgumentError, match=r"argument 0 \(a\).*n, 4"):
        run(np.ones((3, 5), np.float32), out)
    n = Var.make("n")
    a, b = buffer("a", (n,)), buffer("b", (n,))
    func = Func("f", (a, b, n), loop("i", n, lambda i: store(b, i, a[i])))
    run = build(Module("f", (a, b), (func,)), Target.parse("llvm"))
    with pytest.raises(ArgumentError, match="n is 3 by an earlier argument, but 4 by dimension 0"):
        run(np.ones(3, np.float32), np.ones(4, np.float32))


def test_scalars() -> None:
    n = Var.make("n")
    a = buffer("a", (n,))
    func = Func("f", (a, n), loop("i", n, lambda i: store(a, i, 1.0)))
    run = build(Module("f", (a, n), (func,)), Target.parse("llvm"))
    run(np.zeros(3, np.float32), 3)
    with pytest.raises(ArgumentError, match="n is 3 by an earlier argument, but 4"):
        run(np.zeros(3, np.float32), 4)
    with pytest.raises(ArgumentError, match="n is a int32 scalar, got a float"):
        run(np.zeros(3, np.float32), 3.0)
    with pytest.raises(ArgumentError, match="is no int32"):
        run(np.zeros(3, np.float32), 1 << 40)
    first = build(Module("f", (n, a), (func,)), Target.parse("llvm"))
    with pytest.raises(ArgumentError, match="the extent n is negative: -2"):
        first(-2, np.zeros(3, np.float32))


def test_extents_that_nothing_binds() -> None:
    n = Var.make("n")
    a = buffer("a", (n * 2,))
    func = Func("f", (a, n), loop("i", n, lambda i: store(a, i, 1.0)))
    run = build(Module("f", (a,), (func,)), Target.parse("llvm"))
    with pytest.raises(ArgumentError, match="no argument tells what n is"):
        run(np.zeros(4, np.float32))


def test_parameters_with_strides_of_their_own() -> None:
    layout = Layout((const(1), const(2)))
    a = Buffer("a", (const(2), const(3)), dtype("float32"), layout=layout)
    b = buffer("b", (2, 3))
    run = kernel([a, b], loop("i", 2, lambda i: loop("j", 3, lambda j: store(b, (i, j), a[i, j]))))
    x, found = np.arange(6, dtype=np.float32).reshape(3, 2).T, np.zeros((2, 3), np.float32)
    run(x, found)
    np.testing.assert_array_equal(found, x)
    with pytest.raises(ArgumentError, match=r"expected strides \[1, 2\]"):
        run(np.ascontiguousarray(x), found)


def test_alignment_that_a_kernel_was_promised() -> None:
    a = Buffer("a", (const(16),), dtype("float32"), align=64)
    run = kernel([a], loop("i", 16, lambda i: store(a, i, 1.0)))
    memory = np.zeros(64, np.float32)
    skip = (-memory.ctypes.data % 64) // 4
    run(memory[skip : skip + 16])
    with pytest.raises(ArgumentError, match="not aligned to 64 bytes"):
        run(memory[skip + 1 : skip + 17])


def test_architectures_of_the_cpu() -> None:
    a = buffer("a", (4,))
    with pytest.raises(TargetError, match="sets of features are native, baseline, avx2, avx512"):
        kernel([a], store(a, 0, 1.0), "llvm -arch=pentium")


def test_arrays_of_our_own() -> None:
    with pytest.raises(ArgumentError, match="negative extent"):
        runtime.empty((2, -1))
    with pytest.raises(ArgumentError, match=r"shape \(2, 3\) got data of shape \(3, 2\)"):
        runtime.empty((2, 3)).copyfrom(np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match="unknown device 'tpu'"):
        runtime.empty((2,), device="tpu")


@pytest.mark.parametrize("function", [tilewright.build, tilewright.lower])
def test_a_tensor_where_a_schedule_belongs(function: Callable[..., Any]) -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="B")
    with pytest.raises(
        ScheduleError, match=r"takes a schedule, got a Tensor.*create_schedule\(B.op"
    ):
        function(b, [a, b])


def test_a_file_of_a_kernel_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(TilewrightError, match=r"there is no file .*none.tw to load: kernel.save"):
        tilewright.load(tmp_path / "none.tw")
    with pytest.raises(FileNotFoundError):
        tilewright.load(tmp_path / "none.tw")


def test_a_kernel_is_shared_by_copies_and_not_pickled() -> None:
    made = double()
    assert copy.copy(made) is made
    assert copy.deepcopy([made])[0] is made
    with pytest.raises(ArgumentError, match=r"save\(path\)"):
        pickle.dumps(made)
