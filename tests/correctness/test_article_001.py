"""Article 001's Direct Conv, im2col and implicit GEMM: right for every shape, and no spills."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, run
from tests.support.mutation import mutants

import tilewright
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim import simulate
from tilewright.target import Target
from tilewright.topi import Conv

FOLDER = Path(__file__).parents[2] / "examples" / "article_001"
sys.path.insert(0, str(FOLDER))
direct, products = (importlib.import_module(name) for name in ("direct", "products"))
sys.path.remove(str(FOLDER))
TEMPLATE, DirectTile, PARTS = direct.TEMPLATE, direct.DirectTile, direct.PARTS


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"padding": 3, **more})


LARGE = problem("64x384x32x32", "384x1x31x31", padding=15)

#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("3x2x9x11", "2x1x7x7"), DirectTile(2, 4, 2, 2, 2, 2, 1)),
    (problem("2x1x5x7", "1x1x13x13", padding=6, dtype="float16"), DirectTile(4, 8, 4, 1, 1, 2, 0)),
    (problem("2x1x40x9", "1x1x31x5", padding=(15, 2)), DirectTile(4, 4, 2, 4, 1, 1, 1)),
    (problem("1x2x5x40", "2x1x3x31", padding=(1, 15, 0, 14)), DirectTile(1, 16, 1, 2, 1, 1, 1)),
    (problem("3x2x17x15", "2x1x7x7", stride=2, dtype="bfloat16"), DirectTile(2, 4, 4, 2, 1, 2, 1)),
    (problem("1x1x15x17", "1x1x5x6", dilation=(2, 3), stride=(1, 2), padding=(5, 2, 3, 7)),
     DirectTile(2, 4, 3, 1, 2, 1, 1)),
    (problem("2x1x9x10", "1x2x7x9", epilogue="bias+relu"), DirectTile(4, 4, 2, 1, 2, 1, 1)),
    (problem("3x1x12x11", "1x1x4x4", padding=0, dtype="float16"), DirectTile(2, 8, 1, 2, 1, 1, 0)),
    (problem("2x1x7x9", "1x1x7x7", dtype="float64"), DirectTile(2, 4, 2, 2, 1, 2, 1)),
    (problem("3x2x9x11", "2x1x9x8", pass_="dgrad"), DirectTile(2, 4, 2, 2, 2, 2, 1)),
    (problem("2x1x14x14", "1x1x27x27", pass_="dgrad", padding=13, dtype="float16"),
     DirectTile(7, 4, 2, 1, 2, 2, 0)),
    (problem("2x2x13x11", "2x1x9x9", pass_="dgrad", stride=2, padding=4, dtype="bfloat16"),
     DirectTile(2, 4, 2, 2, 1, 2, 1)),
    (problem("1x1x11x14", "1x1x7x13", pass_="dgrad", stride=(1, 2), padding=(0, 5, 4, 1)),
     DirectTile(2, 4, 2, 2, 1, 1, 1)),
    (problem("1x1x12x13", "1x1x6x9", pass_="dgrad", stride=2, dilation=(2, 1), padding=4),
     DirectTile(2, 4, 1, 2, 1, 1, 1)),
    (problem("1x2x9x12", "2x1x5x8", pass_="dgrad", dilation=(1, 2), padding=(2, 20, 7, 0)),
     DirectTile(4, 8, 2, 1, 1, 1, 1)),
]  # fmt: skip


def kernel(p, tile, target):
    return tilewright.build(*TEMPLATE.scheduled(p, tile), target)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_four_threads_add_up_what_each_quarter_of_the_filter_gives(p, tile):
    assert run(p, kernel(p, tile, "sim")) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_small_integers_are_summed_exactly(pass_):
    p = problem("3x2x11x13", "2x1x7x9", padding=(3, 4), stride=(2, 1), pass_=pass_)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-4, 5, s).astype("float32") for n, s in p.shapes().items()}
    out = poison(p)
    tile = TEMPLATE.candidates(p, Target.parse("sim"))[0]
    kernel(p, tile, "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("p", "arch"),
    [
        (LARGE, "sm_80"),
        (LARGE, "sm_90a"),
        (LARGE.replace(dtype="float16", pass_="dgrad"), "sm_80"),
        (LARGE.replace(batch=1), "sm_90a"),
        (LARGE.replace(stride=(2, 2), pass_="dgrad"), "sm_80"),
        (problem("64x512x14x14", "512x1x27x27", padding=13, dtype="bfloat16"), "sm_90a"),
        (problem("64x384x56x56", "384x1x7x7"), "sm_80"),
    ],
    ids=str,
)
def test_the_first_tiles_sum_in_registers_and_meet_in_a_butterfly(p, arch):
    target = Target.parse(f"cuda -arch={arch}")
    tile = TEMPLATE.candidates(p, target)[0]
    program = kernel(p, tile, target).program
    # NVRTC does not allocate registers in the same way every time, least where it shares cores.
    again = (compile_cubin(program.source, arch).resources for _ in range(4))
    allocated = itertools.chain([program.resources], again)
    assert any(r.spills == r.stack == 0 for used in allocated for r in used.values())
    found = opcodes(program.assembly)
    results = tile.rows * min(tile.columns, p.result_shape[-1])
    assert found["SHFL.BFLY"] == 2 * results
    assert sum(n for op, n in found.items() if op.startswith("LDS")) * 8 < found["FFMA"]


def test_rows_of_the_filter_in_the_padding_are_left_out():
    tile = DirectTile(4, 16, 2, 8, 2, 4, 1)
    module = tilewright.lower(*TEMPLATE.scheduled(LARGE, tile), "sim")
    assert "for to in range(T.max(6 - threadIdx_z // 2 * 2, 0)" in str(module.funcs[0])


@pytest.mark.parametrize(
    "tile",
    [DirectTile(2, 16, 2, 4, 2, 4, 1), DirectTile(1, 16, 2, 16, 2, 1, 1)],
    ids=["images", "rows"],
)
def test_vectors_of_neighbouring_threads_meet_no_bank_twice(tile):
    p = problem("4x1x16x32", "1x1x31x31", padding=15)
    report = kernel(p, tile, "sim").simulate(*random_inputs(p, p.shapes()).values(), poison(p))
    assert report.ok, report
    assert report.conflicts() == []


def test_sim_misses_the_barrier_behind_what_is_staged():
    p, tile = CASES[0]
    module = tilewright.lower(*TEMPLATE.scheduled(p, tile), "sim")
    arrays = [*random_inputs(p, p.shapes()).values(), poison(p)]
    assert simulate(module, arrays).ok
    (mutant,) = [m for m in mutants(module) if m.lacks == "barrier (shared)"]
    assert "race" in {f.kind for f in simulate(mutant.module, arrays).findings}


@pytest.mark.parametrize(
    "p",
    [
        problem("4x8x32", "8x1x7"),
        problem("4x8x32x32", "8x1x7x7", layout="NHWC"),
        problem("4x8x32x32", "8x1x7x7", pass_="wgrad"),
        problem("4x8x32x32", "8x2x7x7", pass_="dgrad"),
        problem("4x8x32x32", f"8x1x7x{PARTS - 1}"),
    ],
    ids=str,
)
def test_other_problems_are_left_to_other_schedules(p):
    for target in ("sim", "cuda -arch=sm_90a"):
        assert not TEMPLATE.fits(p, Target.parse(target))


@pytest.mark.parametrize("implicit", [0, 1], ids=["im2col", "implicit GEMM"])
@pytest.mark.parametrize(
    "p",
    [
        problem("3x2x9x7", "2x1x7x7", dtype="float16", stride=(2, 1)),
        problem("2x3x12x11", "3x1x5x5", dtype="bfloat16", dilation=(1, 2), padding=(2, 4)),
    ],
    ids=str,
)
def test_columns_are_stored_or_made_where_they_are_multiplied(p, implicit):
    s, args = products.declare(p, implicit)
    assert run(p, tilewright.build(s, args, "sim")) < TOLERANCE[p.dtype]
    (columns,) = [stage for stage in s.stages if stage.op.name == "Columns"]
    assert (columns.scope == "shared") == bool(implicit)


def test_its_programs_run_on_the_article_s_layer(capsys):
    products.main(["--batch", "1", "--channels", "2", "--image", "8", "--filter", "5"])
    assert "im2col" in capsys.readouterr().out
