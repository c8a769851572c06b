"""Groups of few channels on a CPU, several of them in a vector: right by every tile, and chosen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import convolution
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d
from tilewright.topi.sketches.group_windows import GroupTile
from tilewright.topi.templates import TEMPLATES

CPU = Target.parse("llvm")
GROUPS = TEMPLATES["cpu.groups"]


def layer(channels: int, own: int, image: tuple[int, int], **more: Any) -> Conv:
    """A layer of groups of ``own`` channels."""
    more = {"padding": 1, "layout": "NHWC"} | more
    shape = (more.pop("batch", 1), channels, *image)
    return Conv.parse(shape, (channels, own, 3, 3), channels // own, **more)


#: Channels that fill no vector, one group, asymmetric padding, strides and dilation, columns that
#: no tile divides, types of 16 and 64 bits, and one and three dimensions.
ODD = [
    layer(48, 8, (9, 11), batch=2, epilogue=("bias", "relu")),
    layer(24, 8, (5, 6), stride=2),
    layer(4, 4, (7, 5), padding=(0, 3, 2, 1)),
    layer(30, 2, (8, 9), stride=(2, 1), dilation=(1, 2), epilogue=("residual",)),
    layer(32, 4, (6, 15), dtype="bfloat16"),
    layer(16, 8, (6, 6), dtype="float64"),
    Conv.parse((2, 32, 19), (32, 4, 5), 8, padding=(2, 1), layout="NWC"),
    Conv3d.parse((1, 16, 4, 6, 7), (16, 8, 3, 2, 3), 2, padding=1, stride=(1, 2, 1),
                 layout="NDHWC"),
]  # fmt: skip


@pytest.mark.parametrize("p", ODD, ids=str)
def test_it_is_right_by_the_first_and_a_late_tile(p):
    tiles = GROUPS.candidates(p, CPU)
    for tile in (tiles[0], tiles[-1]):
        error = run(p, Scheduled(GROUPS).kernel(p, tile, CPU), exact=convolution)
        assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_it_is_right_by_every_tile(data):
    draw = data.draw
    own = draw(st.sampled_from([2, 4, 8]))
    image = draw(st.integers(3, 12)), draw(st.integers(3, 17))
    p = layer(own * draw(st.integers(1, 9)), own, image, stride=draw(st.integers(1, 3)))
    tile = draw(st.sampled_from(GROUPS.candidates(p, CPU)))
    error = run(p, Scheduled(GROUPS).kernel(p, tile, CPU), exact=convolution)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


@pytest.mark.parametrize(
    ("stride", "dilation", "lanes"), [(1, 1, 8), ((2, 1), 1, 16), (1, 2, 8), (3, (2, 1), 16)]
)
def test_tiles_of_several_rows_are_right(stride, dilation, lanes):
    p = layer(40, 8, (13, 11), stride=stride, dilation=dilation, padding=2, epilogue=("bias",))
    tile = GroupTile(rows=3, columns=2, lanes=lanes, band=2, vectors=2)
    error = run(p, Scheduled(GROUPS).kernel(p, tile, CPU), exact=convolution)
    assert error < TOLERANCE[p.dtype], f"relative error {error:.2g}"


def test_a_tile_of_rows_puts_lanes_in_place_once():
    """The rows of the image that it sees are outermost, and written out."""
    p = layer(32, 4, (6, 8))
    tile = GroupTile(rows=2, columns=4, lanes=16)
    d = GROUPS.declare(p, tile)
    text = str(tilewright.lower(GROUPS.schedule(d, tile), d.args, CPU))
    assert "for rh_skewed in T.unrolled(4)" in text


def test_lanes_change_places_within_quarters_of_a_vector():
    """Of groups of 8 channels, too: the image is stored so that they do."""
    p = layer(32, 8, (6, 8))
    d = GROUPS.declare(p, GroupTile(1, 8, 16))
    text = str(tilewright.lower(GROUPS.schedule(d, GroupTile(1, 8, 16)), d.args, CPU))
    assert "rc // 4, T.Ramp(0, 1, 16) // T.Broadcast(4, 16)" in text


@pytest.mark.parametrize("own", [4, 8])
def test_it_is_what_nobody_tuned_gets(own):
    assert choose(layer(128, own, (28, 28)), CPU).algorithm.name == GROUPS.name
