"""Convolutions on a CPU whose images are stored row behind row: right by every tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import convolution, convolutions, volumes
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright import te
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import choose
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.nn.flat_windows import FlatWindows
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

CPU = Target.parse("llvm")
FLAT = TEMPLATES["cpu.flat"]


def kernel(p: Problem, tile: Any) -> Any:
    """A kernel of one tile."""
    (found,) = [a for a in algorithms() if isinstance(a, Scheduled) and a.name == FLAT.name]
    return found.kernel(p, tile, CPU)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_it_is_right_by_every_tile(data):
    # Of strides whose phases fill no tile, there is none.
    tiles = (
        (convolutions() | volumes())
        .filter(lambda p: FLAT.fits(p, CPU))
        .map(lambda p: (p, FLAT.candidates(p, CPU)))
    )
    p, found = data.draw(tiles.filter(lambda x: bool(x[1])))
    tile = data.draw(st.sampled_from(found))
    error = run(p, kernel(p, tile), exact=convolution)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


#: Results of which a vector is more than a row, an image, or there is one; channels that fill no
#: tile; strides above the filter; asymmetric padding, and more of it than the filter.
ODD = [
    Conv.parse((2, 3, 1, 1), (5, 3, 1, 1), 1),
    Conv.parse((1, 7, 3, 2), (29, 7, 3, 2), 1),
    Conv.parse((1, 5, 9, 7), (67, 5, 2, 3), 1, padding=(0, 3, 2, 1), stride=3, layout="NHWC"),
    Conv.parse((2, 4, 8, 8), (6, 4, 1, 1), 1, stride=(2, 3)),
    Conv.parse((1, 6, 6, 5), (6, 6, 3, 3), 1, padding=5, dilation=2, layout="NHWC"),
    Conv.parse((1, 12, 6, 5), (18, 4, 3, 3), 3, padding=1, epilogue=("bias", "relu")),
    Conv.parse((1, 12, 6, 5), (18, 4, 3, 3), 3, padding=2, pass_="dgrad", dtype="bfloat16"),
    Conv.parse((2, 6, 11), (9, 6, 4), 1, padding=(2, 1), stride=2),
    Conv.parse((2, 5, 9, 8), (7, 5, 3, 3), 1, padding=(0, 3, 2, 1), stride=2, pass_="dgrad"),
    Conv.parse((1, 16, 8, 9), (12, 16, 1, 4), 1, stride=2, pass_="dgrad", layout="NHWC"),
    Conv.parse((1, 4, 6, 9), (6, 2, 4, 4), 2, padding=1, stride=(1, 2), pass_="dgrad",
               dtype="float16", epilogue=("bias",)),
    Conv.parse((2, 6, 33), (9, 6, 5), 1, padding=2, stride=2, pass_="dgrad"),
    Conv3d.parse((1, 3, 5, 6, 7), (6, 1, 3, 2, 3), 3, padding=1, stride=2, pass_="dgrad"),
    # Phases of gradients that have taps of their own, of channels that fill vectors.
    Conv.parse((2, 32, 9, 8), (20, 32, 3, 3), 1, padding=1, stride=2, pass_="dgrad", layout="NHWC",
               epilogue=("bias", "relu")),
    Conv.parse((1, 48, 7, 9), (20, 24, 5, 3), 2, padding=(1, 0, 0, 2), stride=2, pass_="dgrad"),
    Conv.parse((1, 96, 8, 7), (18, 48, 2, 3), 2, stride=(1, 2), pass_="dgrad", layout="NHWC"),
    Conv3d.parse((1, 16, 3, 5, 4), (17, 16, 3, 2, 3), padding=1, stride=2, pass_="dgrad",
                 layout="NDHWC"),
    # Strides of more phases, with as many taps each, or fewer of some.
    Conv.parse((1, 16, 40), (24, 16, 16), 1, padding=4, stride=8, pass_="dgrad", layout="NWC"),
    Conv.parse((2, 20, 13, 9), (7, 20, 4, 5), 1, padding=(1, 0, 0, 2), stride=(4, 3),
               pass_="dgrad"),
    Conv.parse((1, 32, 11, 10), (18, 16, 3, 7), 2, padding=1, stride=(3, 5), pass_="dgrad",
               layout="NHWC", dtype="bfloat16", epilogue=("bias",)),
    Conv3d.parse((1, 16, 5, 6, 7), (9, 16, 3, 3, 4), padding=1, stride=3, pass_="dgrad",
                 layout="NDHWC"),
    # Few channels, whose taps are joined; single pixels, read as they lie, some of them beyond the
    # last window; filters that are filled up to whole vectors.
    Conv.parse((2, 3, 23, 19), (40, 3, 7, 5), 1, padding=(3, 1, 2, 0), stride=2, layout="NHWC",
               epilogue=("bias", "relu")),
    Conv.parse((1, 3, 9, 11), (17, 3, 3, 3), 1, padding=2, stride=(3, 2), dilation=(2, 1),
               layout="NHWC"),
    Conv.parse((2, 6, 17), (33, 6, 4), 1, padding=(2, 1), stride=2, layout="NWC"),
    Conv.parse((2, 20, 9, 13), (41, 20, 1, 1), 1, layout="NHWC", epilogue=("bias", "residual")),
    Conv.parse((1, 24, 10, 7), (24, 24, 1, 1), 1, stride=(2, 3), layout="NHWC"),
    Conv.parse((1, 36, 6, 6), (100, 18, 1, 1), 2, padding=1, layout="NHWC"),
    Conv.parse((1, 20, 7, 5), (70, 20, 3, 3), 1, padding=1, layout="NHWC", pass_="dgrad"),
    Conv.parse((1, 330, 5, 5), (120, 330, 3, 3), 1, padding=1, layout="NHWC"),
    Conv3d.parse((1, 2, 5, 6, 7), (18, 2, 3, 2, 3), padding=1, stride=2, layout="NDHWC"),
    # Rows and planes of results of which all taps see padding: none is summed.
    Conv3d.parse((2, 16, 2, 3, 8), (32, 16, 3, 2, 3), padding=(4, 0, 1, 3, 2, 1), layout="NDHWC"),
    Conv3d.parse((1, 3, 1, 1, 1), (5, 3, 1, 1, 1)),
    Conv3d.parse((1, 5, 3, 4, 7), (19, 5, 2, 3, 2), padding=(0, 1, 2, 1, 2, 0), stride=(1, 2, 3)),
    Conv3d.parse((2, 4, 3, 5, 4), (4, 1, 3, 2, 3), groups=4, padding=1, pass_="dgrad"),
]  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("p", ODD, ids=str)
def test_odd_shapes_are_right_by_the_first_and_the_last_tile(p):
    tiles = FLAT.candidates(p, CPU)
    tile = replace(tiles[-1], ahead=7, stream=1) if ODD.index(p) % 2 else tiles[0]
    assert run(p, kernel(p, tile), exact=convolution) < TOLERANCE[p.dtype], tile


def test_it_is_what_nobody_tuned_gets(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    p = Conv.parse((1, 32, 14, 14), (48, 32, 3, 3), 1, padding=1)
    assert str(choose(p, "llvm")).startswith(FLAT.name)


def test_the_batch_may_be_left_to_the_call():
    p = Conv.parse((3, 4, 6, 6), (8, 4, 3, 3), 1, padding=1)
    tile = FLAT.candidates(p, CPU)[0]
    d = FLAT.declare(p, tile, te.var("n"))
    built = tilewright.build(FLAT.schedule(d, tile), d.args, "llvm")
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((5, 4, 6, 6), "float32"),
        rng.standard_normal((8, 4, 3, 3), "float32"),
    )
    y, one = (np.full((n, 8, 6, 6), np.nan, "float32") for n in (5, 1))
    built(x, w, y)
    built(x[4:], w, one)
    assert (y[4:] == one).all()
    built(x[:0], w, y[:0])  # of no image nothing is computed


@pytest.mark.parametrize("p", [
    Conv.parse((1, 2, 9, 7), (3, 2, 3, 2), 1, padding=1, stride=2),
    Conv3d.parse((1, 2, 4, 5, 7), (3, 2, 3, 2, 3), padding=1, stride=(1, 2, 2)),
], ids=str)  # fmt: skip
def test_windows_of_all_rows_are_those_of_one_dimension(p):
    w = FlatWindows(p)
    for place in np.ndindex(*w.result):
        for tap in np.ndindex(*w.kernel):
            seen = [r * s + t for r, s, t in zip(place, w.stride, tap, strict=True)]
            behind = w.flat([t // s for t, s in zip(tap, w.stride, strict=True)])
            where = w.place(w.flat(place) + behind)
            assert where == [x // s for x, s in zip(seen, w.stride, strict=True)]


@pytest.mark.parametrize("padding", [1, (0, 2, 2, 1), 4])
def test_padding_behind_a_row_is_that_before_the_next_one(padding):
    p = Conv.parse((1, 2, 6, 5), (3, 2, 3, 4), 1, padding=padding)
    w = FlatWindows(p)
    assert w.stored[1] == max(w.result[1], 5 + max(p.dims[1].before, p.dims[1].after))
    for place in np.ndindex(*w.result):
        for tap in np.ndindex(*w.kernel):
            seen = [r + t - d.before for r, t, d in zip(place, tap, p.dims, strict=True)]
            found = w.place(w.flat(place) + w.flat(tap))
            found = [i - d.before for i, d in zip(found, p.dims, strict=True)]
            inside, read = (
                all(0 <= i < d.extent for i, d in zip(at, p.dims, strict=True))
                for at in (seen, found)
            )
            assert inside == read
            assert found == seen or not inside


def test_strided_gradients_multiply_no_zeros():
    """But at the edges: four times as many products would be those of every tap."""
    p = Conv.parse((1, 8, 16, 16), (8, 8, 4, 4), 1, padding=1, stride=2, pass_="dgrad")
    w = FlatWindows(p)
    assert w.results * w.filters[0] * w.filters[1] * 4 < 1.5 * p.nominal_flops / 2


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_phases_by_themselves_have_no_results_for_others(padding):
    p = Conv.parse((1, 16, 28, 28), (20, 16, 4, 4), 1, padding=padding, stride=2, pass_="dgrad")
    assert FlatWindows.of(p, True).result == (14, 14)
    assert FlatWindows.of(p, False).result == ((15, 15) if padding % 2 else (14, 14))


def test_phases_of_gradients_multiply_the_taps_that_they_have():
    """Of 3x3 taps with a stride of 2 a phase has 4, 2, 2 or 1; four of each would be 16 for 9."""
    p = Conv.parse((1, 32, 16, 16), (20, 32, 3, 3), 1, stride=2, pass_="dgrad", layout="NHWC")
    tile = next(t for t in FLAT.candidates(p, CPU) if t.across)
    d = FLAT.declare(p, tile)
    text = str(tilewright.lower(FLAT.schedule(d, tile), d.args, CPU))
    assert "for rh in range((f_outer + 2) // 4, 2)" in text
    assert "for rw in range((f_outer % 2 + 1) // 2, 2)" in text


def test_tiles_load_less_where_a_core_multiplies_two_vectors_in_a_cycle():
    p = Conv.parse((1, 64, 56, 56), (64, 64, 3, 3), 1, padding=1, layout="NHWC")

    def loads(features):
        tile = FLAT.candidates(p, Target.parse(f"llvm -mcpu={features} -threads=1"))[0]
        return (tile.rows + tile.vectors) / (tile.rows * tile.vectors)

    assert loads("amx") < loads("avx512")
