"""Gradients by the filter, and groups of few channels, of boxes that all taps read: on sim and on
Hopper GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.support.dense import convolutions
from tests.support.tiles import HOPPER, TARGETS, built, check_tile

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.tap_gradient_tiles import tap_times
from tilewright.topi.gpu.warp_box_tiles import warp_times
from tilewright.topi.nn.tap_gradients import is_flat
from tilewright.topi.nn.thin_boxes import is_thin_forward
from tilewright.topi.pieces.tap_tiles import TapGradientTile, WarpBoxTile
from tilewright.topi.templates import TEMPLATES, candidates

KINDS = [("float16", "exact"), ("bfloat16", "exact"), ("float32", "tf32"), ("float32", "tf32x3")]


@st.composite
def gradients(draw: st.DrawFn, kind: tuple[str, str]) -> Conv:
    """Small ones, dense, of few channels or in groups."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 8]))
    own = draw(st.sampled_from([1, 3, 4, 8, 20, 40, 72] if groups == 1 else [2, 4, 8, 16, 32]))
    filters = draw(st.sampled_from([5, 8, 24, 72] if groups == 1 else [2, 4, 8, 16, 32]))
    dtype, precision = kind
    p = draw(
        convolutions(
            pass_="wgrad", channels=groups * own, groups=groups, multiplier=filters, dtype=dtype,
            epilogue=(),
        )
    )  # fmt: skip
    return p.replace(layout="NHWC" if p.rank == 2 else "NWC", precision=precision)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=6, phases=[Phase.generate])
