"""Large filters of float32 on tensor cores: as exact as float32, for every shape, in sim."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import poison, random_inputs, reference, relative_error
from tests.support.gpu_tiles import CASES

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.select.choice import choose
from tilewright.select.profile_cache import ProfileCache
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import GradientTile, RowTile, WarpTile
from tilewright.topi.templates import TEMPLATES

IMAGES, ROWS = TEMPLATES["gpu.toeplitz_tf32"], TEMPLATES["gpu.toeplitz_tf32_rows"]
GRADIENTS = TEMPLATES["gpu.toeplitz_tf32_wgrad"]
HERE = {WarpTile: IMAGES, RowTile: ROWS, GradientTile: GRADIENTS}


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float32", "padding": 3, **more})


LARGE = problem("64x384x32x32", "384x1x31x31", padding=15)


def kernel(p, tile, target):
    template = HERE[type(tile)]
    return tilewright.build(*template.scheduled(p, tile), target)


@pytest.mark.parametrize("name", [t.name for t in HERE.values()])
def test_one_product_is_what_a_problem_that_allows_tf32_gets(name):
    p, tile = CASES[name][0]
    p = p.replace(precision="tf32")
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    kernel(p, tile, "sim")(*arrays.values(), out)
    assert 1e-5 < relative_error(out, reference(p, arrays)) < 5e-4


def test_numbers_of_every_size_keep_their_digits():
    p, tile = problem("16x1x8x16", "1x1x7x7"), WarpTile(2, 16, 1, 1, 1, 4, 2)
    rng = np.random.default_rng(0)
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    size = np.float32(2) ** rng.integers(-60, 60, (16, 1, 8, 1)).astype("float32")
    (name, image), *_ = arrays.items()
    arrays[name] = image * size  # of each row of an image another one
    kernel(p, tile, "sim")(*arrays.values(), out)
    exact = reference(p, arrays)
    widest = reference(p, {n: np.abs(x) for n, x in arrays.items()})  # without cancellation
    assert (np.abs(out - exact) <= 1e-6 * widest).all()


@pytest.mark.parametrize("precision", ["exact", "tf32"])
def test_what_is_no_number_stays_none(precision):
    p, tile = problem("16x1x4x16", "1x1x3x3", padding=1), WarpTile(2, 16, 1, 1, 1, 2, 2)
    p = p.replace(precision=precision)
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    image = next(iter(arrays.values()))
    image[3, 0, 2, 5] = np.nan
    kernel(p, tile, "sim")(*arrays.values(), out)
    assert np.isnan(out[3, 0, 1:4, 4:7]).all()
    assert not np.isnan(np.delete(out, 3, axis=0)).any()


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch"),
    [("forward", "sm_80"), ("dgrad", "sm_120"), ("rows", "sm_80"), ("wgrad", "sm_90a")],
)  # fmt: skip
def test_the_first_tile_multiplies_without_spills_and_little_else(name, arch):
    template = {"rows": ROWS, "wgrad": GRADIENTS}.get(name, IMAGES)
    p = LARGE.replace(pass_=name) if name != "rows" else LARGE.replace(batch=1)
    target = Target.parse(f"cuda -arch={arch}")
    program = kernel(p, template.candidates(p, target)[0], target).program
    for used in program.resources.values():
        assert used.spills == used.stack == 0
    found = opcodes(program.assembly)
    products = found["HMMA.1688.F32.TF32"]
    # A step is 14 blocks of 8 by 8 of each of 16 rows, as 2 of 16 have no taps, three times.
    assert products > 0
    assert products % (14 * 3) == 0
    # Neighbours in a matrix are one tap, taken from memory once, in two parts.
    assert sum(n for op, n in found.items() if op.startswith("LDS")) <= products / 2
    assert sum(n for op, n in found.items() if op.startswith(("MOV", "IMAD.MOV"))) < products / 3


def test_blocks_without_taps_are_left_out():
    assert Bands(LARGE, 16, 2, 32).products == 14  # of 16
    wide = problem("64x384x64x64", "384x1x13x13", padding=6)
    assert Bands(wide, 16, 2, 32).products == 12  # of 24


def test_large_filters_of_float32_go_to_tensor_cores_unmeasured(tmp_path):
    cache = ProfileCache(tmp_path / "profile.sqlite")

    def chosen(p: Conv, arch: str = "sm_90a") -> str:
        return choose(p, f"cuda -arch={arch}", cache=cache).algorithm.name

    assert chosen(LARGE) == chosen(LARGE, "sm_80") == "gpu.toeplitz_tf32"
    assert chosen(LARGE.replace(batch=1)) == "gpu.toeplitz_tf32_rows"
    assert chosen(LARGE.replace(pass_="wgrad")) == "gpu.toeplitz_tf32_wgrad"
    assert "tf32" not in chosen(LARGE, "sm_75")
