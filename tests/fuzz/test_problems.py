"""Random problems over every parameter, by any candidate of any schedule, agree with float64.

``HYPOTHESIS_PROFILE=long pytest tests/fuzz/test_problems.py -m needs_cuda -n 14`` searches 5,000
on a GPU, each with random numbers, its output poisoned; and 2,000 with kernels from 7x7 up.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depthwise import TOLERANCE, run
from tests.support.quantized import check_any
from tests.support.search import search

import tilewright
from tilewright.topi import Conv
from tilewright.topi.templates import candidates

#: Examples of one test: a long search is cut up, so that several processes share it.
_SHARD = 100
_TOTAL = settings().max_examples
_SHARDS = [f"{k}" for k in range(-(-_TOTAL // _SHARD))]


def _part(shard: str) -> int:
    return min(_SHARD, _TOTAL - int(shard) * _SHARD)


@pytest.mark.parametrize("shard", _SHARDS)
@pytest.mark.parametrize("target", ["llvm", "llvm -arch=avx2"])
def test_problems_on_a_cpu(target: str, shard: str) -> None:
    search(target, max(1, _part(shard) // 2), shard, work=300_000)


@pytest.mark.parametrize("shard", _SHARDS)
def test_problems_on_a_simulated_gpu(shard: str) -> None:
    search("sim", _part(shard), shard, work=30_000)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("shard", _SHARDS)
def test_problems_on_a_gpu(shard: str) -> None:
    search("cuda", _part(shard), shard)


#: Kernels for which products on tensor cores are made: square ones, any, and bands.
_LARGE = st.one_of(
    st.integers(7, 31).map(lambda k: (k, k)),
    st.tuples(st.integers(7, 31), st.integers(7, 31)),
    st.sampled_from([(51, 5), (5, 51), (7, 25), (31, 9)]),
)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("shard", _SHARDS)
def test_problems_with_large_kernels_on_a_gpu(shard: str) -> None:
    layout = "NHWC" if int(shard) % 4 == 3 else "NCHW"
    search("cuda", _part(shard) * 2 // 5, shard, work=20_000_000, kernels=_LARGE, layout=layout)


@pytest.mark.parametrize("target", [
    "llvm", "llvm -arch=avx2", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
@settings(max_examples=max(1, _TOTAL // 2))
@given(data=st.data())
def test_problems_of_integers(target: str, data: st.DataObject) -> None:
    check_any(data, target)


@pytest.mark.needs_opencl
@settings(max_examples=max(1, _TOTAL // 4))  # PoCL compiles for most of a second
@given(data=st.data())
def test_problems_of_integers_on_opencl(data: st.DataObject) -> None:
    check_any(data, "opencl")


def test_a_vector_of_bfloat16_ends_with_the_row() -> None:
    for width in (1, 9, 17):
        p = Conv.parse((1, 1, 1, width), (1, 1, 1, 1), dtype="bfloat16")
        for template, config in candidates(p, "llvm"):
            kernel = tilewright.build(*template.scheduled(p, config))
            assert run(p, kernel) < TOLERANCE["bfloat16"]
