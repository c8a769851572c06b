"""Gradients by large filters as products of rows: right for every shape, in sim, and no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.select.choice import choose
from tilewright.select.profile_cache import ProfileCache
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.pieces.row_product_cuts import RowProductTile
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.row_products"]


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 3, "pass_": "wgrad", **more})


LARGE = problem("64x384x32x32", "384x1x31x31", padding=15)

#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("5x2x10x10", "2x1x7x7"), RowProductTile(2, 1, 16, 16, 2)),
    (problem("17x1x6x32", "1x1x9x9", padding=4), RowProductTile(2, 2, 16, 4, 3)),
    (problem("20x2x14x14", "2x1x5x13", padding=(2, 6), dtype="bfloat16"),
     RowProductTile(4, 1, 32, 8, 2)),
    (problem("3x1x5x64", "1x1x3x51", padding=(1, 25)), RowProductTile(1, 2, 16, 3, 2)),
    (problem("16x2x7x20", "2x2x5x4", padding=(1, 2, 0, 3), stride=(1, 2), dilation=(1, 2)),
     RowProductTile(2, 2, 16, 6, 2)),
    (problem("4x1x3x8", "1x1x2x3", padding=0), RowProductTile(4, 1, 16, 9, 2)),
    # Of padding down alone, and where windows end before an image does.
    (problem("4x1x6x8", "1x1x5x3", padding=(2, 0)), RowProductTile(4, 1, 16, 9, 2)),
    (problem("3x2x5x6", "2x1x3x3", padding=1, stride=(1, 3)), RowProductTile(2, 1, 16, 16, 2)),
]  # fmt: skip


def kernel(p, tile, target):
    return tilewright.build(*TEMPLATE.scheduled(p, tile), target)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_diagonals_of_products_of_rows_are_the_gradient(p, tile):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    kernel(p, tile, "sim")(*arrays.values(), out)  # raises for every race, stale read and the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


def test_small_integers_are_summed_exactly():
    p = problem("18x1x8x8", "1x1x5x5", padding=2)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-1, 2, s).astype("float16") for n, s in p.shapes().items()}
    out = poison(p)
    kernel(p, RowProductTile(2, 1, 16, 16, 2), "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", [LARGE, problem("64x512x14x14", "512x1x27x27", padding=13)], ids=str)
def test_the_first_tiles_multiply_from_shared_memory_and_spill_nothing(p):
    target = Target.parse("cuda -arch=sm_90a")
    for tile in TEMPLATE.candidates(p, target)[:2]:
        program = kernel(p, tile, target).program
        (used,) = program.resources.values()
        assert used.spills == used.stack == 0
        found = opcodes(program.assembly)
        assert any(op.startswith("HGMMA.64x") for op in found)
        assert any(op.startswith("LDGSTS") for op in found)


@pytest.mark.parametrize(
    "p",
    [
        problem("64x8x32x32", "8x1x31x31", padding=15, stride=2),
        problem("64x8x32x32", "8x1x31x31", padding=15, dtype="float32"),
        problem("64x8x31x31", "8x1x31x31", padding=15),
        problem("64x8x96x96", "8x1x31x31", padding=15),
        problem("64x8x32x32", "8x1x31x31", padding=15, pass_="forward"),
        # No result sees the first column; all begin to see one by the same tap.
        problem("16x2x7x14", "2x1x13x7", padding=(6, 3), stride=(1, 2), dilation=(1, 2)),
        problem("16x2x7x6", "2x1x13x5", padding=(6, 2), dilation=(1, 2)),
    ],
    ids=str,
)
def test_other_problems_are_left_to_other_schedules(p):
    assert not TEMPLATE.fits(p, Target.parse("cuda -arch=sm_90a"))


def test_it_is_the_first_choice_for_large_filters_unmeasured(tmp_path):
    target = Target.parse("cuda -arch=sm_90a")
    cache = ProfileCache(tmp_path / "profile.sqlite")
    assert choose(LARGE, target, cache=cache).algorithm.name == "gpu.row_products"
