"""Channels-last convolutions of whole tiles in shared memory: right at every edge, unguarded."""

import re

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.topi import Conv
from tilewright.topi.gpu.pixel_tiles import box_tiles
from tilewright.topi.pieces.pixel_boxes import BoxTile
from tilewright.topi.templates import TEMPLATES

#: Of a line of machine code.
INSTRUCTION = r"^\s*(?:/\*[0-9a-f]+\*/)?\s*(?:@!?U?P\d\s+)?([A-Z]\w*)"
SM_90A = "cuda -arch=sm_90a"


def problem(image, filter, dtype="float16", pass_="forward", **more):
    return Conv.parse(image, filter, dtype=dtype, layout="NHWC", pass_=pass_, **more)


def build(p, tile, target="sim", batch=None):
    template = TEMPLATES["gpu.pixel_tiles"]
    return tilewright.build(*template.scheduled(p, tile, batch), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("turns", "stages"), [(1, 1), (4, 2)])
def test_a_thread_multiplies_and_hardly_does_anything_else(turns, stages, dtype):
    p = problem((64, 144, 56, 56), (144, 1, 5, 5), dtype, padding=2)
    kernel = build(p, BoxTile(14, 7, 1, 1, 8, 16, turns, stages), SM_90A)
    used = kernel.resources["main_kernel"]
    assert used.spills == 0
    assert used.registers <= 128
    assert "UTMALDG" in kernel.assembly
    written = re.findall(INSTRUCTION, kernel.assembly, re.M)
    assert written.count("FFMA") == 14 * 7 * 25
    assert len(written) < 1.4 * written.count("FFMA")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("k", "size"), [(3, 112), (5, 56), (7, 7), (31, 32)])
def test_tiles_fit_and_each_is_named_once(k, size, dtype):
    p = problem((64, 96, size, size), (96, 1, k, k), dtype, padding=k // 2)
    tiles = box_tiles(p)
    assert len(tiles) == len(set(tiles))
    template = TEMPLATES["gpu.pixel_tiles"]
    for tile in (tiles[0], tiles[-1]):
        template.schedule(template.declare(p, tile), tile)


@pytest.mark.needs_nvrtc
def test_a_number_of_16_bits_is_converted_by_one_instruction():
    written = []
    for dtype in ("float16", "bfloat16"):
        p = problem((64, 144, 56, 56), (144, 1, 3, 3), dtype, padding=1)
        kernel = build(p, BoxTile(7, 7, 2, 1, 2, 72, 1, 1, 1), SM_90A)
        written.append(len(re.findall(INSTRUCTION, kernel.assembly, re.M)))
    assert written[1] <= 1.02 * written[0]


@pytest.mark.needs_cuda
def test_blocks_may_end_in_a_part_of_a_warp():
    p = problem((2, 32, 9, 14), (32, 1, 3, 3), padding=1)
    tile = BoxTile(3, 2, 4, 1, 7, 8, 3, 2, 1)
    assert tile.threads_x * tile.threads_y == 56
    assert run(p, build(p, tile, SM_90A), device="cuda:0") < TOLERANCE["float16"]
