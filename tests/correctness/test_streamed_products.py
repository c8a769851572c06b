"""Products whose large matrix goes from memory into registers: on sim, proved, on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.codegen.cuda import generate
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.topi import Gemm
from tilewright.topi.sketches.streamed_products import StreamTile
from tilewright.topi.templates import candidates
from tilewright.verify import check

NAME = "gpu.streamed_products"


def _gemm(m: int, n: int, k: int, dtype: str = "float16", **values: Any) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=dtype, transpose_b=True, **values)


#: Few rows and few columns, ends of rows, columns and sums that are no whole tiles, a batch.
CASES = [
    (_gemm(3, 40, 72, epilogue="bias+relu"), StreamTile(16, 2, 1)),
    (_gemm(40, 20, 136, "bfloat16"), StreamTile(16, 2, 1)),
    (_gemm(20, 5, 80, "int8", accumulate="int32"), StreamTile(16, 1, 1)),
    (_gemm(1, 24, 40, batch=3), StreamTile(16, 1, 2)),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_they_are_right(p: Gemm, tile: StreamTile, target: str) -> None:
    check_tile(NAME, p, tile, target)


@pytest.mark.needs_nvrtc
def test_threads_load_16_bytes_into_the_registers_that_are_multiplied() -> None:
    module = module_of(NAME, _gemm(8, 1024, 1024), StreamTile(16, 8, 2))
    assert check(module.funcs[0]) == []
    code = disassemble(compile_cubin(generate(module, "sm_90a").text, "sm_90a").data)
    loads = [line for line in code.splitlines() if "LDG" in line]
    assert loads
    assert all(".128" in line for line in loads)
    assert "STL" not in code


@pytest.mark.parametrize(("m", "n", "is_so"), [(1, 4800, True), (8, 6024, True), (32, 4800, False)])
def test_they_are_chosen_where_one_matrix_has_up_to_eight_rows(m: int, n: int, is_so: bool) -> None:
    template, _ = next(iter(candidates(_gemm(m, n, 2048), HOPPER)))
    assert (template.name == NAME) == is_so
