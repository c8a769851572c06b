"""Tiles of whole windows of an image, whose rows TMA brings as they are read: on sim and on Hopper
GPUs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.boxes import SMALL
from tests.support.tiles import HOPPER, TARGETS, check_tile

from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES

_WINDOWS = (
    {"padding": 1}, {"padding": (0, 2, 1, 1), "dilation": (1, 2)}, {"padding": 1, "stride": (1, 3)},
    {"padding": 1, "pass_": "dgrad"}, {"padding": 1, "pass_": "dgrad", "stride": 2},
    {"padding": (0, 1, 2, 1), "pass_": "dgrad", "stride": (2, 3)},
    {"padding": 1, "epilogue": "bias+residual+relu"},
    {"padding": 2, "dtype": "bfloat16", "groups": 2}, {"padding": 2, "groups": 2, "pass_": "dgrad"},
)  # fmt: skip
#: Rows, boxes, and whether channels are the rows of instructions.
_TILES = ((192, 2, 0), (104, 4, 1), (128, 1, 0))


def _layer(values: dict[str, Any], image: tuple[int, ...], filters: int, *taps: int) -> Conv:
    groups = values.get("groups", 1)
    more = SMALL | {k: v for k, v in values.items() if k != "groups"}
    batch, *size = image
    return Conv.parse((batch, 64 * groups, *size), (filters * groups, 64, *taps), groups, **more)


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", _WINDOWS, ids=str)
def test_tiles_of_windows_go_on_from_one_image_to_the_next(
    values: dict[str, Any], target: str
) -> None:
    """Every tile of the simplest problem, and one of each other."""
    number = _WINDOWS.index(values)
    p = _layer(values, (5, 10, 7), 64, 3, 5)
    for rows, boxes, turned in (_TILES[number % 3],) if number else _TILES:
        tile = BoxProductTile(rows, 1, 1, 64, 3, 1, boxes, turned)
        kernel = check_tile("gpu.window_products", p, tile, target)
        assert f"tma_load_{p.dtype}_{rows}x64_s128_w" in kernel.ir


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("values", "turned"), [
    ({"epilogue": "bias+residual+relu"}, 1), ({"pass_": "dgrad"}, 0),
    ({"padding": 2, "dtype": "bfloat16", "groups": 2}, 0), ({"pass_": "dgrad"}, 1),
    ({"pass_": "dgrad", "padding": 1, "stride": 2}, 0),
    ({"pass_": "dgrad", "padding": (0, 1, 2, 1), "stride": (2, 3)}, 1),
])  # fmt: skip
def test_windows_are_summed_in_parts(values: dict[str, Any], turned: int, target: str) -> None:
    """Also where channels are the rows of instructions."""
    p = _layer(values, (2, 7, 7), 128 // values.get("groups", 1), 3, 3)
    check_tile("gpu.window_splits", p, BoxProductTile(64, 1, 1, 64, 3, 3, 1, turned), target)


def test_windows_are_taken_where_boxes_of_results_stand_out() -> None:
    machine, template = Target.parse(HOPPER), TEMPLATES["gpu.window_products"]
    p = Conv.parse((64, 256, 14, 14), (256, 256, 3, 3), 1, **SMALL)
    assert template.fits(p, machine)
    assert math.prod(template.candidates(p, machine)[0].box) == 192  # so each SM has one tile
    one = Conv.parse((64, 256, 14, 14), (256, 256, 1, 1), 1, dtype="float16", layout="NHWC")
    for other in (
        p.replace(pass_="wgrad"), p.replace(stride=9), one,
        p.replace(padding=(200, 200, 200, 200)), p.replace(kernel_h=1, height=1, padding=0),
    ):  # fmt: skip
        assert not template.fits(other, machine)
