"""Convolutions with channels last, and products of matrices, as products of boxes: on sim and on
Hopper GPUs."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import convolution, convolutions
from tests.support.dense import product as multiplied
from tests.support.depthwise import TOLERANCE, run
from tests.support.quantized import check

import tilewright
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.gpu.box_products import Sizes, has_windows, suited, suits, suits_splits
from tilewright.topi.nn.box_copies import in_boxes, sliced
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES, templates

#: By pass, what computes it.
BY_PASS = {"forward": "gpu.box_products", "dgrad": "gpu.box_products", "wgrad": "gpu.box_gradient"}
TARGETS = ["sim", pytest.param("cuda -arch=sm_90a", marks=pytest.mark.needs_cuda)]


@st.composite
def problems(draw: st.DrawFn, pass_: str) -> Conv:
    """Small convolutions, dense or in groups, that TMA can bring the images of, or copies."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 16]))
    own = draw(
        st.sampled_from([2, 3, 8, 16, 24, 40, 64, 72, 136] if groups == 1 else [2, 4, 8, 16, 72])
    )
    filters = draw(st.sampled_from([2, 3, 8, 20, 72] if groups == 1 else [1, 4, 8, 16, 24]))
    p = draw(
        convolutions(
            pass_=pass_, channels=groups * own, groups=groups, multiplier=filters,
            dtype=draw(st.sampled_from(["float16", "bfloat16"])),
        )
    )  # fmt: skip
    p = p.replace(layout="NHWC" if p.rank == 2 else "NWC")
    if pass_ == "dgrad" and max(p.stride) > 1:
        p = p.replace(dilation=1, epilogue=())
    return p


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", BY_PASS)
@settings(max_examples=10)
@given(data=st.data())
def test_they_are_right_with_any_tile(pass_: str, target: str, data: Any) -> None:
    p = data.draw(problems(pass_).filter(suits))  # windows may see nothing but padding
    template, machine = TEMPLATES[BY_PASS[pass_]], Target.parse(target)
    tile = data.draw(st.sampled_from(template.candidates(p, machine)))
    if isinstance(tile, BoxProductTile):  # the last block may have fewer boxes
        made = suited(p)
        assert made is not None
        tiles = Sizes.of(made, p.dtype).boxes(tile.box) * -(-made.result_channels // tile.channels)
        tile = replace(tile, boxes=data.draw(st.integers(1, min(3, tiles))))
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
    assert error < TOLERANCE[p.dtype], tile


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
@settings(max_examples=10)
@given(data=st.data())
def test_whole_boxes_are_right_one_after_the_other(pass_: str, target: str, data: Any) -> None:
    """The last block may have fewer of them."""
    template, machine = TEMPLATES["gpu.whole_boxes"], Target.parse(target)
    p = data.draw(problems(pass_).filter(lambda p: suits(p) and template.candidates(p, machine)))
    tile = data.draw(st.sampled_from(template.candidates(p, machine)))
    if tile.stages > 1:  # memory for more than one
        staged = data.draw(st.sampled_from((0, tile.channels)))
        tile = replace(tile, boxes=data.draw(st.integers(2, 4)), staged=staged)
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
    assert error < TOLERANCE[p.dtype], tile


_ADDED = [
    Conv.parse((3, 64, 9, 7), (72, 64, 3, 3), 1, padding=1, dtype="float16", layout="NHWC",
               epilogue="bias+residual+relu"),
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
    template, machine = TEMPLATES[name], Target.parse(target)
    row = 128 if p.dtype == "int8" else 64
    tile = next(t for t in template.candidates(p, machine) if t.channels % row == 0)
    late = name == "gpu.box_products"
    tile = replace(tile, boxes=boxes, stages=3 if late else 2, added=int(late))
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    text = kernel.ir
    brought = re.search(r"instruction\('(tma_load\w*)', Residual[^\n]* residual\[", text)
    assert brought is not None
    assert brought[1].endswith("_late") is late
    # It is awaited once, behind the products.
    waits = [m.start() for m in re.finditer(r"queue\('tma_late', 'wait', 0\)", text)]
    assert len(waits) == late
    assert all(w > text.rindex("instruction('wgmma") for w in waits)
    if p.is_quantized:
        check(kernel, p)
    else:
        exact = multiplied if isinstance(p, Gemm) else convolution
        error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=exact)
        assert error < TOLERANCE[p.dtype], tile


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
    template, machine = TEMPLATES["gpu.box_products"], Target.parse(target)
    tiles = template.candidates(p, machine)
    assert all(t.images == t.filters_to == 1 and not t.turned for t in tiles)
    for tile in (tiles[0], replace(tiles[-1], boxes=2, boxes_to=1)):
        declared = template.declare(p, tile)
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
        error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=multiplied)
        assert error < (1e-3 if p.precision == "tf32" else TOLERANCE[p.dtype]), tile


