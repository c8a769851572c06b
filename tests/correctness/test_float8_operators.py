"""Convolutions and products of floats of 8 bits: by every schedule, and from PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.support.dense import convolution, product
from tests.support.narrow import error_of_float8, to_bits

import tilewright
from tilewright.ir.errors import ProblemError
from tilewright.runtime import array
from tilewright.runtime.sass import opcodes
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.thread_order import leaves_directly
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, candidates

TARGETS = ["llvm", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
HOPPER = "cuda -arch=sm_90a"
#: What rounding a result costs, by its type.
ROUNDED = {"float32": 1e-6, "float16": 5e-4, "bfloat16": 4e-3}


LAYERS: tuple[Problem, ...] = (
    Conv.parse((2, 32, 9, 9), (16, 32, 3, 3), 1, padding=(1, 0, 2, 1), dtype="float8_e4m3fn",
               layout="NHWC", epilogue="dequantize+bias+relu", out_dtype="float16"),
    Conv.parse((1, 5, 9, 7), (7, 5, 3, 2), 1, stride=2, dtype="float8_e5m2"),
    Conv.parse((1, 64, 6, 9), (32, 16, 3, 3), 4, padding=1, dtype="float8_e4m3fn", layout="NHWC",
               epilogue="residual+silu", out_dtype="float32"),
    Conv.parse((1, 8, 9, 9), (8, 1, 3, 3), padding=1, dtype="float8_e4m3fn", layout="NHWC"),
    Conv.parse((1, 16, 9), (8, 16, 3), 1, padding=1, dtype="float8_e5m2", layout="NWC"),
    Conv3d.parse((1, 4, 3, 5, 6), (6, 4, 3, 3, 1), padding=1, dtype="float8_e4m3fn"),
    Conv3d.parse((1, 32, 3, 5, 6), (16, 32, 3, 3, 1), padding=1, dtype="float8_e4m3fn",
                 layout="NDHWC"),
    Gemm(m=33, n=40, k=70, dtype="float8_e4m3fn", transpose_b=True, epilogue="dequantize+bias"),
    Gemm(m=5, n=17, k=9, dtype="float8_e5m2", transpose_a=True, out_dtype="float16"),
    Gemm(m=5, n=7, k=9, batch=3, dtype="float8_e4m3fn", out_dtype="float32"),
    Gemm(m=1, n=1, k=1, dtype="float8_e4m3fn"),
)  # fmt: skip


def relative_error(kernel: Any, p: Problem, target: str = "cpu") -> float:
    """Of a result in memory full of NaN, against float64."""
    exact: Any = product if isinstance(p, Gemm) else convolution
    return error_of_float8(p, kernel, exact, device="cuda" if "cuda" in target else "cpu")


def test_a_result_that_is_not_written_is_wrong_by_any_measure() -> None:
    for p in (LAYERS[1], LAYERS[5].replace(epilogue="wide_batch_norm(1e-05)")):
        assert relative_error(lambda *arrays: None, p) == math.inf


@pytest.mark.parametrize("p", LAYERS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_what_nobody_tuned_has_a_choice(
    p: Problem, target: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    error = relative_error(choose(p, target).build(), p, target)
    # Hopper's tensor cores keep fewer digits of sums of such products than float32 has.
    assert error < (5e-3 if target == "cuda" else ROUNDED[p.result.dtype])


@pytest.mark.spread
@pytest.mark.parametrize("p", LAYERS[:3] + LAYERS[6:8], ids=str)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_every_schedule_computes_the_same(p: Problem, target: str) -> None:
    seen = set()
    for template, tile in candidates(p, target):
        if template.name not in seen:
            seen.add(template.name)
            d = template.declare(p, tile)
            kernel = tilewright.build(template.schedule(d, tile), d.args, target)
            assert relative_error(kernel, p) < ROUNDED[p.result.dtype], template.name
    assert len(seen) > 1


def test_sums_of_tensor_cores_leave_from_registers() -> None:
    p = Conv.parse((1, 32, 5, 9), (40, 32, 3, 3), 1, padding=1, dtype="float8_e4m3fn",
                   layout="NHWC", precision="half", epilogue="bias+relu")  # fmt: skip
    template, tile = TEMPLATES["gpu.whole_boxes"], BoxProductTile(1, 8, 8, 64, 1)
    d = template.declare(p, tile)
    assert leaves_directly(d, tile)
    kernel = tilewright.build(template.schedule(d, tile), d.args, "sim")
    assert relative_error(kernel, p) < ROUNDED[p.result.dtype]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "p"),
    [
        ("gpu.box_products",
         Conv.parse((64, 128, 28, 28), (128, 128, 3, 3), 1, padding=1, dtype="float8_e4m3fn",
                    layout="NHWC", epilogue="dequantize+bias+relu", out_dtype="float16")),
        ("gpu.whole_boxes",
         Conv.parse((64, 64, 56, 56), (64, 64, 3, 3), 1, padding=1, dtype="float8_e5m2",
                    layout="NHWC")),
        ("gpu.whole_boxes",
         Conv.parse((64, 64, 56, 56), (256, 64, 1, 1), 1, dtype="float8_e4m3fn", layout="NHWC",
                    epilogue="bias+relu+quantize(0.1)", out_dtype="float8_e4m3fn")),
        ("gpu.whole_boxes",  # of a copy, in vectors
         Conv.parse((64, 3, 56, 56), (64, 3, 7, 7), 1, stride=2, padding=3,
                    dtype="float8_e4m3fn", layout="NHWC")),
        ("gpu.box_splits",
         Conv.parse((1, 512, 7, 7), (512, 512, 3, 3), 1, padding=1, dtype="float8_e4m3fn",
                    layout="NHWC")),
        ("gpu.box_products",
         Gemm(m=4096, n=4096, k=4096, dtype="float8_e4m3fn", transpose_b=True,
                precision="half")),
    ],
    ids=str,
)  # fmt: skip
def test_hoppers_tensor_cores_multiply_without_spills(name: str, p: Problem) -> None:
    template = TEMPLATES[name]
    tile = template.candidates(p, Target.parse(HOPPER))[0]
    d = template.declare(p, tile)
    program = tilewright.build(template.schedule(d, tile), d.args, HOPPER).program
    kind = "E4M3.E4M3" if p.dtype == "float8_e4m3fn" else "E5M2.E5M2"
    found = opcodes(program.assembly)
    assert any(op.startswith("QGMMA.64x") and kind in op for op in found), sorted(found)
    assert all(used.spills == 0 for used in program.resources.values())
    # Threads add what tensor cores added in a step, each 64 by 64 of a warpgroup's results.
    added = sum(n for op, n in found.items() if op.startswith("FADD"))
    assert (added >= tile.channels // 2) == (p.precision == "exact")


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("arch", "p"), [
    ("sm_80", LAYERS[0]),  # and one whose rows are loaded in vectors
    ("sm_89", Gemm(m=256, n=256, k=256, batch=2, transpose_b=True, dtype="float8_e5m2")),
], ids=str)  # fmt: skip
def test_other_gpus_multiply_in_float16(arch: str, p: Problem) -> None:
    template, tile = next(iter(candidates(p, f"cuda -arch={arch}")))
    d = template.declare(p, tile)
    kernel = tilewright.build(template.schedule(d, tile), d.args, f"cuda -arch={arch}")
    assert "__nv_cvt_fp8_to_halfraw" in kernel.source
    found = opcodes(kernel.program.assembly)
    assert any(op.startswith("HMMA.16816.F32") for op in found), sorted(found)


#: By schedules of boxes, of warps and of elements; results beyond the largest number are that.
NARROW: tuple[Problem, ...] = (
    Conv.parse((2, 32, 9, 9), (16, 32, 3, 3), 1, padding=1, dtype="float8_e4m3fn", layout="NHWC",
               epilogue="dequantize+bias+relu+quantize(0.25)", out_dtype="float8_e4m3fn"),
    Conv.parse((1, 5, 9, 7), (7, 5, 3, 2), 1, stride=2, dtype="float8_e5m2",
               out_dtype="float8_e4m3fn"),
    Conv.parse((1, 8, 9, 9), (8, 1, 3, 3), padding=1, dtype="float8_e4m3fn", layout="NHWC",
               epilogue="quantize(8)", out_dtype="float8_e5m2"),
    Gemm(m=33, n=40, k=64, dtype="float8_e4m3fn", transpose_b=True, epilogue="bias+residual",
         out_dtype="float8_e4m3fn"),
)  # fmt: skip


@pytest.mark.parametrize("p", NARROW, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_results_of_8_bits_are_rounded_once_and_saturate(p: Problem, target: str) -> None:
    """With integers for factors sums are exact, and so is each result but for its rounding."""
    rng = np.random.default_rng(0)
    given, numbers = [], {}
    for name, (shape, kind) in p.inputs().items():
        made = rng.integers(-4, 5, shape).astype("float32")
        if name == "sum_scale":
            made = 2.0 ** rng.integers(-3, 2, shape).astype("float32")
        numbers[name] = made
        given.append(array(made, "cuda" if target == "cuda" else "cpu", kind))
    kind = p.result.dtype
    result = array(np.full(p.result.shape, np.nan, "float32"), given[0].device, kind)
    template = choose(p, target)
    template.build()(*given, result)
    wanted: Any = (product if isinstance(p, Gemm) else convolution)(p, numbers)
    assert (result.numpy().view("uint8") == to_bits(wanted.astype("float32"), kind)).all()


def test_results_of_8_bits_have_tensors_in_the_type_of_sums() -> None:
    assert NARROW[0].inputs()["bias"].dtype == "float32"
    assert NARROW[3].inputs()["residual"].dtype == "float32"
    for epilogue in ("quantize(1)+relu", "quantize(1, 3)", "quantized_residual(1)"):
        with pytest.raises(ProblemError, match="without a zero point"):
            NARROW[1].replace(epilogue=epilogue)
    with pytest.raises(ProblemError, match="where out_dtype is float8"):
        NARROW[0].replace(out_dtype="float16")
