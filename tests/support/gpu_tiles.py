"""Depthwise problems for each template of CUDA's GPUs, with tiles that divide none of them."""

from __future__ import annotations

from typing import Any

from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

#: What problems have in common: in 16 bits, with channels first or last, and gradients.
_FIRST = {"dtype": "float16"}
_LAST = _FIRST | {"layout": "NHWC"}
_GRADIENT = _FIRST | {"pass_": "wgrad"}
_FLOAT, _BFLOAT = {"dtype": "float32"}, {"dtype": "bfloat16"}
_DGRAD = {"pass_": "dgrad"}

#: By template, what its problems have in common, and those with parameters of a tile: images,
#: filters, what else is different.
_TABLE: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "gpu.channel_pairs": (_LAST, [
        ("2x16x9x20", "16x1x5x5", {"padding": 2}, 4, 4, 4, 4, 1, 1, 2),
        ("2x16x9x20", "16x1x5x5", {"padding": 2}, 2, 2, 4, 2, 2, 2, 4, 2, 2),
        # Blocks that go on from image to image.
        ("5x24x9x19", "24x1x5x5", {"padding": 2}, 2, 4, 4, 4, 1, 1, 1, 3, 2),
        # Four images a product, of which there are five.
        ("5x24x9x9", "24x1x3x3", _BFLOAT | {"stride": 2, "padding": 1}, 3, 1, 4, 4, 1, 1, 1, 2, 3),
        # Channels of two blocks; products of four pixels.
        ("1x40x7x9", "40x1x3x7", _DGRAD | {"padding": 1}, 2, 8, 2, 4, 1, 1, 4),
        ("1x24x11x9", "24x1x3x4", {"padding": (1, 2, 0, 3), "dilation": 2}, 2, 4, 4, 2, 1, 1, 2),
        ("2x8x8x33", "8x1x1x2", {"stride": (1, 3)}, 1, 1, 16, 2, 1, 1, 2),
        # Most of what is seen is padding.
        ("1x16x2x5", "16x1x2x3", {"padding": (4, 1, 0, 1), "stride": (4, 1)}, 1, 4, 2, 4, 1, 1, 2),
        ("3x32x7x7", "32x1x7x7", _BFLOAT | _DGRAD | {"padding": 3}, 7, 1, 2, 2, 1, 1, 8),
        ("1x16x6x20", "16x1x3x3", {"padding": 1, "epilogue": "bias+silu+residual"},
         2, 4, 4, 4, 1, 1, 2),
    ]),
    "gpu.sparse_pairs": (_LAST, [
        ("2x16x9x20", "16x1x7x7", {"padding": 3}, 4, 2, 2, 4, 1, 1, 2),
        # Two images a product, of five.
        ("5x24x9x19", "24x1x5x6", _BFLOAT | {"padding": 2}, 3, 2, 2, 2, 2, 1, 2, 3, 2),
        ("1x40x7x30", "40x1x3x9", _DGRAD | {"padding": (1, 2)}, 2, 1, 8, 4, 1, 1, 4),
        ("9x8x13x9", "8x1x3x4", {"padding": (1, 2, 0, 3), "dilation": 2, "stride": (2, 1)},
         2, 1, 1, 2, 1, 2, 2, 2, 2),
        ("3x32x7x7", "32x1x7x7", _BFLOAT | {"padding": 3}, 7, 1, 1, 2, 1, 1, 8),
    ]),
    "gpu.plane_bands": (_FIRST, [
        ("3x4x9x24", "4x1x5x5", {"padding": 2}, 2, 4, 1, 2, 3, 2),
        ("3x4x9x24", "4x1x5x5", {"padding": 2}, 2, 4, 1, 2, 3, 2, 2, 2),
        ("3x4x9x24", "4x1x5x5", {"padding": 2}, 2, 4, 1, 2, 3, 2, 2, 2, 0),  # copied by threads
        ("5x3x17x16", "3x1x7x7", _BFLOAT | {"padding": 3}, 3, 8, 2, 1, 1, 1, 3, 3, 0),
        ("2x2x13x16", "2x1x3x4", {"padding": (1, 2, 0, 3), "dilation": 2, "stride": (2, 1)},
         2, 2, 2, 2, 1, 2, 1, 1, 0),
        # From image to image, three of them in shared memory.
        ("5x3x17x16", "3x1x7x7", _BFLOAT | {"padding": 3}, 3, 8, 2, 1, 1, 1, 3, 3),
        # Several tiles across an image.
        ("2x2x9x36", "2x1x3x9", _DGRAD | {"padding": (1, 2)}, 3, 1, 8, 3, 1, 1, 2, 2),
        ("2x2x13x16", "2x1x3x4", {"padding": (1, 2, 0, 3), "dilation": 2, "stride": (2, 1)},
         2, 2, 2, 2, 1, 2),
        ("1x3x11x24", "3x1x5x5", {"stride": 2, "padding": 2}, 3, 2, 2, 1, 1, 3),
        # Sixteen images a product, of which there are seventeen.
        ("17x2x7x8", "2x1x7x7", _BFLOAT | {"padding": 3}, 7, 1, 1, 1, 1, 2),
        ("2x2x2x32", "2x1x1x20", {"padding": (0, 10)}, 1, 2, 4, 1, 2, 1),
        # More padding than image.
        ("1x2x3x8", "2x1x2x2", {"padding": (3, 5, 4, 0), "stride": (2, 3)}, 1, 4, 1, 1, 1, 1),
        ("1x2x6x24", "2x1x3x3", {"padding": 1, "epilogue": "bias+silu+residual"},
         3, 2, 1, 1, 3, 1),
    ]),
    "gpu.plane_tiles": (_FLOAT, [
        ("2x4x12x12", "4x1x5x5", {"padding": 2}, 3, 4, 4, 3, 2, 1, 1),
        ("3x4x9x12", "4x1x5x5", {"padding": 2}, 3, 4, 2, 2, 2, 2, 2),
        # Images of which the last blocks have one.
        ("5x6x9x16", "6x1x3x3", _FIRST | {"stride": 2, "padding": 1}, 2, 4, 2, 2, 3, 2, 2),
        ("3x4x9x16", "4x1x5x3", _BFLOAT | _DGRAD | {"padding": 1}, 2, 8, 2, 2, 2, 3, 3),
        ("2x2x10x20", "2x1x3x4", {"padding": (1, 2, 0, 3), "dilation": 2}, 4, 2, 1, 6, 1, 2, 2),
        # Rows of dx that no vectors cover.
        ("2x3x7x14", "3x1x3x3", _DGRAD | {"padding": (0, 2)}, 7, 4, 1, 4, 3, 2, 2),
        # Most of what is seen is padding.
        ("1x1x2x4", "1x1x2x3", {"padding": (4, 1, 0, 1), "stride": (4, 1)}, 1, 2, 4, 2, 1, 1, 1),
        ("3x4x6x20", "4x1x3x3", {"padding": 1, "epilogue": "scale_shift+silu+residual"},
         3, 4, 2, 5, 2, 2, 2),
    ]),
    "gpu.pixel_tiles": (_LAST, [
        ("2x16x9x9", "16x1x5x5", {"padding": 2}, 4, 3, 2, 1, 2, 4, 2, 2, 1),
        ("1x24x9x8", "24x1x3x3", {"stride": 2, "padding": 1}, 2, 3, 1, 2, 2, 16, 2, 2, 0),
        ("2x20x7x7", "20x1x7x7", _FLOAT | {"padding": 3}, 4, 7, 1, 1, 1, 16, 3, 3, 1),
        ("1x8x11x6", "8x1x2x3", _BFLOAT | {"padding": (0, 2, 1, 0), "dilation": (2, 1)},
         3, 2, 2, 2, 2, 4),
        ("2x16x8x8", "16x1x1x1", {}, 4, 4, 1, 1, 2, 16),
        # Larger than the image.
        ("1x8x7x17", "8x1x2x2", {"padding": (1, 0), "stride": 3, "dilation": 2},
         2, 7, 1, 4, 1, 32, 2, 2, 0),
        ("1x8x14x14", "8x1x5x5", _FLOAT | {"stride": 2}, 2, 3, 1, 4, 2, 8),
        # The last turn lies below the image.
        ("1x8x25x7", "8x1x3x3", _FLOAT | {"stride": 2}, 2, 3, 1, 2, 1, 8, 2, 2),
        ("3x12x9x10", "12x1x5x4", _FLOAT | _DGRAD | {"padding": (2, 1)}, 4, 3, 2, 1, 2, 4, 1, 1, 0),
    ]),
    "gpu.reduction_pixel_tiles": (_GRADIENT | {"layout": "NHWC", "padding": 1}, [
        ("3x16x9x10", "16x1x3x3", {}, 4, 4, 2, 4, 1, 1, 2, 2, 2),
        ("2x24x7x11", "24x1x5x5", {"padding": 2}, 3, 4, 2, 8, 1, 2, 1, 3, 3),
        ("5x8x6x6", "8x1x3x3", _BFLOAT, 2, 3, 1, 16, 2, 2, 2, 2, 4),
        ("2x12x10x5", "12x1x3x5", _FLOAT | {"padding": (1, 2)}, 4, 2, 1, 8, 1, 2, 3, 2, 2),
        ("3x8x5x9", "8x1x4x3", {"padding": (3, 0, 1, 2)}, 2, 4, 2, 4, 2, 1, 2, 2, 3),
        ("1x8x9x8", "8x1x2x4", _FLOAT | {"padding": 0}, 3, 2, 2, 4, 1, 1, 2, 3, 1),
        ("9x16x3x3", "16x1x7x7", {"padding": 3}, 4, 3, 1, 16, 4, 1, 1, 2, 2),
        ("2x8x4x6", "8x1x1x1", {"padding": 0}, 4, 2, 2, 4, 1, 1, 2, 1, 64),
        ("5x16x6x7", "16x1x5x3", {"padding": (3, 1, 0, 2)}, 7, 7, 2, 8, 4, 1, 1, 2, 1),
        ("3x16x11x13", "16x1x5x5", {"padding": 2, "stride": 2}, 2, 3, 2, 8, 1, 2, 2, 2, 3),
        ("2x8x9x10", "8x1x3x4", {"padding": (0, 1, 2, 3), "stride": (1, 2)},
         4, 2, 1, 16, 1, 1, 2, 2, 2),
        ("2x8x10x7", "8x1x2x3", _FLOAT | {"stride": (3, 1)}, 2, 4, 2, 8, 2, 1, 2, 2, 1),
        ("4x16x6x5", "16x1x3x3", _BFLOAT | {"stride": 2}, 3, 4, 1, 16, 4, 1, 1, 3, 1),
        ("1x8x1x4", "8x1x2x1", {"padding": (1, 0, 2, 5)}, 2, 4, 1, 8, 1, 1, 1, 2, 2),
        # Of images whose last rows or columns no window sees.
        ("2x16x4x30", "16x1x6x2", _FLOAT | {"padding": (1, 0, 1, 0), "stride": 3},
         2, 4, 2, 4, 8, 1, 1, 2, 3),
        ("1x8x21x19", "8x1x7x1", _FLOAT | {"padding": (2, 1), "stride": 3},
         2, 2, 1, 8, 2, 1, 2, 2, 8),
    ]),
    "gpu.band_gradient": (_GRADIENT | {"padding": 2}, [
        ("3x2x19x40", "2x1x5x5", {}, 2, 32, 2, 1, 2),
        ("2x3x9x56", "3x1x7x7", _BFLOAT | {"padding": 3}, 1, 64, 4, 2, 1),
        ("5x1x8x12", "1x1x9x3", {"padding": (4, 1)}, 1, 16, 4, 3, 1),
        ("2x2x11x13", "4x1x4x6", {"padding": (0, 2, 3, 1)}, 1, 16, 2, 1, 3),
        ("3x2x20x24", "2x1x3x3", _BFLOAT | {"dilation": (3, 2)}, 2, 32, 4, 2, 1),
        ("1x2x5x6", "2x1x1x1", {"padding": 0}, 1, 16, 4, 1, 1),
        ("2x1x6x7", "1x1x2x3", {"padding": 4}, 1, 16, 4, 2, 1),
        ("5x1x17x24", "1x1x7x7", _BFLOAT | {"padding": 3}, 2, 16, 2, 3, 2),
        ("3x1x9x64", "1x1x3x9", {"padding": (1, 4)}, 1, 64, 2, 2, 1),
        ("2x1x10x16", "1x1x2x4", {"dilation": (5, 2), "padding": 3}, 1, 16, 2, 1, 1),
        ("2x1x9x72", "1x1x5x5", {"padding": (2, 3, 2, 1)}, 1, 64, 2, 3, 1),
        ("3x2x19x40", "2x1x5x5", {"stride": 2}, 2, 32, 2, 1, 2),
        ("2x3x17x27", "3x1x3x4", {"stride": 2, "padding": (1, 2, 0, 1)}, 1, 16, 2, 2, 1),
        ("2x2x21x30", "4x1x5x3", _BFLOAT | {"stride": (2, 1)}, 1, 32, 2, 1, 1),
        ("2x2x11x34", "2x1x4x7", {"stride": (1, 2), "dilation": (2, 1)}, 1, 16, 2, 3, 1),
        ("2x1x30x18", "1x1x9x1", {"stride": 2, "dilation": (2, 3)}, 2, 16, 2, 1, 1),
        ("3x1x6x9", "1x1x1x2", {"stride": 2, "padding": 0, "dilation": 2}, 1, 16, 4, 1, 1),
        # Of one image, whose rows do not fill tiles.
        ("1x1x13x14", "2x1x3x7", _BFLOAT | {"padding": 1}, 1, 16, 8, 1, 1),
        ("1x1x8x12", "1x1x4x1", {"stride": (2, 1), "dilation": (2, 3)}, 1, 16, 4, 1, 1),
    ]),
    "gpu.row_products": (_GRADIENT | {"padding": 3}, [
        ("5x2x10x10", "2x1x7x7", {}, 2, 1, 16, 16, 2),
        ("17x1x6x32", "1x1x9x9", {"padding": 4}, 2, 2, 16, 4, 3),
        ("20x2x14x14", "2x1x5x13", _BFLOAT | {"padding": (2, 6)}, 4, 1, 32, 8, 2),
        ("3x1x5x64", "1x1x3x51", {"padding": (1, 25)}, 1, 2, 16, 3, 2),
        ("16x2x7x20", "2x2x5x4", {"padding": (1, 2, 0, 3), "stride": (1, 2), "dilation": (1, 2)},
         2, 2, 16, 6, 2),
        ("4x1x3x8", "1x1x2x3", {"padding": 0}, 4, 1, 16, 9, 2),
        # Of padding down alone, and where windows end before an image does.
        ("4x1x6x8", "1x1x5x3", {"padding": (2, 0)}, 4, 1, 16, 9, 2),
        ("3x2x5x6", "2x1x3x3", {"padding": 1, "stride": (1, 3)}, 2, 1, 16, 16, 2),
    ]),
    "gpu.plane_products": (_FIRST | {"padding": 6}, [
        ("20x8x7x7", "8x1x13x13", {}, 8, 2, 1, 1),
        ("40x8x7x7", "8x1x13x13", _DGRAD, 4, 1, 2, 3),
        ("5x4x8x8", "4x1x7x7", _BFLOAT | {"padding": 3}, 4, 1, 1, 1),
        ("17x4x7x7", "4x1x7x7", {"padding": 3, "stride": 2}, 4, 1, 1, 1),
        ("17x4x7x7", "4x1x7x7", _DGRAD | {"padding": 3, "stride": 2}, 2, 1, 1, 1),
        ("3x6x5x6", "6x1x4x3", {"padding": (1, 2, 0, 1), "dilation": (1, 2)}, 2, 1, 1, 1),
        ("3x6x5x3", "6x1x4x3", _DGRAD | {"padding": (3, 2, 2, 1)}, 2, 1, 1, 1),
        ("3x4x12x5", "4x1x9x9", {"padding": 4, "stride": (3, 1)}, 4, 1, 1, 1),
    ]),
    "gpu.plane_gradient": (_GRADIENT | {"padding": 6}, [
        ("20x8x7x7", "8x1x13x13", {}, 8, 1, 3),
        ("40x8x7x7", "8x1x13x13", {}, 4, 2, 2),
        ("5x4x8x8", "4x1x7x7", _BFLOAT | {"padding": 3}, 4, 1, 1),
        ("17x4x7x7", "4x1x7x7", {"padding": 3, "stride": 3}, 4, 1, 2),
        ("3x6x5x6", "6x1x4x3", {"padding": (3, 2, 2, 1)}, 2, 1, 1),
        # Chunks that begin and end within rows.
        ("17x2x4x6", "2x1x8x5", {"padding": (1, 3, 4, 2), "stride": (2, 3)}, 2, 1, 3),
        ("3x6x5x3", "6x1x4x3", {"padding": (3, 2, 2, 1)}, 2, 1, 1),
    ]),
    "gpu.toeplitz": (_FIRST | {"padding": 3}, [
        ("64x1x8x32", "1x1x7x7", {}, 4, 32, 2, 1, 3),
        ("70x1x9x41", "1x1x7x5", {"padding": (3, 2, 2, 1)}, 2, 16, 2, 2, 2),
        ("3x2x11x23", "2x1x7x7", {"stride": 2}, 2, 16, 2, 1, 2),
        ("3x2x11x23", "2x1x3x5", {"dilation": (2, 3), "padding": 4}, 2, 8, 2, 3, 1),
        ("2x1x9x7", "1x2x5x4", {"stride": (3, 1), "epilogue": "bias+relu"}, 1, 8, 1, 3),
        ("2x1x5x60", "1x1x3x31", {"padding": (1, 15)}, 1, 64, 2, 3, 4),
        ("2x2x11x9", "2x1x5x7", _DGRAD | {"dilation": (2, 1)}, 4, 8, 2, 2),
        ("2x2x14x14", "2x1x9x9", _BFLOAT | _DGRAD | {"padding": 4}, 4, 16, 2, 2),
    ]),
    "gpu.toeplitz_staged": (_FIRST | {"padding": 3}, [
        ("64x1x8x32", "1x1x7x7", {}, 4, 32, 2, 1, 2, 3),
        ("70x1x9x42", "1x1x7x5", {"padding": (3, 2, 2, 1)}, 2, 16, 2, 2, 4, 2),
        ("3x2x11x22", "2x1x7x7", {"stride": 2}, 2, 16, 2, 1, 0, 1),
        ("2x1x9x8", "1x2x5x4", {"stride": (3, 1), "epilogue": "bias+relu"}, 1, 8, 1, 3),
        ("2x1x5x60", "1x1x3x31", {"padding": (1, 15)}, 1, 64, 2, 3, 2, 2),
        ("2x2x11x14", "2x1x9x9", _BFLOAT | _DGRAD | {"padding": 4}, 4, 16, 2, 2, 0, 1),
        ("5x4x12x14", "4x1x9x9", {"padding": 4}, 2, 16, 2, 3, 2, 3, 2),
        ("5x3x12x14", "3x1x9x9", {"padding": 4}, 2, 16, 2, 3, 4, 2, 2),
        ("3x4x9x14", "4x1x7x7", {}, 2, 16, 2, 1, 0, 2, 2),
        ("65x2x20x16", "2x1x9x9", _BFLOAT | {"padding": 4}, 2, 16, 2, 5, 2, 4, 2, 16),
        ("5x2x16x40", "2x1x7x7", {"stride": 2}, 2, 16, 2, 2, 2, 3, 2, 16),
        ("5x3x11x24", "3x1x9x9", _DGRAD | {"padding": 4}, 2, 32, 2, 3, 2, 3, 3, 32),
        ("2x1x10x10", "1x1x3x3", {"padding": 1, "dilation": (2, 1)}, 1, 8, 4, 1, 2, 2),
    ]),
    "gpu.toeplitz_warps": (_FIRST | {"padding": 3}, [
        ("40x1x8x32", "1x1x7x7", {}, 2, 32, 2, 2, 1, 2, 2),
        ("20x2x9x14", "2x1x9x9", _BFLOAT | _DGRAD | {"padding": 4}, 4, 16, 1, 2, 2, 2, 3),
        ("3x1x5x70", "1x1x3x9", {"stride": 2, "epilogue": "bias+silu"}, 1, 32, 1, 1, 1, 5),
        ("5x1x3x20", "1x1x2x3", {"dilation": (1, 4)}, 2, 64, 1, 1, 1, 3, 1),
    ]),
    "gpu.toeplitz_rows": (_FIRST | {"padding": 3}, [
        ("1x2x32x32", "2x1x7x7", {}, 2, 32, 1, 1, 2),
        ("3x2x19x14", "2x1x9x9", _BFLOAT | _DGRAD | {"padding": 4}, 1, 16, 2, 2, 3),
        ("1x1x40x34", "1x2x5x9", {"dilation": 2, "epilogue": "bias+relu"}, 1, 32, 2, 1, 1),
        ("2x1x9x21", "1x1x4x3", {"padding": (0, 2, 3, 1)}, 1, 16, 1, 2, 2),
        ("1x2x17x17", "2x1x3x3", _BFLOAT | {"padding": 0}, 1, 16, 1, 1, 2),
        ("1x1x30x30", "1x1x5x5", {"padding": 1, "stride": (1, 2)}, 2, 16, 1, 1, 2),
        # Whole rows.
        ("1x1x14x14", "1x1x15x15", {"padding": 7}, 1, 16, 1, 1, 2),
    ]),
    "gpu.toeplitz_wgrad": (_GRADIENT | {"padding": 3}, [
        ("5x2x12x16", "2x1x7x7", {}, 1, 16, 2, 2, 2),
        ("3x2x19x14", "2x1x9x9", _BFLOAT | {"padding": 4, "stride": 2}, 1, 16, 4, 1, 3),
        ("2x1x20x34", "1x2x5x19", {"padding": (4, 9)}, 2, 32, 2, 2, 1),
        ("4x1x9x11", "1x1x3x4", {"dilation": (1, 2)}, 1, 16, 4, 4, 2),
        ("1x3x12x16", "3x1x7x7", {}, 1, 16, 1, 1, 2),
        # Of one chunk, a second team would have none.
        ("2x2x9x34", "2x2x3x19", _BFLOAT | {"padding": (2, 9)}, 2, 32, 1, 2, 1),
        ("1x1x34x34", "1x1x33x33", {"padding": 16}, 1, 16, 1, 1, 3),
    ]),
    "gpu.toeplitz_tf32": (_FLOAT | {"padding": 3}, [
        ("20x1x8x32", "1x1x7x7", {}, 2, 32, 1, 2, 2, 2, 2),
        ("3x2x9x41", "2x1x7x5", {"padding": (3, 2, 2, 1)}, 4, 16, 1, 1, 1, 3, 1),
        ("40x1x5x9", "1x2x3x3", {"stride": 2, "epilogue": "bias+relu"}, 1, 16, 2, 2, 1, 2),
        ("3x2x11x23", "2x1x3x5", {"dilation": (2, 3), "padding": 4}, 2, 32, 1, 2, 1, 3),
        ("2x2x14x14", "2x1x9x9", _DGRAD | {"padding": 4}, 2, 16, 1, 4, 1, 2),
    ]),
    "gpu.toeplitz_tf32_rows": (_FLOAT | {"padding": 3}, [
        ("1x2x32x32", "2x1x7x7", {}, 2, 32, 1, 1, 2),
        ("3x2x19x14", "2x1x9x9", _DGRAD | {"padding": 4}, 1, 16, 2, 2, 1),
        ("1x1x20x34", "1x2x5x9", {"dilation": 2, "epilogue": "bias+silu"}, 1, 32, 2),
    ]),
    "gpu.toeplitz_tf32_wgrad": (_FLOAT | {"pass_": "wgrad", "padding": 3}, [
        ("5x2x12x16", "2x1x7x7", {}, 1, 16, 2, 2, 2),
        ("3x2x19x14", "2x1x9x9", {"padding": 4, "stride": 2}, 1, 16, 4, 1, 1),
        ("2x1x9x34", "1x2x3x19", {"padding": (2, 9)}, 2, 32, 2, 2, 2),
        ("4x1x9x11", "1x1x3x4", {"dilation": (1, 2)}, 1, 16, 4, 4, 1),
        ("1x3x12x16", "3x1x7x7", {}, 1, 16, 1, 1, 2),
        ("2x2x9x34", "2x2x3x19", {"padding": (2, 9)}, 2, 32, 1, 2, 1),
    ]),
}  # fmt: skip

