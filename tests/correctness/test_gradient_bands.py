"""Gradients by filters as bands of products of rows: right for every shape, few instructions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.pieces.row_band_cuts import RowBandTile
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.band_gradient"]
SM_90A = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 2, "pass_": "wgrad", **more})


WIDE = problem("64x32x112x112", "32x1x5x5")

#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("3x2x19x40", "2x1x5x5"), RowBandTile(2, 32, 2, 1, 2)),
    (problem("2x3x9x56", "3x1x7x7", padding=3, dtype="bfloat16"), RowBandTile(1, 64, 4, 2, 1)),
    (problem("5x1x8x12", "1x1x9x3", padding=(4, 1)), RowBandTile(1, 16, 4, 3, 1)),
    (problem("2x2x11x13", "4x1x4x6", padding=(0, 2, 3, 1)), RowBandTile(1, 16, 2, 1, 3)),
    (
        problem("3x2x20x24", "2x1x3x3", dilation=(3, 2), dtype="bfloat16"),
        RowBandTile(2, 32, 4, 2, 1),
    ),
    (problem("1x2x5x6", "2x1x1x1", padding=0), RowBandTile(1, 16, 4, 1, 1)),
    (problem("2x1x6x7", "1x1x2x3", padding=4), RowBandTile(1, 16, 4, 2, 1)),
    (problem("5x1x17x24", "1x1x7x7", padding=3, dtype="bfloat16"), RowBandTile(2, 16, 2, 3, 2)),
    (problem("3x1x9x64", "1x1x3x9", padding=(1, 4)), RowBandTile(1, 64, 2, 2, 1)),
    (problem("2x1x10x16", "1x1x2x4", dilation=(5, 2), padding=3), RowBandTile(1, 16, 2, 1, 1)),
    (problem("2x1x9x72", "1x1x5x5", padding=(2, 3, 2, 1)), RowBandTile(1, 64, 2, 3, 1)),
    (problem("3x2x19x40", "2x1x5x5", stride=2), RowBandTile(2, 32, 2, 1, 2)),
    (problem("2x3x17x27", "3x1x3x4", stride=2, padding=(1, 2, 0, 1)), RowBandTile(1, 16, 2, 2, 1)),
    (problem("2x2x21x30", "4x1x5x3", stride=(2, 1), dtype="bfloat16"), RowBandTile(1, 32, 2, 1, 1)),
    (problem("2x2x11x34", "2x1x4x7", stride=(1, 2), dilation=(2, 1)), RowBandTile(1, 16, 2, 3, 1)),
    (problem("2x1x30x18", "1x1x9x1", stride=2, dilation=(2, 3)), RowBandTile(2, 16, 2, 1, 1)),
    (problem("3x1x6x9", "1x1x1x2", stride=2, padding=0, dilation=2), RowBandTile(1, 16, 4, 1, 1)),
    # Of one image, whose rows do not fill tiles.
    (problem("1x1x13x14", "2x1x3x7", padding=1, dtype="bfloat16"), RowBandTile(1, 16, 8, 1, 1)),
    (problem("1x1x8x12", "1x1x4x1", stride=(2, 1), dilation=(2, 3)), RowBandTile(1, 16, 4, 1, 1)),
]  # fmt: skip


def count(found, *starts):
    return sum(n for op, n in found.items() if op.startswith(starts))


def kernel(p, tile, target):
    return tilewright.build(*TEMPLATE.scheduled(p, tile), target)


@pytest.mark.spread
@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_diagonals_of_bands_are_the_gradient(p, tile):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    kernel(p, tile, "sim")(*arrays.values(), out)  # raises for every race, stale read and the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("stride", [1, 2])
def test_small_integers_are_summed_exactly(stride):
    p = problem("4x1x9x16", "1x1x5x5", stride=stride)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-1, 2, s).astype("float16") for n, s in p.shapes().items()}
    out = poison(p)
    kernel(p, RowBandTile(1, 16, 4, 1, 2), "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.parametrize(
    "p",
    [
        problem("64x32x112x112", "32x1x5x5", stride=3),
        problem("64x32x112x112", "32x1x11x11", padding=5),
        problem("64x32x112x112", "32x1x5x5", dtype="float32"),
        problem("64x32x112x112", "32x1x5x5", layout="NHWC"),
        problem("1x3x17x2", "6x1x6x2", stride=2, padding=(4, 1), dilation=3),
    ],
    ids=str,
)
def test_strides_high_filters_single_columns_and_other_types_are_for_others(p):
    assert not TEMPLATE.fits(p, SM_90A)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_row_of_dy_is_moved_by_two_columns_for_nothing_and_by_one_in_an_instruction(dtype):
    p = WIDE.replace(dtype=dtype)
    tile = RowBandTile(2, 32, 8, 1, 12)
    program = kernel(p, tile, SM_90A).program
    used = next(iter(program.resources.values()))
    assert used.spills == used.stack == 0
    found = opcodes(program.assembly)
    products = 2 * 32 // 16 * 5  # blocks of rows, columns, and columns of the filter
    assert count(found, "HMMA") == products
    assert count(found, "PRMT") <= products // 2
    assert count(found, "LDG.E.128") == 3 + 2  # a thread's shares of eight rows of x, and of dy
    assert not count(found, "LDL", "STL", "HADD2")


@pytest.mark.needs_nvrtc
def test_with_a_stride_whole_rows_are_loaded_and_their_phases_told_apart_in_registers():
    p, tile = problem("64x96x112x112", "96x1x5x5", stride=2), RowBandTile(1, 64, 4, 1, 6)
    program = kernel(p, tile, SM_90A).program
    used = next(iter(program.resources.values()))
    assert used.spills == used.stack == 0
    found = opcodes(program.assembly)
    assert count(found, "HMMA") == 64 // 16 * 5 * 2  # also phases of rows
    rows = 2 * 2 * (2 * 64) // 4  # a thread's of sixteen rows of x and of each phase, in halves
    assert count(found, "LDG.E.128") == rows // 8 + 2
    phases, moved = rows // 2, 5 * 64 // 4 // 2
    assert count(found, "PRMT") <= phases + moved


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    "p",
    [
        WIDE,
        problem("64x96x56x56", "96x1x7x7", padding=3, dtype="bfloat16"),
        problem("64x96x112x112", "96x1x5x5", stride=2),
        problem("64x96x57x57", "96x1x5x5", stride=2),  # whose rows are loaded by halves
        problem("64x32x113x113", "32x1x3x3", stride=2, padding=1),
        problem("64x240x28x113", "240x1x2x17", dilation=(2, 3)),  # with far sides of dy
    ],
    ids=str,
)
def test_the_first_tiles_spill_nothing(p):
    for tile in TEMPLATE.candidates(p, SM_90A)[: 2 if p is WIDE else 1]:
        used = next(iter(kernel(p, tile, SM_90A).program.resources.values()))
        assert used.spills == used.stack == 0
