"""CUDA programs run as NumPy says: from torch and the host, on streams, in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.gpu_programs import PROGRAMS, Program, as_float, typed

from tilewright.runtime import cuda, ndarray
from tilewright.runtime.array import view
from tilewright.target import Target

pytestmark = pytest.mark.needs_cuda


def compiled(program: Program) -> Any:
    return cuda.compile_module(program.module, Target.parse("cuda"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_on_arrays_of_the_host(name: str) -> None:
    program = PROGRAMS[name]()
    given = program.arrays()
    arrays = typed(program, given)
    compiled(program).launch([view(a) for a in arrays.values()], program.extents)
    tolerance = 1e-5 if name in ("functions", "two_kernels") else 0
    for out, expected in program.reference(given).items():
        np.testing.assert_allclose(as_float(arrays[out]), expected, rtol=tolerance, atol=tolerance)


def test_arrays_of_our_own() -> None:
    program = PROGRAMS["symbolic_batch"]()
    given = program.arrays()
    arrays = {n: ndarray.array(a, "cuda") for n, a in given.items()}
    made = compiled(program)
    made.launch([view(a) for a in arrays.values()], program.extents)
    np.testing.assert_array_equal(arrays["B"].numpy(), given["A"] * 2)
    assert min(made.measure([view(a) for a in arrays.values()], program.extents, 100, 3)) > 0


@pytest.mark.needs_torch
def test_torch_on_its_current_stream_and_in_a_graph() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    program = PROGRAMS["two_kernels"]()  # with a workspace
    made = compiled(program)
    given = program.arrays()
    a = torch.from_numpy(given["A"]).cuda()
    b = torch.zeros(16, 32, device="cuda")
    views = [view(a), view(b)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        made.launch(views, {})
    torch.cuda.synchronize()
    expected = program.reference(given)["B"]
    np.testing.assert_allclose(b.cpu(), expected, rtol=1e-6)
    b.zero_()
    made.launch(views, {}, stream=side)
    torch.cuda.synchronize()
    np.testing.assert_allclose(b.cpu(), expected, rtol=1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made.launch(views, {})
    b.zero_()
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_allclose(b.cpu(), expected, rtol=1e-6)


@pytest.mark.needs_torch
def test_a_tensor_that_starts_off_16_bytes() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    made = compiled(PROGRAMS["copy"]())
    a = torch.arange(257.0, device="cuda")
    b = torch.zeros(257, device="cuda")
    made.launch([view(a[1:]), view(b[1:])], {})
    torch.cuda.synchronize()
    assert torch.equal(a[1:], b[1:])
