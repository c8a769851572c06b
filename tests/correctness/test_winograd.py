"""Winograd's filtering on a CPU: right by its tiles, as exact as documented, never a default."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import convolution
from tests.support.depthwise import STEPS, TOLERANCE, random_inputs, relative_error, run

import tilewright
from tilewright import te
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import options
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.cpu import winograd_tiles
from tilewright.topi.nn.winograd import POINTS, TAPS, Transforms
from tilewright.topi.sketches.winograd import WinogradTile
from tilewright.topi.templates import TEMPLATES, templates

CPU = Target.parse("llvm")
WINOGRAD, FLAT = TEMPLATES["cpu.winograd"], TEMPLATES["cpu.flat"]


def layer(shape: tuple[int, ...], filters: int, **more: Any) -> Conv:
    """A convolution that allows it."""
    more = {"padding": 1, "precision": "winograd"} | more
    return Conv.parse(shape, (filters, shape[1], 3, 3), 1, **more)


@pytest.mark.parametrize("results", POINTS)
def test_the_transforms_are_those_of_a_sum_over_taps(results):
    t = Transforms(results)
    d = [Fraction(k * k - 3 * k, 7) for k in range(t.size)]
    g = [Fraction(5), Fraction(-2, 3), Fraction(1, 9)]

    def times(matrix: Any, values: list[Fraction]) -> list[Fraction]:
        return [sum(a * b for a, b in zip(row, values, strict=True)) for row in matrix]

    products = [u * v for u, v in zip(times(t.filter, g), times(t.image, d), strict=True)]
    summed = [sum(d[i + k] * g[k] for k in range(TAPS)) for i in range(results)]
    assert times(t.result, products) == summed


#: Images that no tile divides, asymmetric padding and none, channels and filters that fill no
#: vector, blocks of tiles across rows and images.
ODD = [
    (layer((1, 3, 5, 7), 5, layout="NHWC"), WinogradTile(2, 4, 1, 4, 4)),
    (layer((2, 17, 9, 6), 19, padding=(0, 3, 2, 1), epilogue=("bias", "relu"), layout="NHWC"),
     WinogradTile(4, 4, 1, 16, 8)),
    (layer((3, 16, 7, 7), 48, epilogue=("residual",)), WinogradTile(4, 7, 1, 16, 7, 3)),
    (layer((2, 5, 6, 11), 33, padding=0), WinogradTile(2, 4, 2, 16, 5, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("p", "tile"), ODD, ids=str)
def test_it_is_right_where_tiles_are_not_whole(p, tile):
    kernel = Scheduled(WINOGRAD).kernel(p, tile, CPU)
    assert run(p, kernel, exact=convolution) < TOLERANCE[p.dtype]


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_it_is_right_by_every_tile(data):
    fixed = {"pass_": "forward", "precision": "winograd", "dtype": "float32", "groups": 1}
    fixed |= {"kernel_h": 3, "kernel_w": 3, "stride": 1, "dilation": 1, "operator": "conv2d"}
    draw = data.draw
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    image = {"height": draw(st.integers(3, 10)), "width": draw(st.integers(3, 10))}
    p = Conv(
        batch=draw(st.integers(1, 3)), channels=draw(st.integers(2, 20)), padding=pads,
        multiplier=draw(st.integers(1, 40)), layout=draw(st.sampled_from(["NCHW", "NHWC"])),
        epilogue=draw(st.lists(STEPS, max_size=2, unique=True)), **fixed, **image,
    )  # fmt: skip
    tile = draw(st.sampled_from(WINOGRAD.candidates(p, CPU)))
    error = run(p, Scheduled(WINOGRAD).kernel(p, tile, CPU), exact=convolution)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


def test_a_constant_filter_is_transformed_once_and_the_batch_may_be_left_to_the_call():
    p = layer((3, 4, 6, 6), 16, layout="NHWC")
    tile = WinogradTile(4, 4, 1, 16, 4)
    d = WINOGRAD.declare(p, tile, te.var("n"))
    built = tilewright.build(
        WINOGRAD.schedule(d, tile), d.args, "llvm", constants=[d.inputs["filter"]]
    )
    x, w = random_inputs(p.replace(batch=5), p.replace(batch=5).shapes()).values()
    y, one = (np.full((n, 6, 6, 16), np.nan, "float32") for n in (5, 1))
    (made,) = built.prepare(w)
    assert made.shape == (1, 6, 6, 4, 16)
    assert [b.name for b in built.module.params] == ["data", "Filter", "Conv"]
    built(x, made, y)
    built(x[4:], made, one)
    assert (y[4:] == one).all()
    built(x[:0], made, y[:0])  # of no image nothing is computed
    exact = convolution(p.replace(batch=5), {"data": x, "filter": w})
    assert relative_error(y, exact) < TOLERANCE["float32"]


def test_its_error_is_within_four_times_that_of_the_direct_sum():
    p = layer((1, 64, 14, 14), 32, layout="NHWC")
    direct = Scheduled(FLAT).kernel(p, FLAT.candidates(p, CPU)[0], CPU)
    usual = run(p, direct, exact=convolution)
    for results, times in ((2, 2), (4, 4)):
        tile = WinogradTile(results, 4, 2, 16, 16)
        error = run(p, Scheduled(WINOGRAD).kernel(p, tile, CPU), exact=convolution)
        assert error < times * usual, (results, error, usual)


# -- the choice --------------------------------------------------------------------------------


def names(p: Conv) -> list[str]:
    return list(dict.fromkeys(c.algorithm.name for c in options(p, CPU)))


def test_it_is_a_candidate_only_where_it_is_allowed():
    p = layer((1, 64, 56, 56), 64, layout="NHWC")
    assert "cpu.winograd" in names(p)
    for other in ("exact", "tf32", "half"):
        assert "cpu.winograd" not in names(p.replace(precision=other))


@pytest.mark.parametrize("changes", [
    {"stride": 2}, {"dilation": 2}, {"pass_": "dgrad"}, {"dtype": "float64"},
    {"dtype": "bfloat16"}, {"kernel_w": 4},
], ids=str)  # fmt: skip
def test_what_it_cannot_do_runs_as_without_it(changes):
    p = layer((1, 64, 56, 56), 64, layout="NHWC").replace(**changes)
    assert names(p) == names(p.replace(precision="exact"))


def test_it_is_chosen_where_its_price_is_less():
    for shape, filters, first in (
        ((1, 64, 56, 56), 64, WINOGRAD), ((1, 8, 5, 5), 8, FLAT), ((1, 2, 64, 64), 256, FLAT),
    ):  # fmt: skip
        p = layer(shape, filters, layout="NHWC", constants=("filter",))
        prices = [t.price(p, CPU) for t in (WINOGRAD, FLAT)]
        assert (prices[0] < prices[1]) == (first is WINOGRAD), prices
        assert templates(p, CPU)[0] is first
        assert names(p)[0] == first.name


def test_what_was_learnt_without_it_is_not_taken_for_it():
    p = layer((1, 64, 56, 56), 64)
    assert p.traits().same != p.replace(precision="exact").traits().same
    assert p.replace(stride=2).traits().same == p.replace(stride=2, precision="exact").traits().same


def test_it_is_an_argument_of_pytorchs_function():
    torch = pytest.importorskip("torch")
    import tilewright.torch

    x, w = torch.randn(1, 32, 8, 8), torch.randn(32, 32, 3, 3, requires_grad=True)
    y = tilewright.torch.conv2d(x, w, padding=1, precision="winograd")
    exact = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    assert float((y - exact).detach().norm() / exact.detach().norm()) < 1e-5
    (grad,) = torch.autograd.grad(y.sum(), w)
    (wanted,) = torch.autograd.grad(exact.sum(), w)
    assert torch.allclose(grad, wanted.float(), rtol=1e-4, atol=1e-4)


def test_a_filter_is_read_once_where_the_last_level_cache_is_slow(monkeypatch):
    """Of 128 channels it is more than a second-level cache holds, in every task."""
    p = layer((1, 128, 28, 28), 128, layout="NHWC", constants=("filter",))
    machine = Target.parse("llvm -arch=avx512 -threads=4")
    known = winograd_tiles.features(machine) - {"amx-tile"}
    monkeypatch.setattr("tilewright.runtime.caches.second_level", lambda: 512 << 10)
    for name, several in (("amx-tile", False), ("", True)):
        monkeypatch.setattr(winograd_tiles, "features", lambda _, more=name: known | {more})
        (tile, *_) = WINOGRAD.candidates(p, machine)
        assert (tile.tiles < 49 and tile.parts == 1) == several, tile
