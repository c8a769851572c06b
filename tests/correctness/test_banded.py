"""Depthwise convolution becomes products with banded matrices by schedule, of tensor cores."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.ir.errors import LoweringError
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.pieces.band_tiles import (
    BandTile,
    GradientTile,
    RowTile,
    StagedTile,
    ToeplitzTile,
    WarpTile,
)
from tilewright.topi.sketches.banded import schedule_banded


def problem(batch: int, channels: int, image: int, taps: int, **more: Any) -> Conv:
    given: dict[str, Any] = {"padding": taps // 2, "dtype": "float16", "multiplier": 1} | more
    filter = (channels, given.pop("multiplier"), taps, taps)
    return Conv.parse((batch, channels, image, image), filter, **given)


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(2, 1, 20, 5), RowTile(1, 16, 1, 1, 1)),  # tiles that stand out
        (problem(3, 1, 24, 7, dilation=2), RowTile(1, 16, 2, 2, 3)),
        (problem(1, 2, 17, 3, padding=0, dtype="bfloat16"), RowTile(1, 16, 1, 1, 2)),
        (problem(1, 1, 30, 5, padding=1, stride=(1, 2)), RowTile(2, 16, 1, 1, 2)),
        (problem(1, 1, 30, 5, padding=1, stride=2), RowTile(1, 16, 1, 1, 2)),
        (problem(1, 1, 14, 15, epilogue="bias+relu"), RowTile(1, 16, 1, 1, 2)),  # whole rows
        (problem(1, 2, 9, 3, multiplier=2), RowTile(1, 16, 1, 1, 1)),
        (problem(1, 2, 18, 5, pass_="dgrad"), RowTile(1, 16, 1, 1, 2)),
        (problem(20, 2, 9, 9, pass_="dgrad", dtype="bfloat16"), WarpTile(4, 16, 1, 2, 2, 2, 3)),
        (problem(3, 1, 15, 3, stride=2), WarpTile(1, 16, 1, 1, 1, 5)),
        (problem(33, 1, 12, 3, dilation=(2, 3)), WarpTile(2, 16, 2, 1, 1, 3, 1)),
        (problem(3, 2, 11, 5, stride=(3, 1), multiplier=2), ToeplitzTile(2, 16, 2, 1, 2)),
        (problem(70, 1, 9, 7, padding=(3, 2, 2, 1)), ToeplitzTile(4, 8, 2, 1)),
    ],
    ids=str,
)
def test_every_edge_is_right(p: Conv, tile: BandTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(5, 2, 12, 7, pass_="wgrad"), GradientTile(1, 16, 2, 2, 2)),
        (
            problem(3, 2, 19, 9, pass_="wgrad", stride=2, dtype="bfloat16"),
            GradientTile(1, 16, 4, 1),
        ),
        (problem(4, 1, 11, 4, pass_="wgrad", dilation=(1, 2)), GradientTile(1, 16, 4, 4, 2)),
        (problem(1, 3, 16, 7, pass_="wgrad"), GradientTile(1, 16, 1, 1, 2)),
        (problem(3, 1, 34, 19, pass_="wgrad", multiplier=2), GradientTile(2, 32, 1, 2, 1)),
    ],
    ids=str,
)
def test_every_edge_of_a_gradient_is_right(p: Conv, tile: GradientTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(70, 1, 10, 5), StagedTile(2, 16, 2, 2, 4, 2)),
        (problem(3, 2, 12, 7, stride=2), StagedTile(2, 8, 2, 1, 0, 1)),
        (
            problem(5, 3, 16, 9, pass_="dgrad", dtype="bfloat16"),
            StagedTile(2, 16, 2, 3, 2, 3, 3, 16),
        ),
        (problem(2, 2, 24, 7, stride=2), StagedTile(2, 16, 2, 2, 2, 3, 2, 16)),
        (problem(2, 1, 10, 3, dilation=(2, 1)), StagedTile(1, 8, 4, 1, 2, 2)),
    ],
    ids=str,
)
def test_every_edge_of_staged_images_is_right(p: Conv, tile: StagedTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


def test_what_is_staged_of_whole_rows_is_what_there_is_of_them() -> None:
    """As many boxes as a row has, though windows begin in the padding, between two of them."""
    p, tile = problem(64, 3, 64, 21, pass_="dgrad"), StagedTile(1, 64, 4, 16, 2, 3, 3, 64)
    d = declare(p)
    text = str(tilewright.lower(schedule_banded(d, tile), d.args, "cuda -arch=sm_90a"))
    assert "PaddedGrad_shared = T.allocate([3, 1, 1, 2, 1, 64, 64]" in text


def test_rows_that_do_not_lie_as_instructions_read_them_are_refused() -> None:
    d = declare(problem(1, 1, 16, 3, stride=3))
    with pytest.raises(LoweringError, match="is not one bit of one index"):
        tilewright.lower(schedule_banded(d, RowTile()), d.args, "sim")
