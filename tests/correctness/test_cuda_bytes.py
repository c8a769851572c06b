"""Bytes and float32 in CUDA: exact, for every byte, and by few instructions of low rates."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import cuda_on_cpu

import tilewright
from tilewright import te
from tilewright.runtime.sass import opcodes
from tilewright.target.instructions import turned_bytes
from tilewright.topi import Conv, Declared
from tilewright.topi.nn.pooling import max_pool
from tilewright.topi.pieces.pixel_boxes import BoxTile
from tilewright.topi.pieces.tiling import Tiling
from tilewright.topi.quantization import dequantize, quantize, within
from tilewright.topi.sketches.loops import schedule_gpu
from tilewright.topi.templates import TEMPLATES, default_schedule

pytestmark = pytest.mark.needs_nvrtc
CUDA = "cuda -arch=sm_90a"


def _built(y: te.Tensor, args: list[te.Tensor], vector: int) -> tilewright.Kernel:
    s = te.create_schedule(y.op)
    for stage in s.stages[:-1]:
        if stage.op.axis and stage.op is not y.op:
            stage.compute_inline()
    block, lane = s[y].split(y.op.axis[0], factor=vector)
    block, thread = s[y].split(block, factor=8)
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    s[y].bind(thread, te.thread_axis("threadIdx.x"))
    s[y].vectorize(lane)
    return tilewright.build(s, args, CUDA)


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("kind", "to", "vector"), [
    ("int8", "uint8", 1), ("uint8", "int8", 16),
])  # fmt: skip
def test_every_byte_is_scaled_and_rounded_right(kind, to, vector, tmp_path):
    limits, ends = np.iinfo(kind), np.iinfo(to)
    x = te.placeholder((256,), kind, name="x")
    y = quantize(dequantize(x, 0.75, 0), 0.5, 3, to)
    kernel = _built(y, [x, y], vector)
    a = cuda_on_cpu.aligned(np.arange(limits.min, limits.max + 1).astype(kind))
    b = cuda_on_cpu.aligned(np.zeros(256, to))
    assert cuda_on_cpu.run(kernel.module, [a, b], {}, tmp_path) == 0
    wanted = np.rint(a.astype("float32") * np.float32(0.75) / np.float32(0.5)) + 3
    np.testing.assert_array_equal(b, wanted.clip(ends.min, ends.max).astype(to))


#: Halves between integers, within and beyond what bytes hold, large numbers, and none.
_NUMBERS = np.concatenate([
    np.arange(-1040, 1040, dtype="float32") / 4,
    np.array([-0.0, 1e9, -1e9, 3e38, -3e38, 12582912, -12582912, 2**31, -(2.0**31)], "float32"),
    np.array([np.inf, -np.inf, np.nan, -np.nan, 1e-40, 127.49999, -128.5], "float32"),
]).repeat(2)[: 4 * 1040]  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("vector", [2, 4, 16])
@pytest.mark.parametrize(("kind", "low", "high"), [
    ("int8", -128, 127), ("int8", 0, 127), ("int8", -7, 90), ("uint8", 0, 255), ("uint8", 3, 255),
])  # fmt: skip
@pytest.mark.parametrize("place", [
    pytest.param("cpu", marks=pytest.mark.skipif(
        cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler"
    )),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_numbers_are_rounded_to_bytes_and_packed(place, kind, low, high, vector, tmp_path):
    """As :func:`~tilewright.topi.quantization.saturated` says: of NaN the lowest."""
    count = _NUMBERS.size // 128 * 128
    x = te.placeholder((count,), "float32", name="x")

    def nearest(i):
        return te.nearbyint(within(x[i], low, high)).astype("int32").astype(kind)

    y = te.compute((count,), nearest, name="y")
    kernel = _built(y, [x, y], vector)
    assert f"nearest_{kind[0].replace('i', 's')}8(" in kernel.source
    a = cuda_on_cpu.aligned(_NUMBERS[-count:])
    b = cuda_on_cpu.aligned(np.zeros(count, kind))
    if place == "cpu":
        assert cuda_on_cpu.run(kernel.module, [a, b], {}, tmp_path) == 0
    else:
        b = np.zeros(count, kind)
        kernel(a, b)
    wanted = np.rint(np.where(np.isnan(a), low, a).clip(low, high))
    np.testing.assert_array_equal(b, wanted.astype(kind))


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
def test_what_is_made_a_bool_of_rounded_numbers_is_one_before_it_is_a_byte(tmp_path):
    x = te.placeholder((256,), "float32", name="x")

    def rounded(i):
        return te.nearbyint(te.clip(x[i], -128.0, 127.0)).astype("bool").astype("int8")

    kernel = _built(y := te.compute((256,), rounded, name="y"), [x, y], 4)
    a = cuda_on_cpu.aligned(np.linspace(-150, 150, 256, dtype="float32"))
    a[100:110] = 0.25
    b = cuda_on_cpu.aligned(np.zeros(256, "int8"))
    assert cuda_on_cpu.run(kernel.module, [a, b], {}, tmp_path) == 0
    np.testing.assert_array_equal(b, np.rint(a) != 0)


def test_what_rounded_numbers_are_in_between_is_not_left_out():
    x = te.placeholder((256,), "float32", name="x")

    def rounded(i):
        whole = te.nearbyint(te.clip(x[i], -128.0, 127.0))
        return whole.astype("float8_e4m3fn").astype("int8")

    kernel = _built(y := te.compute((256,), rounded, name="y"), [x, y], 4)
    assert "nearest_s8" not in kernel.source


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("of", "kind", "vector"), [(te.max, "int8", 16), (te.min, "uint8", 4)])
def test_extrema_of_bytes_are_those_of_each(of, kind, vector, tmp_path):
    limits = np.iinfo(kind)
    x, bound = (te.placeholder((n,), kind, name=name) for n, name in ((4096, "x"), (4096, "b")))
    y = te.compute((4096,), lambda i: of(te.if_then_else(i < 4000, x[i], limits.max), bound[i]))
    kernel = _built(y, [x, bound, y], vector)
    rng = np.random.default_rng(0)
    a, b = (
        cuda_on_cpu.aligned(rng.integers(limits.min, limits.max + 1, 4096).astype(kind))
        for _ in range(2)
    )
    found = cuda_on_cpu.aligned(np.zeros(4096, kind))
    assert cuda_on_cpu.run(kernel.module, [a, b, found], {}, tmp_path) == 0
    numpy = np.maximum if of is te.max else np.minimum
    np.testing.assert_array_equal(found, numpy(np.where(np.arange(4096) < 4000, a, limits.max), b))


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
def test_words_are_made_of_what_does_not_begin_at_one(tmp_path):
    apart = 2
    x, bound = te.placeholder((72,), "int8", name="x"), te.placeholder((64,), "int8", name="b")
    y = te.compute((64,), lambda i: te.max(x[i + apart], bound[i]))
    kernel = _built(y, [x, bound, y], 8)
    rng = np.random.default_rng(0)
    a, b = (cuda_on_cpu.aligned(rng.integers(-128, 128, n).astype("int8")) for n in (72, 64))
    found = cuda_on_cpu.aligned(np.zeros(64, "int8"))
    assert cuda_on_cpu.run(kernel.module, [a, b, found], {}, tmp_path) == 0
    np.testing.assert_array_equal(found, np.maximum(a[apart : apart + 64], b))


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
def test_words_of_four_rows_are_turned(tmp_path):
    kind = "int8"
    x = te.placeholder((8, 4, 4), kind, name="x")
    y = te.compute((8, 4, 4), lambda n, i, k: x[n, k, i], name="y")
    s = te.create_schedule(y.op)
    n, i, _ = y.op.axis
    s[y].bind(n, te.thread_axis("threadIdx.x"))
    s[y].tensorize(i, turned_bytes[kind])
    kernel = tilewright.build(s, [x, y], CUDA)
    assert "__byte_perm" in kernel.source
    limits, rng = np.iinfo(kind), np.random.default_rng(0)
    a = cuda_on_cpu.aligned(rng.integers(limits.min, limits.max + 1, (8, 4, 4)).astype(kind))
    b = cuda_on_cpu.aligned(np.zeros((8, 4, 4), kind))
    assert cuda_on_cpu.run(kernel.module, [a, b], {}, tmp_path) == 0
    np.testing.assert_array_equal(b, a.transpose(0, 2, 1))


def test_pooling_of_bytes_takes_few_instructions():
    """Of channels last: four at once from load to store, of which none is taken apart."""
    x = te.placeholder((8, 112, 112, 64), "int8", name="x")
    y = max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), (56, 56), last=True)
    s = schedule_gpu(Declared(None, {"x": x}, y), Tiling(4, 16, 128, 0, 1))
    found = opcodes(tilewright.build(s, [x, y], CUDA).assembly)
    loads = found["LDG.E.128.CONSTANT"]
    assert loads >= found["STG.E.128"] == 4
    assert found["VIMNMX.S16x2"] == 8 * loads
    assert sum(found.values()) < 3 * 16 * loads


DEPTHWISE = Conv.parse("8x64x28x28", "64x1x3x3", padding=1, layout="NHWC", dtype="int8",
                       epilogue="dequantize+bias+relu+quantize(1)")  # fmt: skip


def test_a_depthwise_convolution_converts_few_bytes_at_the_low_rate():
    p = DEPTHWISE.replace(epilogue="dequantize+bias+quantized_residual(0.5)+quantize(0.25)")
    declaration, schedule = default_schedule(p, CUDA)
    found = opcodes(tilewright.build(schedule, declaration.args, CUDA).assembly)
    of_floats = sum(n for name, n in found.items() if name.startswith(("F2I.", "FRND")))
    of_bytes = sum(n for name, n in found.items() if name.startswith("I2F."))
    assert of_floats == 0
    assert 0 < of_bytes < found["I2FP.F32.S32"]  # one of the four of a word


def test_dot_products_of_words_are_few_instructions():
    """For a result three products of four bytes, and turning what they are of."""
    template, tile = TEMPLATES["gpu.pixel_tiles"], BoxTile(14, 4, 4, 1, 7, 16, keeps=1)
    kernel = tilewright.build(*template.scheduled(DEPTHWISE, tile), CUDA)
    found, results = opcodes(kernel.assembly), 14 * 4 * 4
    assert found["IDP.4A.S8.S8"] == 3 * results
    assert found["PRMT"] < 2 * results
    assert sum(found.values()) < 16 * results
    assert all(not r.spills for r in kernel.resources.values())
