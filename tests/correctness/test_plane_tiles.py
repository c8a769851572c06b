"""Convolutions of tiles of planes that TMA brings: right at every edge, tight code."""

import re
from collections import Counter

import pytest
from tests.support.depthwise import TOLERANCE, run
from tests.support.hopper import skip_unless_hopper

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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem((2, 4, 12, 12), (4, 1, 5, 5), padding=2), PlaneBoxTile(3, 4, 4, 3, 2, 1, 1)),
        (problem((3, 4, 9, 12), (4, 1, 5, 5), padding=2), PlaneBoxTile(3, 4, 2, 2, 2, 2, 2)),
        (problem((5, 6, 9, 16), (6, 1, 3, 3), "float16", stride=2, padding=1),
         PlaneBoxTile(2, 4, 2, 2, 3, 2, 2)),  # images of which the last blocks have one
        (problem((3, 4, 9, 16), (4, 1, 5, 3), "bfloat16", "dgrad", padding=1),
         PlaneBoxTile(2, 8, 2, 2, 2, 3, 3)),
        (problem((2, 2, 10, 20), (2, 1, 3, 4), padding=(1, 2, 0, 3), dilation=2),
         PlaneBoxTile(4, 2, 1, 6, 1, 2, 2)),
        (problem((2, 3, 7, 14), (3, 1, 3, 3), pass_="dgrad", padding=(0, 2)),
         PlaneBoxTile(7, 4, 1, 4, 3, 2, 2)),  # rows of dx that no vectors cover
        (problem((1, 1, 2, 4), (1, 1, 2, 3), padding=(4, 1, 0, 1), stride=(4, 1)),
         PlaneBoxTile(1, 2, 4, 2, 1, 1, 1)),  # most of what is seen is padding
    ],
    ids=str,
)  # fmt: skip
def test_every_edge_is_right(p, tile, device):
    if device == "cuda":
        skip_unless_hopper()
    kernel = build(p, tile, SM_90A if device == "cuda" else "sim")
    assert run(p, kernel, device=device) < TOLERANCE[p.dtype]


def test_an_epilogue_is_fused():
    steps = ("scale_shift", "silu", "residual")
    p = problem((3, 4, 6, 20), (4, 1, 3, 3), padding=1, epilogue=steps)
    assert run(p, build(p, PlaneBoxTile(3, 4, 2, 5, 2, 2, 2))) < TOLERANCE[p.dtype]


def test_batches_may_be_left_to_the_call():
    p, tile = problem((3, 4, 6, 8), (4, 1, 3, 3), padding=1), PlaneBoxTile(3, 4, 2, 2, 2, 2, 2)
    assert run(p, build(p, tile, batch=tilewright.te.var("n"))) < TOLERANCE[p.dtype]


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


@pytest.mark.parametrize(
    ("size", "more", "wanted"),
    [
        (28, {}, True),
        (30, {}, False),  # rows of 120 bytes
        (28, {"dtype": "float16"}, False),
        (56, {"dtype": "float16"}, True),
        (56, {"pass_": "dgrad", "stride": 2}, False),
        (56, {"pass_": "dgrad"}, True),
        (56, {"layout": "NHWC"}, False),
    ],
    ids=str,
)
def test_rows_are_whole_chunks_of_16_bytes(size, more, wanted):
    p = problem((64, 8, size, size), (8, 1, 3, 3), padding=1, **more)
    assert TEMPLATE.fits(p, SM_90A) == wanted


@pytest.mark.parametrize("k", [3, 5, 7])
@pytest.mark.parametrize("size", [8, 16, 56, 112])
def test_tiles_fit_and_each_is_named_once(k, size):
    p = problem((64, 96, size, size), (96, 1, k, k), padding=k // 2)
    tiles = TEMPLATE.candidates(p, SM_90A)
    assert len(tiles) == len(set(tiles)) > 0