@given(data=st.data())
def test_gradients_are_right_with_any_tile(kind: tuple[str, str], target: str, data: Any) -> None:
    p = data.draw(gradients(kind).filter(lambda p: bool(tap_times(p))))
    tile = data.draw(st.sampled_from(sorted(tap_times(p), key=str)))
    tile = replace(tile, producer=data.draw(st.integers(0, 1)))
    check_tile("gpu.tap_gradient", p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("splits", [20, 40])
def test_threads_share_many_parts_of_few_results(splits: int, target: str) -> None:
    p = Conv.parse((40, 16, 5, 5), (16, 16, 3, 3), 1, padding=1, pass_="wgrad", layout="NHWC",
                   dtype="float16")  # fmt: skip
    name, tile = "gpu.tap_gradient", TapGradientTile(16, 16, 1, 1, 3, 3, splits=splits)
    check_tile(name, p, tile, target)
    declared = TEMPLATES[name].declare(p, tile)
    added = str(tilewright.lower(TEMPLATES[name].schedule(declared, tile), declared.args, HOPPER))
    assert ("_partial" in added) == (splits > 20)


_GROUPS: tuple[dict[str, Any], ...] = (
    {"padding": 1}, {"padding": (0, 2, 1, 1), "dilation": (1, 2)}, {"padding": 1, "stride": (1, 3)},
    {"padding": 1, "stride": 2, "epilogue": "bias+residual+relu"}, {"padding": 1, "pass_": "dgrad"},
    {"padding": 1, "pass_": "dgrad", "stride": 2}, {"padding": 1, "dtype": "bfloat16"},
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("values", "own"),
    [(values, own) for k, values in enumerate(_GROUPS) for own in ((2, 16), (8, 32))[k % 2]],
    ids=str,
)
def test_groups_are_right_by_warps(values: dict[str, Any], own: int, target: str) -> None:
    """The last block may have fewer boxes."""
    p = Conv.parse(
        (3, 128, 13, 10), (128, own, 3, 3), 128 // own, layout="NHWC",
        **{"dtype": "float16"} | values,
    )  # fmt: skip
    assert warp_times(p)
    found = TEMPLATES["gpu.warp_boxes"].candidates(p, Target.parse(target))
    assert len(found) > 4
    for k, tile in enumerate((found[0], found[len(found) // 2])):
        check_tile("gpu.warp_boxes", p, replace(tile, boxes=2, producer=k), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_tiles_of_groups_have_half_the_rows_of_an_image(pass_: str, target: str) -> None:
    """Also an odd number of them."""
    p = Conv.parse((2, 64, 22, 10), (64, 16, 3, 3), 4, padding=1, pass_=pass_, layout="NHWC",
                   dtype="float16")  # fmt: skip
    for producer in range(2):
        check_tile("gpu.warp_boxes", p, WarpBoxTile(1, 11, 16, 64, 16, 1, 2, 2, producer), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("image", "stride", "kernel", "channels"), [
    ((9, 11), 2, 3, 3), ((12, 16), 4, 4, 3), ((7, 10), (2, 3), 5, 5), ((9, 16), 2, 3, 7),
])  # fmt: skip
def test_gradients_of_few_channels_are_right_by_warps(
    image: tuple[int, int], stride: Any, kernel: int, channels: int, target: str
) -> None:
    """Neighbours in memory are of several phases."""
    p = Conv.parse(
        (3, channels, *image), (24, channels, kernel, kernel), 1, stride=stride,
        padding=kernel % 2, pass_="dgrad", layout="NHWC", dtype="float16",
    )  # fmt: skip
    found = TEMPLATES["gpu.warp_boxes"].candidates(p, Target.parse(target))
    for k, tile in enumerate(found[:: len(found) // 2]):
        check_tile("gpu.warp_boxes", p, replace(tile, boxes=2, producer=k % 2), target)


@pytest.mark.parametrize(("channels", "groups"), [(64, 16), (3, 1)])
def test_sums_of_all_phases_meet_no_bank_twice(channels: int, groups: int) -> None:
    """Neighbours, between which those of all phases lie in shared memory."""
    p = Conv.parse(
        (1, channels, 16, 32), (64, channels // groups, 3, 3), groups, stride=2, padding=1,
        pass_="dgrad", layout="NHWC", dtype="float16",
    )  # fmt: skip
    own = min(16, channels)
    tile = WarpBoxTile(1, 4, 16, max(8, channels), max(8, own), 2, 2)
    kernel = built("gpu.warp_boxes", p, tile, "sim")
    x, w = (np.ones(shape, "float16") for shape in p.shapes().values())
    report = kernel.simulate(x, w, np.zeros(p.result_shape, "float16"))
    assert report.ok
    assert not [a for a in report.conflicts() if "Sums" in a.statement]


@st.composite
def thin(draw: st.DrawFn) -> Conv:
    """Forward passes of images of few channels, of which a row of the filter sees several."""
    p = draw(
        convolutions(
            pass_="forward", channels=draw(st.integers(1, 8)), groups=1,
            multiplier=draw(st.sampled_from([1, 8, 24, 40, 136])),
            dtype=draw(st.sampled_from(["float16", "bfloat16"])),
        )
    )  # fmt: skip
    return p.replace(layout="NHWC" if p.rank == 2 else "NWC")


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=20, phases=[Phase.generate])
@given(data=st.data())
def test_images_of_few_channels_are_right_by_warps(target: str, data: Any) -> None:
    p = data.draw(thin().filter(lambda p: is_thin_forward(p) and warp_times(p)))
    found = TEMPLATES["gpu.warp_boxes"].candidates(p, Target.parse(target))
    tile = replace(data.draw(st.sampled_from(found)), boxes=data.draw(st.integers(1, 3)))
    if p.out_image[-1] >= 4:
        tile = replace(tile, producer=data.draw(st.integers(0, 1)))
    check_tile("gpu.warp_boxes", p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", ["forward", "wgrad"])
def test_rows_of_one_channel_are_copied(pass_: str, target: str) -> None:
    p = Conv.parse((3, 1, 9, 16), (8, 1, 3, 3), 1, padding=1, pass_=pass_, layout="NHWC",
                   dtype="float16")  # fmt: skip
    assert not is_flat(p)
    name = "gpu.warp_boxes" if pass_ == "forward" else "gpu.tap_gradient"
    for tile in TEMPLATES[name].candidates(p, Target.parse(target))[:1]:
        check_tile(name, p, tile, target)


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", ["forward", "wgrad"])
@pytest.mark.parametrize(("width", "channels", "values"), [
    (16, 3, {"stride": 2, "padding": 1}), (24, 3, {"padding": (2, 1, 3, 0)}),
    (16, 5, {"stride": (1, 2), "padding": 2}), (12, 2, {"padding": 1}), (9, 8, {"padding": 1}),
    (16, 3, {"stride": 4}), (8, 7, {"stride": 3, "padding": 3}),
])  # fmt: skip
def test_rows_of_few_channels_are_read_as_they_lie(
    width: int, channels: int, values: dict[str, Any], pass_: str, target: str
) -> None:
    """In one kernel, and another where parts are added; from where a box may begin."""
    p = Conv.parse((3, channels, 11, width), (24, channels, 3, 4), 1, pass_=pass_, layout="NHWC",
                   dtype="float16", **values)  # fmt: skip
    assert is_flat(p)
    name = "gpu.warp_boxes" if pass_ == "forward" else "gpu.tap_gradient"
    found = TEMPLATES[name].candidates(p, Target.parse(target))
    for tile in found[:: len(found) // 2]:
        kernel = check_tile(name, p, tile, target)
        assert len(kernel.module.funcs) == 1 + (pass_ == "wgrad")


@pytest.mark.parametrize(
    "p",
    [
        Conv.parse((64, 3, 112, 112), (64, 3, 3, 3), 1, padding=1, layout="NHWC", dtype="float16"),
        Conv.parse((64, 3, 224, 224), (96, 3, 4, 4), 1, stride=4, layout="NHWC", dtype="bfloat16"),
        Conv.parse((64, 64, 56, 56), (64, 64, 3, 3), 1, padding=1, pass_="wgrad", precision="tf32",
                   layout="NHWC"),
        Conv.parse((64, 256, 14, 14), (1024, 256, 1, 1), 1, pass_="wgrad", precision="tf32x3",
                   layout="NHWC"),
        Conv.parse((64, 128, 56, 56), (128, 4, 3, 3), 32, padding=1, pass_="wgrad", layout="NHWC",
                   dtype="float16"),
        Conv.parse((64, 3, 224, 224), (64, 3, 7, 7), 1, padding=3, stride=2, pass_="wgrad",
                   layout="NHWC", dtype="float16"),
        Conv.parse((64, 128, 56, 56), (128, 4, 3, 3), 32, padding=1, stride=2, layout="NHWC",
                   dtype="float16"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.needs_nvrtc
def test_they_are_chosen_and_multiply_without_spills(p: Conv) -> None:
    """Those of ResNet, ResNeXt and stems."""
    template, tile = next(iter(candidates(p, HOPPER)))
    assert template.name in ("gpu.tap_gradient", "gpu.warp_boxes")
    program = built(template.name, p, tile, HOPPER).program
    assert any(op.startswith("HMMA") for op in opcodes(program.assembly))
    assert all(used.spills == 0 for used in program.resources.values())


def test_others_are_left_to_other_schedules() -> None:
    p = Conv.parse((2, 64, 9, 9), (64, 64, 3, 3), 1, padding=1, pass_="wgrad", layout="NHWC")
    assert not tap_times(p)  # of float32, exact
    assert not tap_times(p.replace(dtype="float16", layout="NCHW"))
    assert not tap_times(p.replace(dtype="float16", pass_="forward"))
    assert not warp_times(p.replace(dtype="float16", pass_="forward"))  # of many channels
    few = Conv.parse((2, 3, 9, 9), (64, 3, 3, 3), 1, padding=1, dtype="float16", layout="NHWC")
    assert warp_times(few)
    for other in ({"layout": "NCHW"}, {"dilation": 2}, {"dtype": "float32"}, {"channels": 9}):
        assert not warp_times(few.replace(**other))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 128), (7, 43)])
def test_taps_that_no_copy_reaches_are_left_to_other_schedules(
    kernel: int, dilation: int, groups: int
) -> None:
    p = Conv.parse(
        (1, 16 * groups, 270, 270), (16 * groups, 16, kernel, kernel), groups, dilation=dilation,
        layout="NHWC", dtype="float16", pass_="wgrad",
    )  # fmt: skip
    assert not tap_times(p)
    assert candidates(p, Target.parse(HOPPER))
    assert tap_times(p.replace(dilation=2))
