"""A scale of sums as one of the filter: the same results, of fewer instructions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, reference, run

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.topi import Conv
from tilewright.topi.declare import declare, declare_scaled
from tilewright.topi.pieces.register_tiles import StripTile
from tilewright.topi.sketches.registers import schedule_registers
from tilewright.topi.templates import TEMPLATES

#: A tile of each template that scales its filter, by layout.
TILES = {
    "NCHW": [("gpu.strips", (4, 4, 2, 4, 2, 3, 1)), ("gpu.strips", (4, 4, 2, 4, 2, 3, 0)),
             ("gpu.planes", (2, 4, 4, 2))],
    "NHWC": [("gpu.pixel_tiles", (3, 4, 2, 1, 2, 4, 1, 1, 0)),
             ("gpu.pixel_tiles", (3, 4, 2, 1, 2, 4, 2, 2, 1)),
             ("gpu.pixels", (2, 5, 2, 2, 4, 3, 2, 1, 1)),
             ("gpu.pixels", (2, 5, 2, 2, 4, 3, 0, 1, 1))],
}  # fmt: skip
CASES = [(layout, *tile) for layout, tiles in TILES.items() for tile in tiles]
EPILOGUES = ["scale_shift", "scale_shift+relu", "batch_norm(0.1)+silu", "wide_batch_norm(0.1)",
             "silu", "bias+silu+residual", "relu+silu"]  # fmt: skip


def build(p, template, parameters, target):
    chosen = TEMPLATES[template]
    config = chosen.config(*parameters)
    return tilewright.build(*chosen.scheduled(p, config), target)


@pytest.mark.spread
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(("layout", "template", "parameters"), CASES)
def test_results_are_as_right_as_of_scaled_sums(layout, template, parameters, epilogue):
    number = CASES.index((layout, template, parameters)) + EPILOGUES.index(epilogue)
    p = Conv.parse(
        (2, 16, 9, 9), (16, 1, 3, 3), padding=1, layout=layout, epilogue=epilogue,
        dtype=("float16", "float32")[number % 2],
    )  # fmt: skip
    assert run(p, build(p, template, parameters, "sim")) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(("layout", "template", "parameters"), CASES)
def test_they_are_the_same_bits_on_small_integers(layout, template, parameters):
    p = Conv.parse((2, 16, 9, 9), (16, 1, 3, 3), padding=1, layout=layout,
                      epilogue="scale_shift+relu")  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(-8, 9, shape).astype("float32") for name, shape in p.shapes().items()
    }
    out = poison(p)
    build(p, template, parameters, "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


def test_every_output_channel_of_an_input_channel_has_a_scale_of_its_own():
    p = Conv.parse((1, 4, 8, 8), (8, 1, 3, 3), padding=1, epilogue="scale_shift")
    assert p.multiplier == 2
    assert run(p, build(p, "gpu.strips", (4, 4, 2, 4, 1, 3, 0), "sim")) < TOLERANCE["float32"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 6e4])
def test_numbers_that_are_not_finite_spread_as_from_sums(value):
    p = Conv.parse((1, 16, 9, 9), (16, 1, 3, 3), padding=1, dtype="float16",
                      epilogue="scale_shift+relu")  # fmt: skip
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype("float16") for n, s in p.shapes().items()}
    arrays["data"][0, :, 4, 4] = value
    out = poison(p)
    build(p, "gpu.strips", (4, 4, 2, 4, 2, 3, 0), "sim")(*arrays.values(), out)
    with np.errstate(all="ignore"):
        right = reference(p, arrays).astype("float16")
    np.testing.assert_array_equal(np.isnan(out), np.isnan(right))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(right))


def test_sums_of_16_bits_are_scaled_themselves():
    p = Conv.parse((1, 4, 8, 8), (4, 1, 3, 3), dtype="float16", accumulate="float16",
                      precision="half", epilogue="scale_shift")  # fmt: skip
    assert [t.name for t in declare_scaled(p).sum.op.inputs] == ["data", "filter"]
    wide = p.replace(accumulate="float32")
    assert [t.name for t in declare(wide).sum.op.inputs] == ["data", "filter"]
    assert "ScaledFilter" in [t.name for t in declare_scaled(wide).sum.op.inputs]


def test_the_exponent_of_silu_is_a_scale_where_numbers_are_float16():
    p = Conv.parse((1, 4, 8, 8), (4, 1, 3, 3), epilogue="bias+silu")
    for dtype, scaled in {"float16": True, "bfloat16": False, "float32": False}.items():
        read = [t.name for t in declare_scaled(p.replace(dtype=dtype, accumulate="")).sum.op.inputs]
        assert ("ScaledFilter" in read) == scaled


@pytest.mark.needs_nvrtc
def test_a_result_takes_no_instruction_more_than_without():
    p = Conv.parse((64, 144, 56, 56), (144, 1, 3, 3), padding=1, dtype="float16")
    tile = StripTile(7, 8, 8, 7, 2, 3, 0)

    def products(d):
        kernel = tilewright.build(schedule_registers(d, tile), d.args, "cuda -arch=sm_90a")
        found = opcodes(kernel.assembly)
        return sum(n for name, n in found.items() if name.startswith(("FFMA", "FMUL", "FMNMX")))

    fused = p.replace(epilogue="scale_shift+relu")  # packing two results to 16 bits is ReLU too
    assert products(declare_scaled(fused)) == products(declare(p)) + 9
    assert products(declare(fused)) == products(declare(p)) + 56
    silu = p.replace(epilogue="bias+silu")  # 2 of its 4 instructions are products, of its 5 too
    assert products(declare_scaled(silu)) <= products(declare(p)) + 2 * 56 + 10


@pytest.mark.needs_nvrtc
def test_a_filter_that_threads_keep_takes_no_more_shared_memory():
    p = Conv.parse((64, 144, 56, 56), (144, 1, 3, 3), padding=1, dtype="float16", layout="NHWC")

    def shared(epilogue):
        fused, tile = p.replace(epilogue=epilogue), (7, 7, 2, 2, 2, 72, 1, 1, 1)
        kernel = build(fused, "gpu.pixel_tiles", tile, "cuda -arch=sm_90a")
        (used,) = kernel.resources.values()
        return used.shared_memory

    # But for where the box is aligned, by less than 128 bytes.
    assert all(abs(shared(e) - shared("")) < 128 for e in ("scale_shift+relu", "bias+silu"))
