"""Products of matrices that both lie along the sum, as a linear layer's on a CPU."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import product
from tests.support.depthwise import TOLERANCE, run

from tilewright import te
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import choose
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Gemm
from tilewright.topi.templates import TEMPLATES

CPU = Target.parse("llvm")
DOTS = TEMPLATES["cpu.dots"]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_they_are_right_by_every_tile(data):
    size = st.integers(1, 40)
    p = Gemm(
        m=data.draw(st.integers(1, 12)), n=data.draw(size), k=data.draw(size),
        batch=data.draw(st.sampled_from((1, 1, 3))), transpose_b=True,
        dtype=data.draw(st.sampled_from(("float32", "float64", "float16", "bfloat16"))),
        epilogue=data.draw(st.sampled_from(((), ("bias",), ("bias", "relu")))),
    )  # fmt: skip
    assert DOTS.fits(p, CPU)
    tile = data.draw(st.sampled_from(DOTS.candidates(p, CPU)))
    (found,) = [a for a in algorithms() if isinstance(a, Scheduled) and a.name == DOTS.name]
    error = run(p, found.kernel(p, tile, CPU), exact=product)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


def test_a_linear_layer_of_few_rows_is_computed_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert str(choose(Gemm(m=1, n=1000, k=512, transpose_b=True), "llvm")).startswith(DOTS.name)
    for other in (
        Gemm(m=1, n=1000, k=512),
        Gemm(m=1, n=1000, k=512, transpose_a=True, transpose_b=True),
        Gemm(m=64, n=64, k=64, transpose_b=True),
    ):
        assert not DOTS.fits(other, CPU)


@pytest.mark.parametrize(("turned", "dots"), [((False, True), True), ((False, False), False),
                                              ((True, True), False)])  # fmt: skip
def test_as_matmul_says_whether_sums_are_dot_products(turned, dots):
    d = Gemm(m=5, n=6, k=7, transpose_a=turned[0], transpose_b=turned[1]).declare()
    s = te.create_schedule(d.output.op)
    assert s.as_matmul(d.output).dots is dots