@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_groups_multiply_slices_of_a_row_of_shared_memory(pass_: str) -> None:
    """Four groups of 4 channels are joined, and four of those are in a row of 64 channels."""
    p = Conv.parse(
        (2, 64, 12, 12), (64, 4, 3, 3), 16, padding=1, dtype="float16", layout="NHWC", pass_=pass_
    )
    made = in_boxes(p)
    assert made is not None
    assert (made.groups, sliced(made)) == (4, 4)
    template, machine = TEMPLATES["gpu.whole_boxes"], Target.parse("cuda -arch=sm_90a")
    tile = template.candidates(p, machine)[0]
    declared = template.declare(p, tile)
    text = str(tilewright.lower(template.schedule(declared, tile), declared.args, machine))
    assert text.count("wgmma_m64n16k16") == 1
    assert "tma_load_float16_1x" in text


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
            for number, tile in enumerate(template.candidates(p, machine)[:2]):
                if isinstance(tile, BoxProductTile):
                    tile = replace(tile, boxes=number + 1, stages=max(tile.stages, 1 + number))
                declared = template.declare(p, tile)
                made = tilewright.build(template.schedule(declared, tile), declared.args, target)
                device = target.split()[0].replace("sim", "cpu")
                assert run(p, made, device=device, exact=multiplied) < TOLERANCE[p.dtype], tile


@pytest.mark.parametrize("pass_", BY_PASS)
def test_all_tiles_lower_and_multiply_on_tensor_cores(pass_: str) -> None:
    """Loads are ahead of products, of which none waits for its own."""
    p = Conv.parse(
        (64, 128, 14, 14), (192, 128, 3, 3), 1, padding=1, dtype="float16", layout="NHWC",
        pass_=pass_,
    )  # fmt: skip
    template, machine = TEMPLATES[BY_PASS[pass_]], Target.parse("cuda -arch=sm_90a")
    tiles = template.candidates(p, machine)
    assert len(tiles) >= 10
    for tile in tiles[:4]:
        declared = template.declare(p, tile)
        text = str(tilewright.lower(template.schedule(declared, tile), declared.args, machine))
        assert "wgmma_m64n" in text
        assert text.count("tma_load") >= 4


