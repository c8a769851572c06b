"""Gradients by filters as bands of products of rows: right for every shape, few instructions."""

from __future__ import annotations

import pytest

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


def count(found, *starts):
    return sum(n for op, n in found.items() if op.startswith(starts))


def kernel(p, tile, target):
    return tilewright.build(*TEMPLATE.scheduled(p, tile), target)


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
