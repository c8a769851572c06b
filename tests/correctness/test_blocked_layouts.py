"""Convolutions of integers whose images or results have channels in blocks, or lie in different
layouts: on sim and on GPUs, exactly."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.quantized import check, inputs, reference
from tests.support.tiles import TARGETS, built, check_tile, lowered, module_of

from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import Choice, SelectError, choose
from tilewright.target import Target
from tilewright.target.instructions.tma_load import ALIGN
from tilewright.topi import Conv, Gemm
from tilewright.topi.gpu.box_sizes import suited
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, templates

HOPPER = Target.parse("cuda -arch=sm_90a")
STEPS = "bias+dequantize+quantized_residual(0.1,3)+relu+quantize(2,5)"


def layer(image: str, filter: str, layout: str, groups: int = 1, **more: Any) -> Conv:
    return Conv.parse(image, filter, groups, **{"dtype": "int8", "layout": layout} | more)


#: Windows, strides and single pixels, groups, blocks that fill no step, few channels, of which
#: columns are brought together, and results that lie and are typed otherwise.
LAYERS = (
    layer("2x64x9x7", "64x64x3x3", "NCHW32", padding=1, epilogue=STEPS),
    layer("2x160x9x7", "96x160x1x1", "NCHW32", epilogue=STEPS),
    layer("3x128x9x7", "32x128x3x2", "NCHW32", padding=(0, 1, 2, 1), stride=2, dtype="uint8"),
    layer("2x256x9x7", "64x256x1x1", "NCHW32", stride=2, epilogue="dequantize"),
    layer("2x32x6x9", "64x32x3x3", "NCHW32", padding=2, dilation=2, epilogue=STEPS),
    layer("2x128x9x7", "128x64x3x3", "NCHW32", 2, padding=1, epilogue=STEPS),
    layer("2x64x9x7", "64x64x3x3", "NHWC", padding=1, out_layout="NCHW32", epilogue=STEPS),
    layer("3x64x5x7", "96x64x1x1", "NHWC", out_layout="NCHW32", epilogue=STEPS, out_dtype="uint8"),
    layer("2x64x9x7", "64x64x3x3", "NCHW32", padding=1, out_layout="NHWC", epilogue=STEPS),
    layer("2x64x9x7", "64x64x1x1", "NCHW32", out_layout="NCHW4", epilogue=STEPS),
    layer("2x4x19x17", "64x4x7x7", "NCHW4", padding=3, stride=2, out_layout="NCHW32",
          dtype="uint8", out_dtype="int8", epilogue=STEPS),
    layer("2x68x9x7", "48x68x3x3", "NCHW4", padding=1, epilogue=STEPS),
    layer("2x36x9x7", "44x36x1x1", "NCHW4", out_layout="NCHW", epilogue="bias+dequantize"),
    layer("2x40x9x7", "30x40x3x3", "NCHW", padding=1, epilogue=STEPS),
    layer("2x64x9x7", "64x16x3x3", "NCHW4", 4, padding=1, epilogue=STEPS),
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", LAYERS, ids=str)
def test_boxes_bring_blocks_and_copies_of_them(p: Conv, target: str) -> None:
    machine = Target.parse(target)
    found = [t for t in templates(p, machine) if "box" in t.name or "window" in t.name]
    assert found
    for number, template in enumerate(found, LAYERS.index(p)):
        tile = template.candidates(p, machine)[-(number % 2)]  # the first or the last
        if number % 2 and tile.stages > 1 and template.name != "gpu.box_splits":
            tile = replace(tile, boxes=2)  # the last block may have fewer
        check_tile(template.name, p, tile, target)


#: Channels last, few of them, matrices, one dimension.
_OTHERS = (
    layer("2x64x9x7", "44x64x3x3", "NHWC", padding=1, dtype="uint8", epilogue=STEPS),
    layer("2x48x9x7", "64x24x3x3", "NHWC", 2, padding=1, stride=2, epilogue="dequantize"),
    Conv.parse((3, 6, 33), (20, 6, 5), 1, padding=(4, 0), dtype="int8", layout="NWC"),
    Gemm(m=41, n=48, k=128, transpose_b=True, dtype="int8", epilogue="bias"),
    Gemm(m=70, n=33, k=70, transpose_b=True, dtype="uint8"),
)
_WARPS = TEMPLATES["gpu.byte_products"]


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", LAYERS + _OTHERS, ids=str)
def test_warps_multiply_bytes_since_ampere(p: Problem, target: str) -> None:
    for arch in ("sm_80", "sm_90a"):
        assert _WARPS.fits(p, Target.parse(f"cuda -arch={arch}"))
    assert not _WARPS.fits(p, Target.parse("cuda -arch=sm_75"))
    last = (LAYERS + _OTHERS).index(p) % 2
    check_tile(_WARPS.name, p, _WARPS.candidates(p, Target.parse(target))[-last], target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("layout", ["NHWC", "NCHW32"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_tiles_of_ampere_compile_without_spills(dtype: str, layout: str) -> None:
    p = layer("64x128x28x28", "128x128x3x3", layout, padding=1, dtype=dtype, epilogue=STEPS)
    machine = Target.parse("cuda -arch=sm_80")
    assert choose(p, machine).algorithm.name == "gpu.byte_products"
    text = built(_WARPS.name, p, _WARPS.candidates(p, machine)[0], machine).assembly
    assert "IMMA.16832" in text
    assert "LDSM.16.M88.4" in text
    assert "LDGSTS" in text
    assert "STL" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_few_results_are_summed_in_parts(target: str) -> None:
    p = layer("1x256x5x5", "64x256x3x3", "NCHW32", padding=1, epilogue=STEPS)
    tiles = TEMPLATES["gpu.box_splits"].candidates(p, Target.parse(target))
    assert min(tile.splits for tile in tiles) > 1
    for tile in tiles[:2]:
        check_tile("gpu.box_splits", p, tile, target)


def test_a_box_has_the_blocks_of_a_step() -> None:
    """One box has four blocks of 32 channels. A filter that is read often is copied first."""
    whole = layer("64x256x14x14", "256x256x3x3", "NCHW32", padding=1, epilogue=STEPS)
    template = TEMPLATES["gpu.box_products"]
    for p, copies in ((whole, 1), (whole.replace(batch=1), 0)):
        tile = template.candidates(p, HOPPER)[0]
        module = module_of(template.name, p, tile)
        text, box = str(module), "x".join(map(str, tile.box))
        assert len(module.funcs) == 1 + copies
        assert f"tma_load_int8_4x{box}x32_s32" in text
        # Rows of a filter that is copied come in the order in which threads store results.
        rows = r"((?:\d+x)+)128_s128" if copies else r"4x(\d+x)32_s32"
        found = re.search(rf"tma_load_int8_{rows}", text)
        assert found is not None
        assert math.prod(map(int, found[1].split("x")[:-1])) == tile.channels
        assert "wgmma_m64n" in text


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", LAYERS[6:7] + LAYERS[11:12], ids=str)
def test_they_compile_for_hopper(p: Conv) -> None:
    for template in (t for t in templates(p, HOPPER) if "box" in t.name):
        tile = template.candidates(p, HOPPER)[0]
        assert "IGMMA" in built(template.name, p, tile, HOPPER).assembly


def test_without_measuring_they_are_chosen_on_hopper() -> None:
    for p in LAYERS:
        assert choose(p, HOPPER).algorithm.name != "gpu.loops"
    uneven = layer("2x64x9x7", "12x32x3x3", "NHWC", 2, padding=1, out_layout="NCHW4")
    assert suited(uneven) is not None
    assert suited(layer("2x64x9x7", "64x32x3x3", "NCHW32", 2).replace(groups=1)) is not None


@pytest.mark.parametrize("layouts", [("NCHW4", "NCHW32"), ("NHWC", "NCHW"), ("NCHW", "NHWC")])
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_depthwise_results_may_lie_otherwise(target: str, layouts: tuple[str, str]) -> None:
    p = Conv.parse("2x32x6x5", "32x1x3x3", padding=1, dtype="uint8", layout=layouts[0],
                   out_layout=layouts[1], epilogue=STEPS, out_dtype="int8")  # fmt: skip
    check(choose(p, target).build(), p)


@pytest.mark.parametrize("p", [LAYERS[11], LAYERS[14]], ids=str)
def test_a_filter_is_copied_once_for_all_calls(p: Conv) -> None:
    machine, given = Target.parse("sim"), p.replace(constants=("filter",))
    for name in ("gpu.box_products", "gpu.byte_products"):
        algorithm = Scheduled(TEMPLATES[name])
        tile = algorithm.candidates(p, machine)[0]
        assert algorithm.kernel(given, tile, machine).preparation is not None
        arrays = inputs(p, 1)
        call = Choice(given, machine, algorithm, tile).prepare(arrays.pop("filter"))
        for _ in range(2):
            y = np.zeros(*p.result)
            call(*arrays.values(), y)
            assert (y == reference(p, inputs(p, 1))).all()


def test_what_is_prepared_is_counted() -> None:
    p = layer("1x8x5x5", "8x8x3x3", "NHWC", constants=("filter",), epilogue="bias")
    arrays = inputs(p, 0)
    choice = choose(p, "llvm")
    y = np.zeros(*p.result)
    choice.prepare(arrays["filter"])(arrays["data"], arrays["bias"], y)
    assert (y == reference(p, arrays)).all()
    with pytest.raises(SelectError, match=r"has 1 constants \(filter\), got 0"):
        choice.prepare()
    with pytest.raises(SelectError, match=r"has 3 other arrays \(data, bias, result\), got 2"):
        choice.prepare(arrays["filter"])(arrays["data"], y)


def test_a_layout_of_results_is_part_of_a_problem() -> None:
    """Of its record, key and traits; that of images is not said."""
    p = layer("2x64x9x7", "64x64x3x3", "NHWC", padding=1, epilogue=STEPS)
    q = p.replace(out_layout="NCHW32", out_dtype="uint8")
    assert Conv.from_dict(q.to_dict()) == q
    assert q.key != p.key
    assert q.name != p.name
    assert q.traits().same != p.traits().same
    assert p.replace(out_layout="NHWC", out_dtype="int8") == p
    assert "out_layout" not in p.to_dict()
    assert q.replace(epilogue="bias").out_dtype == ""
    assert q.inputs()["residual"] == q.result == ((2, 2, 9, 7, 32), "uint8")


def test_blocks_of_whole_boxes_begin_where_tma_may_write() -> None:
    p = Conv.parse((64, 128, 59, 30), (256, 128, 2, 2), 1, padding=1, dtype="int8",
                   layout="NCHW32", epilogue="bias+dequantize+quantize(0.25,5)")  # fmt: skip
    tiles = TEMPLATES["gpu.whole_boxes"].candidates(p, Target.parse(HOPPER))
    for box in dict.fromkeys(t.box for t in tiles):  # of 2 images 9 by 9 pixels are 162 times 32
        assert math.prod((box[0], box[1] + 1, box[2] + 1)) * 32 % ALIGN == 0
    assert lowered("gpu.whole_boxes", p, tiles[0], HOPPER)
