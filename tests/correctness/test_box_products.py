"""Convolutions with channels last, and products of matrices, as products of boxes: on sim and on
Hopper GPUs."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.boxes import SMALL, drawn
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.gpu.box_sizes import Sizes, suited
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES, templates

#: By pass, what computes it.
BY_PASS = {"forward": "gpu.box_products", "dgrad": "gpu.box_products", "wgrad": "gpu.box_gradient"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", BY_PASS)
@settings(max_examples=6)
@given(data=st.data())
def test_they_are_right_with_any_tile(pass_: str, target: str, data: Any) -> None:
    p = data.draw(drawn(pass_).filter(suited))  # windows may see nothing but padding
    tile = data.draw(st.sampled_from(TEMPLATES[BY_PASS[pass_]].candidates(p, Target.parse(target))))
    if isinstance(tile, BoxProductTile):  # the last block may have fewer boxes
        made = suited(p)
        assert made is not None
        tiles = Sizes.of(made, p.dtype).boxes(tile.box) * -(-made.result_channels // tile.channels)
        tile = replace(tile, boxes=data.draw(st.integers(1, min(3, tiles))))
    check_tile(BY_PASS[pass_], p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
@settings(max_examples=10)
@given(data=st.data())
def test_whole_boxes_are_right_one_after_the_other(pass_: str, target: str, data: Any) -> None:
    """The last block may have fewer of them."""
    template, machine = TEMPLATES["gpu.whole_boxes"], Target.parse(target)
    p = data.draw(drawn(pass_).filter(lambda p: suited(p) and template.candidates(p, machine)))
    tile = data.draw(st.sampled_from(template.candidates(p, machine)))
    if tile.boxes > 1:  # memory for more than one
        staged = 0 if tile.streamed else data.draw(st.sampled_from((0, tile.channels)))
        tile = replace(tile, boxes=data.draw(st.integers(2, 4)), staged=staged)
    check_tile(template.name, p, tile, target)


_IN_STEPS = [
    Conv.parse((1, 152, 9, 7), (40, 152, 3, 3), 1, **SMALL, epilogue="bias+residual+relu"),
    Conv.parse((2, 136, 9, 7), (40, 136, 1, 1), 1, stride=2, dtype="bfloat16", layout="NHWC"),
    Conv.parse((2, 64, 9, 7), (136, 64, 3, 3), 1, **SMALL, pass_="dgrad"),
    Gemm(m=70, n=104, k=200, dtype="float16", transpose_b=True),
    Conv.parse((2, 200, 9, 7), (40, 200, 1, 1), 1, stride=2, dtype="float16", layout="NHWC"),
    Conv.parse((2, 256, 9, 7), (40, 256, 1, 1), 1, stride=2, dtype="float16", layout="NHWC"),
]


@pytest.mark.spread
@pytest.mark.parametrize("p", _IN_STEPS, ids=str)
@pytest.mark.parametrize(("stages", "producer"), [(2, False), (5, False), (5, True)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_single_box_is_brought_in_steps_of_channels(
    target: str, stages: int, producer: bool, p: Conv | Gemm
) -> None:
    """With memory for some of them, or for all, which are then asked for at once; two boxes are
    one where pixels have pairs of them."""
    found = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse(HOPPER))
    tile = next(t for t in found if t.channels <= 64 and not t.turned)
    staged = tile.channels if producer else 0
    tile = replace(tile, boxes=1, stages=stages, staged=staged, stores=0)
    check_tile("gpu.whole_boxes", p, tile, target)


_ADDED = [
    Conv.parse((3, 64, 9, 7), (72, 64, 3, 3), 1, **SMALL, epilogue="bias+residual+relu"),
    Conv.parse((2, 64, 70), (136, 64, 1), 1, dtype="bfloat16", layout="NWC", epilogue="residual"),
    Gemm(m=77, n=72, k=64, dtype="float16", transpose_b=True, epilogue="residual+relu"),
    Conv.parse((2, 64, 5, 6), (160, 64, 1, 1), 1, dtype="int8", layout="NHWC",
               epilogue="bias+dequantize+quantized_residual(0.5,-2)+quantize(2.0,4)"),
]  # fmt: skip


@pytest.mark.parametrize("p", _ADDED, ids=str)
@pytest.mark.parametrize(
    ("name", "boxes"), [("gpu.whole_boxes", 2), ("gpu.box_products", 2), ("gpu.box_products", 1)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_added_is_brought_in_boxes(
    target: str, name: str, boxes: int, p: Conv | Gemm
) -> None:
    """A box ahead, or while its own is multiplied and others are brought."""
    row = 128 if p.dtype == "int8" else 64
    found = TEMPLATES[name].candidates(p, Target.parse(target))
    late = name == "gpu.box_products"
    tile = next(t for t in found if t.channels % row == 0)
    tile = replace(tile, boxes=boxes, stages=3 if late else 2, added=int(late))
    text = check_tile(name, p, tile, target).ir
    brought = re.search(r"instruction\('(tma_load\w*)', Residual[^\n]* residual\[", text)
    assert brought is not None
    assert brought[1].endswith("_late") is late
    # It is awaited once, behind the products.
    waits = [m.start() for m in re.finditer(r"queue\('tma_late', 'wait', 0\)", text)]
    assert len(waits) == late
    assert all(w > text.rindex("instruction('wgmma") for w in waits)


_SEVERAL = [
    Gemm(m=70, n=40, k=72, batch=3, transpose_b=True, dtype="float16", epilogue="bias"),
    Gemm(m=196, n=80, k=240, batch=2, transpose_b=True, dtype="float16", epilogue="bias+residual"),
    Gemm(m=130, n=72, k=136, batch=2, dtype="bfloat16", epilogue="residual+relu"),
    Gemm(m=40, n=128, k=64, batch=3, dtype="float16", pass_="dgrad", transpose_b=True),
    Gemm(m=66, n=64, k=40, batch=2, dtype="float32", precision="tf32", transpose_b=True),
]


@pytest.mark.parametrize("p", _SEVERAL, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_each_of_several_products_has_boxes_of_its_own(target: str, p: Gemm) -> None:
    tiles = TEMPLATES["gpu.box_products"].candidates(p, Target.parse(target))
    assert all(t.images == t.filters_to == 1 and not t.turned for t in tiles)
    for tile in (tiles[0], replace(tiles[-1], boxes=2, boxes_to=1)):
        check_tile("gpu.box_products", p, tile, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transposed", list(product((False, True), repeat=2)), ids=str)
@pytest.mark.parametrize("pass_", Gemm.PASSES)
def test_products_of_matrices_are_convolutions_of_one_tap(
    pass_: str, transposed: tuple[bool, bool], target: str
) -> None:
    """But where the left factor lies across the sum, and the right one along it."""
    machine = Target.parse(target)
    p = Gemm(
        m=136, n=72, k=104, pass_=pass_, transpose_a=transposed[0], transpose_b=transposed[1],
        dtype="float16",
    )  # fmt: skip
    for steps in ((), ("bias", "scale_shift", "relu")) if pass_ == "forward" else ((),):
        p = p.replace(epilogue=steps)
        found = [TEMPLATES[name] for name in {*BY_PASS.values(), "gpu.whole_boxes"}]
        able = [t for t in found if t.fits(p, machine)]
        (_, left), (_, right) = p.sides
        assert bool(able) == (left or not (right or steps))
        for template in able:
            tile, number = template.candidates(p, machine)[0], 1 + bool(steps)
            if isinstance(tile, BoxProductTile):
                tile = replace(tile, boxes=number, stages=max(tile.stages, number))
            check_tile(template.name, p, tile, target)


@pytest.mark.parametrize("pass_", BY_PASS)
def test_all_tiles_lower_and_multiply_on_tensor_cores(pass_: str) -> None:
    """Loads are ahead of products, of which none waits for its own."""
    p = Conv.parse((64, 128, 14, 14), (192, 128, 3, 3), 1, **SMALL, pass_=pass_)
    tiles = TEMPLATES[BY_PASS[pass_]].candidates(p, Target.parse(HOPPER))
    assert len(tiles) >= 10
    for tile in tiles[:4]:
        text = str(module_of(BY_PASS[pass_], p, tile))
        assert "wgmma_m64n" in text
        assert text.count("tma_load") >= 4


_PARTS = (
    Conv.parse((1, 64, 7, 7), (72, 64, 3, 3), 1, **SMALL, epilogue="batch_norm+residual+relu"),
    Conv.parse((1, 64, 7, 7), (72, 64, 3, 3), 1, **SMALL | {"dtype": "bfloat16"}, pass_="dgrad"),
    Conv.parse((2, 136, 7), (40, 136, 3), 1, stride=2, dtype="float16", layout="NWC"),
    Conv.parse((1, 256, 4, 4), (256, 16, 3, 3), 16, **SMALL),
    Gemm(m=33, n=40, k=512, dtype="float16", transpose_b=True, epilogue="bias"),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _PARTS, ids=str)
def test_few_results_are_summed_in_parts(p: Conv | Gemm, target: str) -> None:
    for tile in TEMPLATES["gpu.box_splits"].candidates(p, Target.parse(target))[:2]:
        assert tile.splits > 1
        check_tile("gpu.box_splits", p, tile, target)


@pytest.mark.parametrize(("batch", "layer", "name"), [
    (64, (512, 512, 3, 7), "gpu.window_splits"), (64, (256, 128, 1, 56), "gpu.box_products"),
    (64, (64, 64, 3, 56), "gpu.whole_boxes"), (1, (512, 2048, 1, 7), "gpu.whole_boxes"),
])  # fmt: skip
def test_what_is_predicted_to_be_fastest_comes_first(
    batch: int, layer: tuple[int, int, int, int], name: str
) -> None:
    channels, filters, taps, size = layer
    p = Conv.parse(
        (batch, channels, size, size), (filters, channels, taps, taps), 1,
        **SMALL | {"padding": taps // 2},
    )  # fmt: skip
    machine = Target.parse(HOPPER)
    found = [t for t in templates(p, machine) if t.priced]
    prices = [t.price(p, machine) for t in found]
    assert prices == sorted(prices)
    assert found[0].name == name


def test_problems_with_results_for_every_processor_are_not_split() -> None:
    few = Conv.parse((1, 512, 7, 7), (512, 512, 3, 3), 1, **SMALL)
    splits, machine = TEMPLATES["gpu.box_splits"], Target.parse(HOPPER)
    assert splits.fits(few, machine)
    assert not splits.fits(few.replace(batch=512), machine)
    assert not splits.fits(few.replace(batch=64, pass_="wgrad"), machine)


@pytest.mark.parametrize("change", [
    {"layout": "NCHW"}, {"dtype": "float32"}, {"pass_": "dgrad", "stride": 2, "dilation": 2},
    {"pass_": "wgrad", "multiplier": 20}, {"stride": 9},
], ids=str)  # fmt: skip
def test_what_tma_cannot_bring_is_left_to_others(change: dict[str, Any]) -> None:
    p = Conv.parse((2, 16, 20, 20), (16, 16, 3, 3), 1, **SMALL)
    assert suited(p)
    assert not suited(p.replace(**change))


@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_a_block_goes_through_several_whole_boxes(pass_: str) -> None:
    p = Conv.parse((64, 64, 56, 56), (64, 64, 3, 3), 1, **SMALL, pass_=pass_)
    tiles = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse(HOPPER))
    assert {tile.splits for tile in tiles} == {1}
    assert max(tile.boxes for tile in tiles) > 4
