"""Few channels and groups of them, which are joined and copied to fill boxes: on sim and on Hopper
GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.boxes import SMALL
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.nn.box_problems import filled_up, in_boxes, sliced, widths
from tilewright.topi.templates import TEMPLATES, templates


@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_few_channels_and_groups_are_copied_to_fill_instructions(pass_: str) -> None:
    """Squares of 3 channels, or what a row of a filter sees of these, are one step; 16 groups of 4
    channels are one."""
    stem = SMALL | {"pass_": pass_, "stride": 2, "padding": 3}
    found = in_boxes(Conv.parse((2, 3, 64, 64), (64, 3, 7, 7), 1, **stem))
    assert found is not None
    wanted = {"forward": (16, (4, 4)), "dgrad": (3, (7, 7)), "wgrad": (32, (7, 1))}
    assert (found.channels, found.kernel) == wanted[pass_]
    found = in_boxes(Conv.parse((2, 256, 64, 64), (256, 4, 7, 7), 64, **stem))
    assert found is not None
    assert (found.groups, found.multiplier) == ((4, 64) if pass_ == "wgrad" else (16, 16))


@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_groups_multiply_slices_of_a_row_of_shared_memory(pass_: str) -> None:
    """Four groups of 4 channels are joined, and four of those are in a row of 64 channels."""
    p = Conv.parse((2, 64, 12, 12), (64, 4, 3, 3), 16, **SMALL, pass_=pass_)
    made = in_boxes(p)
    assert made is not None
    assert (made.groups, sliced(made)) == (4, 4)
    tile = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse(HOPPER))[0]
    text = str(module_of("gpu.whole_boxes", p, tile))
    assert text.count("wgmma_m64n16k16") == 1
    assert "tma_load_float16_1x" in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("own", "values"), [
    (8, {"epilogue": "bias+relu"}), (24, {"pass_": "dgrad"}), (8, {"pass_": "dgrad", "stride": 2}),
], ids=str)  # fmt: skip
def test_the_last_of_joined_groups_may_have_fewer(
    own: int, values: dict[str, Any], target: str
) -> None:
    p = Conv.parse((1, 13 * own, 5, 9), (13 * own, own, 3, 3), 13, **SMALL, **values)
    made = in_boxes(p)
    assert made is not None
    assert 1 < made.groups < 13
    assert made.channels > p.channels
    for name in ("gpu.box_products", "gpu.whole_boxes"):
        for tile in TEMPLATES[name].candidates(p, Target.parse(target))[:1]:
            check_tile(name, p, tile, target)


@pytest.mark.parametrize(("groups", "own", "filters"), [(13, 4, 4), (5, 12, 12), (5, 4, 8)])
def test_groups_of_channels_that_are_in_no_rows_of_16_bytes_are_right(
    groups: int, own: int, filters: int
) -> None:
    """104 bytes of a pixel are no row of a map, however many groups are joined."""
    p = Conv.parse((1, groups * own, 5, 9), (groups * filters, own, 3, 3), groups, **SMALL)
    machine = Target.parse(HOPPER)
    for template in (t for t in templates(p, machine) if "box" in t.name):
        for tile in template.candidates(p, machine)[:1]:
            check_tile(template.name, p, tile, "sim")


_SHORT_OF_LINES: tuple[dict[str, Any], ...] = (
    {"epilogue": "bias+residual+relu"}, {"stride": 2, "dilation": 2}, {"pass_": "dgrad"},
    {"pass_": "dgrad", "stride": 2}, {"pass_": "dgrad", "channels": 40},
    {"pass_": "dgrad", "channels": 40, "stride": (1, 2), "dtype": "bfloat16"},
)  # fmt: skip


@pytest.mark.parametrize("values", _SHORT_OF_LINES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_pixels_are_copied_to_whole_lines(
    target: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each is read often, which small problems have no time for."""
    more = SMALL | {k: v for k, v in values.items() if k != "channels"}
    filters = 136 if "pass_" in values else 72
    p = Conv.parse((1, 136, 6, 8), (filters, 136, 3, 2), 1, **more)
    p = p.replace(channels=values.get("channels", p.channels))
    given = in_boxes.__wrapped__(p)
    monkeypatch.setattr("tilewright.topi.nn.box_problems._COPIED", 0)
    monkeypatch.setattr("tilewright.topi.nn.box_problems._LAUNCHED", 0)
    in_boxes.cache_clear()
    try:
        assert given is not None
        assert in_boxes(p) != given
        for name in ("gpu.box_products", "gpu.window_products", "gpu.whole_boxes"):
            for tile in TEMPLATES[name].candidates(p, Target.parse(target))[:1]:
                check_tile(name, p, tile, target)
    finally:
        in_boxes.cache_clear()


@pytest.mark.parametrize(("channels", "filled"), [
    (16, 16), (24, 32), (40, 64), (72, 96), (96, 96), (144, 192), (200, 256),
])  # fmt: skip
def test_taps_bring_no_rows_of_32_bytes_for_several_of_which_products_wait(
    channels: int, filled: int
) -> None:
    p = Conv.parse((8, channels, 14, 14), (64, channels, 3, 3), 1, **SMALL)
    assert filled_up(p) == filled
    assert filled_up(p, whole=True) == widths(p.dtype).filled(channels)
    two = p.replace(channels=2 * channels, groups=2)  # whose channels lie side by side
    assert filled_up(two) == widths(p.dtype).filled(channels)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", [{}, {"pass_": "dgrad", "stride": 2}], ids=str)
def test_channels_may_be_short_of_the_rows_that_bring_them(
    target: str, values: dict[str, Any]
) -> None:
    filters, channels = (24, 40) if not values else (144, 24)
    p = Conv.parse((2, channels, 7, 7), (filters, channels, 3, 3), 1, **SMALL | values)
    for name in ("gpu.box_products", "gpu.window_products"):
        tile = TEMPLATES[name].candidates(p, Target.parse(target))[0]
        check_tile(name, p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
def test_one_box_a_block_may_be_of_any_size(target: str) -> None:
    """Boxes of a stem of one image end within 128 bytes, where no other would begin."""
    p = Conv.parse((1, 3, 40, 37), (16, 3, 7, 7), 1, **SMALL | {"stride": 2, "padding": 3})
    found = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse(target))
    tile = next(t for t in found if t.images == 1)
    assert tile.stages == tile.boxes == 1
    check_tile("gpu.whole_boxes", p, tile, target)
