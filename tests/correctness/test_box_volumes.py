"""Boxes of images in three dimensions: on sim and on Hopper GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.boxes import volume
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.target import Target
from tilewright.target.queues import LATE_TILES
from tilewright.topi import Conv, Conv3d
from tilewright.topi.gpu.box_products import has_windows
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES

_VOLUMES = [
    volume(24, (2, 32, 3, 5, 6), epilogue="bias+relu"),
    volume(32, (2, 16, 3, 4, 5), pass_="dgrad"),
    volume(24, (1, 32, 5, 6, 7), stride=(1, 2, 2), kernel=(3, 2, 1)),
    volume(24, (1, 64, 3, 4, 7), stride=(2, 1, 3), kernel=(1, 2, 3), pass_="dgrad"),
    volume(64, (1, 64, 2, 5, 3), groups=2, dtype="bfloat16", padding=(0, 1, 2, 2, 0, 1)),
    volume(24, (1, 3, 2, 5, 9), kernel=(3, 3, 3), stride=(1, 2, 2)),
    volume(24, (1, 3, 2, 5, 9), pass_="wgrad"),
    volume(72, (2, 64, 2, 4, 5), pass_="wgrad", stride=(2, 1, 1), dilation=(1, 1, 2), padding=2),
    volume(16, (1, 16, 2, 3, 3), padding=4, kernel=(5, 7, 1)),
    volume(72, (2, 40, 2, 3, 5), kernel=(1, 1, 1), padding=0),
    volume(24, (1, 32, 2, 4, 5), dtype="int8"),
    volume(24, (1, 16, 2, 4, 5), dtype="float32", precision="tf32x3"),
    volume(24, (1, 16, 2, 4, 5), dtype="float32", precision="tf32x3", pass_="dgrad", stride=2),
]


@pytest.mark.spread
@pytest.mark.parametrize("p", _VOLUMES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_images_have_three_dimensions(target: str, p: Conv3d) -> None:
    """In every schedule of boxes that is for such a problem, by its smallest likely tile."""
    names = ["gpu.box_products", "gpu.whole_boxes", "gpu.box_splits"]
    names += ["gpu.window_products"] if has_windows(p) else []
    if p.pass_ == "wgrad":
        names = ["gpu.box_gradient"]
    elif p.pass_ == "dgrad" and max(p.stride) > 1:
        names.remove("gpu.box_splits")
    found = 0
    for name in names:
        likely = TEMPLATES[name].candidates(p, Target.parse(target))[:8]
        for tile in sorted(likely, key=lambda t: getattr(t, "groups", 1))[:1]:
            check_tile(name, p, tile, target)
            found += 1
    assert found


def test_a_tile_of_volumes_may_have_planes() -> None:
    machine, template = Target.parse(HOPPER), TEMPLATES["gpu.whole_boxes"]
    p = volume(16, (4, 16, 32, 32, 32), kernel=(3, 3, 3), pass_="dgrad")
    tile = next(tile for tile in template.candidates(p, machine) if tile.planes > 1)
    assert template.fits(p, machine)
    assert len(tile.box) == 4
    seen = "x".join(str(n + 2) for n in tile.box[1:])
    text = str(module_of(template.name, p, tile))
    assert f"tma_load_float16_{tile.images}x{seen}x16_s32" in text


_STREAMED = [
    (volume(64, (1, 64, 5, 9, 10), kernel=(3, 3, 3)), BoxProductTile.of((1, 2, 8, 8), 64, 2)),
    (volume(64, (1, 80, 3, 9, 10), kernel=(3, 3, 3), pass_="dgrad"),
     BoxProductTile.of((1, 2, 8, 8), 64, 2)),
    (Conv.parse((2, 24, 13, 10), (40, 24, 5, 5), 1, padding=2, layout="NHWC", dtype="bfloat16",
                epilogue="bias+relu"), BoxProductTile.of((1, 8, 8), 32, 2)),
    (Conv.parse((2, 64, 13, 10), (40, 64, 5, 5), 1, padding=2, layout="NHWC", precision="tf32"),
     BoxProductTile.of((1, 8, 8), 32, 2)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "tile"), _STREAMED, ids=lambda x: str(x)[:60])
def test_a_filter_comes_again_for_each_box(
    p: Conv | Conv3d, tile: BoxProductTile, target: str
) -> None:
    """A tap after another, for the boxes of a block, the last of which may have fewer."""
    check_tile("gpu.whole_boxes", p, replace(tile, boxes=3, streamed=3), target)


def test_filters_of_many_taps_are_not_kept() -> None:
    """Of one that has no room beside boxes, each tap would read its own from the cache."""
    machine, template = Target.parse(HOPPER), TEMPLATES["gpu.whole_boxes"]
    p = volume(64, (4, 64, 32, 32, 32), kernel=(3, 3, 3))
    tile = template.candidates(p, machine)[0]
    assert template.fits(p, machine)
    assert tile.streamed
    assert f"T.queue('{LATE_TILES}', 'wait', 1)" in str(module_of(template.name, p, tile))