#: By template, what it leaves to others: images, filters, what else is different.
_OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "gpu.channel_pairs": [("64x96x32x32", "96x1x31x31", {"padding": 15})],
    "gpu.plane_bands": [
        ("2x4x8x7", "4x1x3x3", {"padding": 1}),  # rows of an odd width
        ("2x4x8x8", "4x1x3x3", _FLOAT | {"padding": 1}),
        ("2x4x8x8", "8x1x3x3", {"padding": 1}),  # two filters a channel
        ("2x4x16x16", "4x1x3x3", _DGRAD | {"stride": 2, "padding": 1}),
    ],
    "gpu.plane_tiles": [  # rows are whole chunks of 16 bytes
        ("64x8x30x30", "8x1x3x3", {"padding": 1}),
        ("64x8x28x28", "8x1x3x3", _FIRST | {"padding": 1}),
        ("64x8x56x56", "8x1x3x3", _DGRAD | {"padding": 1, "stride": 2}),
        ("64x8x56x56", "8x1x3x3", {"padding": 1, "layout": "NHWC"}),
    ],
    "gpu.reduction_pixel_tiles": [
        ("64x144x56x56", "144x1x3x3", {"dilation": 2}),
        ("64x144x56x56", "144x2x3x3", {}),
        ("64x12x56x56", "12x1x3x3", {}),
        ("64x144x56x56", "144x1x3x3", {"layout": "NCHW"}),
        ("64x144x56x56", "144x1x3x3", {"pass_": "forward"}),
        ("64x144x56x56", "144x1x31x31", {"padding": 15}),
        ("1x16x7x1", "16x1x5x1", {"stride": 2, "padding": (2, 3, 6, 1)}),  # sees padding alone
    ],
    "gpu.band_gradient": [
        ("64x32x112x112", "32x1x5x5", {"stride": 3}),
        ("64x32x112x112", "32x1x11x11", {"padding": 5}),
        ("64x32x112x112", "32x1x5x5", _FLOAT),
        ("64x32x112x112", "32x1x5x5", {"layout": "NHWC"}),
        ("1x3x17x2", "6x1x6x2", {"stride": 2, "padding": (4, 1), "dilation": 3}),
    ],
    "gpu.row_products": [
        ("64x8x32x32", "8x1x31x31", {"padding": 15, "stride": 2}),
        ("64x8x32x32", "8x1x31x31", _FLOAT | {"padding": 15}),
        ("64x8x31x31", "8x1x31x31", {"padding": 15}),
        ("64x8x96x96", "8x1x31x31", {"padding": 15}),
        ("64x8x32x32", "8x1x31x31", {"padding": 15, "pass_": "forward"}),
        # No result sees the first column; all begin to see one by the same tap.
        ("16x2x7x14", "2x1x13x7", {"padding": (6, 3), "stride": (1, 2), "dilation": (1, 2)}),
        ("16x2x7x6", "2x1x13x5", {"padding": (6, 2), "dilation": (1, 2)}),
        # The first result sees padding alone, or the last one.
        ("16x2x7x14", "2x1x13x3", {"padding": (6, 4)}),
        ("16x2x7x14", "2x1x13x3", {"padding": (6, 1, 6, 5)}),
    ],
    "gpu.plane_products": [
        ("64x8x14x14", "8x1x13x13", {}), ("64x8x7x7", "8x1x13x13", _FLOAT),
        ("64x8x7x7", "16x1x13x13", {}), ("64x7x7x7", "7x1x13x13", {}),
    ],
    "gpu.plane_gradient": [
        ("64x8x14x14", "8x1x13x13", {}), ("64x8x7x7", "8x1x13x13", _FLOAT),
        ("64x8x7x7", "16x1x13x13", {}), ("64x7x7x7", "7x1x13x13", {}),
        # Some row or column meets nothing, or there are gaps between taps.
        ("3x6x1x5", "6x1x5x1", {"padding": (6, 2, 6, 4), "stride": 2}),
        ("2x4x7x4", "4x1x10x1", {"padding": (5, 1, 1, 5), "stride": 2}),
        ("1x8x11x7", "8x1x1x3", {"padding": (0, 1, 1, 0), "stride": (3, 1)}),
        ("10x8x9x5", "8x1x6x8", {"padding": (2, 4, 0, 0), "stride": (3, 1)}),
        ("13x2x3x7", "2x1x5x6", {"padding": (3, 1, 2, 0), "stride": (1, 2)}),
        ("3x6x5x6", "6x1x4x3", {"padding": (3, 2, 2, 1), "dilation": 2}),
    ],
    **{f"gpu.toeplitz{kind}": [
        ("64x8x32x32", "8x1x7x7", _FLOAT),
        ("64x8x32x32", "8x1x7x7", {"layout": "NHWC"}),
        ("64x8x32x32", "8x1x7x7", {"pass_": "wgrad"}),
        ("64x8x32x32", "8x1x7x7", _DGRAD | {"stride": 2}),
        ("64x8x32", "8x1x7", {}),
    ] for kind in ("", "_warps", "_rows")},
    **{f"gpu.toeplitz_tf32{kind}": [
        ("64x384x32x32", "384x1x31x31", _FIRST | {"padding": 15}),
        ("64x384x32x32", "384x1x31x31", {"padding": 15, "dtype": "float64"}),
        ("64x384x32x32", "384x1x31x31", {"padding": 15, "accumulate": "float64"}),
        ("64x384x32x32", "384x1x31x31", {"padding": 15, "layout": "NHWC"}),
        ("64x384x32x32", "384x1x31x31", _DGRAD | {"padding": 15, "stride": 2}),
        ("64x8x32", "8x1x7", {}),
    ] for kind in ("", "_rows", "_wgrad")},
}  # fmt: skip


def _parsed(name: str, image: str, filter: str, more: dict[str, Any]) -> Conv:
    return Conv.parse(image, filter, **_TABLE[name][0] | more)


#: By template, problems with tiles.
CASES = {
    name: [(_parsed(name, *row[:3]), TEMPLATES[name].config(*row[3:])) for row in rows]
    for name, (_, rows) in _TABLE.items()
}
#: Templates with problems that they leave to others.
OTHERS = [(name, _parsed(name, *row)) for name, rows in _OTHERS.items() for row in rows]
