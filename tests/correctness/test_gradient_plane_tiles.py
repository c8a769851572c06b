"""Gradients by filters from staged tiles of planes: right for every shape, few instructions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.ir.stmt import Attr, Store, Sync
from tilewright.ir.visit import statements
from tilewright.lower.split_barriers import KEY as SPLIT
from tilewright.runtime.sass import opcodes
from tilewright.target import Target
from tilewright.topi import Problem
from tilewright.topi.declare import input_shapes
from tilewright.topi.gpu.depthwise_wgrad_planes import GradientPlaneTile, planes_of
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.reduction_plane_tiles"]
SM_90A = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    return Problem.parse(data, filter, **{"padding": 2, "pass_": "wgrad", **more})


MANY = problem("64x192x28x28", "192x1x5x5")

#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("3x4x28x28", "4x1x5x5"), GradientPlaneTile(7, 4, 4, 7, 3, 1, 2, 2)),
    (problem("5x2x9x20", "2x1x3x7", padding=(1, 3)), GradientPlaneTile(4, 8, 2, 2, 2, 2, 3, 2)),
    (problem("2x3x11x12", "3x1x4x5", padding=(3, 1, 0, 3)),
     GradientPlaneTile(2, 4, 4, 2, 2, 1, 2, 1)),
    (problem("3x1x6x8", "1x1x1x1", padding=0), GradientPlaneTile(2, 4, 3, 2, 1, 4, 2, 1)),
    (problem("2x2x7x16", "2x1x3x7", padding=(1, 5, 1, 5)),
     GradientPlaneTile(4, 8, 2, 1, 2, 1, 2, 2)),
    (problem("1x2x5x8", "2x1x6x5", padding=4), GradientPlaneTile(4, 4, 2, 3, 1, 1, 4, 2)),
]  # fmt: skip


def kernel(p, tile, target):
    declared = TEMPLATE.declare(p, tile)
    return tilewright.build(TEMPLATE.schedule(declared, tile), declared.args, target)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_sums_over_tiles_are_the_gradient(p, tile):
    arrays, out = random_inputs(p, input_shapes(p)), poison(p)
    kernel(p, tile, "sim")(*arrays.values(), out)  # raises for every race, stale read and the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


def test_small_integers_are_summed_exactly():
    p = problem("4x2x9x16", "2x1x5x5")
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-2, 3, s).astype("float32") for n, s in input_shapes(p).items()}
    out = poison(p)
    kernel(p, GradientPlaneTile(4, 4, 3, 4, 2, 1, 2, 2), "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.parametrize(
    "p",
    [
        problem("64x192x28x28", "192x1x5x5", stride=2),
        problem("64x192x28x28", "192x1x5x5", dilation=2, padding=4),
        problem("64x192x27x27", "192x1x5x5"),
        problem("64x192x28x28", "192x1x5x5", dtype="float16"),
        problem("64x192x28x28", "192x1x5x5", layout="NHWC"),
    ],
    ids=str,
)
def test_other_steps_types_and_rows_that_are_not_of_16_bytes_are_for_others(p):
    assert TEMPLATE.fits(MANY, SM_90A)
    assert not TEMPLATE.fits(p, SM_90A)


def test_rows_of_a_tile_are_so_long_that_lanes_of_a_warp_meet_in_no_bank():
    """Seven threads have a row: the next one continues where they end, 4 * 7 banks further."""
    tile = GradientPlaneTile(7, 4, 4, 7, 4)
    assert all(7 * pitch % 32 == 4 * 7 for pitch in planes_of(MANY, tile).pitch)


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5])
def test_tiles_begin_at_multiples_of_16_bytes_in_images(left):
    p = problem("64x192x28x28", "192x1x5x5", padding=(2, left, 2, 4 - left if left < 5 else 3))
    cut = planes_of(p, GradientPlaneTile())
    assert 0 <= cut.margin < 4
    assert (left + cut.margin) % 4 == 0
    assert cut.pitch[0] >= cut.margin + cut.size[1] + 4


@pytest.mark.needs_nvrtc
def test_a_thread_loads_four_columns_at_once_and_computes_no_addresses():
    tile = GradientPlaneTile(14, 4, 2, 7, 8, 1, 2, 6)
    program = kernel(MANY, tile, SM_90A).program
    used = next(iter(program.resources.values()))
    assert used.spills == used.stack == 0
    found = opcodes(program.assembly)
    products = 14 * 4 * 5 * 5
    assert found["FFMA"] == products
    # Rows of x, from two columns before a multiple of four to two behind the next, and of dy.
    assert found["LDS.128"] == 14 + (14 + 4)
    assert found["LDS.64"] == 14 * 2
    assert not any(op.startswith("LDG.E.128") for op in found)
    assert any(op.startswith("UTMALDG") for op in found)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", [MANY, problem("64x96x56x56", "96x1x7x7", padding=3)], ids=str)
def test_the_first_tiles_spill_nothing(p):
    for tile in TEMPLATE.candidates(p, SM_90A)[:2]:
        used = next(iter(kernel(p, tile, SM_90A).program.resources.values()))
        assert used.spills == used.stack == 0


@pytest.mark.parametrize("steps", [2, 3, 8])
def test_sums_use_the_memory_of_copies_behind_a_barrier_of_the_block(steps):
    """Warps that are done would else write over what others still read: a race that NVIDIA's
    racecheck saw, and the proof did not."""
    p, tile = problem((steps, 1, 16, 32), (1, 1, 5, 5)), GradientPlaneTile(4, 4, 4, 8, 1, 1, 2, 1)
    d = TEMPLATE.declare(p, tile)
    (func,) = tilewright.lower(TEMPLATE.schedule(d, tile), d.args, SM_90A).funcs
    order = list(statements(func.body))
    (freed,) = (s for s in order if isinstance(s, Attr) and s.key == SPLIT)
    stored = [s for s in order if isinstance(s, Store) and s.buffer in freed.value]
    behind = order[order.index(freed) + 2 : order.index(stored[-1])]
    assert sum(isinstance(s, Sync) for s in behind) == 1
