"""Convolutions and products of 8-bit integers: the same bits by every schedule, everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.quantized import check, inputs, reference, result

import tilewright
from tilewright import te
from tilewright.cli._measure.onnx import Unsupported, session
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.cpu.candidates import features
from tilewright.topi.nn.depthwise_byte_dots import DotDeclaration
from tilewright.topi.pieces.pixel_boxes import BoxTile
from tilewright.topi.templates import TEMPLATES, candidates, default_schedule, templates

TARGETS = [
    "llvm", "llvm -arch=avx2", "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
]  # fmt: skip


LAYERS = (
    Conv.parse((1, 16, 9, 7), (24, 16, 1, 1), 1, dtype="int8", layout="NHWC"),
    Conv.parse((2, 5, 9, 7), (7, 5, 3, 3), 1, padding=(0, 1, 2, 1), stride=2, dtype="uint8"),
    Conv.parse((1, 12, 9, 9), (8, 3, 3, 3), 4, padding=1, dtype="int8",
               epilogue="bias+dequantize+relu+quantize(0.5,-3)"),
    Conv.parse((1, 12, 9, 9), (12, 1, 5, 5), padding=2, dtype="uint8", layout="NHWC",
               epilogue="bias+dequantize+quantized_residual(0.1,9)+hswish+quantize(0.5,3)"),
    Conv.parse((2, 8, 5, 6), (12, 8, 3, 3), 1, padding=1, dtype="int8", layout="NCHW4",
               epilogue="bias+dequantize+quantized_residual(2,-5)+relu+quantize(9)"),
    Conv.parse((1, 64, 5, 6), (64, 1, 3, 3), padding=1, stride=2, dtype="uint8", layout="NCHW32"),
    Conv3d.parse((1, 4, 3, 5, 6), (6, 4, 3, 3, 1), padding=1, dtype="int8",
                 epilogue="dequantize+leaky_relu"),
    Gemm(m=5, n=33, k=70, transpose_b=True, dtype="uint8", epilogue="bias"),
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", LAYERS, ids=str)
def test_what_nobody_tuned_has_a_choice(p, target, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    check(choose(p, target).build(), p)


#: Channels that fill no four, no vector, and whole ones, which are packed by words; windows of
#: single pixels and others; results that fill no tile.
BYTES = (
    Conv.parse((2, 7, 13, 9), (37, 7, 3, 2), 1, padding=(1, 0, 2, 1), stride=2, dtype="int8",
               layout="NHWC"),
    Conv.parse((1, 64, 7, 11), (96, 64, 3, 3), 1, padding=2, dilation=2, dtype="int8",
               layout="NHWC", epilogue="bias+dequantize+quantize(90,7)"),
    Conv.parse((2, 64, 7, 11), (96, 64, 1, 1), 1, padding=1, stride=2, dtype="uint8"),
    Conv.parse((3, 6, 33), (20, 6, 5), 1, padding=(4, 0), dtype="int8", layout="NWC"),
    Conv3d.parse((1, 12, 4, 5, 6), (16, 12, 3, 1, 2), padding=1, dtype="int8", layout="NDHWC"),
    Conv.parse((1, 32, 9, 7), (128, 8, 3, 3), 4, padding=1, dtype="int8", layout="NHWC"),
    Conv.parse((1, 32, 9, 7), (32, 4, 3, 3), 8, padding=1, stride=2, dtype="uint8"),
    Conv.parse((1, 32, 9, 7), (16, 2, 1, 1), 16, dtype="int8", layout="NHWC", epilogue="bias"),
    Gemm(m=41, n=48, k=128, transpose_b=True, dtype="int8", epilogue="bias"),
    Gemm(m=1, n=5, k=3, transpose_a=True, dtype="uint8"),
)  # fmt: skip
NATIVE = Target.parse("llvm")
DOTS = TEMPLATES["cpu.byte_dots"]


@pytest.mark.skipif(not features(NATIVE) >= set(DOTS.features), reason="no VNNI")
@pytest.mark.parametrize("p", BYTES, ids=str)
def test_dot_products_of_bytes_are_exact_by_every_kind_of_tile(p):
    assert DOTS.fits(p, NATIVE)
    tiles = DOTS.candidates(p, NATIVE)
    for tile in {tiles[0], tiles[-1 if BYTES.index(p) % 2 else len(tiles) // 2]}:
        check(tilewright.build(*DOTS.scheduled(p, tile), "llvm"), p)


#: Groups of one word and of two, that are one and several to a vector, images raised or not.
GROUPED = (
    Conv.parse((2, 32, 9, 7), (32, 4, 3, 3), 8, padding=1, dtype="uint8", layout="NHWC",
               epilogue="bias+dequantize+relu+quantize(90,7)"),
    Conv.parse((1, 48, 11, 10), (48, 8, 3, 2), 6, padding=(0, 3, 2, 1), stride=(2, 1),
               dtype="int8", layout="NHWC",
               epilogue="dequantize+bias+quantized_residual(0.1)+quantize(0.05)"),
    Conv.parse((1, 16, 33), (16, 8, 5), 2, padding=(4, 0), dtype="int8", layout="NWC"),
    Conv3d.parse((1, 16, 4, 5, 6), (16, 4, 3, 1, 2), 4, padding=1, dtype="int8", layout="NDHWC"),
)  # fmt: skip
GROUPS = TEMPLATES["cpu.group_words"]


@pytest.mark.skipif(not features(NATIVE) >= set(GROUPS.features), reason="no VNNI")
@pytest.mark.parametrize("p", GROUPED, ids=str)
def test_words_of_groups_are_multiplied_exactly_by_every_kind_of_tile(p):
    assert choose(p, NATIVE).algorithm.name == GROUPS.name
    tiles = GROUPS.candidates(p, NATIVE)
    for tile in {tiles[0], tiles[-1], tiles[len(tiles) // 2]}:
        check(tilewright.build(*GROUPS.scheduled(p, tile), "llvm"), p)


#: Sums of more products than float32 has exactly: of taps, of channels, of a number of these that
#: has no divisor.
DEEP = (
    Conv.parse((1, 300, 5, 5), (9, 300, 3, 3), 1, padding=1, dtype="uint8", layout="NHWC"),
    Conv.parse((1, 2048, 2, 3), (16, 2048, 1, 1), 1, dtype="int8", layout="NHWC"),
    Conv.parse((1, 1031, 4, 3), (8, 1031, 2, 1), 1, dtype="uint8"),
)  # fmt: skip


@pytest.mark.parametrize("p", DEEP, ids=str)
def test_sums_of_bytes_in_float32_are_exact(p):
    flat = TEMPLATES["cpu.flat"]
    assert flat.fits(p, NATIVE)
    low = np.iinfo(p.dtype).min or 255
    x, w = np.full(p.input_shape, low, p.dtype), np.full(p.filter_shape, -128, "int8")
    w[..., 0, 0] += (np.arange(w[..., 0, 0].size) % 3).astype("int8").reshape(w[..., 0, 0].shape)
    for tile in flat.candidates(p, NATIVE)[:2]:
        kernel = tilewright.build(*flat.scheduled(p, tile), "llvm")
        check(kernel, p)
        arrays = {"data": x, "filter": w}
        assert (result(kernel, p, arrays) == reference(p, arrays)).all()


#: Channels of a GPU's vectors and of none, strides, windows of every size, several filters a
#: channel, sums of more taps than float32 has exactly.
DEPTHWISE = (
    Conv.parse((2, 32, 9, 7), (32, 1, 3, 3), padding=1, dtype="int8", layout="NHWC",
               epilogue="dequantize+bias+quantized_residual(0.1)+relu6+quantize(0.05)"),
    Conv.parse((1, 48, 11, 10), (48, 1, 5, 5), padding=(2, 1, 2, 3), stride=2, dtype="uint8",
               layout="NHWC", epilogue="bias+dequantize+quantize(60,3)"),
    Conv.parse((1, 13, 9, 8), (13, 1, 7, 7), padding=3, dtype="int8", layout="NHWC"),
    Conv.parse((2, 6, 7, 9), (6, 2, 3, 2), padding=1, stride=(1, 2), dilation=2, dtype="uint8",
               layout="NHWC", epilogue="bias+dequantize+quantize(9,1)"),
    Conv.parse((1, 16, 24, 23), (16, 1, 23, 23), padding=(0, 1, 0, 1), dtype="uint8",
               layout="NHWC"),
    Conv.parse((3, 20, 33), (20, 1, 5), padding=(4, 0), dtype="int8", layout="NWC"),
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", ["sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
@pytest.mark.parametrize("p", DEPTHWISE, ids=str)
def test_depthwise_convolutions_of_bytes_are_scheduled_as_those_of_floats(p, target):
    machine = Target.parse(target)
    for template in templates(p, machine):
        tiles = template.candidates(p, machine)
        for tile in [tiles[0], tiles[len(tiles) // 2]]:
            check(tilewright.build(*template.scheduled(p, tile), target), p)


#: Windows of one and two words, rows and columns that fill no tile, the last one of them odd.
WORDS = (
    (Conv.parse((2, 32, 9, 7), (32, 1, 3, 3), padding=1, dtype="int8", layout="NHWC",
                epilogue="dequantize+bias+relu+quantize(0.5)", constants=("filter",)),
     BoxTile(2, 4, 4, 2, 2, 4, turns=2, stages=2, keeps=1)),
    (Conv.parse((1, 48, 11, 10), (48, 1, 5, 5), padding=(2, 1, 2, 3), stride=2, dtype="uint8",
                layout="NHWC", epilogue="bias+dequantize+quantize(60,3)"),
     BoxTile(2, 3, 4, 1, 2, 8, keeps=1)),
    (Conv.parse((1, 16, 8, 9), (16, 1, 7, 7), padding=3, dtype="int8", layout="NHWC"),
     BoxTile(3, 2, 4, 1, 3, 4, keeps=0)),
    (Conv.parse((1, 80, 5, 7), (80, 1, 2, 4), padding=2, stride=(2, 1), dilation=(2, 1),
                dtype="uint8", layout="NHWC"),
     BoxTile(2, 8, 4, 1, 1, 12, keeps=1)),
)  # fmt: skip


@pytest.mark.parametrize("target", ["sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
@pytest.mark.parametrize(("p", "tile"), WORDS, ids=lambda x: str(x)[:60])
def test_depthwise_convolutions_of_bytes_are_dot_products_of_words(p, tile, target):
    template = TEMPLATES["gpu.pixel_tiles"]
    assert template.fits(p, Target.parse("cuda -arch=sm_90a"))
    d = template.declare(p, tile)
    assert isinstance(d, DotDeclaration)
    check(tilewright.build(template.schedule(d, tile), d.args, target), p)


@pytest.mark.parametrize("p", DEPTHWISE[:2], ids=str)
def test_depthwise_convolutions_of_bytes_have_the_schedules_of_channels_last(p):
    names = {t.name for t in templates(p, Target.parse("cuda -arch=sm_90a"))}
    assert names == {"gpu.pixels", "gpu.pixel_tiles", "gpu.loops"}
    assert choose(p, "cuda -arch=sm_90a").algorithm.name != "gpu.loops"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("target", TARGETS)
def test_results_saturate_and_ties_go_to_even(target, dtype):
    p = Gemm(m=1, n=1, k=1, dtype=dtype, epilogue="bias+dequantize+quantize(0.5,1)")
    kernel = choose(p, target).build()
    limits = np.iinfo(dtype)
    for total, scale, wanted in (
        (1, 0.25, 1), (3, 0.25, 3), (5, 0.25, 3), (7, 0.25, 5), (2**30, 1e30, limits.max),
        (-(2**30), 1e30, limits.min), (1, np.inf, limits.max), (0, np.inf, limits.min),
        (2 * limits.max - 2, 0.25, limits.max), (2 * limits.max - 1, 0.25, limits.max),
    ):  # fmt: skip
        one = np.zeros((1, 1), dtype), np.zeros((1, 1), "int8")
        bias, scales = np.array([total], "int32"), np.array([scale], "float32")
        y = np.zeros((1, 1), dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # as sim computes 0 * infinity
            kernel(*one, bias, scales, y)
        assert y[0, 0] == wanted, (total, scale)


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_function_is_within_one_of_the_reference(target):
    p = Conv.parse((1, 8, 9, 9), (16, 8, 3, 3), 1, dtype="int8",
                   epilogue="dequantize+silu+quantize(0.01,-20)")  # fmt: skip
    arrays = inputs(p, 0) | {"sum_scale": np.full(16, 1e-5, "float32")}
    found = result(choose(p, target).build(), p, arrays)
    assert abs(found.astype(int) - reference(p, arrays)).max() <= 1


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_onnx_runtimes_operator_is_within_one(dtype, last):
    if dtype == "uint8" and not features(NATIVE) >= set(DOTS.features):
        pytest.skip("without VNNI ONNX Runtime adds pairs of products of uint8 in 16 bits")
    p = Conv.parse((1, 8, 9, 9), (16, 4, 3, 3), 2, padding=(0, 1, 2, 1), stride=2, dtype=dtype,
                   epilogue="bias+dequantize+quantize(30,7)")  # fmt: skip
    arrays = inputs(p, 0)
    x = np.moveaxis(arrays["data"], 1, -1).copy() if last else arrays["data"]
    (y,) = session(p, arrays, 1, last).run(["y"], {"x": x})
    y = np.moveaxis(y, -1, 1) if last else y
    assert abs(y.astype(int) - reference(p, arrays)).max() <= 1
    with pytest.raises(Unsupported, match="silu"):
        session(p.replace(epilogue="dequantize+silu+quantize(1)"), arrays, 1)


@pytest.mark.parametrize("extents", [(16, 32), (19, 27)])
def test_the_largest_sums_of_a_channel_are_exact(extents):
    p = Conv.parse((1, 16, *extents), (16, 1, *extents), dtype="uint8", layout="NHWC")
    x, w = np.full(p.input_shape, 255, "uint8"), np.full(p.filter_shape, -128, "int8")
    w[0, 0, 0, 0] = -127
    for template, config in list(candidates(p, "llvm"))[:8]:
        kernel = tilewright.build(*template.scheduled(p, config), "llvm")
        check(kernel, p)
        found = result(kernel, p, {"data": x, "filter": w})
        assert (found[..., 1] == -255 * 128 * extents[0] * extents[1]).all()
        assert (found[..., 0] == found[..., 1] + 255).all()


def test_a_batch_of_any_size_may_be_empty():
    p = Conv.parse((3, 8, 9, 9), (16, 8, 3, 3), 1, dtype="int8", layout="NHWC",
                   epilogue="bias+dequantize+quantize(30)")  # fmt: skip
    template, config = next(iter(candidates(p, "llvm")))
    d = template.declare(p, config, te.var("n"))
    kernel = tilewright.build(template.schedule(d, config), d.args)
    check(kernel, p)
    arrays = inputs(p, 0) | {"data": np.zeros((0, 9, 9, 8), "int8")}
    kernel(*arrays.values(), np.zeros((0, 7, 7, 16), "int8"))


@pytest.mark.parametrize(("target", "adds", "joins"), [
    ("llvm -arch=avx2", "vadd", "vfmadd"),
    pytest.param("cuda -arch=sm_90a", "FADD", "", marks=pytest.mark.needs_nvrtc),
])  # fmt: skip
def test_products_are_rounded_before_they_are_added(target, adds, joins):
    p = Gemm(m=40, n=50, k=3, dtype="int8", epilogue="dequantize+scale_shift")
    declaration, schedule = default_schedule(p, target)
    text = tilewright.build(schedule, declaration.args, target).assembly
    assert adds in text
    assert not joins or joins not in text
