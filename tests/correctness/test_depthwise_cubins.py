"""The library's GPU schedules compile for three architectures, their sums in registers."""

from __future__ import annotations

from itertools import cycle

import pytest
from tests.support.articles import ARCHITECTURES, spills

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.topi import Conv
from tilewright.topi.templates import default_schedule

pytestmark = pytest.mark.needs_nvrtc

#: One problem a pass and layout, of shapes and types that models have.
PROBLEMS = [
    Conv.parse("64x144x56x56", "144x1x3x3", padding=1, layout="NHWC", dtype="float16",
                  epilogue="scale_shift+relu6"),
    Conv.parse("64x96x56x56", "96x1x7x7", padding=3, pass_="dgrad"),
    Conv.parse("64x64x112x112", "64x1x3x3", padding=1, stride=2, pass_="dgrad", layout="NHWC"),
    Conv.parse("64x144x56x56", "144x1x3x3", padding=1, pass_="wgrad"),
    Conv.parse("64x144x56x56", "144x1x3x3", padding=1, pass_="wgrad", layout="NHWC",
                  dtype="bfloat16"),
]  # fmt: skip


@pytest.mark.parametrize(("p", "arch"), list(zip(PROBLEMS, cycle(ARCHITECTURES))), ids=str)
def test_the_default_schedule_spills_nothing(p, arch):
    declaration, schedule = default_schedule(p, f"cuda -arch={arch}")
    assert spills(schedule, declaration.args, arch) == 0


@pytest.mark.parametrize(
    ("epilogue", "takes", "takes_not"),
    [
        ("bias+silu", "MUFU", "CALL"),
        ("relu", "FMNMX.NAN", "FSETP"),
        ("relu6", "FMNMX.NAN", "FSETP"),
    ],
)
def test_an_activation_is_few_instructions(epilogue, takes, takes_not):
    p = Conv.parse("1x32x28x28", "32x1x3x3", padding=1, epilogue=epilogue)
    declaration, schedule = default_schedule(p, "cuda -arch=sm_90a")
    text = tilewright.build(schedule, declaration.args, "cuda -arch=sm_90a").assembly
    assert takes in text
    assert takes_not not in text


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_normalisation_is_one_instruction_a_result(layout):
    """Its scale and shift are computed once a channel, with an approximation of the hardware."""
    p = Conv.parse("8x64x32x32", "64x1x3x3", padding=1, layout=layout, dtype="float16")
    texts = []
    for epilogue in ("scale_shift", "wide_batch_norm"):
        declaration, schedule = default_schedule(p.replace(epilogue=epilogue), "cuda -arch=sm_90a")
        texts.append(tilewright.build(schedule, declaration.args, "cuda -arch=sm_90a").assembly)
    plain, normalised = (sum(opcodes(text).values()) for text in texts)
    assert 1 <= texts[1].count("MUFU.RSQ") <= 8  # the channels of a thread
    assert normalised <= 1.1 * plain


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_bias_before_all_other_steps_costs_no_addition(layout):
    """Sums begin with it."""
    p = Conv.parse("1x32x28x28", "32x1x3x3", padding=1, layout=layout)
    declaration, schedule = default_schedule(p, "cuda -arch=sm_90a")
    plain = tilewright.build(schedule, declaration.args, "cuda -arch=sm_90a").assembly
    declaration, schedule = default_schedule(p.replace(epilogue="bias"), "cuda -arch=sm_90a")
    text = tilewright.build(schedule, declaration.args, "cuda -arch=sm_90a").assembly
    for sum_of in ("FADD", "FFMA"):
        assert text.count(sum_of) == plain.count(sum_of)
