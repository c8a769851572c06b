"""Convolutions and products on a CPU that multiplies tiles: right by every tile, in every type."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.support.amx_emulator import emulated, emulates, has_tiles, with_tiles
from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only
from tests.support.dense import convolution, product
from tests.support.depthwise import TOLERANCE, run
from tests.support.quantized import check, inputs, reference

import tilewright
from tilewright import te
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.nn.matrix_tiles import declare_matrix_tiles
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.matrix_tiles import BandTile, schedule_matrix_tiles
from tilewright.topi.templates import TEMPLATES, templates

MACHINE = Target.parse("llvm -arch=amx")
TILES = TEMPLATES["cpu.matrix_tiles"]
STEPS = "bias+dequantize+relu+quantize(9,-5)"

#: Results that fill no tile, or are one; channels that fill none and several; strides, padding on
#: either side, more than the filter, and none; taps that are joined; phases of gradients; images of
#: one to three dimensions, in both layouts; groups; matrices either way.
CASES = [
    (Conv.parse((2, 7, 13, 9), (37, 7, 3, 2), 1, padding=(1, 0, 2, 1), stride=2, dtype="int8",
                layout="NHWC"), BandTile()),
    (Conv.parse((2, 64, 7, 11), (96, 64, 3, 3), 1, padding=1, dtype="bfloat16", layout="NHWC",
                epilogue="bias+relu"), BandTile(2, 2, 3, 2)),
    (Conv.parse((1, 70, 7, 11), (33, 70, 3, 3), 1, padding=2, dilation=2, dtype="uint8",
                epilogue=STEPS.replace("-5", "5")), BandTile(1, 4, 2)),
    (Conv.parse((2, 64, 7, 11), (96, 64, 1, 1), 1, padding=1, stride=2, dtype="uint8"),
     BandTile(4, 1, 1, 3)),
    (Conv.parse((3, 64, 8, 8), (10, 64, 1, 1), 1, dtype="int8", layout="NHWC", epilogue=STEPS),
     BandTile(1, 1, 3)),
    (Conv.parse((1, 33, 1, 1), (129, 33, 1, 1), 1, dtype="bfloat16"), BandTile(1, 2)),
    (Conv.parse((3, 6, 33), (20, 6, 5), 1, padding=(4, 0), dtype="int8", layout="NWC"),
     BandTile(3, 1)),
    (Conv.parse((1, 64, 9, 7), (48, 32, 3, 3), 2, padding=1, dtype="bfloat16", layout="NHWC"),
     BandTile(6, 1, 2)),
    (Conv.parse((2, 5, 9, 8), (7, 5, 3, 3), 1, padding=(0, 3, 2, 1), stride=2, pass_="dgrad",
                dtype="bfloat16"), BandTile(2, 2, 1)),
    (Conv.parse((1, 48, 8, 9), (36, 48, 1, 4), 1, stride=2, pass_="dgrad", dtype="bfloat16",
                layout="NHWC"), BandTile(1, 2, 2)),
    (Conv3d.parse((1, 12, 4, 5, 6), (16, 12, 3, 1, 2), padding=1, dtype="int8", layout="NDHWC"),
     BandTile(2, 1, 2)),
    (Conv3d.parse((1, 5, 3, 4, 7), (19, 5, 2, 3, 2), padding=(0, 1, 2, 1, 2, 0), stride=(1, 2, 3),
                  dtype="bfloat16"), BandTile()),
    (Conv.parse((2, 3, 13, 9), (37, 3, 7, 7), 1, padding=3, stride=2, dtype="bfloat16",
                layout="NHWC", epilogue="bias+relu"), BandTile(4, 1, 2)),
    (Conv.parse((1, 5, 13, 19), (37, 5, 3, 4), 1, padding=(1, 0, 2, 1), stride=(1, 3),
                dtype="uint8"), BandTile(1, 1, 7)),
    (Gemm(m=41, n=48, k=130, transpose_b=True, dtype="bfloat16", epilogue="bias"), BandTile()),
    (Gemm(m=1, n=5, k=3, transpose_a=True, dtype="uint8"), BandTile(1, 1, 1)),
    (Gemm(m=100, n=160, k=64, dtype="int8", epilogue=STEPS), BandTile(1, 4, 2, 2)),
]  # fmt: skip


def scheduled(p: Problem, tile: BandTile, batch: Any = None) -> tuple[Any, list[Any]]:
    d = declare_matrix_tiles(p, batch)  # type: ignore[arg-type]
    return schedule_matrix_tiles(d, tile), d.args


def verify(kernel: Any, p: Any) -> None:
    """Integers exactly, floats by a relative error norm against float64."""
    if p.is_quantized:
        check(kernel, p)
    else:
        exact = product if isinstance(p, Gemm) else convolution
        assert run(p, kernel, exact=exact) < TOLERANCE[p.dtype]


@pytest.mark.spread
@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_products_are_right_with_and_without_tiles(p: Any, tile: BandTile) -> None:
    kernel = tilewright.build(*scheduled(p, tile), "llvm -threads=2")
    verify(kernel, p)
    assert ("\ttdp" in kernel.assembly) == has_tiles()
    if CASES.index((p, tile)) % 2 and (not p.is_quantized or p.epilogue):
        verify(tilewright.build(*scheduled(p, tile), "llvm -arch=baseline"), p)


@pytest.mark.spread
@emulates
@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_machine_code_with_tiles_computes_them(p: Any, tile: BandTile) -> None:
    kernel = with_tiles(*scheduled(p, tile))
    with emulated() as counts:
        verify(kernel, p)
    if not has_tiles():
        assert counts["multiplied"] > 0
        assert not counts["left"], "tiles are released"


@pytest.mark.parametrize("p", [
    Conv.parse((1, 40, 3, 4), (9, 40, 2, 1), 1, padding=1, dtype="int8", layout="NHWC"),
    Conv.parse((1, 5, 5, 4), (7, 5, 1, 2), 1, padding=1, stride=2, dtype="uint8"),
    Gemm(m=19, n=17, k=40, dtype="bfloat16"),
], ids=str)  # fmt: skip
def test_the_simulator_finds_nothing(p: Any) -> None:
    kernel = tilewright.build(*scheduled(p, BandTile(1, 1, 1)))
    arrays = inputs(p, 0) if p.is_quantized else {}
    rng = np.random.default_rng(0)
    for name, (shape, dtype) in p.inputs().items():  # whole numbers of few bits are bfloat16's
        if dtype == "bfloat16":
            whole = rng.integers(-2, 3, shape).astype("f4")
            arrays[name] = (whole.view("u4") >> 16).astype("u2")
    found = np.zeros(p.result.shape, "uint16" if p.result.dtype == "bfloat16" else p.result.dtype)
    wanted = found.copy()
    report = kernel.simulate(*arrays.values(), found)
    assert report.ok, str(report)
    kernel(*arrays.values(), wanted)
    np.testing.assert_array_equal(found, wanted)
    if p.is_quantized:
        np.testing.assert_array_equal(found, reference(p, arrays))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_largest_sums_are_exact(dtype: str) -> None:
    p = Gemm(m=3, n=17, k=2048, dtype=dtype)
    a = np.full((3, 2048), -128 if dtype == "int8" else 255, dtype)
    b = np.where(np.arange(17) % 2, -128, 127)[None].repeat(2048, 0).astype("int8")
    found = np.zeros((3, 17), "int32")
    tilewright.build(*scheduled(p, BandTile()))(a, b, found)
    np.testing.assert_array_equal(found, a.astype("int64") @ b.astype("int64"))


def test_one_kernel_serves_every_batch() -> None:
    p = Conv.parse((3, 40, 6, 6), (24, 40, 3, 3), 1, padding=1, dtype="int8", layout="NHWC")
    kernel = tilewright.build(*scheduled(p, BandTile(), te.var("n")))
    for batch in (1, 5):
        check(kernel, p.replace(batch=batch))
    kernel(np.zeros((0, 6, 6, 40), "int8"), np.zeros(p.filter_shape, "int8"),
           np.zeros((0, 6, 6, 24), "int32"))  # fmt: skip


@x86_only
@pytest.mark.parametrize(("p", "product"), [
    (Conv.parse((1, 64, 14, 14), (64, 64, 3, 3), 1, padding=1, dtype="int8", layout="NHWC"),
     "tdpbssd"),
    (Conv.parse((1, 192, 16, 16), (64, 192, 1, 1), 1, dtype="uint8", layout="NHWC"), "tdpbusd"),
    (Conv.parse((1, 3, 32, 32), (64, 3, 7, 7), 1, stride=2, dtype="int8", layout="NHWC"),
     "tdpbssd"),
    (Gemm(m=128, n=64, k=256, dtype="bfloat16"), "tdpbf16ps"),
], ids=str)  # fmt: skip
def test_sums_stay_in_tiles_for_all_taps(p: Any, product: str) -> None:
    for down, across in ((2, 2), (4, 1), (1, 4), (6, 1)):
        text = machine_code(*scheduled(p, BandTile(down, across)), SAPPHIRE_RAPIDS)
        loops = re.split(r"^\.L\w+:", text[: text.index("-- End function")], flags=re.MULTILINE)
        busy = [loop[: loop.index("\n\tj")] for loop in loops if product in loop]
        assert busy
        for loop in busy:
            found = re.findall(r"\t(tile\w+|tdp\w+)", loop)
            assert found.count(product) == down * across
            assert found.count("tileloadd") == down + across
            assert "tilestored" not in found, "no sum is spilled"


@x86_only
def test_they_are_what_a_processor_with_tiles_gets_and_no_other(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    p = Conv.parse((1, 128, 28, 28), (128, 128, 3, 3), 1, padding=1, dtype="int8", layout="NHWC")
    floats = p.replace(dtype="bfloat16", accumulate="")
    for problem in (p, floats):
        assert str(choose(problem, MACHINE)).startswith(TILES.name)
        for other in ("llvm -arch=avx512", "llvm -arch=baseline", "cuda -arch=sm_90a"):
            assert TILES not in templates(problem, other)
    for other in (p.replace(dtype="float32", accumulate=""), floats.replace(pass_="wgrad"),
                  floats.replace(accumulate="float64"),
                  Conv.parse((1, 64, 9, 9), (64, 2, 3, 3), 32, dtype="int8")):  # fmt: skip
        assert not TILES.fits(other, MACHINE)
