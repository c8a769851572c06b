"""Every template, with all of its parameters, computes every problem that it is for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depthwise import TOLERANCE, problems, run

import tilewright
from tilewright.target import Target
from tilewright.topi import Problem
from tilewright.topi.declare import declare
from tilewright.topi.templates import candidates

CPU = ["llvm -threads=1", "llvm -arch=avx2"]


@given(st.data())
@settings(max_examples=max(1, settings().max_examples // 2))
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_a_problem_on_a_cpu(pass_, layout, data):
    p = data.draw(
        problems(pass_=pass_).filter(lambda p: p.layout.endswith("C") == (layout == "last"))
    )
    target = Target.parse(data.draw(st.sampled_from(CPU)))
    template, config = data.draw(st.sampled_from(list(candidates(p, target))))
    found = declare(p)
    kernel = tilewright.build(template.schedule(found, config), found.args, target)
    assert run(p, kernel) < TOLERANCE[p.dtype]


@given(st.data())
@settings(max_examples=max(1, settings().max_examples // 4))
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_a_problem_on_a_simulated_gpu(pass_, layout, data):
    p = data.draw(problems(pass_=pass_).filter(lambda p: _small(p, layout)))
    template, config = data.draw(st.sampled_from(list(candidates(p, "sim"))))
    found = declare(p)
    kernel = tilewright.build(template.schedule(found, config), found.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


def _small(p: Problem, layout: str) -> bool:
    outputs = p.batch * p.out_channels * p.out_image[0] * p.out_image[1]
    return outputs < 2000 and p.layout.endswith("C") == (layout == "last")


def test_a_vector_of_bfloat16_ends_with_the_row():
    for width in (1, 9, 17):
        p = Problem.parse((1, 1, 1, width), (1, 1, 1, 1), dtype="bfloat16")
        for template, config in candidates(p, "llvm"):
            found = declare(p)
            kernel = tilewright.build(template.schedule(found, config), found.args)
            assert run(p, kernel) < TOLERANCE["bfloat16"]
