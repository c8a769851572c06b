"""Channels-last gradients by the filter in 16 bits, from diagonals of products: right at every
edge."""

import re

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.topi import Problem
from tilewright.topi.gpu.depthwise_wgrad_diagonal import DiagonalGradientTile
from tilewright.topi.templates import TEMPLATES

SM_90A = tilewright.Target.parse("cuda -arch=sm_90a")
TEMPLATE = TEMPLATES["gpu.diagonal_wgrad"]


def problem(image, filter, dtype="float16", **more):
    return Problem.parse(image, filter, dtype=dtype, layout="NHWC", pass_="wgrad", **more)


def build(p, tile, target="sim", batch=None):
    assert TEMPLATE.fits(p, SM_90A)
    d = TEMPLATE.declare(p, tile, batch)
    return tilewright.build(TEMPLATE.schedule(d, tile), d.args, target)


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem((2, 16, 9, 20), (16, 1, 5, 5), padding=2), DiagonalGradientTile(4, 1, 1, 1, 2, 2)),
        (problem((3, 24, 9, 9), (24, 1, 3, 3), "bfloat16", stride=2, padding=1),
         DiagonalGradientTile(2, 2, 1, 3, 2, 4)),
        (problem((1, 32, 9, 9), (32, 1, 3, 4), padding=(1, 2, 0, 3), dilation=2),
         DiagonalGradientTile(2, 2, 1, 2, 2, 2)),
        (problem((2, 40, 7, 39), (40, 1, 3, 7), padding=1),
         DiagonalGradientTile(4, 1, 3, 4, 1, 1)),
        (problem((2, 32, 15, 8), (32, 1, 6, 1), "bfloat16", stride=(4, 1), padding=(0, 1, 9, 0)),
         DiagonalGradientTile(2, 2, 1, 4, 3, 8)),  # one tap a row
    ],
    ids=str,
)  # fmt: skip
def test_every_edge_is_right_on_the_simulator(p, tile):
    assert run(p, build(p, tile)) < TOLERANCE[p.dtype]


def test_batches_may_be_left_to_the_call():
    p = problem((3, 16, 6, 6), (16, 1, 3, 3), padding=1)
    kernel = build(p, DiagonalGradientTile(2, 1, 1, 2), batch=tilewright.te.var("n"))
    assert run(p, kernel) < TOLERANCE["float16"]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_a_warp_loads_serves_all_products_with_it(dtype):
    p = problem((64, 144, 56, 56), (144, 1, 5, 5), dtype, padding=2)
    kernel = build(p, DiagonalGradientTile(8, 1, 4, 3, 2, 44), SM_90A)
    used = kernel.resources["main_kernel"]
    assert used.spills == 0
    assert used.registers <= 160
    assert "UTMALDG" in kernel.assembly
    assert len(re.findall(r"\bHMMA\.16816", kernel.assembly)) == 8 * 5 * 3
    assert len(re.findall(r"\bLDSM\.16\.M", kernel.assembly)) == 12 * 3 + 4


@pytest.mark.parametrize(("k", "size"), [(3, 112), (5, 56), (7, 7), (9, 32)])
def test_tiles_fit_and_each_is_named_once(k, size):
    p = problem((64, 96, size, size), (96, 1, k, k), padding=k // 2)
    tiles = TEMPLATE.tiles(p, SM_90A)
    assert len(tiles) == len(set(tiles)) > 0


def test_filters_that_do_not_fit_registers_are_left_to_others():
    p = problem((64, 96, 32, 32), (96, 1, 31, 31), padding=15)
    assert not TEMPLATE.fits(p, SM_90A)
