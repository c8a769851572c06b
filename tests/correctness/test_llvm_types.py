"""Every type on the CPU: conversions, arithmetic in 16 bits, integers that wrap around."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest
from tests.support.cpu import elementwise

from tilewright import te
from tilewright.codegen.llvm.module import generate
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Expr
from tilewright.lower.pipeline import lower
from tilewright.runtime.llvm_host import Processor, assembly, processor

ARCHS = ["llvm", "llvm -arch=baseline"]


def to_bits(x: np.ndarray) -> np.ndarray:
    """float32 as bfloat16, rounded to nearest even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def _halves() -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16)


@pytest.mark.parametrize("target", ARCHS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_every_float16_widens_exactly(lanes: int, target: str) -> None:
    bits = _halves()
    found = elementwise(
        lambda e: ops.cast("float32", e), bits.view(np.float16),
        types=["float16"], result="float32", lanes=lanes, target=target,
    )  # fmt: skip
    np.testing.assert_array_equal(found, bits.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("target", ARCHS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_float32_rounds_to_float16_to_nearest_even(lanes: int, target: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.standard_normal(4000) * 10.0 ** rng.uniform(-9, 5, 4000),
        [0, -0.0, np.inf, -np.inf, 65504, 65519.9, 65520, 1e9, 2**-24, 2**-25, 3 * 2**-26],
        1 + np.arange(85) / 4096,
    ]).astype(np.float32)  # fmt: skip
    found = elementwise(
        lambda e: ops.cast("float16", e), x,
        types=["float32"], result="float16", lanes=lanes, target=target,
    )  # fmt: skip
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))


def test_float64_rounds_to_float16_once() -> None:
    # halfway between two values of float16 but for a bit that float32 does not have
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-11, 1e300] * 2)
    found = elementwise(
        lambda e: ops.cast("float16", e), x, types=["float64"], result="float16", lanes=8
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))


@pytest.mark.parametrize("lanes", [1, 16])
def test_bfloat16_conversions(lanes: int) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(4096) * 10.0 ** rng.uniform(-38, 38, 4096)).astype(np.float32)
    x[:4] = [np.inf, -np.inf, 1e-45, 0]
    found = elementwise(
        lambda e: ops.cast("bfloat16", e), x, types=["float32"], result="bfloat16", lanes=lanes
    )
    np.testing.assert_array_equal(found, to_bits(x))
    back = elementwise(
        lambda e: ops.cast("float32", e), found, types=["bfloat16"], result="float32", lanes=lanes
    )
    np.testing.assert_array_equal(back, from_bits(found))
    nan = np.full(16, np.nan, np.float32)
    found = elementwise(
        lambda e: ops.cast("bfloat16", e), nan, types=["float32"], result="bfloat16", lanes=lanes
    )
    assert np.isnan(from_bits(found)).all()


@pytest.mark.parametrize("target", ARCHS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_arithmetic_in_float16_rounds_every_operation(lanes: int, target: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1024).astype(np.float16) for _ in range(2))
    found = elementwise(
        lambda a, b: (a * b + a) / (b - 3.0), x, y,
        types=["float16"] * 2, result="float16", lanes=lanes, target=target,
    )  # fmt: skip
    np.testing.assert_array_equal(found, (x * y + x) / (y - np.float16(3)))


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="LLVM compiles for x86 there",
)
@pytest.mark.parametrize("lanes", [1, 8])
def test_a_processor_with_arithmetic_of_16_bits_fuses_nothing(lanes: int) -> None:
    A, B = (te.placeholder((64,), "float16", name=n) for n in "AB")
    k = te.reduce_axis((0, 64), "k")
    C = te.compute((64,), lambda i: (A[i] * B[i] + A[i]) / (B[i] - 3.0), name="C")
    D = te.compute((64,), lambda i: te.sum(A[k] * B[i], axis=k), name="D")
    s = te.create_schedule([C.op, D.op])
    for stage in (s[C], s[D]):
        stage.vectorize(stage.split(stage.op.axis[0], factor=lanes)[1])
    s[D].reorder(k, *s[D].leaf_iter_vars[:2])
    named = "f16c fma avx avx2 avx512f avx512bw avx512cd avx512dq avx512vl avx512fp16".split()
    cpu = Processor(
        processor("").triple, "sapphirerapids", ",".join(f"+{n}" for n in named), frozenset(named)
    )
    text = assembly(generate(lower(s, [A, B, C, D]), 1, cpu.features, cpu.vector_bits), cpu)
    assert re.search(r"vmul[ps]h", text), "it computes in 16 bits"
    assert not re.search(r"vfn?m(add|sub)\w*[ps]h", text)


