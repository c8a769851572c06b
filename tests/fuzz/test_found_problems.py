"""Problems that the search on a GPU found a candidate wrong for, once made right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.search import check, of_this_device

import tilewright
from tilewright.select.registry import find
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.pieces.band_tiles import StagedTile
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, candidates, templates

ROLLED = Conv.parse(
    (3, 130, 64, 14), (130, 1, 3, 3), stride=4, padding=(0, 2, 1, 7), dilation=(2, 3),
    dtype="float16", epilogue=("clamp(-0.5, 1)", "leaky_relu(0.2)", "residual"),
)  # fmt: skip
ROLLING = {"planes": 2, "rows": 2, "columns": 7, "by_row": 1}
RAGGED = Conv.parse((1, 8, 2, 9), (8, 1, 2, 5), padding=3)
PADDED_ROW = {
    "rows": 6, "vector": 4, "threads_y": 2, "threads_x": 3, "channels": 8, "taps": 2, "by_row": 1
}  # fmt: skip
TAIL = Conv.parse(
    (1, 1, 3, 5), (1, 1, 7, 7), stride=(1, 2), padding=(2, 1), dtype="bfloat16", layout="NHWC",
    epilogue=("gelu",),
)  # fmt: skip


def test_one_thread_stores_the_only_result_of_a_plane() -> None:
    """No loop goes to it, whose variable would say which thread holds it."""
    p = Conv.parse(
        (1, 2, 9, 19), (2, 1, 7, 7), stride=4, padding=(5, 0, 5, 0), dilation=3, dtype="bfloat16",
        epilogue=("scale_shift",),
    )  # fmt: skip
    tile = {
        "rows": 1, "columns": 16, "images": 1, "groups": 1, "teams": 1, "turns": 1, "stages": 2
    }  # fmt: skip
    check(p, "gpu.toeplitz_warps", tile, "sim")


def test_threads_share_all_rows_that_several_new_ones_of_a_rolling_stage_read() -> None:
    """With stride 4, each turn of a strip adds four rows: the shared image has what all read."""
    found = find("gpu.planes")
    kernel = found.kernel(ROLLED, found.parse(ROLLING), Target.parse("cuda -arch=sm_90a"))
    assert "data" in kernel.source
    check(ROLLED.replace(batch=1, channels=2), "gpu.planes", ROLLING, "sim")


@pytest.mark.parametrize("by_row", [1, 3])
def test_a_row_that_is_all_padding_is_kept_as_whole_as_other_rows(by_row: int) -> None:
    """The first row of every strip is, and the last strip of columns goes beyond the image."""
    check(RAGGED, "gpu.strips", PADDED_ROW | {"by_row": by_row}, "sim")
    pixels = {"rows": 6, "columns": 4, "vector": 4, "threads_y": 3, "threads_x": 2, "taps": 2}
    more = {"by_row": by_row, "threads_z": 2, "keeps": 1}
    check(RAGGED.replace(layout="NHWC"), "gpu.pixels", pixels | more, "sim")


def test_a_turn_of_a_block_that_sees_padding_alone_is_staged_like_any_other() -> None:
    """With one row of taps, the last of 65 rows is below the image."""
    p = Conv.parse((3, 24, 64, 64), (24, 1, 1, 3), padding=(0, 1, 1, 1), dtype="float16")
    template, target = TEMPLATES["gpu.toeplitz_staged"], Target.parse("cuda -arch=sm_90a")
    config = StagedTile(1, 16, 4, 17, 4, 3)
    assert config in template.candidates(p, target)
    tilewright.lower(*template.scheduled(p, config), target)


def test_gelu_of_one_number_far_below_zero() -> None:
    one = dict.fromkeys(
        ("rows", "columns", "vector", "threads_y", "threads_x", "taps", "threads_z"), 1
    )
    check(TAIL, "gpu.pixels", one | {"by_row": 0, "keeps": 0}, "sim")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_gelu_keeps_its_digits_where_it_is_tiny(target: str, dtype: str, tolerance: float) -> None:
    x = np.array([-9, -7.5, -6, -5, -3, -1, -1e-3, 0.5, 3, 40, np.inf, np.nan], dtype)
    p = Conv.parse((1, 1, 1, x.size), (1, 1, 1, 1), dtype=dtype, epilogue=("gelu",))
    template, config = next(iter(candidates(p, target)))
    kernel = tilewright.build(*template.scheduled(p, config), target)
    y = np.full(p.result_shape, math.nan, dtype)
    kernel(x.reshape(p.input_shape), np.ones(p.filter_shape, dtype), y)
    wanted = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype("float64")]
    np.testing.assert_allclose(y.reshape(-1), wanted, rtol=tolerance)


@pytest.mark.parametrize(
    ("layout", "dtype"), [("NCHW", "float32"), ("NCHW", "float16"), ("NHWC", "float16")]
)
def test_images_that_windows_may_miss_are_not_copied_as_boxes(layout: str, dtype: str) -> None:
    """Windows of one row, two rows apart, above and below an image of one row: what a tile sees was
    padding alone, of which no box could be made, and no banded product, as no tap ever counts."""
    p = Conv.parse(
        (8, 16, 1, 8), (16, 1, 1, 2), padding=1, stride=2, dilation=(3, 2), dtype=dtype,
        layout=layout,
    )  # fmt: skip
    found = list(candidates(p, "cuda -arch=sm_90a"))
    assert len(found) > 40
    for template, config in found[::4]:
        assert tilewright.lower(*template.scheduled(p, config), "cuda -arch=sm_90a")


@pytest.mark.parametrize("p", [
    Conv3d.parse((1, 14, 14, 9, 3), (10, 7, 2, 2, 2), 2, stride=(2, 1, 1), dtype="float16"),
    Conv.parse((8, 24, 19, 14), (1040, 3, 4, 1), 8, dtype="bfloat16", layout="NHWC"),
    Conv.parse((1, 4, 9, 9), (2060, 2, 3, 3), 2, dtype="float16"),
    Conv.parse((1, 192, 6), (384, 64, 2), 3, stride=3, dtype="float8_e5m2", layout="NWC",
               padding=(0, 1), out_dtype="float16"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("target", ["sim", "cuda -arch=sm_80", "cuda -arch=sm_90a"])
def test_what_can_do_a_problem_has_parameters_for_it(p: Problem, target: str) -> None:
    """Steps of 8 products were left out where a window has 8 taps and not all threads see the same
    of them, groups of many channels that nothing divides, and sums of float8 that are apart for
    256 channels; then no tile was left."""
    for template in templates(p, target):
        assert template.candidates(p, Target.parse(target)), template.name


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
@pytest.mark.parametrize("target", ["sim", "cuda -arch=sm_80", "cuda -arch=sm_90a"])
def test_volumes_of_bytes_are_for_no_template_of_flat_images(layout: str, target: str) -> None:
    """Products of bytes by warps took them and had no schedule."""
    p = Conv3d.parse((1, 16, 4, 5, 6), (16, 16, 3, 3, 1), padding=1, dtype="int8", layout=layout)
    machine = Target.parse(target)
    found = templates(p, machine)
    assert found
    for template in found:
        tile = template.candidates(p, machine)[0]
        assert tilewright.lower(*template.scheduled(p, tile), machine)


@pytest.mark.needs_cuda
def test_a_descriptor_has_no_more_of_a_place_than_its_address() -> None:
    """Parts of the filter's place lie in front of shared memory here."""
    p = Conv.parse(
        (64, 32, 21, 21), (32, 1, 37, 37), stride=2, padding=18, dtype="bfloat16"
    )  # fmt: skip
    config = {"rows": 8, "columns": 16, "groups": 2, "turns": 1, "stages": 2}
    check(p, "gpu.toeplitz", config, of_this_device("cuda"))
