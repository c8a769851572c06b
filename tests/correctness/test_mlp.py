"""Two layers and the activation between them as one kernel: each kernel against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, array_type, encode, relative_error
from tests.support.mlp import PROBLEMS, error, exact, inputs
from tests.support.tiles import built

import tilewright
from tilewright import te
from tilewright.runtime.ndarray import array
from tilewright.select.choice import with_own_architecture
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Mlp
from tilewright.topi.declare import Given
from tilewright.topi.pieces.mlp import MlpTile
from tilewright.topi.sketches.few_rows import FewRowTile
from tilewright.topi.templates import TEMPLATES, templates

pytestmark = pytest.mark.needs_torch
HOPPER = Target.parse("cuda -arch=sm_90a")
#: Tiles of a problem that a GPU computes it by, at most.
_TRIED = 12


@pytest.mark.spread
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


def test_blocks_of_a_cluster_share_hidden_elements():
    p = Mlp(m=80, k=72, hidden=128, n=48, inner="bias+relu", epilogue="residual", dtype="float16")
    assert error(p, built("gpu.mlp", p, MlpTile(1, 32, 2, 2), "sim")) < TOLERANCE["float16"]


#: Of one row and several, rows and vectors that are filled up, groups that have no hidden element,
#: and more of these than are written out.
FEW = (
    (Mlp(m=3, k=40, hidden=10, n=72, inner="bias+silu", epilogue="bias+residual"),
     FewRowTile(1, 4, 8, 4, 2)),
    (Mlp(m=3, k=40, hidden=10, n=72, inner="bias+relu"), FewRowTile(2, 4, 32, 8, 1)),
    (Mlp(m=5, k=41, hidden=7, n=33, inner="relu", epilogue="bias"), FewRowTile(4, 16, 32, 1, 1)),
    (Mlp(m=1, k=96, hidden=75, n=24, inner="scale_shift"), FewRowTile(1, 2, 8, 2, 2)),
    (Mlp(m=9, k=24, hidden=5, n=200, inner="bias+gelu"), FewRowTile(8, 8, 16, 8, 1)),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("p", "tile"), FEW, ids=str)
def test_blocks_compute_what_is_hidden_of_few_rows(p, tile, dtype):
    p = p.replace(dtype=dtype)
    assert error(p, built("gpu.mlp_rows", p, tile, "sim")) < TOLERANCE[dtype]


def test_few_rows_have_a_kernel_where_weights_are_few():
    p = Mlp(m=1, k=480, hidden=20, n=480, inner="bias+silu", epilogue="bias", dtype="float16")
    found = TEMPLATES["gpu.mlp_rows"]
    assert [found.fits(x, HOPPER) for x in (p, p.replace(m=64), p.replace(m=65))] == [1, 1, 0]
    assert not found.fits(p.replace(hidden=1920), HOPPER)
    assert not found.fits(p.replace(norm="1e-6"), HOPPER)
    assert templates(p, HOPPER)[0].name == "gpu.mlp_rows"


#: Of each kind of kernel, one for every batch.
BATCHED = (
    ("gpu.mlp_rows", FEW[0][0], FewRowTile(2, 4, 8, 4, 2)),
    ("gpu.mlp", PROBLEMS[2], MlpTile(2, 32, 2)),
    ("gpu.mlp", PROBLEMS[4], MlpTile(1, 64, 3)),
)


@pytest.mark.parametrize(("name", "p", "tile"), BATCHED, ids=str)
def test_one_kernel_is_right_for_every_batch(name, p, tile):
    p = p.replace(dtype="float16")
    batch = p.batch_of(p.m, ("a", "residual"))
    assert batch is not None
    assert batch.inputs == ("a", *(n for n in p.inputs() if n == "residual"))
    assert p.batch_of(p.m, ()) is None
    given = Given(te.var("n", most=p.most_of(batch)), None, batch)
    kernel = tilewright.build(*TEMPLATES[name].scheduled(p, tile, given), "sim")
    for rows in (1, p.m, 131):
        assert error(p.replace(m=rows), kernel) < TOLERANCE["float16"]


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
def test_a_gpu_computes_it_by_many_candidates(p):
    _check_candidates("gpu.mlp", p)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("p", [p for p, _ in FEW], ids=str)
def test_a_gpu_computes_few_rows_by_many_candidates(p):
    _check_candidates("gpu.mlp_rows", p)


def _check_candidates(name, p):
    p, cuda = p.replace(dtype="float16"), with_own_architecture("cuda")
    template = TEMPLATES[name]
    arrays = inputs(p)
    given = [array(x, "cuda:0") for x in arrays.values()]
    wanted = exact(p, arrays)
    every = template.candidates(p, cuda)
    for tile in every[:: -(-len(every) // _TRIED)]:
        kernel = built(name, p, tile, cuda)
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
