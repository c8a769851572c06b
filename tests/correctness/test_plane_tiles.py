"""Convolutions of tiles of planes that TMA brings: right at every edge, tight code."""

import re
from collections import Counter

import pytest

import tilewright
from tilewright.topi import Conv
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile, plane_cut
from tilewright.topi.templates import TEMPLATES

SM_90A = tilewright.Target.parse("cuda -arch=sm_90a")
TEMPLATE = TEMPLATES["gpu.plane_tiles"]


def problem(image, filter, dtype="float32", pass_="forward", **more):
    return Conv.parse(image, filter, dtype=dtype, pass_=pass_, **more)


def build(p, tile, target="sim", batch=None):
    assert TEMPLATE.fits(p, SM_90A)
    return tilewright.build(*TEMPLATE.scheduled(p, tile, batch), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_a_thread_reads_has_no_guards(dtype):
    """A row is read once, as vectors, for all rows of results; the filter once for all images."""
    p, tile = (
        problem((64, 192, 56, 56), (192, 1, 5, 5), dtype, padding=2),
        PlaneBoxTile(7, 4, 4, 14),
    )
    kernel = build(p, tile, SM_90A)
    used = kernel.resources["main_kernel"]
    assert used.spills == 0
    assert used.registers <= 96
    count = {n: len(re.findall(rf"\b{n}\b", kernel.assembly)) for n in ("LDG", "LDS", "FFMA")}
    assert "UTMALDG" in kernel.assembly
    assert (count["LDG"], count["FFMA"]) == (25, 7 * 4 * 25)
    assert 11 * 3 <= count["LDS"] <= 11 * 4


def test_rows_of_a_tile_lie_so_that_threads_meet_few_banks():
    p = problem((64, 192, 28, 28), (192, 1, 5, 5), padding=2)
    assert plane_cut(p, PlaneBoxTile(7, 4, 4, 7)).row_stride == 36  # 32 are seen


def test_rows_of_a_tile_are_so_long_for_reads_of_any_width():
    """Of 4 bytes, two passes by all lanes of a warp where others would take four."""
    p, tile = problem((64, 192, 32, 32), (192, 1, 5, 5), "float16", padding=2), (16, 2, 2, 8, 12)

    def passes(row_stride):
        rows, counts = plane_cut(p, PlaneBoxTile(*tile)).box[1], Counter()
        for lane in range(32):
            plane, y, x = lane // 16, lane // 8 % 2, lane % 8
            counts[((plane * rows + y * 16) * row_stride + x * 2) // 2 % 32] += 1
        return max(counts.values())

    found = plane_cut(p, PlaneBoxTile(*tile)).row_stride
    assert passes(found) == 2 < passes(48)
