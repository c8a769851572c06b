"""Gradients of convolutions as products of boxes: on sim and on Hopper GPUs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.support.boxes import SMALL, volume
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.templates import TEMPLATES

_ROWS_OF_TAPS = [
    Conv.parse((2, 64, 5, 9), (72, 64, 3, 3), 1, padding=1, layout="NHWC", dtype="bfloat16"),
    Conv.parse((1, 32, 9, 10), (64, 32, 2, 4), 1, stride=(2, 1), layout="NHWC", dtype="float16"),
    Conv.parse((1, 128, 7, 9), (128, 64, 3, 2), 2, **SMALL | {"padding": 2, "dilation": 2}),
    Conv.parse((2, 64, 45), (24, 64, 3), 1, padding=1, layout="NWC", dtype="float16"),
    Conv.parse((2, 40, 9, 11), (96, 40, 7, 5), 1, **SMALL | {"padding": 3}),
    volume(24, (1, 96, 3, 4, 9), stride=(2, 1, 1)), volume(64, (1, 16, 2, 4, 9)),
]  # fmt: skip


@pytest.mark.parametrize("p", _ROWS_OF_TAPS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_taps_read_whole_boxes(target: str, p: Conv | Conv3d) -> None:
    """Each warpgroup has a row of taps, whose columns of an instruction begin a pixel apart, and a
    block one row of them, or several."""
    p = p.replace(pass_="wgrad")
    likely = TEMPLATES["gpu.whole_gradient"].candidates(p, Target.parse(target))
    kinds = {(tile.filters, tile.rows): tile for tile in reversed(likely)}
    for tile in (*kinds.values(), replace(likely[0], splits=1)):
        kernel = check_tile("gpu.whole_gradient", p, tile, target)
        assert f"wgmma_m64n{p.kernel[-1] * tile.channels}k16_" in kernel.ir


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_pixels_need_not_be_of_one_size(target: str) -> None:
    """Of 7 steps, 4 parts have 2, 2, 2 and 1."""
    p = Conv.parse((8, 64, 7, 7), (72, 64, 1, 1), 1, dtype="float16", layout="NHWC", pass_="wgrad")
    tile = TEMPLATES["gpu.box_gradient"].candidates(p, Target.parse(target))[0]
    tile = replace(tile, splits=4, cluster=0)
    kernel = check_tile("gpu.box_gradient", p, tile, target)
    assert "T.min(7 - blockIdx_x // 2 * 2, 2)" in kernel.ir


def test_gradients_with_strides_read_the_filter_as_it_lies_and_the_taps_of_their_phase() -> None:
    p = Conv.parse((8, 64, 14, 14), (128, 64, 3, 3), 1, **SMALL, stride=2, pass_="dgrad")
    template = TEMPLATES["gpu.box_products"]
    tile = template.candidates(p, Target.parse(HOPPER))[0]
    assert not template.declare(p, tile).copies
    module = module_of(template.name, p, tile)
    assert len(module.funcs) == 1
    phase = r"T.if_then_else\([^()]* == 0, 1, 2\)"
    assert re.search(rf"in range\({phase} \* {phase} \* 2\)", str(module))


_EDGES = {
    "rows outside of the image": {
        "batch": 3, "channels": 136, "multiplier": 72, "height": 2, "width": 9, "kernel_h": 2,
        "kernel_w": 4, "stride": (3, 1), "padding": (1, 0, 2, 0), "dilation": (2, 1),
    },
    "one tap inside": {
        "batch": 1, "channels": 576, "multiplier": 8, "width": 3, "kernel_w": 3,
        "padding": (0, 1, 0, 1), "dilation": (1, 2),
    },
    "the first tap inside": {
        "batch": 1, "channels": 576, "multiplier": 8, "width": 1, "kernel_w": 2,
        "padding": (0, 0, 0, 2),
    },
}  # fmt: skip


@pytest.mark.parametrize("values", _EDGES.values(), ids=_EDGES)
def test_guards_that_leave_few_blocks_are_those_of_boxes(values: dict[str, Any]) -> None:
    """They are conditions on quotients, other than the bounds of a box."""
    p = Conv(operator="conv2d", pass_="wgrad", groups=1, dtype="float16", layout="NHWC", **values)
    tile = TEMPLATES["gpu.box_gradient"].candidates(p, Target.parse(HOPPER))[0]
    assert module_of("gpu.box_gradient", p, tile)


_PIXELS: list[tuple[dict[str, Any], BoxGradientTile]] = [
    # Of 189 pixels the last step has 61; channels and filters are no multiples of a tile's.
    ({"batch": 3}, BoxGradientTile(64, 64, 3)),
    ({"batch": 5, "stride": 2}, BoxGradientTile(64, 64, 3, 2, producer=1)),
    ({"channels": 128, "kernel_h": 1, "kernel_w": 1, "padding": 0, "stride": 2},
     BoxGradientTile(64, 128, 4, producer=1)),
    ({"batch": 4, "height": 5, "width": 11, "kernel_w": 2, "padding": (1, 0), "multiplier": 136},
     BoxGradientTile(128, 64, 3, 3, dy_to=2)),
    ({"batch": 1, "dtype": "bfloat16", "dilation": 2, "padding": 2}, BoxGradientTile(64, 64, 2)),
    ({"channels": 128, "batch": 3}, BoxGradientTile(64, 64, 3, 2, producer=1, cluster=1)),
    # Blocks of a cluster add two parts of three, another kernel what they have.
    ({"batch": 5, "kernel_h": 1}, BoxGradientTile(64, 64, 3, 6, producer=1, cluster=2)),
]  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("values", "tile"), _PIXELS, ids=str)
def test_steps_have_pixels_that_follow_one_another_over_rows_and_images(
    values: dict[str, Any], tile: BoxGradientTile, target: str
) -> None:
    shape = {"batch": 2, "channels": 72, "height": 9, "width": 7, "multiplier": 64, "groups": 1}
    shape |= {"kernel_h": 3, "kernel_w": 3, "padding": 1, "dtype": "float16", "layout": "NHWC"}
    p = Conv(**(shape | {"operator": "conv2d", "pass_": "wgrad"} | values))
    kernel = check_tile("gpu.window_gradient", p, tile, target)
    assert re.search(r"tma_load_\w+_64x64_s128_w", kernel.ir)


def test_pixels_follow_one_another_where_those_of_a_box_are_in_images_of_their_own() -> None:
    p = Conv.parse((64, 64, 7, 7), (64, 64, 3, 3), 1, **SMALL, pass_="wgrad")
    fits = TEMPLATES["gpu.window_gradient"].fits
    assert fits(p, Target.parse(HOPPER))
    assert not fits(p.replace(height=14, width=14), Target.parse(HOPPER))
    assert not fits(p.replace(kernel_h=1, kernel_w=1, padding=(0, 0)), Target.parse(HOPPER))
    assert not fits(p.replace(groups=4, multiplier=16), Target.parse(HOPPER))


def test_one_box_has_all_rows_of_channels_of_a_tile_where_these_are_whole() -> None:
    p = Conv.parse((8, 256, 9, 9), (192, 256, 3, 3), 1, **SMALL, pass_="wgrad")
    tile = BoxGradientTile(128, 192, 3)
    text = str(module_of("gpu.box_gradient", p, tile))
    assert {"tma_load_float16_2x8x2x4x64_s128", "tma_load_float16_3x8x2x4x64_s128"} == set(
        re.findall(r"tma_load_\w+", text)
    )
    text = str(module_of("gpu.box_gradient", p.replace(channels=200), tile))
    assert "tma_load_float16_8x2x4x64_s128" in text
