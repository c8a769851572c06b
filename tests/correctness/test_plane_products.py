"""Small images as one product of matrices a channel: right for every shape, in sim, no spills."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, relative_error

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim import simulate
from tilewright.select.products import products
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.depthwise_plane_products import PlaneProductTile
from tilewright.topi.pieces.plane_gradients import PlaneGradientTile
from tilewright.topi.templates import TEMPLATES

TEMPLATE, GRADIENT = TEMPLATES["gpu.plane_products"], TEMPLATES["gpu.plane_gradient"]
HOPPER = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 6, **more})


def gradient(*shapes, **more):
    return problem(*shapes, pass_="wgrad", **more)


#: The last stage of RepLKNet-31B.
LAYER = problem("64x1024x7x7", "1024x1x13x13")


def template(p):
    return GRADIENT if p.pass_ == "wgrad" else TEMPLATE


def kernel(p, tile, target, batch=None):
    declared = template(p).declare(p, tile, batch)
    return tilewright.build(template(p).schedule(declared, tile), declared.args, target)


def check(p, found):
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    found(*arrays.values(), out)  # raises for every race, stale read and the like
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


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
