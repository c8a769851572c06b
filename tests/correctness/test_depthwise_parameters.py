"""Each parameter of a problem does what its name says, in the library's schedules."""

from __future__ import annotations

import re
from itertools import cycle

import numpy as np
import pytest
from tests.support.depthwise import (
    TOLERANCE,
    decode,
    poison,
    random_inputs,
    reference,
    relative_error,
    run,
)
from tests.support.wide_problems import STEPS

import tilewright
from tilewright.ir.errors import ArgumentError
from tilewright.topi import Conv
from tilewright.topi.epilogue import STEPS as KNOWN
from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv import LAYOUTS
from tilewright.topi.templates import default_schedule

TARGETS = ["llvm", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
IMAGES = LAYOUTS["depthwise_conv2d"]
SERIES = LAYOUTS["depthwise_conv1d"]


def _kernel(p: Conv, target: str) -> tilewright.Kernel:
    found, schedule = default_schedule(p, target)
    return tilewright.build(schedule, found.args, target)


def _error(p: Conv, target: str) -> float:
    return run(p, _kernel(p, target), device="cuda" if target == "cuda" else "cpu")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", SERIES)
def test_a_causal_output_sees_nothing_that_comes_later(layout: str, target: str) -> None:
    p = Conv.parse("2x5x40", "5x1x4", padding="CAUSAL", dilation=3, layout=layout)
    assert p.out_image == p.image
    kernel, arrays = _kernel(p, target), random_inputs(p, p.shapes())
    time = p.layout.index("W")
    results = []
    for future in (0.0, np.nan):
        np.moveaxis(arrays["data"], time, 0)[23:] = future
        out = poison(p)
        kernel(*arrays.values(), out)
        results.append(np.moveaxis(out, time, 0))
    np.testing.assert_array_equal(results[0][:23], results[1][:23])
    assert np.isnan(results[1][23:]).all()


def test_a_tensor_in_another_layout_is_an_error() -> None:
    p = Conv.parse("2x6x8x8", "6x1x3x3", padding=1)
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    arrays["data"] = np.ascontiguousarray(np.moveaxis(arrays["data"], 1, -1))
    arrays["data"] = np.moveaxis(arrays["data"], -1, 1)
    with pytest.raises(ArgumentError, match=r"data.*expected strides \[384, 64, 8, 1\]"):
        _kernel(p, "llvm")(*arrays.values(), out)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_every_filter_of_a_channel_counts(pass_: str, layout: str, target: str) -> None:
    p = Conv.parse("2x6x9x10", "6x3x3x3", padding=1, pass_=pass_, layout=layout)
    assert p.out_channels == 18
    assert _error(p, target) < TOLERANCE["float32"]


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [(1, 9), (2, 4), (51, 5)], ids=str)
@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_kernels_that_are_not_odd_squares(
    pass_: str, layout: str, kernel: tuple[int, int], target: str
) -> None:
    p = Conv.parse((1, 4, 13, 12), (4, 1, *kernel), padding="SAME", pass_=pass_, layout=layout)
    assert p.out_image == p.image
    assert _error(p, target) < TOLERANCE["float32"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("step", "layout"), list(zip(STEPS, cycle(IMAGES), strict=False)))
def test_an_epilogue_in_the_kernel(step: str, layout: str, target: str) -> None:
    p = Conv.parse("1x8x7x8", "8x1x3x3", padding=1, layout=layout, epilogue=step)
    assert _error(p, target) < TOLERANCE["float32"]
    found, schedule = default_schedule(p, target)
    assert len(tilewright.lower(schedule, found.args, target).funcs) == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", IMAGES)
def test_a_wide_normalisation_reads_float32_beside_16_bits(
    layout: str, dtype: str, target: str
) -> None:
    p = Conv.parse("1x8x7x8", "8x1x3x3", padding=1, layout=layout, dtype=dtype)
    p = p.replace(epilogue="bias+wide_batch_norm(0.01)+silu")
    assert list(p.dtypes().values()) == [dtype] * 3 + ["float32"] * 4
    assert p.bytes == p.replace(epilogue="bias").bytes + 4 * 4 * 8
    assert _error(p, target) < TOLERANCE[dtype]


def test_every_epilogue_is_tested() -> None:
    of_integers = {"dequantize", "quantized_residual", "quantize"}  # test_quantized.py has these
    assert {Step.parse(text).name for text in STEPS} | of_integers == set(KNOWN)


@pytest.mark.parametrize("target", TARGETS)
def test_an_epilogue_keeps_what_is_not_a_number(target: str) -> None:
    p = Conv.parse("1x4x1x2", "4x1x1x1", layout="NHWC")
    data = np.repeat(np.array([np.nan, 100.0], "float32").reshape(1, 1, 2, 1), 4, axis=3)
    arrays = {"data": data, "filter": np.ones(p.filter_shape, "float32")}
    for step in STEPS:
        if Step.parse(step).tensors:
            continue
        q, out = p.replace(epilogue=step), np.zeros(p.result_shape, "float32")
        _kernel(q, target)(*arrays.values(), out)
        assert np.isnan(out[0, 0, 0]).all(), step
        np.testing.assert_allclose(out[0, 0, 1], reference(q, arrays)[0, 0, 1], rtol=1e-5)


