"""Channels-last convolutions in 16 bits, by products with diagonals: right at every edge."""

import re

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.topi import Problem
from tilewright.topi.gpu.depthwise_wgrad_diagonal import DiagonalGradientTile
from tilewright.topi.gpu.diagonal_blocks import DiagonalTile
from tilewright.topi.templates import TEMPLATES

SM_90A = tilewright.Target.parse("cuda -arch=sm_90a")
DENSE, SPARSE, GRADIENT = "gpu.diagonal", "gpu.sparse_diagonal", "gpu.diagonal_wgrad"
FORMS = [DENSE, SPARSE]


def problem(image, filter, dtype="float16", pass_="forward", **more):
    return Problem.parse(image, filter, dtype=dtype, layout="NHWC", pass_=pass_, **more)


def build(name, p, tile, target="sim", batch=None):
    template = TEMPLATES[name]
    assert template.fits(p, SM_90A)
    d = template.declare(p, tile, batch)
    return tilewright.build(template.schedule(d, tile), d.args, target)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem((2, 16, 9, 20), (16, 1, 5, 5), padding=2), DiagonalTile(4, 1, 2, 1)),
        (problem((5, 16, 9, 20), (16, 1, 3, 5), padding=2), DiagonalTile(4, 1, 2, 2, 3, 2, 2)),
        (problem((1, 24, 9, 9), (24, 1, 3, 3), "bfloat16", stride=2, padding=1),
         DiagonalTile(2, 2, 1, 3, 2, 2)),
        (problem((1, 24, 11, 9), (24, 1, 3, 4), padding=(1, 2, 0, 3), dilation=2),
         DiagonalTile(2, 2, 1, 2, 2, 2)),  # swizzled, channels of two blocks
        (problem((1, 40, 7, 9), (40, 1, 3, 7), pass_="dgrad", padding=1), DiagonalTile(4, 1, 1, 4)),
        (problem((2, 8, 8, 33), (8, 1, 1, 2), stride=(1, 3)), DiagonalTile(2, 1, 1, 1, 3, 3)),
        (problem((1, 8, 13, 17), (8, 1, 2, 3), padding=1, stride=3), DiagonalTile(4, 1, 1, 1)),
        (problem((1, 16, 2, 5), (16, 1, 2, 3), padding=(6, 1, 0, 1), stride=(4, 1)),
         DiagonalTile(2, 1, 1, 2)),  # all that is seen is padding
    ],
    ids=str,
)  # fmt: skip
def test_every_edge_is_right_on_the_simulator(form, p, tile):
    assert run(p, build(form, p, tile)) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem((2, 16, 9, 20), (16, 1, 5, 5), padding=2, pass_="wgrad"),
         DiagonalGradientTile(4, 1, 1, 1, 2, 2)),
        (problem((3, 24, 9, 9), (24, 1, 3, 3), "bfloat16", "wgrad", stride=2, padding=1),
         DiagonalGradientTile(2, 2, 1, 3, 2, 4)),
        (problem((1, 32, 9, 9), (32, 1, 3, 4), pass_="wgrad", padding=(1, 2, 0, 3), dilation=2),
         DiagonalGradientTile(2, 2, 1, 2, 2, 2)),
        (problem((2, 40, 7, 39), (40, 1, 3, 7), pass_="wgrad", padding=1),
         DiagonalGradientTile(4, 1, 3, 4, 1, 1)),
        (problem((2, 32, 15, 8), (32, 1, 6, 1), "bfloat16", "wgrad", stride=(4, 1),
                 padding=(0, 1, 9, 0)), DiagonalGradientTile(2, 2, 1, 4, 3, 8)),  # one tap a row
    ],
    ids=str,
)  # fmt: skip
def test_every_edge_of_a_gradient_by_the_filter_is_right_on_the_simulator(p, tile):
    assert run(p, build(GRADIENT, p, tile)) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("form", FORMS)
def test_an_epilogue_is_fused(form):
    p = problem((1, 16, 6, 20), (16, 1, 3, 3), padding=1, epilogue=("bias", "silu", "residual"))
    assert run(p, build(form, p, DiagonalTile(2, 1, 2, 1, 3, 2))) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("name", "tile"),
    [(DENSE, DiagonalTile(4, 1, 1, 2)), (SPARSE, DiagonalTile(4, 1, 1, 2, 2, 2, 2)),
     (GRADIENT, DiagonalGradientTile(2, 1, 1, 2))],
    ids=[*FORMS, GRADIENT],
)  # fmt: skip
def test_batches_may_be_left_to_the_call(name, tile):
    pass_ = "wgrad" if name == GRADIENT else "forward"
    p = problem((3, 16, 6, 6), (16, 1, 3, 3), pass_=pass_, padding=1)
    assert run(p, build(name, p, tile, batch=tilewright.te.var("n"))) < TOLERANCE["float16"]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "tile", "instruction", "products", "loads"),
    [
        (DENSE, DiagonalTile(8, 1, 4, 3, 7, 2), "HMMA.16816", 8 * 5 * 3, 12 * 3),
        (SPARSE, DiagonalTile(8, 1, 7, 3, 7, 2), "HMMA.SP.16832", 4 * 5 * 2, (4 + 2) * 5),
        (GRADIENT, DiagonalGradientTile(8, 1, 4, 3, 2, 44), "HMMA.16816", 8 * 5 * 3, 12 * 3 + 4),
    ],
    ids=[*FORMS, GRADIENT],
)
def test_what_a_warp_loads_serves_all_products_with_it(
    name, tile, instruction, products, loads, dtype
):
    pass_ = "wgrad" if name == GRADIENT else "forward"
    p = problem((64, 144, 56, 56), (144, 1, 5, 5), dtype, pass_, padding=2)
    kernel = build(name, p, tile, SM_90A)
    used = kernel.resources["main_kernel"]
    assert used.spills == 0
    assert used.registers <= 128
    assert "UTMALDG" in kernel.assembly
    assert len(re.findall(rf"\b{re.escape(instruction)}", kernel.assembly)) == products
    assert len(re.findall(r"\bLDSM\.16\.M", kernel.assembly)) == loads


@pytest.mark.parametrize(
    ("name", "pass_"),
    [*((form, pass_) for form in FORMS for pass_ in ("forward", "dgrad")), (GRADIENT, "wgrad")],
)
@pytest.mark.parametrize(("k", "size"), [(3, 112), (5, 56), (7, 7), (9, 32)])
def test_tiles_fit_and_each_is_named_once(k, size, name, pass_):
    p = problem((64, 96, size, size), (96, 1, k, k), pass_=pass_, padding=k // 2)
    tiles = TEMPLATES[name].tiles(p, SM_90A)
    assert len(tiles) == len(set(tiles)) > 0


@pytest.mark.parametrize(
    ("name", "pass_"), [(DENSE, "forward"), (SPARSE, "dgrad"), (GRADIENT, "wgrad")]
)
def test_filters_that_do_not_fit_registers_are_left_to_others(name, pass_):
    p = problem((64, 96, 32, 32), (96, 1, 31, 31), pass_=pass_, padding=15)
    assert not TEMPLATES[name].fits(p, SM_90A)