@pytest.mark.parametrize("lanes", [1, 8])
def test_arithmetic_in_bfloat16_rounds_every_operation(lanes: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (to_bits(rng.standard_normal(1024)) for _ in range(2))
    found = elementwise(
        lambda a, b: ops.maximum(a * b + 1.5, a), x, y,
        types=["bfloat16"] * 2, result="bfloat16", lanes=lanes,
    )  # fmt: skip
    fx, fy = from_bits(x), from_bits(y)
    product = from_bits(to_bits(fx * fy))
    np.testing.assert_array_equal(found, to_bits(np.maximum(from_bits(to_bits(product + 1.5)), fx)))


def test_functions_in_16_bits_are_computed_in_float32() -> None:
    x = np.linspace(-4, 4, 64).astype(np.float16)
    found = elementwise(
        lambda e: ops.unary("tanh", e), x, types=["float16"], result="float16", lanes=16
    )
    truth = np.tanh(x.astype(np.float64))
    assert abs(found - truth).max() <= 2.0**-11


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("to", "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split())
def test_floats_truncate_to_integers(to: str, lanes: int) -> None:
    low = 0 if to[0] == "u" else -100
    x = np.linspace(low, 100, 64).astype(np.float32)
    found = elementwise(lambda e: ops.cast(to, e), x, types=["float32"], result=to, lanes=lanes)
    np.testing.assert_array_equal(found, np.trunc(x).astype(to))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("source", "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split())
def test_conversions_among_integers_and_floats(source: str, lanes: int) -> None:
    info = np.iinfo(source)
    x = np.array([info.min, info.max, 0, 1, 7, 100, info.max - 1, info.min + 1], source)
    for to in "int8 uint8 int32 uint64 float32 float64".split():
        found = elementwise(
            lambda e, to=to: ops.cast(to, e), x, types=[source], result=to, lanes=lanes
        )
        np.testing.assert_array_equal(found, x.astype(to))


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("type", ["int8", "int32", "int64", "uint8", "uint32"])
def test_integer_arithmetic_wraps_and_rounds_as_written(type: str, lanes: int) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(type)
    x = rng.integers(info.min, info.max, 64, type, endpoint=True)
    y = rng.integers(max(info.min, -9), 9, 64, type)
    y[y == 0] = 3
    args = {"types": [type] * 2, "result": type, "lanes": lanes}
    with np.errstate(over="ignore"):
        for f, truth in [
            (lambda a, b: a * b + a - b, x * y + x - y),
            (lambda a, b: a // b, x // y),
            (lambda a, b: a % b, x % y),
            (lambda a, b: ops.minimum(a, b) ^ ops.maximum(a, b), x ^ y),
            (lambda a, b: (a & b) | (a >> 1), (x & y) | (x >> 1)),
            (lambda a, b: ops.truncmod(a, b), np.fmod(x, y)),
        ]:
            found = elementwise(f, x, y, **args)
            np.testing.assert_array_equal(found, truth)


@pytest.mark.parametrize("lanes", [1, 8])
def test_division_by_constants_rounds_down(lanes: int) -> None:
    x = np.arange(-64, 64, dtype=np.int32)
    for divisor in (1, 2, 3, 7, 8, -3, -4):
        found = elementwise(
            lambda e, d=divisor: e // d * 1000 + e % d, x,
            types=["int32"], result="int32", lanes=lanes,
        )  # fmt: skip
        np.testing.assert_array_equal(found, x // divisor * 1000 + x % divisor)


@pytest.mark.parametrize("lanes", [1, 8])
def test_bools_are_bytes_in_memory(lanes: int) -> None:
    x = np.array([True, False, True, True, False, False, True, False])
    y = np.arange(8, dtype=np.float32)

    def both(a: Expr, b: Expr) -> Expr:
        return E.Or(E.And(a, b > 2.0), E.Not(a))

    found = elementwise(both, x, y, types=["bool", "float32"], result="bool", lanes=lanes)
    np.testing.assert_array_equal(found, (x & (y > 2)) | ~x)
    found = elementwise(
        lambda a, b: ops.cast("float32", a) + ops.cast("float32", ops.cast("bool", b)), x, y,
        types=["bool", "float32"], result="float32", lanes=lanes,
    )  # fmt: skip
    np.testing.assert_array_equal(found, x.astype(np.float32) + (y != 0))


@pytest.mark.parametrize("lanes", [1, 8])
def test_bit_functions(lanes: int) -> None:
    x = np.array([0, 1, -1, 255, 2**30, -(2**31), 12345, -7], np.int32)
    found = elementwise(ops.popcount, x, types=["int32"], result="int32", lanes=lanes)
    np.testing.assert_array_equal(found, [int(v).bit_count() for v in x.view(np.uint32)])
    y = np.array([1, np.nan, np.inf, -2, 0, np.nan, 3, -np.inf], np.float32)
    found = elementwise(ops.isnan, y, types=["float32"], result="bool", lanes=lanes)
    np.testing.assert_array_equal(found, np.isnan(y))
    found = elementwise(
        lambda e: ops.absolute(e) - ops.cast("float32", ops.absolute(ops.const(-3))),
        y, types=["float32"], result="float32", lanes=lanes,
    )  # fmt: skip
    np.testing.assert_array_equal(found, abs(y) - 3)


def test_constants_of_every_float_type() -> None:
    for value in (0.1, -1e30, 65504.0, float("inf"), 2.0**-24):
        x = np.zeros(4, np.float32)
        for t in ("float16", "float32", "float64"):
            found = elementwise(
                lambda e, t=t, v=value: ops.cast(t, e) + ops.const(v, t), x,
                types=["float32"], result=t,
            )  # fmt: skip
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(found, np.full(4, value).astype(t))
        found = elementwise(
            lambda e, v=value: ops.cast("bfloat16", e) + ops.const(v, "bfloat16"), x,
            types=["float32"], result="bfloat16",
        )  # fmt: skip
        np.testing.assert_array_equal(found, to_bits(np.full(4, value, np.float32)))
