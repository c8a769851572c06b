"""Results that leave from registers, 16 or 8 bytes a thread, and what these hold for them, on sim
and on Hopper GPUs."""

from __future__ import annotations

import pytest
from tests.support.tiles import HOPPER, TARGETS, check_tile, lowered

from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.thread_order import leaves_directly
from tilewright.topi.templates import TEMPLATES

_EPILOGUE = "bias+dequantize+relu+quantize(3,-5)"
_LAST = {"layout": "NHWC", "dtype": "int8", "epilogue": _EPILOGUE}
_HALF = {"layout": "NHWC", "dtype": "float16"}
_TF32 = {"layout": "NHWC", "precision": "tf32"}
_CASES = {
    "pixels by their number": (
        Conv.parse((3, 48, 9, 7), (80, 48, 1, 1), 1, **_LAST),
        BoxProductTile(128, 1, 1, 64, 3, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "taps": (
        Conv.parse((2, 64, 9, 11), (144, 64, 3, 3), 1, padding=1, **_LAST),
        BoxProductTile(2, 8, 8, 128, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "windows": (
        Conv.parse((3, 64, 9, 7), (192, 64, 3, 3), 1, padding=1, stride=2, **_LAST),
        BoxProductTile(64, 1, 1, 192, 2),
        ("gpu.window_products",),
    ),
    "unsigned, in other places": (
        Conv.parse((2, 96, 8, 8), (64, 96, 1, 1), 1, layout="NHWC", dtype="uint8",
                   epilogue="bias+dequantize+quantized_residual(0.5,3)+quantize(2,7)"),
        BoxProductTile(64, 1, 1, 64, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "blocks": (
        Conv.parse((2, 64, 9, 11), (128, 64, 3, 3), 1, padding=1,
                   **_LAST | {"layout": "NCHW32"}, constants=("filter",)),
        BoxProductTile(1, 8, 8, 128, 2),
        ("gpu.box_products",),
    ),
    "results in blocks": (
        Conv.parse((2, 64, 9, 11), (96, 64, 1, 1), 1, **_LAST, out_layout="NCHW32"),
        BoxProductTile(64, 1, 1, 64, 3, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "8 bytes a thread": (
        Conv.parse((3, 48, 9, 7), (96, 48, 1, 1), 1, **_LAST),
        BoxProductTile(128, 1, 1, 96, 3, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "8 bytes a thread, of a copy": (
        Conv.parse((3, 24, 9, 7), (160, 24, 3, 3), 1, padding=1, **_LAST),
        BoxProductTile(2, 8, 8, 160, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "fewer than a tile has": (
        Conv.parse((2, 96, 9, 7), (24, 96, 1, 1), 1, layout="NHWC", dtype="int8",
                   epilogue="bias+dequantize+quantized_residual(0.5,3)+quantize(2,7)"),
        BoxProductTile(64, 1, 1, 32, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "16 bits, numbers kept over boxes": (
        Conv.parse((2, 64, 9, 7), (96, 64, 1, 1), 1, **_HALF, epilogue="scale_shift+residual+relu"),
        BoxProductTile(64, 1, 1, 96, 3, 1, 2, staged=96, kept=1),
        ("gpu.box_products",),
    ),
    "16 bits, in boxes": (
        Conv.parse((3, 64, 9, 7), (64, 64, 3, 3), 1, padding=1, **_HALF, epilogue="bias+residual"),
        BoxProductTile(2, 8, 8, 64, 3, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "TF32": (
        Conv.parse((2, 40, 9, 8), (100, 40, 3, 3), 1, padding=1, epilogue="bias+relu", **_TF32),
        BoxProductTile(1, 8, 8, 128, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "TF32, in several boxes": (
        Conv.parse((3, 64, 9, 7), (96, 64, 1, 1), 1, **_TF32, epilogue="residual"),
        BoxProductTile(64, 1, 1, 96, 2, 1, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "a gradient in TF32": (
        Conv.parse((2, 64, 9, 11), (40, 64, 3, 3), 1, padding=1, pass_="dgrad", **_TF32),
        BoxProductTile(2, 8, 8, 64, 2),
        ("gpu.box_products", "gpu.whole_boxes"),
    ),
    "phases of a gradient": (
        Conv.parse((2, 40, 9, 11), (40, 40, 3, 3), 1, padding=1, stride=2, pass_="dgrad", **_TF32),
        BoxProductTile(2, 8, 8, 64, 2, 1, 2),
        ("gpu.box_products",),
    ),
    "a phase alone, by the number of pixels": (
        Conv.parse((2, 40, 9, 11), (40, 40, 1, 1), 1, stride=2, pass_="dgrad", **_TF32),
        BoxProductTile(64, 1, 1, 64, 2),
        ("gpu.window_products",),
    ),
    "halves": (
        Conv.parse((2, 40, 9, 11), (72, 40, 3, 3), 1, padding=1, **_TF32 | {"precision": "tf32x3"}),
        BoxProductTile(1, 8, 8, 64, 2, 1, 2),
        ("gpu.box_products",),
    ),
    "rows of pixels of a block": (
        Conv.parse((9, 64, 9, 7), (96, 64, 3, 3), 1, padding=1, dilation=2,
                   **_LAST | {"layout": "NCHW32"}, constants=("filter",)),
        BoxProductTile(16, 4, 4, 64, 2, 1, 2),
        ("gpu.block_rows",),
    ),
    "rows of pixels where they are": (
        Conv.parse((9, 64, 6, 10), (64, 64, 1, 1), 1, **_LAST | {"layout": "NCHW32"}),
        BoxProductTile(16, 1, 16, 64, 2, 1, 2, staged=64, kept=1),
        ("gpu.block_rows",),
    ),
    "pairs of pixels of a block": (
        Conv.parse((9, 64, 9, 7), (96, 64, 3, 3), 1, padding=1, **_LAST | {"layout": "NCHW32"},
                   constants=("filter",)),
        BoxProductTile(16, 4, 2, 64, 3, 1, 2, staged=64, kept=1),
        ("gpu.block_rows",),
    ),
    "products of matrices": (
        Gemm(m=70, n=80, k=64, transpose_b=True, dtype="int8", epilogue=_EPILOGUE),
        BoxProductTile(64, 1, 1, 64, 2),
        ("gpu.box_products",),
    ),
}  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for case, x in _CASES.items() for name in x[2]]
)
def test_they_are_exact(name: str, case: str, target: str) -> None:
    p, tile, _ = _CASES[case]
    assert leaves_directly(TEMPLATES[name].declare(p, tile), tile)
    check_tile(name, p, tile, target)


def test_blocks_have_as_many_boxes_where_results_have_fewer_channels() -> None:
    p = Conv.parse((33, 64, 59, 31), (24, 64, 3, 3), 1, **_TF32)
    tiles = TEMPLATES["gpu.box_products"].candidates(p, Target.parse(HOPPER))
    tile = next(t for t in tiles if t.channels == 32 and t.boxes > 1)
    assert lowered("gpu.box_products", p, tile, HOPPER)


def test_threads_load_what_is_added_before_products() -> None:
    p, tile, _ = _CASES["16 bits, numbers kept over boxes"]
    text = str(lowered("gpu.box_products", p, tile, HOPPER))
    order = ("scale.fragment", "for ", "residual.pixels.fragment", "'Sums'")
    places = [text.index(x) for x in order]
    assert places == sorted(places)
