"""Gradients by the filter from tiles in shared memory: right for every shape, and no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright import te
from tilewright.ir.stmt import Sync
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim.program import simulate
from tilewright.select.choice import choose
from tilewright.select.profile_cache import ProfileCache
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.gradient_pixel_tiles import wavefronts
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.reduction_pixel_tiles"]
HOPPER = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    usual = {"dtype": "float16", "padding": 1, "pass_": "wgrad", "layout": "NHWC"}
    return Conv.parse(data, filter, **{**usual, **more})


def tile(*values):
    """Of rows, columns, vector, lanes, images, down, across, stages and chunks."""
    return GradientPixelTile(*values)


#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("3x16x9x10", "16x1x3x3"), tile(4, 4, 2, 4, 1, 1, 2, 2, 2)),
    (problem("2x24x7x11", "24x1x5x5", padding=2), tile(3, 4, 2, 8, 1, 2, 1, 3, 3)),
    (problem("5x8x6x6", "8x1x3x3", dtype="bfloat16"), tile(2, 3, 1, 16, 2, 2, 2, 2, 4)),
    (problem("2x12x10x5", "12x1x3x5", padding=(1, 2), dtype="float32"),
     tile(4, 2, 1, 8, 1, 2, 3, 2, 2)),
    (problem("3x8x5x9", "8x1x4x3", padding=(3, 0, 1, 2)), tile(2, 4, 2, 4, 2, 1, 2, 2, 3)),
    (problem("1x8x9x8", "8x1x2x4", padding=0, dtype="float32"), tile(3, 4, 2, 4, 1, 1, 2, 3, 1)),
    (problem("9x16x3x3", "16x1x7x7", padding=3), tile(4, 3, 1, 16, 4, 1, 1, 2, 2)),
    (problem("2x8x4x6", "8x1x1x1", padding=0), tile(4, 2, 2, 4, 1, 1, 2, 1, 64)),
    (problem("5x16x6x7", "16x1x5x3", padding=(3, 1, 0, 2)), tile(7, 7, 2, 8, 4, 1, 1, 2, 1)),
    (problem("3x16x11x13", "16x1x5x5", padding=2, stride=2), tile(2, 3, 2, 8, 1, 2, 2, 2, 3)),
    (problem("2x8x9x10", "8x1x3x4", padding=(0, 1, 2, 3), stride=(1, 2)),
     tile(4, 2, 1, 16, 1, 1, 2, 2, 2)),
    (problem("2x8x10x7", "8x1x2x3", stride=(3, 1), dtype="float32"),
     tile(2, 4, 2, 8, 2, 1, 2, 2, 1)),
    (problem("4x16x6x5", "16x1x3x3", stride=2, dtype="bfloat16"),
     tile(3, 4, 1, 16, 4, 1, 1, 3, 1)),
    (problem("1x8x1x4", "8x1x2x1", padding=(1, 0, 2, 5)), tile(2, 4, 1, 8, 1, 1, 1, 2, 2)),
    # Of images whose last rows or columns no window sees.
    (problem("2x16x4x30", "16x1x6x2", padding=(1, 0, 1, 0), stride=3, dtype="float32"),
     tile(2, 4, 2, 4, 8, 1, 1, 2, 3)),
    (problem("1x8x21x19", "8x1x7x1", padding=(2, 1), stride=3, dtype="float32"),
     tile(2, 2, 1, 8, 2, 1, 2, 2, 8)),
]  # fmt: skip

#: Those of models whose time is known.
MODELS = [
    problem("64x144x56x56", "144x1x5x5", padding=2),
    problem("64x144x56x56", "144x1x5x5", padding=2, dtype="bfloat16"),
    problem("64x32x112x112", "32x1x5x5", padding=2, dtype="float32"),
    problem("64x192x28x28", "192x1x7x7", padding=3),
    problem("64x96x112x112", "96x1x3x3", stride=2),
]


def kernel(p, config, target, batch=None):
    return tilewright.build(*TEMPLATE.scheduled(p, config, batch), target)


@pytest.mark.parametrize(("p", "config"), CASES, ids=[str(p) for p, _ in CASES])
def test_sums_over_tiles_are_the_gradient(p, config):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    kernel(p, config, "sim")(*arrays.values(), out)  # raises for every race, stale read, the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


def test_small_integers_are_summed_exactly():
    p, config = CASES[0]
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-1, 2, s).astype("float16") for n, s in p.shapes().items()}
    out = poison(p)
    kernel(p, config, "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


def test_the_batch_may_be_left_to_the_call():
    p, config = CASES[4]
    anywhere = kernel(p, config, "sim", te.var("n"))
    for batch in (1, 4):
        some = p.replace(batch=batch)
        arrays, out = random_inputs(some, some.shapes()), poison(some)
        anywhere(*arrays.values(), out)
        assert relative_error(out, reference(some, arrays)) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("dtype", "config", "turns"),
    [
        ("float16", tile(4, 7, 2, 16, 1, 1, 2, 2, 1), 1),
        ("float16", tile(4, 4, 2, 16, 1, 1, 2, 2, 1), 2),
        ("float16", tile(4, 4, 1, 32, 1, 1, 2, 2, 1), 1),
        ("float32", tile(4, 3, 1, 16, 1, 2, 1, 2, 1), 2),
        ("float32", tile(4, 7, 1, 16, 1, 1, 2, 2, 1), 1),
    ],
)
def test_bank_conflicts_are_what_a_guess_takes_them_for(dtype, config, turns):
    p = problem("1x32x8x14", "32x1x3x3", dtype=dtype)
    p = p.replace(channels=config.lanes * config.vector)
    made = kernel(p, config, "sim").program.module
    report = simulate(made, [*random_inputs(p, p.shapes()).values(), poison(p)])
    boxes = ("PaddedInput.shared", "grad.shared")
    reads = [x for x in report.accesses if x.buffer in boxes]
    assert max(x.degree for x in reads if not x.store) == turns
    assert np.max(wavefronts(GradientTiles(p, config))) == turns


@pytest.mark.parametrize(("across", "apart"), [(2, True), (3, False)])
def test_whole_warps_go_on_when_they_have_read_a_tile(across, apart):
    """Whichever axes of threads their lanes lie along; a part of a warp waits for the block."""
    p, config = problem("2x16x8x12", "16x1x3x3"), tile(4, 4, 1, 16, 1, 1, across, 2, 1)
    kernels = lower(*TEMPLATE.scheduled(p, config), HOPPER).funcs
    found = [s for s in statements(kernels[0].body) if isinstance(s, Sync) and s.split]
    assert bool(found) == apart


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", MODELS, ids=str)
def test_the_first_tiles_keep_all_sums_in_registers(p):
    program = kernel(p, TEMPLATE.candidates(p, HOPPER)[0], HOPPER).program
    assert all(used.spills == used.stack == 0 for used in program.resources.values())
    assert any(op.startswith("UTMALDG") for op in opcodes(program.assembly))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", MODELS[:-1:2], ids=str)
def test_a_product_takes_few_instructions(p):
    found = opcodes(kernel(p, tile(8, 4, 2, 16, 1, 1, 7, 2, 32), HOPPER).program.assembly)
    assert sum(found.values()) < 1.8 * found["FFMA"]  # with those of both kernels' other parts


@pytest.mark.parametrize(
    "p",
    [
        problem("64x144x56x56", "144x1x3x3", dilation=2),
        problem("64x144x56x56", "144x2x3x3"),
        problem("64x12x56x56", "12x1x3x3"),
        problem("64x144x56x56", "144x1x3x3", layout="NCHW"),
        problem("64x144x56x56", "144x1x3x3", pass_="forward"),
        problem("64x144x56x56", "144x1x31x31", padding=15),
        problem("1x16x7x1", "16x1x5x1", stride=2, padding=(2, 3, 6, 1)),  # sees padding alone
    ],
    ids=str,
)
def test_other_problems_are_left_to_other_schedules(p):
    assert not TEMPLATE.fits(p, HOPPER)


@pytest.mark.parametrize("p", [*MODELS, *(p for p, _ in CASES)], ids=str)
def test_tiles_fit_the_machine(p):
    found = TEMPLATE.candidates(p, HOPPER)
    assert found
    assert len(set(found)) == len(found) <= 240
    for t in found:
        assert 32 <= t.lanes * t.across * t.images * t.down <= 512


@pytest.mark.parametrize(
    ("arch", "chosen"),
    [("sm_90a", "gpu.reduction_pixel_tiles"), ("sm_80", "gpu.reduction_pixels")],
)
def test_the_choice_takes_it_where_there_is_tma(arch, chosen, tmp_path):
    p = problem("32x144x58x58", "144x1x3x3")
    cache = ProfileCache(tmp_path / "profile.sqlite")
    target = tilewright.Target.parse(f"cuda -arch={arch}")
    assert choose(p, target, cache=cache).algorithm.name == chosen
