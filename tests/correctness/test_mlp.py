"""Two layers and the activation between them as one kernel: each kernel against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, array_type, encode, relative_error
from tests.support.mlp import PROBLEMS, error, exact, inputs
from tests.support.tiles import built

from tilewright.runtime.ndarray import array
from tilewright.select.choice import with_own_architecture
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Mlp
from tilewright.topi.pieces.mlp import MlpTile
from tilewright.topi.templates import TEMPLATES, templates

pytestmark = pytest.mark.needs_torch
HOPPER = Target.parse("cuda -arch=sm_90a")


@pytest.mark.parametrize("p", PROBLEMS, ids=str)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_the_first_choice_is_right(p, target):
    assert error(p, chosen_kernel(p, Target.parse(target))) < TOLERANCE["float32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("p", PROBLEMS[2:], ids=str)
def test_warpgroups_compute_it(p, dtype):
    p, sim = p.replace(dtype=dtype), Target.parse("sim")
    assert templates(p, sim)[0].name == "gpu.mlp"
    assert error(p, chosen_kernel(p, sim)) < TOLERANCE[dtype]


TILES = (MlpTile(1, 32, 2), MlpTile(2, 128, 2), MlpTile(3, 48, 3), MlpTile(1, 64, 4))


@pytest.mark.parametrize(
    ("p", "tile"),
    [(p, TILES[(k + j) % 4]) for k, p in enumerate(PROBLEMS[2:]) for j in (0, 1)],
    ids=str,
)
def test_hidden_elements_come_in_steps(p, tile):
    p = p.replace(dtype="float16")
    assert error(p, built("gpu.mlp", p, tile, "sim")) < TOLERANCE["float16"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_one_large_number_are_normalised_to_zeros(dtype):
    """What they are filled up with would be infinite in float16, and no number times a zero."""
    p = Mlp(m=33, k=24, hidden=64, n=8, norm="1e-06", dtype=dtype)
    arrays = inputs(p)
    arrays["a"][1] = encode(np.full(p.k, 100.0), dtype)
    y = np.empty(p.result.shape, array_type(dtype))
    chosen_kernel(p, Target.parse("sim"))(*arrays.values(), y)
    assert relative_error(y, exact(p, arrays)) < TOLERANCE[dtype]


@pytest.mark.parametrize(("hidden", "steps"), [(100, set()), (96, {32}), (128, {32, 64, 128})])
def test_no_steps_are_filled_up_where_a_variance_of_zero_is_no_number(hidden, steps):
    p = Mlp(m=40, k=16, hidden=hidden, n=16, inner="batch_norm(0)", dtype="float16")
    fits = TEMPLATES["gpu.mlp"].fits(p, HOPPER)
    tiles = TEMPLATES["gpu.mlp"].candidates(p, HOPPER) if fits else []
    assert {tile.step for tile in tiles} == steps
    assert error(p, chosen_kernel(p, Target.parse("sim"))) < TOLERANCE["float16"]


@pytest.mark.needs_cuda
@pytest.mark.parametrize("p", PROBLEMS[2:], ids=str)
def test_a_gpu_computes_it_by_every_candidate(p):
    p, cuda = p.replace(dtype="float16"), with_own_architecture("cuda")
    template = TEMPLATES["gpu.mlp"]
    arrays = inputs(p)
    given = [array(x, "cuda:0") for x in arrays.values()]
    wanted = exact(p, arrays)
    for tile in template.candidates(p, cuda):
        kernel = built("gpu.mlp", p, tile, cuda)
        y = array(np.full(p.result.shape, np.nan, "float16"), "cuda:0")
        kernel(*given, y)
        assert relative_error(y.numpy(), wanted) < TOLERANCE["float16"], tile


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("channels", "norm"), [(96, ""), (192, ""), (96, "1e-6")])
def test_its_sums_stay_in_registers(channels, norm):
    p = Mlp(
        m=5000, k=channels, hidden=4 * channels, n=channels, inner="bias+gelu", norm=norm,
        epilogue="bias+scale_shift+residual", dtype="float16",
    )  # fmt: skip
    template = TEMPLATES["gpu.mlp"]
    for tile in template.candidates(p, HOPPER)[:2]:
        kernel = built("gpu.mlp", p, tile, HOPPER)
        assert [used.spills for used in kernel.resources.values()] == [0]
        assert [used.stack for used in kernel.resources.values()] == [0]


def test_its_work_is_counted():
    p = Mlp(m=5, k=3, hidden=7, n=4, inner="bias+gelu")
    assert p.flops == 2 * 5 * 7 * (3 + 4)
    assert p.bytes == 4 * (5 * 3 + 7 * 3 + 7 + 7 * 4 + 5 * 4)
    assert Mlp.from_json(p.to_json()) == p
