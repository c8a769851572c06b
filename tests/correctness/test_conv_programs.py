"""Convolutions and programs of their results in one kernel: each kernel against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.conv_programs import error, exact, inputs, normalised, pooled, result
from tests.support.depthwise import TOLERANCE, decode, relative_error
from tests.support.tiles import built

import tilewright
from tilewright import te
from tilewright.runtime.ndarray import array
from tilewright.select.choice import with_own_architecture
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import ConvProgram
from tilewright.topi.declare import Given
from tilewright.topi.operators.conv_program import pooled_window
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, templates

pytestmark = pytest.mark.needs_torch
SIM, HOPPER = Target.parse("sim"), Target.parse("cuda -arch=sm_90a")

POOLED = [
    pooled("1x64x17x19", "64x64x3x3"),
    pooled("3x64x9x8", "24x64x3x3", stride=2),
    pooled("2x64x16x12", "72x64x3x3", window=4, epilogue="relu"),
    pooled("2x64x9x11", "40x64x1x1", padding=0),
]
NORMALISED = [
    normalised("1x64x5x7", 7),
    normalised("2x96x6x7", 3, epilogue="bias+relu"),
    normalised("2x24x9x8", 5, stride=2, epilogue=""),
]


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("p", [*POOLED, *NORMALISED], ids=str)
def test_the_first_choice_is_right(p, target):
    assert error(p, chosen_kernel(p, Target.parse(target))) < TOLERANCE["float16"]


@pytest.mark.parametrize("p", [POOLED[0], NORMALISED[1]], ids=["pooled", "normalised"])
def test_bfloat16_is_right(p):
    conv = p.inner.replace(dtype="bfloat16", accumulate="")
    if pooled_window(p):
        p = ConvProgram.of(conv, list(p.calls))
    else:
        p = normalised("2x96x6x7", 3, epilogue="bias+relu", dtype="bfloat16")
    assert error(p, chosen_kernel(p, SIM)) < TOLERANCE["bfloat16"]


def tile(images, rows, columns, channels, stages, **more):
    return BoxProductTile(images, rows, columns, channels, stages, **more)


#: By template, tiles: windows of one box and of several, of other warps, and turned ones; stored by
#: all threads, or by warps beside a producer, in vectors of 16 bytes and less.
TILES = [
    ("whole_boxes", tile(1, 8, 8, 64, 1)),
    ("whole_boxes", tile(3, 8, 8, 64, 3, boxes=2, staged=64)),
    ("whole_boxes", tile(1, 16, 8, 64, 3, boxes=3, staged=32)),
    ("box_products", tile(2, 8, 8, 128, 4, boxes=2, staged=32)),
    ("box_products", tile(8, 4, 4, 128, 4, boxes=2, staged=128)),
    ("box_products", tile(16, 2, 2, 64, 4)),
    ("box_products", tile(1, 8, 8, 64, 4, turned=1)),
    ("box_products", tile(1, 8, 8, 64, 4, boxes=3, turned=1)),
    ("box_splits", tile(1, 8, 8, 64, 4, splits=3)),
    ("window_splits", tile(104, 1, 1, 64, 4, splits=3, turned=1)),
]


@pytest.mark.spread
@pytest.mark.parametrize(("name", "t"), TILES, ids=lambda x: str(x)[:60])
def test_windows_are_pooled_before_they_are_stored(name, t):
    p = pooled("3x64x17x19", "72x64x3x3")
    arrays = inputs(p, whole=True)
    found = result(p, built(f"gpu.pooled_{name}", p, t, "sim"), arrays)
    assert np.array_equal(decode(found), exact(p, arrays))


@pytest.mark.parametrize(("name", "t"), [TILES[k] for k in (1, 9)], ids=lambda x: str(x)[:60])
def test_one_kernel_pools_every_batch(name, t):
    p = pooled("3x64x17x19", "72x64x3x3")
    batch = p.batch_of(3, ("data",))
    assert batch is not None
    given = Given(te.var("n", most=p.most_of(batch)), None, batch)
    made = TEMPLATES[f"gpu.pooled_{name}"].scheduled(p, t, given)
    kernel = tilewright.build(*made, "sim")
    for images in (1, 5):
        other = p.at(batch, images)
        assert other == pooled(f"{images}x64x17x19", "72x64x3x3")
        arrays = inputs(other, whole=True)
        assert np.array_equal(decode(result(other, kernel, arrays)), exact(other, arrays))


def test_operands_that_differ_by_image_leave_no_batch():
    p = NORMALISED[0]
    assert p.batch_of(1, ("data", "a1")) is None


@pytest.mark.needs_cuda
@pytest.mark.parametrize("p", [*POOLED, pooled("8x128x28x28", "128x128x3x3"), *NORMALISED], ids=str)
def test_a_gpu_computes_it_by_every_candidate(p):
    cuda = with_own_architecture("cuda")
    arrays = inputs(p)
    given = [array(x, "cuda:0") for x in arrays.values()]
    wanted = exact(p, arrays)
    for template in templates(p, cuda)[:4]:
        for t in template.candidates(p, cuda)[:8]:
            y = array(np.full(p.result.shape, np.nan, "float16"), "cuda:0")
            built(template.name, p, t, cuda)(*given, y)
            assert relative_error(y.numpy(), wanted) < TOLERANCE["float16"], t


def test_windows_that_warps_do_not_have_are_no_candidates():
    """Of 16 columns a warp has one row, and of windows of 3 no box has all."""
    (found,) = [t for t in templates(POOLED[0], SIM) if t.name == "gpu.pooled_whole_boxes"]
    assert all(t.rows % 2 == t.columns % 2 == 0 for t in found.candidates(POOLED[0], SIM))
    thirds = pooled("1x64x17x19", "64x64x3x3", window=3)
    names = {t.name for t in templates(thirds, SIM)}
    assert names & {"gpu.pooled_whole_boxes", "gpu.pooled_box_products"} == set()


@pytest.mark.parametrize("p", [*POOLED, *NORMALISED], ids=str)
def test_a_problem_is_read_as_it_was_written(p):
    assert Problem.from_json(p.to_json()) == p
    assert len({q.key for q in (*POOLED, *NORMALISED)}) == len(POOLED) + len(NORMALISED)
