"""Small images as one product of matrices a channel: right for every shape, in sim, no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright import te
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim import simulate
from tilewright.select.products import products
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.depthwise_plane_products import PlaneProductTile
from tilewright.topi.pieces.plane_gradients import PlaneGradientTile
from tilewright.topi.templates import TEMPLATES, templates

TEMPLATE, GRADIENT = TEMPLATES["gpu.plane_products"], TEMPLATES["gpu.plane_gradient"]
HOPPER = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 6, **more})


def gradient(*shapes, **more):
    return problem(*shapes, pass_="wgrad", **more)


#: The last stage of RepLKNet-31B.
LAYER = problem("64x1024x7x7", "1024x1x13x13")

#: Problems, each with a tile that does not divide it in some way.
CASES = [
    (problem("20x8x7x7", "8x1x13x13"), PlaneProductTile(8, 2, 1, 1)),
    (problem("40x8x7x7", "8x1x13x13", pass_="dgrad"), PlaneProductTile(4, 1, 2, 3)),
    (problem("5x4x8x8", "4x1x7x7", padding=3, dtype="bfloat16"), PlaneProductTile(4, 1, 1, 1)),
    (problem("17x4x7x7", "4x1x7x7", padding=3, stride=2), PlaneProductTile(4, 1, 1, 1)),
    (
        problem("17x4x7x7", "4x1x7x7", padding=3, stride=2, pass_="dgrad"),
        PlaneProductTile(2, 1, 1, 1),
    ),
    (
        problem("3x6x5x6", "6x1x4x3", padding=(1, 2, 0, 1), dilation=(1, 2)),
        PlaneProductTile(2, 1, 1, 1),
    ),
    (
        problem("3x6x5x3", "6x1x4x3", padding=(3, 2, 2, 1), pass_="dgrad"),
        PlaneProductTile(2, 1, 1, 1),
    ),
    (problem("3x4x12x5", "4x1x9x9", padding=4, stride=(3, 1)), PlaneProductTile(4, 1, 1, 1)),
    (gradient("20x8x7x7", "8x1x13x13"), PlaneGradientTile(8, 1, 3)),
    (gradient("40x8x7x7", "8x1x13x13"), PlaneGradientTile(4, 2, 2)),
    (gradient("5x4x8x8", "4x1x7x7", padding=3, dtype="bfloat16"), PlaneGradientTile(4, 1, 1)),
    (gradient("17x4x7x7", "4x1x7x7", padding=3, stride=3), PlaneGradientTile(4, 1, 2)),
    (gradient("3x6x5x6", "6x1x4x3", padding=(3, 2, 2, 1)), PlaneGradientTile(2, 1, 1)),
    (
        gradient("17x2x4x6", "2x1x8x5", padding=(1, 3, 4, 2), stride=(2, 3)),
        PlaneGradientTile(2, 1, 3),
    ),  # chunks that begin and end within rows
    (gradient("3x6x5x3", "6x1x4x3", padding=(3, 2, 2, 1)), PlaneGradientTile(2, 1, 1)),
]


#: Gradients of which some row or column meets nothing, or with gaps between taps.
OTHERS = [
    gradient("3x6x1x5", "6x1x5x1", padding=(6, 2, 6, 4), stride=2),
    gradient("2x4x7x4", "4x1x10x1", padding=(5, 1, 1, 5), stride=2),
    gradient("1x8x11x7", "8x1x1x3", padding=(0, 1, 1, 0), stride=(3, 1)),
    gradient("10x8x9x5", "8x1x6x8", padding=(2, 4, 0, 0), stride=(3, 1)),
    gradient("13x2x3x7", "2x1x5x6", padding=(3, 1, 2, 0), stride=(1, 2)),
    gradient("3x6x5x6", "6x1x4x3", padding=(3, 2, 2, 1), dilation=2),
]


@pytest.mark.parametrize("p", OTHERS, ids=str)
def test_a_gradient_of_which_something_is_not_met_has_other_schedules(p):
    assert not GRADIENT.fits(p, HOPPER)
    assert templates(p, HOPPER)


def template(p):
    return GRADIENT if p.pass_ == "wgrad" else TEMPLATE


def kernel(p, tile, target, batch=None):
    declared = template(p).declare(p, tile, batch)
    return tilewright.build(template(p).schedule(declared, tile), declared.args, target)


def check(p, found):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    found(*arrays.values(), out)  # raises for every race, stale read and the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(("p", "tile"), CASES, ids=[str(p) for p, _ in CASES])
def test_products_of_whole_images_are_the_convolution(p, tile):
    check(p, kernel(p, tile, "sim"))


@pytest.mark.parametrize(
    ("pass_", "tile"),
    [("forward", PlaneProductTile(8, 1, 1, 1)), ("wgrad", PlaneGradientTile(8, 1, 2))],
)
def test_one_kernel_serves_every_batch(pass_, tile):
    p = problem("17x8x7x7", "8x1x13x13", pass_=pass_)
    found = kernel(p, tile, "sim", te.var("n"))
    for batch in (1, 17):
        check(p.replace(batch=batch), found)


@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_small_integers_are_summed_exactly(pass_):
    p = problem("18x8x7x7", "8x1x13x13", pass_=pass_)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, s).astype("float16") for n, s in p.shapes().items()}
    out = poison(p)
    tile = template(p).candidates(p, HOPPER)[0]
    kernel(p, tile, "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


def test_what_is_not_finite_stays_in_its_image_and_channel():
    p = problem("3x4x7x7", "4x1x3x3", padding=1)
    arrays = random_inputs(p, p.shapes())
    for channel, pixel in ((1, (0, 0)), (2, (6, 6))):
        arrays["data"][(1, channel, *pixel)] = np.inf
    out = poison(p)
    kernel(p, PlaneProductTile(4, 1, 1, 1), "sim")(*arrays.values(), out)
    others = np.ones((3, 4), bool)
    others[1, 1:3] = False
    assert np.isfinite(out[others]).all()
    assert not np.isfinite(out[1, 1, 0, 0])
    assert not np.isfinite(out[1, 2, 6, 6])


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("pass_", ["forward", "wgrad"])
def test_no_load_of_an_image_meets_a_bank_twice(pass_, size):
    p = problem(f"32x8x{size}x{size}", "8x1x13x13", pass_=pass_)
    tile = PlaneGradientTile(8, 1, 2) if pass_ == "wgrad" else PlaneProductTile(8, 1, 2, 2)
    declared = template(p).declare(p, tile)
    module = tilewright.lower(template(p).schedule(declared, tile), declared.args, "sim")
    arrays = random_inputs(p, p.shapes())
    report = simulate(module, [*arrays.values(), poison(p)])
    loads = [a for a in report.accesses if a.scope == "shared" and not a.store]
    assert loads
    assert all(a.worst == 1 for a in loads)
    if pass_ == "forward":  # a warp loads a row of eight images at once
        (images,) = [a for a in loads if a.buffer == "StagedPlanes"]
        assert images.requests == 8 * size * 32 // 8


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_the_first_tiles_hold_their_matrices_in_registers(pass_):
    p = LAYER.replace(pass_=pass_)
    for tile in template(p).candidates(p, HOPPER)[:2]:
        program = kernel(p, tile, HOPPER).program
        (used,) = program.resources.values()
        assert used.spills == used.stack == 0
        assert used.shared_memory == products(p, template(p).name, [tile]).shared
        found = opcodes(program.assembly)
        # Sixteen images: each row of results (or of dy) with each pair of rows.
        assert found["HMMA.16816.F32"] == 7 * 4
        assert any(op.startswith("LDGSTS.E.BYPASS.128") for op in found)
        assert pass_ == "wgrad" or any(op.startswith("STG.E.128") for op in found)


@pytest.mark.parametrize(
    "p",
    [
        problem("64x8x14x14", "8x1x13x13"),
        problem("64x8x7x7", "8x1x13x13", dtype="float32"),
        problem("64x8x7x7", "16x1x13x13"),
        problem("64x7x7x7", "7x1x13x13"),
    ],
    ids=str,
)
def test_other_problems_are_left_to_other_schedules(p):
    assert not TEMPLATE.fits(p, HOPPER)
    assert not GRADIENT.fits(p.replace(pass_="wgrad"), HOPPER)
