"""Boxes of bytes, whose sums are exact, and of TF32: on sim and on Hopper GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.boxes import SMALL
from tests.support.tiles import TARGETS, check_tile, error_of

from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES

_INT8, _UINT8 = SMALL | {"dtype": "int8"}, SMALL | {"dtype": "uint8"}
_BYTES = (
    Conv.parse((2, 32, 9, 9), (40, 32, 3, 3), 1, **_INT8),
    Conv.parse((3, 48, 9, 7), (20, 48, 3, 3), 1, **_UINT8, stride=2,
               epilogue="bias+dequantize+relu+quantize(0.5,3)"),
    Conv.parse((2, 3, 9, 9), (16, 3, 5, 3), 1, **_INT8,
               epilogue="bias+dequantize+quantized_residual(0.5,-2)+hswish+quantize(2.0,4)"),
    Conv.parse((1, 128, 5, 5), (64, 8, 3, 3), 16, **_INT8, epilogue="dequantize"),
    Conv.parse((2, 3, 22, 17), (16, 3, 7, 7), 1, **_INT8 | {"padding": (3, 2, 3, 4)}, stride=2,
               epilogue="bias+dequantize+quantize(60)"),
    Conv.parse((1, 2, 23, 25), (16, 2, 8, 5), 1, **_UINT8 | {"padding": (0, 2, 1, 2)}, stride=4),
    Gemm(m=70, n=40, k=48, transpose_b=True, dtype="uint8", epilogue="bias+dequantize+hsigmoid"),
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _BYTES, ids=str)
def test_bytes_are_added_exactly(p: Conv | Gemm, target: str) -> None:
    for tile in TEMPLATES["gpu.box_products"].candidates(p, Target.parse(target))[:2]:
        check_tile("gpu.box_products", p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["gpu.box_products", "gpu.whole_boxes"])
@pytest.mark.parametrize(("filters", "channels"), [(96, 96), (150, 80), (24, 24)])
def test_tiles_of_several_instructions_are_exact(
    filters: int, channels: int, name: str, target: str
) -> None:
    """Of as many channels as there are, where these are no power of two; of an image of 16."""
    p = Conv.parse((2, 16, 9, 7), (filters, 16, 1, 1), 1, dtype="int8", layout="NHWC",
                   epilogue="dequantize+bias+quantized_residual(2)+quantize(30)")  # fmt: skip
    tile = BoxProductTile(64, 1, 1, channels, 2, 1, 2 if name == "gpu.whole_boxes" else 1)
    assert not TEMPLATES[name].declare(p, tile).copies
    check_tile(name, p, tile, target)


def _constant(image: str, filter: str, **more: Any) -> Conv:
    steps = {"dtype": "int8", "layout": "NHWC", "epilogue": "bias+dequantize+relu+quantize(1)"}
    return Conv.parse(image, filter, 1, constants=("filter",), **steps | more)


#: Blocks that ask for all of a filter before their image: step by step, channels as rows, of boxes
#: that all taps read and of taps one by one, in blocks of channels that are copied, and in floats.
_FIRST = (
    ("gpu.whole_boxes", _constant("1x512x3x3", "40x512x1x1"),
     BoxProductTile(64, 1, 1, 32, 3, kept=1)),
    ("gpu.whole_boxes", _constant("1x512x3x3", "64x512x1x1"),
     BoxProductTile(8, 1, 1, 64, 3, turned=1)),
    ("gpu.whole_boxes", _constant("1x128x3x3", "64x128x1x1", dtype="float16", epilogue="bias"),
     BoxProductTile(16, 1, 1, 64, 2, turned=1)),
    ("gpu.window_products", _constant("1x32x3x5", "70x32x3x3", padding=1),
     BoxProductTile(16, 1, 1, 64, 10, turned=1, kept=1)),
    ("gpu.box_products", _constant("1x64x5x5", "64x64x3x3", layout="NCHW32", padding=1, stride=2),
     BoxProductTile(1, 1, 8, 64, 10, turned=1, kept=1)),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), _FIRST, ids=str)
def test_a_block_may_ask_for_all_of_a_filter_first(
    name: str, p: Conv, tile: BoxProductTile, target: str
) -> None:
    check_tile(name, p, tile, target)


def test_images_of_which_a_filter_sees_all_are_no_rows_of_pixels() -> None:
    """Of several at once each column of an instruction would be an image apart."""
    p, single = _constant("32x64x3x3", "64x64x3x3"), _constant("32x64x1x1", "64x64x1x1")
    tiles = [TEMPLATES["gpu.whole_boxes"].candidates(x, Target.parse("sim")) for x in (p, single)]
    assert [any(tile.turned for tile in found) for found in tiles] == [False, True]


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("changes", [
    {"stride": 2, "epilogue": "bias+relu"}, {"pass_": "dgrad"}, {"pass_": "dgrad", "stride": 2},
    {"groups": 10}, {"groups": 10, "pass_": "dgrad"},
], ids=str)  # fmt: skip
def test_tf32_loses_no_more_than_the_low_bits_of_factors(
    changes: dict[str, Any], target: str
) -> None:
    groups = changes.get("groups", 1)
    more = SMALL | {"dtype": "float32", "precision": "tf32"}
    more |= {k: v for k, v in changes.items() if k != "groups"}
    p = Conv.parse((2, 40, 9, 8), (60, 40 // groups, 3, 3), groups, **more)
    for tile in TEMPLATES["gpu.box_products"].candidates(p, Target.parse(target))[:2]:
        assert 1e-5 < error_of("gpu.box_products", p, tile, target) < 2e-3, tile
