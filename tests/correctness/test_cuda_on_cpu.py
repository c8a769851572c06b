"""The text of CUDA kernels computes what NumPy does, as far as a C++ compiler can tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support import cuda_on_cpu
from tests.support.gpu_programs import PROGRAMS, as_float, typed

pytestmark = pytest.mark.skipif(
    cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler on this machine"
)


@pytest.mark.spread
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]()
    given = program.arrays()
    arrays = {n: cuda_on_cpu.aligned(a) for n, a in typed(program, given).items()}
    error = cuda_on_cpu.run(program.module, list(arrays.values()), program.extents, tmp_path)
    assert error == 0
    tolerance = 1e-5 if name in ("functions", "two_kernels") else 0
    for out, expected in program.reference(given).items():
        np.testing.assert_allclose(as_float(arrays[out]), expected, rtol=tolerance, atol=tolerance)


def test_an_argument_that_is_not_aligned_is_refused(tmp_path: Path) -> None:
    program = PROGRAMS["copy"]()
    arrays = [cuda_on_cpu.aligned(np.zeros(257, "float32"))[1:] for _ in range(2)]
    assert cuda_on_cpu.run(program.module, arrays, {}, tmp_path) == 716
