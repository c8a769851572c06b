"""Gradients by the filter from tiles in shared memory: right for every shape, and no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import poison, random_inputs

import tilewright
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


@pytest.mark.parametrize("p", MODELS, ids=str)
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
