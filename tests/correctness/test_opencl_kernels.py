"""Programs become OpenCL C, and run on an OpenCL device as NumPy says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.gpu_programs import PROGRAMS, Program, as_float, typed

import tilewright
from tilewright import te
from tilewright.codegen.opencl import generate
from tilewright.ir.stmt import Seq
from tilewright.runtime import ndarray
from tilewright.runtime.array import view
from tilewright.target import Target

#: Without warps there are no shuffles.
PORTABLE = [name for name in PROGRAMS if name != "warp_sum"]


def compiled(program: Program) -> Any:
    from tilewright.runtime import opencl

    return opencl.compile_module(program.module, Target.parse("opencl"))


@pytest.mark.needs_opencl
@pytest.mark.parametrize("name", PORTABLE)
def test_program_runs(name: str) -> None:
    program = PROGRAMS[name]()
    given = program.arrays()
    arrays = typed(program, given)
    compiled(program).launch([view(a) for a in arrays.values()], program.extents)
    tolerance = 1e-5 if name in ("functions", "two_kernels") else 0
    for out, expected in program.reference(given).items():
        np.testing.assert_allclose(as_float(arrays[out]), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["shared_tile", "scale_shift", "scale_shift_half"])
def test_source(name: str, golden: Callable[..., None]) -> None:
    golden(generate(PROGRAMS[name]().module).text, ".cl")


def test_with_half_arithmetic_vectors_stay_in_half(golden: Callable[..., None]) -> None:
    golden(generate(PROGRAMS["half_fma"]().module, half=True).text, ".cl")


@pytest.mark.needs_opencl
def test_float16_is_rounded_after_every_operation() -> None:
    program = PROGRAMS["scale_shift_half"]()
    rng = np.random.default_rng(0)
    arrays = {n: rng.normal(size=a.shape).astype("float16") for n, a in program.arrays().items()}
    compiled(program).launch([view(a) for a in arrays.values()], {})
    scaled = arrays["A"] * arrays["Scale"][:, None]
    expected = np.maximum(scaled + arrays["Shift"][:, None], np.float16(0))
    np.testing.assert_array_equal(arrays["B"], expected)


@pytest.mark.needs_opencl
def test_arrays_on_the_device_and_of_pyopencl() -> None:
    import pyopencl.array

    from tilewright.runtime.opencl_device import device

    program = PROGRAMS["symbolic_batch"]()
    given = program.arrays()
    made = compiled(program)
    mine = [ndarray.array(a, "opencl") for a in given.values()]
    made.launch([view(a) for a in mine], program.extents)
    np.testing.assert_array_equal(mine[1].numpy(), given["A"] * 2)
    queue = device().queue
    theirs = [pyopencl.array.to_device(queue, a) for a in given.values()]
    made.launch([view(a) for a in theirs], program.extents, stream=queue)
    np.testing.assert_array_equal(theirs[1].get(), given["A"] * 2)
    assert min(made.measure([view(a) for a in theirs], program.extents, 2, 3)) > 0


@pytest.mark.needs_opencl
def test_a_kept_program_runs_without_its_loops() -> None:
    from tilewright.runtime import opencl

    program = PROGRAMS["two_kernels"]()
    first = compiled(program)
    heads = tuple(replace(f, body=Seq(())) for f in program.module.funcs)
    module = replace(program.module, funcs=heads)
    again = opencl.compile_module(module, first.target, first.artifacts())
    given = program.arrays()
    again.launch([view(a) for a in given.values()], {})
    np.testing.assert_allclose(given["B"], program.reference(given)["B"], rtol=1e-6)
    assert again.resources["sums"].shared_memory == 0


def _turned(dtype: str = "float32") -> Any:
    """Blocks read columns of four as vectors from local memory."""
    a = te.placeholder((16, 64), dtype, name="A")
    b = te.compute((16, 64), lambda i, j: a[15 - i, j] * 2, name="B")
    s = te.create_schedule(b.op)
    copy = s[s.cache_read(a, "shared", [b])]
    i, j = b.op.axis
    j, lane = s[b].split(j, factor=4)
    s[b].bind(i, te.thread_axis("threadIdx.y"))
    s[b].bind(j, te.thread_axis("threadIdx.x"))
    s[b].vectorize(lane)
    copy.compute_root()
    copy.compute_at(s[b], j)
    return s, [a, b]


def test_vectors_in_local_memory_are_moved_whole() -> None:
    """``vload4`` promises the alignment of one element: NVIDIA's compiler makes four loads."""
    source = generate(tilewright.lower(*_turned(), "opencl")).text
    assert "__local float A_shared[1024] __attribute__((aligned(64)));" in source
    assert "*(__local const float4*)&A_shared[" in source


def test_memory_of_a_device_is_moved_in_aligned_vectors() -> None:
    module = tilewright.lower(*_turned(), "opencl")
    assert "*(__global float4*)&B[" in generate(module, aligned=True).text
    assert "vstore4(" in generate(module).text  # memory of the host's begins anywhere
    # float16 is moved by functions where a device does not compute in it
    assert "vstore_half4(" in generate(tilewright.lower(*_turned("float16"), "opencl")).text


@pytest.mark.parametrize("waits", [False, True])
def test_vectors_of_a_thread_are_moved_whole_where_none_waits(waits: bool) -> None:
    """PoCL calls ``vload4`` as a function on processors that its library was not made for, and
    loses values of arrays that it keeps for all threads where they are read as vectors."""
    a = te.placeholder((16, 64), name="A")
    b = te.compute((16, 64), lambda i, j: a[15 - i, j] * 2, name="B")
    s = te.create_schedule(b.op)
    kept = s.cache_write(b, "local")
    i, j = b.op.axis
    j, lane = s[b].split(j, factor=4)
    s[b].bind(i, te.thread_axis("threadIdx.y"))
    s[b].bind(j, te.thread_axis("threadIdx.x"))
    s[kept].compute_at(s[b], j)
    s[b].vectorize(lane)
    s[kept].vectorize(kept.op.axis[1])
    if waits:
        s[s.cache_read(a, "shared", [kept])].compute_at(s[b], j)
    source = generate(tilewright.lower(s, [a, b], "opencl")).text
    assert ("float B_local[4] __attribute__((aligned(16)));" in source) is not waits
    assert ("*(__private const float4*)B_local" in source) is not waits
    assert ("barrier(" in source) is waits


def test_vectors_of_a_warp_are_moved_by_elements() -> None:
    """Its part of an array in local memory may begin anywhere."""
    a = te.placeholder((16, 128), name="A")
    b = te.compute((16, 128), lambda i, j: a[i, j] * 2, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    j, lane = s[b].split(j, factor=4)
    s[b].bind(i, te.thread_axis("threadIdx.y"))
    s[b].bind(j, te.thread_axis("threadIdx.x"))
    s[b].vectorize(lane)
    copy = s[s.cache_read(a, "warp", [b])]
    copy.compute_at(s[b], i)
    column, lane = copy.split(copy.op.axis[-1], factor=4)
    copy.bind(column, te.thread_axis("threadIdx.x"))
    copy.vectorize(lane)
    source = generate(tilewright.lower(s, [a, b], "opencl"), warp_size=32, aligned=True).text
    assert ", 0, &A_warp[" in source
    assert "*)&A_warp[" not in source