_WINDOWS = (
    {"padding": 1}, {"padding": (0, 2, 1, 1), "dilation": (1, 2)}, {"padding": 1, "stride": (1, 3)},
    {"padding": 1, "pass_": "dgrad"}, {"padding": 1, "pass_": "dgrad", "stride": 2},
    {"padding": (0, 1, 2, 1), "pass_": "dgrad", "stride": (2, 3)},
    {"padding": 1, "epilogue": "bias+residual+relu"},
    {"padding": 2, "dtype": "bfloat16", "groups": 2}, {"padding": 2, "groups": 2, "pass_": "dgrad"},
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", _WINDOWS, ids=str)
def test_tiles_of_windows_go_on_from_one_image_to_the_next(
    values: dict[str, Any], target: str
) -> None:
    groups = values.get("groups", 1)
    p = Conv.parse(
        (5, 64 * groups, 10, 7), (64 * groups, 64, 3, 5), groups, layout="NHWC",
        **{"dtype": "float16"} | {k: v for k, v in values.items() if k != "groups"},
    )  # fmt: skip
    template = TEMPLATES["gpu.window_products"]
    for rows, boxes, turned in ((128, 1, 0), (192, 2, 0), (104, 4, 1)):
        tile = BoxProductTile(rows, 1, 1, 64, 3, 1, boxes, turned)
        declared = template.declare(p, tile)
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
        assert f"tma_load_{p.dtype}_{rows}x64_s128_w" in kernel.ir
        error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
        assert error < TOLERANCE[p.dtype]


def _volume(filters: int, shape: tuple[int, ...], **values: Any) -> Conv3d:
    """A small convolution in three dimensions, channels last."""
    groups = values.pop("groups", 1)
    kernel = values.pop("kernel", (2, 3, 2))
    values = {"dtype": "float16", "padding": 1, "layout": "NDHWC"} | values
    return Conv3d.parse(shape, (filters, shape[1] // groups, *kernel), groups, **values)


_VOLUMES = [
    _volume(24, (2, 32, 3, 5, 6), epilogue="bias+relu"),
    _volume(32, (2, 16, 3, 4, 5), pass_="dgrad"),
    _volume(24, (1, 32, 5, 6, 7), stride=(1, 2, 2), kernel=(3, 2, 1)),
    _volume(24, (1, 64, 3, 4, 7), stride=(2, 1, 3), kernel=(1, 2, 3), pass_="dgrad"),
    _volume(64, (1, 64, 2, 5, 3), groups=2, dtype="bfloat16", padding=(0, 1, 2, 2, 0, 1)),
    _volume(16, (1, 16, 2, 10, 9), kernel=(3, 3, 3)),
    _volume(24, (1, 3, 2, 5, 9), kernel=(3, 3, 3), stride=(1, 2, 2)),
    _volume(24, (1, 3, 2, 5, 9), pass_="wgrad"),
    _volume(72, (2, 64, 2, 4, 5), pass_="wgrad", stride=(2, 1, 1), dilation=(1, 1, 2), padding=2),
    _volume(16, (1, 16, 2, 3, 3), padding=4, kernel=(5, 7, 1)),
    _volume(72, (2, 40, 2, 3, 5), kernel=(1, 1, 1), padding=0),
    _volume(24, (1, 32, 2, 4, 5), dtype="int8"),
    _volume(24, (1, 16, 2, 4, 5), dtype="float32", precision="tf32x3"),
    _volume(24, (1, 16, 2, 4, 5), dtype="float32", precision="tf32x3", pass_="dgrad", stride=2),
]  # fmt: skip


@pytest.mark.parametrize("p", _VOLUMES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_images_have_three_dimensions(target: str, p: Conv3d) -> None:
    """In every schedule of boxes that is for such a problem, by its smallest likely tile."""
    machine = Target.parse(target)
    names = ["gpu.box_products", "gpu.whole_boxes", "gpu.box_splits"]
    names += ["gpu.window_products"] if has_windows(p) else []
    if p.pass_ == "wgrad":
        names = ["gpu.box_gradient"]
    elif p.pass_ == "dgrad" and max(p.stride) > 1:
        names.remove("gpu.box_splits")
    found = 0
    for template in (TEMPLATES[name] for name in names):
        likely = template.candidates(p, machine)[:8]
        for tile in sorted(likely, key=lambda t: getattr(t, "groups", 1))[:1]:
            declared = template.declare(p, tile)
            kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
            if p.is_quantized:
                check(kernel, p)
            else:
                device = target.split()[0].replace("sim", "cpu")
                error = run(p, kernel, device=device, exact=convolution)
                assert error < TOLERANCE.get(p.dtype, 1e-3), tile
            found += 1
    assert found


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
    p = Conv.parse(
        (1, 136, 6, 8), (72, 136, 3, 2), 1, layout="NHWC",
        **{"dtype": "float16", "padding": 1} | {k: v for k, v in values.items() if k != "channels"},
    )  # fmt: skip
    p = p.replace(channels=values.get("channels", p.channels))
    given = in_boxes.__wrapped__(p)
    monkeypatch.setattr("tilewright.topi.nn.box_copies._COPIED", 0)
    monkeypatch.setattr("tilewright.topi.nn.box_copies._LAUNCHED", 0)
    in_boxes.cache_clear()
    try:
        assert given is not None
        assert in_boxes(p) != given
        for name in ("gpu.box_products", "gpu.window_products", "gpu.whole_boxes"):
            template = TEMPLATES[name]
            for tile in template.candidates(p, Target.parse(target))[:1]:
                declared = template.declare(p, tile)
                kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
                device = target.split()[0].replace("sim", "cpu")
                error = run(p, kernel, device=device, exact=convolution)
                assert error < TOLERANCE[p.dtype], (name, tile)
    finally:
        in_boxes.cache_clear()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("own", [8, 24])
@pytest.mark.parametrize(
    "values",
    [{"epilogue": "bias+relu"}, {"pass_": "dgrad"}, {"pass_": "dgrad", "stride": 2}],
    ids=str,
)
def test_the_last_of_joined_groups_may_have_fewer(
    target: str, own: int, values: dict[str, Any]
) -> None:
    p = Conv.parse(
        (1, 13 * own, 5, 9), (13 * own, own, 3, 3), 13, padding=1, layout="NHWC",
        **{"dtype": "float16"} | values,
    )  # fmt: skip
    made = in_boxes(p)
    assert made is not None
    assert 1 < made.groups < 13
    assert made.channels > p.channels
    for name in ("gpu.box_products", "gpu.whole_boxes"):
        template = TEMPLATES[name]
        for tile in template.candidates(p, Target.parse(target))[:1]:
            declared = template.declare(p, tile)
            kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
            device = target.split()[0].replace("sim", "cpu")
            error = run(p, kernel, device=device, exact=convolution)
            assert error < TOLERANCE[p.dtype], (name, tile)


@pytest.mark.parametrize(("groups", "own", "filters"), [(13, 4, 4), (13, 12, 12), (5, 4, 8)])
def test_groups_of_channels_that_are_in_no_rows_of_16_bytes_are_right(
    groups: int, own: int, filters: int
) -> None:
    """104 bytes of a pixel are no row of a map, however many groups are joined."""
    p = Conv.parse(
        (1, groups * own, 5, 9), (groups * filters, own, 3, 3), groups, padding=1, layout="NHWC",
        dtype="float16",
    )  # fmt: skip
    for template in (t for t in templates(p, Target.parse("cuda -arch=sm_90a")) if "box" in t.name):
        for tile in template.candidates(p, Target.parse("cuda -arch=sm_90a"))[:1]:
            declared = template.declare(p, tile)
            kernel = tilewright.build(template.schedule(declared, tile), declared.args, "sim")
            assert run(p, kernel, exact=convolution) < TOLERANCE[p.dtype], (template.name, tile)


_ROWS_OF_TAPS = [
    Conv.parse((2, 64, 5, 9), (72, 64, 3, 3), 1, padding=1, layout="NHWC", dtype="bfloat16"),
    Conv.parse((1, 32, 9, 10), (64, 32, 2, 4), 1, stride=(2, 1), layout="NHWC", dtype="float16"),
    Conv.parse((1, 128, 7, 9), (128, 64, 3, 2), 2, padding=2, dilation=2, layout="NHWC",
               dtype="float16"),
    Conv.parse((2, 64, 45), (24, 64, 3), 1, padding=1, layout="NWC", dtype="float16"),
    Conv.parse((2, 40, 9, 11), (96, 40, 7, 5), 1, padding=3, layout="NHWC", dtype="float16"),
    _volume(24, (1, 96, 3, 4, 9), stride=(2, 1, 1)), _volume(64, (1, 16, 2, 4, 9)),
]  # fmt: skip


@pytest.mark.parametrize("p", _ROWS_OF_TAPS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_taps_read_whole_boxes(target: str, p: Conv | Conv3d) -> None:
    """Each warpgroup has a row of taps, whose columns of an instruction begin a pixel apart, and a
    block one row of them, or several."""
    p, machine = p.replace(pass_="wgrad"), Target.parse(target)
    template = TEMPLATES["gpu.whole_gradient"]
    likely = template.candidates(p, machine)
    kinds = {(tile.filters, tile.rows): tile for tile in reversed(likely)}
    for tile in (*kinds.values(), replace(likely[0], splits=1)):
        declared = template.declare(p, tile)
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
        assert f"wgmma_m64n{p.kernel[-1] * tile.channels}k16_" in kernel.ir
        error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
        assert error < TOLERANCE[p.dtype], tile


def test_a_tile_of_volumes_has_planes() -> None:
    machine = Target.parse("cuda -arch=sm_90a")
    p = _volume(16, (4, 16, 32, 32, 32), kernel=(3, 3, 3), pass_="dgrad")
    template = TEMPLATES["gpu.whole_boxes"]
    tile = template.candidates(p, machine)[0]
    assert template.fits(p, machine)
    assert tile.planes > 1
    assert len(tile.box) == 4
    declared = template.declare(p, tile)
    text = str(tilewright.lower(template.schedule(declared, tile), declared.args, machine))
    seen = "x".join(str(n + 2) for n in tile.box[1:])
    assert f"tma_load_float16_{tile.images}x{seen}x16_s32" in text


def test_windows_are_taken_where_boxes_of_results_stand_out() -> None:
    machine = Target.parse("cuda -arch=sm_90a")
    layer = {"padding": 1, "dtype": "float16", "layout": "NHWC"}
    p = Conv.parse((64, 256, 14, 14), (256, 256, 3, 3), 1, **layer)
    template = TEMPLATES["gpu.window_products"]
    assert template.fits(p, machine)
    assert math.prod(template.candidates(p, machine)[0].box) == 192  # so each SM has one tile
    one = Conv.parse((64, 256, 14, 14), (256, 256, 1, 1), 1, dtype="float16", layout="NHWC")
    for other in (
        p.replace(pass_="wgrad"), p.replace(stride=9), one,
        p.replace(padding=(200, 200, 200, 200)), p.replace(kernel_h=1, height=1, padding=0),
    ):  # fmt: skip
        assert not template.fits(other, machine)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_pixels_need_not_be_of_one_size(target: str) -> None:
    """Of 7 steps, 4 parts have 2, 2, 2 and 1."""
    p = Conv.parse((8, 64, 7, 7), (72, 64, 1, 1), 1, dtype="float16", layout="NHWC", pass_="wgrad")
    template, machine = TEMPLATES["gpu.box_gradient"], Target.parse(target)
    tile = replace(template.candidates(p, machine)[0], splits=4)
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    assert "T.min(7 - blockIdx_x // 2 * 2, 2)" in kernel.ir
    error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
    assert error < TOLERANCE[p.dtype]


def test_gradients_with_strides_read_the_filter_as_it_lies_and_the_taps_of_their_phase() -> None:
    p = Conv.parse(
        (8, 64, 14, 14), (128, 64, 3, 3), 1, padding=1, stride=2, dtype="float16", layout="NHWC",
        pass_="dgrad",
    )  # fmt: skip
    template, machine = TEMPLATES["gpu.box_products"], Target.parse("cuda -arch=sm_90a")
    tile = template.candidates(p, machine)[0]
    declared = template.declare(p, tile)
    assert not declared.copies
    module = tilewright.lower(template.schedule(declared, tile), declared.args, machine)
    assert len(module.funcs) == 1
    phase = r"T.if_then_else\([^()]* == 0, 1, 2\)"
    assert re.search(rf"in range\({phase} \* {phase} \* 2\)", str(module))


_EDGES = {
    "rows outside of the image": {
        "batch": 3, "channels": 136, "multiplier": 72, "height": 2, "width": 9, "kernel_h": 2,
        "kernel_w": 4, "stride": (3, 1), "padding": (1, 0, 2, 0), "dilation": (2, 1),
    },
    "one tap inside": {
        "batch": 1, "channels": 576, "multiplier": 8, "width": 3, "kernel_w": 3,
        "padding": (0, 1, 0, 1), "dilation": (1, 2),
    },
    "the first tap inside": {
        "batch": 1, "channels": 576, "multiplier": 8, "width": 1, "kernel_w": 2,
        "padding": (0, 0, 0, 2),
    },
}  # fmt: skip


@pytest.mark.parametrize("values", _EDGES.values(), ids=_EDGES)
def test_guards_that_leave_few_blocks_are_those_of_boxes(values: dict[str, Any]) -> None:
    """They are conditions on quotients, other than the bounds of a box."""
    p = Conv(
        operator="conv2d", pass_="wgrad", groups=1, dtype="float16", layout="NHWC", **values
    )  # fmt: skip
    template, machine = TEMPLATES["gpu.box_gradient"], Target.parse("cuda -arch=sm_90a")
    tile = template.candidates(p, machine)[0]
    declared = template.declare(p, tile)
    assert tilewright.lower(template.schedule(declared, tile), declared.args, machine)


_SPLIT = (
    Conv.parse((1, 64, 7, 7), (72, 64, 3, 3), 1, padding=1, dtype="float16", layout="NHWC",
               epilogue="batch_norm+residual+relu"),
    Conv.parse((1, 64, 7, 7), (72, 64, 3, 3), 1, padding=1, dtype="bfloat16", layout="NHWC",
               pass_="dgrad"),
    Conv.parse((2, 136, 7), (40, 136, 3), 1, stride=2, dtype="float16", layout="NWC"),
    Conv.parse((1, 256, 4, 4), (256, 16, 3, 3), 16, padding=1, dtype="float16", layout="NHWC"),
    Gemm(m=33, n=40, k=512, dtype="float16", transpose_b=True, epilogue="bias"),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _SPLIT, ids=str)
def test_few_results_are_summed_in_parts(p: Conv | Gemm, target: str) -> None:
    template, machine = TEMPLATES["gpu.box_splits"], Target.parse(target)
    exact = multiplied if isinstance(p, Gemm) else convolution
    for tile in template.tiles(p, machine)[:3]:
        assert tile.splits > 1
        declared = template.declare(p, tile)
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
        device = target.split()[0].replace("sim", "cpu")
        assert run(p, kernel, device=device, exact=exact) < TOLERANCE[p.dtype], tile


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("values", "turned"), [
    ({"padding": 1, "epilogue": "bias+residual+relu"}, 1), ({"padding": 1, "pass_": "dgrad"}, 0),
    ({"padding": 2, "dtype": "bfloat16", "groups": 2}, 0), ({"padding": 1, "pass_": "dgrad"}, 1),
])  # fmt: skip
def test_windows_are_summed_in_parts(values: dict[str, Any], turned: int, target: str) -> None:
    """Also where channels are the rows of instructions."""
    groups = values.get("groups", 1)
    p = Conv.parse(
        (2, 64 * groups, 7, 7), (128, 64, 3, 3), groups, layout="NHWC",
        **{"dtype": "float16"} | {k: v for k, v in values.items() if k != "groups"},
    )  # fmt: skip
    template, tile = TEMPLATES["gpu.window_splits"], BoxProductTile(64, 1, 1, 64, 3, 3, 1, turned)
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    device = target.split()[0].replace("sim", "cpu")
    assert run(p, kernel, device=device, exact=convolution) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(("batch", "layer", "name"), [
    (64, (512, 512, 3, 7), "gpu.window_splits"), (64, (256, 128, 1, 56), "gpu.box_products"),
    (64, (128, 512, 1, 28), "gpu.whole_boxes"), (1, (512, 2048, 1, 7), "gpu.whole_boxes"),
])  # fmt: skip
def test_what_is_predicted_to_be_fastest_comes_first(
    batch: int, layer: tuple[int, int, int, int], name: str
) -> None:
    channels, filters, taps, size = layer
    p = Conv.parse(
        (batch, channels, size, size), (filters, channels, taps, taps), 1, padding=taps // 2,
        dtype="float16", layout="NHWC",
    )  # fmt: skip
    machine = Target.parse("cuda -arch=sm_90a")
    found = [t for t in templates(p, machine) if t.price is not None]
    prices = [t.price(p, t.candidates(p, machine)[0], machine) for t in found if t.price]
    assert prices == sorted(prices)
    assert found[0].name == name


def test_problems_with_results_for_every_processor_are_not_split() -> None:
    layer = {"padding": 1, "dtype": "float16", "layout": "NHWC"}
    few = Conv.parse((1, 512, 7, 7), (512, 512, 3, 3), 1, **layer)
    assert suits_splits(few)
    assert not suits_splits(few.replace(batch=512))
    assert not suits_splits(few.replace(batch=64, pass_="wgrad"))


_LAST = {"padding": 1, "layout": "NHWC"}
_BYTES = (
    Conv.parse((2, 32, 9, 9), (40, 32, 3, 3), 1, dtype="int8", **_LAST),
    Conv.parse((3, 48, 9, 7), (20, 48, 3, 3), 1, dtype="uint8", stride=2, **_LAST,
               epilogue="bias+dequantize+relu+quantize(0.5,3)"),
    Conv.parse((2, 3, 9, 9), (16, 3, 5, 3), 1, dtype="int8", **_LAST,
               epilogue="bias+dequantize+quantized_residual(0.5,-2)+hswish+quantize(2.0,4)"),
    Conv.parse((1, 128, 5, 5), (64, 8, 3, 3), 16, dtype="int8", epilogue="dequantize", **_LAST),
    Conv.parse((2, 3, 22, 17), (16, 3, 7, 7), 1, dtype="int8", stride=2, padding=(3, 2, 3, 4),
               layout="NHWC", epilogue="bias+dequantize+quantize(60)"),
    Conv.parse((1, 2, 23, 25), (16, 2, 8, 5), 1, dtype="uint8", stride=4, padding=(0, 2, 1, 2),
               layout="NHWC"),
    Gemm(m=70, n=40, k=48, transpose_b=True, dtype="uint8", epilogue="bias+dequantize+hsigmoid"),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _BYTES, ids=str)
def test_bytes_are_added_exactly(p: Conv | Gemm, target: str) -> None:
    template, machine = TEMPLATES["gpu.box_products"], Target.parse(target)
    for tile in template.candidates(p, machine)[:3]:
        declared = template.declare(p, tile)
        check(tilewright.build(template.schedule(declared, tile), declared.args, target), p)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["gpu.box_products", "gpu.whole_boxes"])
@pytest.mark.parametrize(("filters", "channels"), [(96, 96), (150, 80), (24, 24)])
def test_tiles_of_several_instructions_are_exact(
    filters: int, channels: int, name: str, target: str
) -> None:
    """Of as many channels as there are, where these are no power of two; of an image of 16."""
    p = Conv.parse((2, 16, 9, 7), (filters, 16, 1, 1), 1, dtype="int8", layout="NHWC",
                   epilogue="dequantize+bias+quantized_residual(2)+quantize(30)")  # fmt: skip
    template, boxes = TEMPLATES[name], 2 if name == "gpu.whole_boxes" else 1
    tile = BoxProductTile(64, 1, 1, channels, 2, 1, boxes)
    declared = template.declare(p, tile)
    assert not declared.copies
    check(tilewright.build(template.schedule(declared, tile), declared.args, target), p)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("changes", [
    {"stride": 2, "epilogue": "bias+relu"}, {"pass_": "dgrad"}, {"pass_": "dgrad", "stride": 2},
    {"groups": 10}, {"groups": 10, "pass_": "dgrad"},
], ids=str)  # fmt: skip
def test_tf32_loses_no_more_than_the_low_bits_of_factors(
    changes: dict[str, Any], target: str
) -> None:
    p = Conv.parse(
        (2, 40, 9, 8), (60, 40 // changes.get("groups", 1), 3, 3), changes.get("groups", 1),
        **_LAST | {"precision": "tf32"} | {k: v for k, v in changes.items() if k != "groups"},
    )  # fmt: skip
    template, machine = TEMPLATES["gpu.box_products"], Target.parse(target)
    for tile in template.candidates(p, machine)[:2]:
        declared = template.declare(p, tile)
        kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
        error = run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=convolution)
        assert 1e-5 < error < 2e-3, tile


@pytest.mark.parametrize("pass_", BY_PASS)
def test_few_channels_and_groups_are_copied_to_fill_instructions(pass_: str) -> None:
    """Squares of 3 channels, or what a row of a filter sees of these, are one step; 16 groups of 4
    channels are one."""
    stem = {"pass_": pass_, "stride": 2, "padding": 3, "dtype": "float16", "layout": "NHWC"}
    found = in_boxes(Conv.parse((2, 3, 64, 64), (64, 3, 7, 7), 1, **stem))
    assert found is not None
    wanted = {"forward": (16, (4, 4)), "dgrad": (3, (7, 7)), "wgrad": (32, (7, 1))}
    assert (found.channels, found.kernel) == wanted[pass_]
    found = in_boxes(Conv.parse((2, 256, 64, 64), (256, 4, 7, 7), 64, **stem))
    assert found is not None
    assert (found.groups, found.multiplier) == ((4, 64) if pass_ == "wgrad" else (16, 16))


@pytest.mark.parametrize("target", TARGETS)
def test_one_box_a_block_may_be_of_any_size(target: str) -> None:
    """Boxes of a stem of one image end within 128 bytes, where no other would begin."""
    p = Conv.parse(
        (1, 3, 40, 37), (16, 3, 7, 7), 1, stride=2, padding=3, dtype="float16", layout="NHWC"
    )
    template = TEMPLATES["gpu.whole_boxes"]
    found = template.tiles(p, Target.parse(target))
    tile = next(t for t in found if t.images == 1)
    assert tile.stages == tile.boxes == 1
    declared = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(declared, tile), declared.args, target)
    device = target.split()[0].replace("sim", "cpu")
    assert run(p, kernel, device=device, exact=convolution) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("change", [
    {"layout": "NCHW"}, {"dtype": "float32"}, {"pass_": "dgrad", "stride": 2, "dilation": 2},
    {"pass_": "wgrad", "multiplier": 20}, {"stride": 9},
], ids=str)  # fmt: skip
def test_what_tma_cannot_bring_is_left_to_others(change: dict[str, Any]) -> None:
    p = Conv.parse(
        (2, 16, 20, 20), (16, 16, 3, 3), 1, padding=1, dtype="float16", layout="NHWC"
    )  # fmt: skip
    assert suits(p)
    assert not suits(p.replace(**change))


@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
def test_a_block_goes_through_several_whole_boxes(pass_: str) -> None:
    p = Conv.parse((64, 64, 56, 56), (64, 64, 3, 3), 1, padding=1, pass_=pass_, dtype="float16",
                   layout="NHWC")  # fmt: skip
    tiles = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse("cuda -arch=sm_90a"))
    assert {tile.splits for tile in tiles} == {1}
    assert max(tile.boxes for tile in tiles) > 4
