"""Fast FIR algorithms on a CPU: three products where there were four, and the same results."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, random_inputs, reference, run

import tilewright
from tilewright import te
from tilewright.ir.stmt import If, Produce
from tilewright.ir.visit import walk
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.cpu.depthwise_blocks import BlockTile, schedule_blocks
from tilewright.topi.cpu.depthwise_fast_fir import FirTile, declare_fir, schedule_fir
from tilewright.topi.declare import declare
from tilewright.topi.templates import candidates

LARGE = Conv.parse("1x20x22x21", "20x1x19x19", padding=9, layout="NHWC")

PROBLEMS = [
    LARGE,
    LARGE.replace(pass_="dgrad", padding=(3, 12, 15, 2), dtype="float16"),
    LARGE.replace(batch=3, layout="NCHW", dtype="bfloat16", epilogue=["bias", "relu"]),
    Conv.parse("2x17x9x13", "17x1x6x11", padding=(0, 5, 3, 8), layout="NHWC"),
    Conv.parse("1x3x30x7", "3x1x4x1", padding=(7, 2, 6, 0), layout="NCHW", dtype="float64"),
]
TILES = [
    FirTile(rows=2, columns=2),
    FirTile(2, 1, 1, 3, 4, 8, 0, 2),
    FirTile(0, 2, 2, 3, 2, 16, 1, 1),
    FirTile(1, 0, 3, 2, 1, 16, 0, 3),
]


def kernel_of(p: Conv, tile: FirTile, target: str = "llvm") -> tilewright.Kernel:
    found = declare_fir(p, tile)
    return tilewright.build(schedule_fir(found, tile), found.args, target)


@pytest.mark.parametrize(
    ("p", "tile", "target"),
    [
        (PROBLEMS[0], TILES[1], "llvm -arch=avx2"),
        (PROBLEMS[1], TILES[0], "llvm -arch=avx2"),
        (PROBLEMS[2], TILES[3], "llvm"),
        (PROBLEMS[3], TILES[0], "llvm -threads=2"),
        (PROBLEMS[3], TILES[2], "llvm"),
        (PROBLEMS[4], TILES[2], "llvm"),
    ],
    ids=str,
)
def test_every_tile_computes_a_convolution(p: Conv, tile: FirTile, target: str) -> None:
    assert run(p, kernel_of(p, tile, target)) < TOLERANCE[p.dtype]


@pytest.mark.usefixtures("plain_code")
def test_sums_of_small_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-8, 9, s).astype("f4") for n, s in LARGE.shapes().items()}
    out = poison(LARGE)
    kernel_of(LARGE, TILES[1])(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(LARGE, arrays))


@pytest.mark.usefixtures("plain_code")
def test_results_are_about_as_exact_as_direct_sums() -> None:
    found = declare(LARGE)
    direct = tilewright.build(schedule_blocks(found, BlockTile(1, 8)), found.args)
    for tile in (FirTile(exact=0), FirTile(2, 1, 1, 4, exact=0)):
        assert run(LARGE, kernel_of(LARGE, tile)) < 2 * run(LARGE, direct)


def test_each_halving_leaves_three_products_of_four() -> None:
    def products(tile: FirTile) -> int:
        stage = declare_fir(LARGE.replace(height=20, width=20), tile).stages.products
        axes = (*stage.op.axis, *stage.op.reduce_axis)
        return int(np.prod([int(axis.dom.extent) for axis in axes]))

    plain = products(FirTile(0, 0, taps=1))
    # A filter of 19 columns has halves of 10.
    assert products(FirTile(0, 1, taps=1)) * 4 * 19 == plain * 3 * 20
    assert products(FirTile(1, 1, taps=1)) * 16 * 19**2 == plain * 9 * 20**2


def test_parts_are_chosen_before_the_sums_and_not_in_them() -> None:
    tile = FirTile(exact=0)
    found = declare_fir(LARGE, tile)
    module = tilewright.lower(schedule_fir(found, tile), found.args)
    produced = [s for s in walk(module.funcs[0].body) if isinstance(s, Produce)]
    sums = [s for s in produced if s.stage == "Products.local"]
    assert sums
    assert not any(isinstance(x, If) for s in sums for x in walk(s))


@pytest.mark.usefixtures("plain_code")
def test_one_kernel_serves_every_batch() -> None:
    tile = FirTile(exact=0, images=2)
    found = declare_fir(LARGE, tile, te.var("n"))
    kernel = tilewright.build(schedule_fir(found, tile), found.args)
    for batch in (1, 3):
        assert run(LARGE.replace(batch=batch), kernel) < TOLERANCE["float32"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_they_come_first_for_filters_of_which_much_meets_the_image(pass_: str, layout: str) -> None:
    def first(**more: object) -> str:
        p = Conv.parse("8x64x32x32", "64x1x31x31", padding=15, pass_=pass_, layout=layout)
        return next(candidates(p.replace(**more), "llvm"))[0].name

    assert first().startswith("cpu.fir_")
    others = (
        {"stride": (2, 2)},
        {"dilation": (2, 2), "padding": (30, 30, 30, 30)},
        {"height": 14, "width": 14},  # most of the filter lies in the padding
        {"kernel_w": 5},
        {"channels": 32, "multiplier": 2},
    )
    for changes in others:
        assert not first(**changes).startswith("cpu.fir_")


def test_tasks_take_images_together_where_many_are_left() -> None:
    from tilewright.topi.cpu.candidates import fir_tiles

    def images(batch: int, channels: int) -> int:
        p = LARGE.replace(batch=batch, channels=channels)
        return fir_tiles(p, Target.parse("llvm"))[0].images

    assert images(1, 384) == 1
    assert images(8, 1024) == 8
    assert images(8, 1) == 1


def test_what_is_infinite_stays_near_its_windows() -> None:
    tile = FirTile(exact=0)
    p = LARGE.replace(height=24, width=24, kernel_h=5, kernel_w=5, padding=(2, 2, 2, 2))
    arrays = random_inputs(p, p.shapes())
    arrays["data"][0, 12, 12, 3] = np.inf
    out = poison(p)
    kernel_of(p, tile)(*arrays.values(), out)
    near = 2 + 2**tile.across * (tile.taps + 1)
    far = [(h, w) for h in range(24) for w in range(24) if max(abs(h - 12), abs(w - 12)) > near]
    assert all(np.isfinite(out[0, h, w]).all() for h, w in far)
    assert np.isfinite(out[..., :3]).all()
