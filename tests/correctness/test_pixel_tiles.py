"""Channels-last convolutions of whole tiles in shared memory: right at every edge, unguarded."""

import re

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.topi import Conv
from tilewright.topi.gpu.pixel_tiles import box_tiles, suits_boxes
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


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem((2, 16, 9, 9), (16, 1, 5, 5), padding=2), BoxTile(4, 3, 2, 1, 2, 4, 2, 2, 1)),
        (problem((1, 24, 9, 8), (24, 1, 3, 3), stride=2, padding=1),
         BoxTile(2, 3, 1, 2, 2, 16, 2, 2, 0)),
        (problem((2, 20, 7, 7), (20, 1, 7, 7), "float32", padding=3),
         BoxTile(4, 7, 1, 1, 1, 16, 3, 3, 1)),
        (problem((1, 8, 11, 6), (8, 1, 2, 3), "bfloat16", padding=(0, 2, 1, 0), dilation=(2, 1)),
         BoxTile(3, 2, 2, 2, 2, 4)),
        (problem((2, 16, 8, 8), (16, 1, 1, 1)), BoxTile(4, 4, 1, 1, 2, 16)),
        (problem((1, 8, 7, 17), (8, 1, 2, 2), padding=(1, 0), stride=3, dilation=2),
         BoxTile(2, 7, 1, 4, 1, 32, 2, 2, 0)),  # larger than the image
        (problem((1, 8, 14, 14), (8, 1, 5, 5), "float32", stride=2), BoxTile(2, 3, 1, 4, 2, 8)),
        (problem((1, 8, 25, 7), (8, 1, 3, 3), "float32", stride=2),
         BoxTile(2, 3, 1, 2, 1, 8, 2, 2)),  # the last turn lies below the image
        (problem((3, 12, 9, 10), (12, 1, 5, 4), "float32", "dgrad", padding=(2, 1)),
         BoxTile(4, 3, 2, 1, 2, 4, 1, 1, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_every_edge_is_right_on_the_simulator(p, tile):
    assert suits_boxes(p)
    assert run(p, build(p, tile)) < TOLERANCE[p.dtype]


def test_batches_may_be_left_to_the_call():
    p, tile = problem((3, 16, 6, 6), (16, 1, 3, 3), padding=1), BoxTile(3, 3, 2, 2, 2, 8)
    assert run(p, build(p, tile, batch=tilewright.te.var("n"))) < TOLERANCE["float16"]


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