HALVES = ["float16", "bfloat16"]


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_sums_in_half_precision_where_the_caller_allows_them(
    pass_: str, layout: str, dtype: str, target: str
) -> None:
    p = Conv.parse(
        "1x16x8x8", "16x1x3x3", padding=1, pass_=pass_, layout=layout, dtype=dtype,
        accumulate=dtype, precision="half",
    )  # fmt: skip
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    _kernel(p, target)(*arrays.values(), out)
    terms = 64 if pass_ == "wgrad" else 9
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[dtype] * terms**0.5
    assert not np.isnan(decode(out)).any()


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("layout", "dtype"), list(zip(IMAGES, cycle(HALVES))))
def test_half_precision_is_packed_two_by_two(layout: str, dtype: str) -> None:
    p = Conv.parse(
        "8x64x32x32", "64x1x3x3", padding=1, layout=layout, dtype=dtype, accumulate=dtype,
        precision="half",
    )  # fmt: skip
    text = _kernel(p, "cuda -arch=sm_90a").assembly
    assert len(re.findall(r"\bHFMA2", text)) > 9
    assert not re.search(r"\bFFMA\b", text)
    text = _kernel(p.replace(dtype=dtype, precision="exact"), "cuda -arch=sm_90a").assembly
    assert re.search(r"\bFFMA\b", text)
    assert not re.search(r"\bHFMA2\.\S* R\d+, R\d+, R\d+, R\d+", text)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("layout", IMAGES)
def test_a_weight_gradient_on_a_gpu_adds_in_a_fixed_order(layout: str) -> None:
    p = Conv.parse("8x32x28x28", "32x1x3x3", padding=1, pass_="wgrad", layout=layout)
    assert p.deterministic
    text = _kernel(p, "cuda -arch=sm_90a").assembly
    assert "FFMA" in text
    assert not re.search(r"\b(ATOM|ATOMS|ATOMG|RED)\b", text)  # nobody adds to memory of others


@pytest.mark.needs_cuda
@pytest.mark.parametrize("layout", IMAGES)
def test_a_weight_gradient_on_a_gpu_is_the_same_in_every_run(layout: str) -> None:
    p = Conv.parse("64x32x56x56", "32x1x3x3", padding=1, pass_="wgrad", layout=layout)
    kernel, arrays = _kernel(p, "cuda"), random_inputs(p, p.shapes())
    results = set()
    for _ in range(10):
        out = poison(p)
        kernel(*arrays.values(), out)
        results.add(out.tobytes())
    assert len(results) == 1


@pytest.mark.needs_cuda
@pytest.mark.needs_torch
@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("pass_", Conv.PASSES)
def test_tensors_of_more_than_two_to_the_31_elements(pass_: str, layout: str) -> None:
    """Of 33 images the first and the last are compared; in a weight gradient the others are 0."""
    import torch
    from torch.nn import grad as gradients

    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("the device has less than 24 GB to spare")
    ends = [0, 32]
    p = Conv.parse(
        "33x64x1024x1024", "64x1x3x3", padding=1, pass_=pass_, layout=layout, dtype="float16"
    )
    torch.manual_seed(0)
    shapes = p.shapes()
    arrays = {n: torch.randn(s, device="cuda", dtype=torch.float16) for n, s in shapes.items()}
    assert max(a.numel() for a in arrays.values()) > 2**31
    if pass_ == "wgrad":
        arrays["data"][1:32] = 0
    out = torch.full(p.result_shape, torch.nan, device="cuda", dtype=torch.float16)
    _kernel(p, "cuda")(*arrays.values(), out)

    def planes(x: torch.Tensor) -> torch.Tensor:
        taken = x[ends].double()
        return taken.permute(0, 3, 1, 2) if p.layout.endswith("C") else taken

    images = {n: planes(a) for n, a in arrays.items() if n != "filter"}
    setting = dict(padding=1, groups=64)
    if pass_ == "wgrad":
        x, dy = images["data"], images["grad"]
        wanted = gradients.conv2d_weight(x, (64, 1, 3, 3), dy, **setting)
        found = out.double()
    else:
        w = arrays["filter"].double()
        if pass_ == "forward":
            wanted = torch.nn.functional.conv2d(images["data"], w, **setting)
        else:
            dy = images["grad"]
            wanted = gradients.conv2d_input(dy.shape, w, dy, **setting)
        found = planes(out)
    error = torch.linalg.vector_norm(found - wanted) / torch.linalg.vector_norm(wanted)
    assert float(error) < TOLERANCE["float16"]
