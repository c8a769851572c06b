"""Large filters on tensor cores: right for every shape, in sim; instructions meant, no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble, opcodes
from tilewright.select.answers import Answers
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Problem
from tilewright.topi.declare import input_shapes
from tilewright.topi.gpu.depthwise_toeplitz import ToeplitzTile
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.toeplitz"]


def problem(data, filter, **more):
    return Problem.parse(data, filter, **{"dtype": "float16", "padding": 3, **more})


#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("64x1x8x32", "1x1x7x7"), ToeplitzTile(4, 32, 2, 1, 3)),
    (problem("70x1x9x41", "1x1x7x5", padding=(3, 2, 2, 1)), ToeplitzTile(2, 16, 2, 2, 2)),
    (problem("3x2x11x23", "2x1x7x7", stride=2), ToeplitzTile(2, 16, 2, 1, 2)),
    (problem("3x2x11x23", "2x1x3x5", dilation=(2, 3), padding=4), ToeplitzTile(2, 8, 2, 3, 1)),
    (problem("2x1x9x7", "1x2x5x4", stride=(3, 1), epilogue="bias+relu"), ToeplitzTile(1, 8, 1, 3)),
    (problem("2x1x5x60", "1x1x3x31", padding=(1, 15)), ToeplitzTile(1, 64, 2, 3, 4)),
    (problem("2x2x11x9", "2x1x5x7", pass_="dgrad", dilation=(2, 1)), ToeplitzTile(4, 8, 2, 2)),
    (problem("2x2x14x14", "2x1x9x9", pass_="dgrad", padding=4, dtype="bfloat16"),
     ToeplitzTile(4, 16, 2, 2)),
]  # fmt: skip


def kernel(p, tile, target):
    declared = TEMPLATE.declare(p, tile)
    return tilewright.build(TEMPLATE.schedule(declared, tile), declared.args, target)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_products_with_toeplitz_matrices_are_the_convolution(p, tile):
    arrays, out = random_inputs(p, input_shapes(p)), poison(p)
    report = kernel(p, tile, "sim").simulate(*arrays.values(), out)
    assert report.ok, report
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


def test_small_integers_are_summed_exactly():
    p = problem("5x1x8x16", "1x1x7x7")
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, s).astype("float16") for n, s in input_shapes(p).items()}
    out = poison(p)
    kernel(p, ToeplitzTile(4, 16, 1, 2), "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_tiles_that_come_first_multiply_without_a_pause(dtype, pass_, rank):
    p = problem("64x384x32x32", "384x1x31x31", padding=15, dtype=dtype, pass_=pass_)
    tile = TEMPLATE.candidates(p, Target.parse("cuda -arch=sm_90a"))[rank]
    declared = TEMPLATE.declare(p, tile)
    module = lower(TEMPLATE.schedule(declared, tile), declared.args, "cuda -arch=sm_90a")
    cubin = compile_cubin(generate(module, "sm_90a").text, "sm_90a")
    (used,) = cubin.resources.values()
    assert used.spills == used.stack == 0
    assert "serialized" not in cubin.log  # products of a group that wait for each other
    found = opcodes(disassemble(cubin.data))
    width = f"HGMMA.64x{tile.rows * tile.columns}x16.F32"
    assert sum(n for op, n in found.items() if op.startswith(width)) >= 2 * tile.stages
    assert "LDG.E.128.CONSTANT" in found
    assert "STG.E.128" in found


def test_an_image_as_wide_as_a_tile_needs_no_columns_of_padding():
    p = problem("64x384x32x32", "384x1x31x31", padding=15)
    cut = Toeplitz(p, 4, 32)
    assert (cut.first, cut.depth, cut.steps) == (0, 32, 34)
    wide = Toeplitz(problem("64x384x64x64", "384x1x31x31", padding=15), 4, 32)
    assert (wide.first, wide.depth) == (-16, 64)


@pytest.mark.parametrize(
    "p",
    [
        problem("64x8x32x32", "8x1x7x7", dtype="float32"),
        problem("64x8x32x32", "8x1x7x7", layout="NHWC"),
        problem("64x8x32x32", "8x1x7x7", pass_="wgrad"),
        problem("64x8x32x32", "8x1x7x7", pass_="dgrad", stride=2),
        problem("64x8x32", "8x1x7"),
    ],
    ids=str,
)
def test_other_problems_are_left_to_other_schedules(p):
    for target in ("sim", "cuda -arch=sm_90a"):
        assert not TEMPLATE.fits(p, Target.parse(target))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_other_gpus_have_no_such_instruction(arch):
    p = problem("64x8x32x32", "8x1x7x7")
    assert not TEMPLATE.fits(p, Target.parse(f"cuda -arch={arch}"))


def test_large_filters_of_many_images_go_to_tensor_cores_unmeasured(tmp_path):
    answers, target = Answers(tmp_path / "answers.sqlite"), "cuda -arch=sm_90a"
    large = problem("64x384x32x32", "384x1x31x31", padding=15)
    assert choose(large, target, answers=answers).algorithm.name == "gpu.toeplitz"
    for other in (large.replace(batch=1), large.replace(dtype="float32", accumulate="")):
        assert choose(other, target, answers=answers).algorithm.name != "gpu.toeplitz"
    assert choose(large, "cuda -arch=sm_80", answers=answers).algorithm.name != "gpu.toeplitz"
