"""Planes by bands of filters on tensor cores: right at every edge, and what is multiplied."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, run
from tests.support.hopper import skip_unless_hopper

import tilewright
from tilewright.ir.errors import LanguageError
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.pieces.plane_band_cuts import band_cut, row_conflicts
from tilewright.topi.pieces.strip_tiles import PlaneBandTile
from tilewright.topi.sketches.strips import schedule_strips
from tilewright.topi.templates import TEMPLATES

SM_90A = tilewright.Target.parse("cuda -arch=sm_90a")
TEMPLATE = TEMPLATES["gpu.plane_bands"]


def problem(image, filter, dtype="float16", pass_="forward", **more):
    return Conv.parse(image, filter, dtype=dtype, pass_=pass_, **more)


def schedule(p, tile, batch=None):
    return TEMPLATE.scheduled(p, tile, batch)


def build(p, tile, target="sim", batch=None):
    assert TEMPLATE.fits(p, SM_90A)
    return tilewright.build(*schedule(p, tile, batch), target)


@pytest.mark.parametrize("width", [28, 14, 10])
@pytest.mark.parametrize("k", [3, 7])
def test_rows_of_any_even_width_are_copied_in_chunks(width, k):
    p = problem((3, 4, 9, width), (4, 1, k, k), padding=k // 2)
    tile = PlaneBandTile(3, 4, 2, 1, -(-width // 16), 2, 2, 2, boxed=0)
    assert run(p, build(p, tile)) < TOLERANCE["float16"]
    assert not any(t.boxed for t in TEMPLATE.candidates(p, SM_90A))


@pytest.mark.parametrize("boxed", [1, 0])
def test_batches_may_be_left_to_the_call(boxed):
    p, n = problem((3, 2, 6, 8), (2, 1, 3, 3), padding=1), tilewright.te.var("n")
    tile = PlaneBandTile(3, 2, 1, 1, 1, 1, boxed=boxed)
    assert run(p, build(p, tile, batch=n)) < TOLERANCE["float16"]


@pytest.mark.parametrize("target", ["sim", pytest.param(SM_90A, marks=pytest.mark.needs_cuda)])
def test_what_is_not_finite_spreads_to_the_outputs_of_a_product_alone(target):
    if target is SM_90A:
        skip_unless_hopper()
    p = problem((1, 2, 8, 32), (2, 1, 3, 3), padding=1)
    x = np.ones((1, 2, 8, 32), "float16")
    x[0, 1, 4, 12] = np.nan
    y = np.empty_like(x)
    build(p, PlaneBandTile(2, 4, 1, 1, 4, 1), target)(x, np.ones((2, 1, 3, 3), "float16"), y)
    assert np.isfinite(y[0, 0]).all()
    assert np.isfinite(np.delete(y[0, 1], (3, 4, 5), axis=0)).all()
    assert np.isnan(y[0, 1, 3:6, 11:14]).all()
    assert np.isfinite(y[0, 1, :, 24:]).all()


@pytest.mark.needs_nvrtc
def test_a_row_of_strips_is_read_once_for_all_rows_of_results_that_see_it():
    p = problem((64, 144, 56, 56), (144, 1, 5, 5), padding=2)
    kernel = build(p, PlaneBandTile(7, 8, 1, 1, 7, 1), SM_90A)
    found = re.findall(r"\b(HMMA|UTMALDG|LDS\.64)\b", kernel.assembly)
    assert found.count("HMMA") == 7 * 5  # rows of results by rows of the filter
    assert found.count("LDS.64") == 2 * 11  # halves of the rows of A, of seven rows and their halo
    assert "UTMALDG" in found
    assert kernel.resources["main_kernel"].spills == 0


def test_rows_of_a_tile_are_as_long_as_meets_no_bank_twice():
    p = problem((64, 144, 56, 56), (144, 1, 5, 5), padding=2)
    for tile in (PlaneBandTile(7, 8, 1, 1, 7, 1), PlaneBandTile(14, 4, 1), PlaneBandTile(14, 1, 8)):
        assert row_conflicts(band_cut(p, tile)) == 1
    rows_of_128_bytes = replace(band_cut(p, PlaneBandTile(7, 8, 1)), row_stride=64)
    assert row_conflicts(rows_of_128_bytes) == 4


def test_tiles_of_the_library_are_right():
    p = problem((3, 6, 15, 16), (6, 1, 5, 5), padding=2)
    for tile in TEMPLATE.candidates(p, SM_90A)[::25]:
        assert run(p, build(p, tile)) < TOLERANCE["float16"], tile


def test_more_strips_and_groups_than_a_product_has_rows_are_an_error():
    p = problem((2, 4, 8, 8), (4, 1, 3, 3))
    with pytest.raises(LanguageError, match="strips by groups .* 1 to 16, not 8 by 4"):
        schedule(p, PlaneBandTile(1, 8, 4))
    with pytest.raises(LanguageError, match="powers of two .* not 3 by 1"):
        schedule(p, PlaneBandTile(1, 3, 1))
    with pytest.raises(LanguageError, match="rows is 0, where 1 is the least"):
        schedule_strips(declare(p), PlaneBandTile(0, 8, 1))


@pytest.mark.parametrize(
    "p",
    [
        problem((2, 4, 8, 8), (4, 1, 3, 3), "float32"),
        problem((2, 4, 8, 8), (8, 1, 3, 3)),
        problem((2, 4, 16, 16), (4, 1, 3, 3), pass_="dgrad", stride=2, padding=1),
    ],
    ids=str,
)
def test_problems_without_bands_are_an_error(p):
    with pytest.raises(LanguageError, match="has no products with bands"):
        schedule(p, PlaneBandTile())


@pytest.mark.parametrize("name", ["gpu.plane_bands", "gpu.channel_pairs", "gpu.sparse_pairs"])
def test_tiles_of_more_images_than_there_are_go_to_no_next_one_and_may_have_a_residual(name):
    layout = "NCHW" if name == "gpu.plane_bands" else "NHWC"
    p = problem((3, 16, 12, 24), (16, 1, 7, 7), layout=layout, padding=3, epilogue=("residual",))
    template = TEMPLATES[name]
    deep = [
        t for t in template.candidates(p, SM_90A)
        if (t.matrix[0] if layout == "NCHW" else t.images_per_mma) > p.batch
    ]  # fmt: skip
    assert deep
    assert {t.turns for t in deep} == {1}
    for tile in deep[:: max(1, len(deep) // 5)]:
        assert tilewright.lower(*template.scheduled(p, tile), SM_90A)
