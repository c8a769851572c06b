"""Convolution by way of spectra: right for every place that taps may have, and no spills."""

from __future__ import annotations

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright import te
from tilewright.target import Target
from tilewright.topi import Problem
from tilewright.topi.gpu.depthwise_fourier import FourierTile
from tilewright.topi.nn.depthwise_fourier import along, multiplications
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.fourier"]
#: Of small matrices, which it does not divide.
TILE = FourierTile(16, 4, 4)


def problem(data, filter, **more):
    return Problem.parse(data, filter, **more)


LARGE = problem("64x384x64x64", "384x1x63x63", padding=31)
PASSES = ["forward", "dgrad", "wgrad"]


def kernel(p, tile, target, batch=None):
    declared = TEMPLATE.declare(p, tile, batch)
    return tilewright.build(TEMPLATE.schedule(declared, tile), declared.args, target)


@pytest.mark.parametrize(
    "p",
    [
        problem("2x2x9x8", "2x1x5x7", padding=(2, 3)),
        problem("2x1x7x10", "1x1x7x3", padding=(0, 4, 5, 1), stride=(2, 3), dtype="float16"),
        problem("1x2x11x9", "2x1x3x4", padding=3, dilation=(2, 3), dtype="bfloat16"),
        problem("2x2x6x7", "2x1x6x7", padding=9, stride=2, dilation=(1, 2)),
        problem("2x1x8x8", "1x1x8x8", padding=4, dtype="float64"),
    ],
    ids=str,
)
@pytest.mark.parametrize("pass_", PASSES)
def test_products_of_spectra_are_convolutions(p, pass_):
    p = p.replace(pass_=pass_)
    assert run(p, kernel(p, TILE, "sim")) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("pass_", ["forward", "wgrad"])
def test_a_channel_may_have_several_filters(pass_):
    p = problem("3x2x7x6", "2x2x5x5", padding=2, pass_=pass_)
    p = p.replace(epilogue="bias+relu") if pass_ == "forward" else p
    assert run(p, kernel(p, TILE, "sim")) < TOLERANCE["float32"]


def test_one_kernel_serves_every_batch():
    p = problem("1x2x7x6", "2x1x5x5", padding=2)
    made = kernel(p, TILE, "sim", te.var("n"))
    for batch in (1, 3):
        assert run(p.replace(batch=batch), made) < TOLERANCE["float32"]


def test_a_period_is_no_longer_than_what_comes_around_asks_for():
    """64 rows and half a filter beyond either end, of which one side may come around."""
    assert [a.period for a in along(LARGE)] == [96, 96]
    assert [a.period for a in along(problem("1x1x64x64", "1x1x31x31"))] == [64, 64]


def test_it_is_for_filters_of_more_taps_than_transforms_take():
    target = Target.parse("cuda -arch=sm_90a")
    for pass_ in PASSES:
        p = LARGE.replace(pass_=pass_)
        assert TEMPLATE.fits(p, target)
        assert multiplications(p) * 2 < p.flops // 2
    assert not TEMPLATE.fits(problem("64x384x64x64", "384x1x13x13", padding=6), target)
    assert not TEMPLATE.fits(LARGE.replace(layout="NHWC"), target)
    assert not TEMPLATE.fits(LARGE.replace(batch=1024), target)  # spectra of some 30 GB


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pass_", ["forward", "wgrad"])
def test_products_are_summed_in_registers(pass_, arch):
    p, target = LARGE.replace(pass_=pass_), Target.parse(f"cuda -arch={arch}")
    program = kernel(p, TEMPLATE.candidates(p, target)[0], target).program
    shared = [used for used in program.resources.values() if used.shared_memory]
    assert len(shared) == 6  # two products a transform
    assert all(used.spills == used.stack == 0 for used in shared)
    assert all(used.spills == 0 for used in program.resources.values())
