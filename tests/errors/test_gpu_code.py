"""What a GPU cannot run is refused with what, where and the mend."""

from __future__ import annotations

import threading

import pytest
from tests.support.gpu_programs import PROGRAMS, buffer, kernel, loop, store

from tilewright import ir
from tilewright.codegen.cuda import generate
from tilewright.codegen.opencl import generate as generate_opencl
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, For, ForKind, Stmt, Sync, seq
from tilewright.runtime import cuda, cuda_driver, nvrtc
from tilewright.target import Target


def text(body: Stmt, *params: ir.Buffer) -> str:
    return generate(kernel("k", params, body, threadIdx_x=(Var.make("tx"), 32))).text


def test_a_local_array_of_variable_size() -> None:
    n, b = Var.make("n"), buffer("B", (32,))
    acc = buffer("acc", (n,), "float32", "local")
    with pytest.raises(TargetError, match="'acc' in local memory has the size n, .* constant"):
        text(Allocate(acc, store(b, 0, 1.0)), b)


def test_global_memory_allocated_in_a_kernel() -> None:
    b, space = buffer("B", (32,)), buffer("space", (32,))
    with pytest.raises(TargetError, match="'space' .* has to be a workspace of the module"):
        text(Allocate(space, store(b, 0, 1.0)), b)


def test_a_thread_loop_that_is_no_launch_axis() -> None:
    b, i = buffer("B", (32,)), Var.make("i")
    nest = For(i, const(0), const(32), ForKind.THREAD, store(b, i, 1.0), "threadIdx.x")
    with pytest.raises(TargetError, match="thread loop over 'i' has to become a launch axis"):
        text(nest, b)


def test_a_buffer_that_is_nowhere() -> None:
    b, other, i = buffer("B", (32,)), buffer("other", (32,)), Var.make("i")
    with pytest.raises(TargetError, match="'other' is neither a parameter .* nor allocated"):
        text(loop(i, 32, store(b, i, other[i])), b)


def test_shuffles_without_warps() -> None:
    with pytest.raises(TargetError, match="shuffle_xor needs the warps of a GPU: opencl has none"):
        generate_opencl(PROGRAMS["warp_sum"]().module)


@pytest.mark.needs_nvrtc
def test_a_barrier_of_a_cluster_in_opencl() -> None:
    b, tx = buffer("B", (32,)), Var.make("tx")
    module = kernel("k", (b,), seq(Sync("cluster"), store(b, tx, 1.0)), threadIdx_x=(tx, 32))
    with pytest.raises(TargetError, match=r"OpenCL has no clusters, and so no T.sync\('cluster'\)"):
        generate_opencl(module)


def test_an_architecture_that_nvrtc_does_not_know() -> None:
    with pytest.raises(TargetError, match="cannot compile for sm_99: it knows sm_75 to sm_121"):
        nvrtc.compile_cubin("", "sm_99")


@pytest.mark.needs_nvrtc
def test_source_that_does_not_compile_is_shown_with_its_lines() -> None:
    source = 'extern "C" __global__ void k(float* a) {\n  a[0] = y;\n}\n'
    with pytest.raises(TargetError, match=r'(?s)identifier "y" is undefined.*    2>   a\[0\] = y;'):
        nvrtc.compile_cubin(source, "sm_80")


@pytest.mark.needs_nvrtc
def test_more_shared_memory_than_a_block_has() -> None:
    big, b = buffer("big", (2**16,), "float32", "shared"), buffer("B", (32,))
    tx = Var.make("tx")
    module = kernel("k", (b,), Allocate(big, store(b, tx, big[tx])), threadIdx_x=(tx, 32))
    with pytest.raises(TargetError, match=r"k needs 262144 bytes .* sm_80 has 166912"):
        cuda.compile_module(module, Target.parse("cuda -arch=sm_80"))


def test_no_driver_and_no_architecture() -> None:
    from tilewright.runtime.cuda_driver import load_driver

    try:
        load_driver()
    except TargetError:
        with pytest.raises(
            TargetError, match="Compiling needs none: name an architecture.*the target sim"
        ):
            cuda.compile_module(PROGRAMS["copy"]().module, Target.parse("cuda"))
    else:
        pytest.skip("this machine has a driver")


@pytest.mark.parametrize("begins", [True, False])
def test_what_fails_while_a_gpu_is_opened_ahead_fails_where_it_is_needed(
    begins: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("this driver is too old, or can't start new thread")

    opening: list[threading.Thread] = []
    monkeypatch.setattr(cuda_driver, "_opening", opening)
    monkeypatch.setattr(cuda_driver, "device", refuse)
    monkeypatch.setattr(threading, "excepthook", lambda args: print(args.exc_value))
    if not begins:
        monkeypatch.setattr(threading.Thread, "start", refuse)
    cuda_driver.open_ahead()
    if begins:
        opening[0].join()
    assert capsys.readouterr().out == ""


def test_an_object_that_is_no_stream() -> None:
    from tilewright.runtime.cuda_driver import stream_handle

    with pytest.raises(ArgumentError, match="a str is not a CUDA stream"):
        stream_handle("side", 0)


@pytest.mark.needs_opencl
def test_an_opencl_device_that_there_is_not() -> None:
    from tilewright.runtime import opencl

    with pytest.raises(
        TargetError,
        match=r"no OpenCL device 'Arc'; there are '.*; known without being here are mali, ",
    ):
        opencl.compile_module(PROGRAMS["copy"]().module, Target.parse("opencl -device=Arc"))
    known = opencl.compile_module(PROGRAMS["copy"]().module, Target.parse("opencl -device=Mali"))
    with pytest.raises(TargetError, match="there is no OpenCL device 'Mali'; there are '"):
        known.measure([], {}, 1, 1)
    assert "__kernel" in known.source


@pytest.mark.needs_opencl
def test_a_processor_that_pocl_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    from tilewright.runtime import opencl

    def refuse(*_: object) -> None:
        raise pyopencl.RuntimeError("error: unknown target CPU 'generic'")

    monkeypatch.setattr(pyopencl, "Program", refuse)
    wanted = 'does not know this processor, .* build for the target "llvm"'
    with pytest.raises(TargetError, match=wanted):
        opencl.compile_module(PROGRAMS["copy"]().module, Target.parse("opencl"))


@pytest.mark.needs_opencl
def test_a_work_group_that_is_too_large() -> None:
    from tilewright.runtime import opencl
    from tilewright.runtime.array import view
    from tilewright.runtime.ndarray import array

    n, tx = Var.make("n"), Var.make("tx")
    b = buffer("B", (n,))
    module = kernel("k", (b,), store(b, tx, 1.0), threadIdx_x=(tx, n))
    program = opencl.compile_module(module, Target.parse("opencl"))
    data = array([0.0] * 2**20, "cpu", "float32")
    with pytest.raises(TargetError, match="a work-group of .* bind smaller factors to threadIdx"):
        program.launch([view(data)], {"n": 2**20})


@pytest.mark.needs_opencl
def test_a_stream_of_another_kind() -> None:
    from tilewright.runtime import opencl

    program = opencl.compile_module(PROGRAMS["copy"]().module, Target.parse("opencl"))
    with pytest.raises(ArgumentError, match="stream must be a pyopencl.CommandQueue"):
        program.launch([], {}, stream=0)
