"""Floats of 8 bits are the same numbers on every target, rounded to nearest, saturated."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tests.support.narrow import from_bits, to_bits

import tilewright
from tilewright import te
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.float8 import middles, values
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.ndarray import array

TARGETS = ["llvm", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)]


@pytest.mark.parametrize("kind", FLOAT8)
def test_bits_are_those_of_ml_dtypes(kind: str) -> None:
    theirs = np.dtype(getattr(pytest.importorskip("ml_dtypes"), kind))
    every = np.arange(256, dtype="uint8")
    assert array(every.view(theirs)).dtype == kind
    np.testing.assert_array_equal(from_bits(every, kind), every.view(theirs).astype("float32"))
    numbers = np.float32(np.random.default_rng(0).standard_normal(1000) * 50)
    np.testing.assert_array_equal(to_bits(numbers, kind), numbers.astype(theirs).view("uint8"))
    held = array(numbers, type=kind).numpy()
    np.testing.assert_array_equal(held.view("uint8"), to_bits(numbers, kind))


@pytest.fixture
def no_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    storage_type.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)
        yield
    storage_type.cache_clear()


@pytest.mark.usefixtures("no_ml_dtypes")
@pytest.mark.parametrize("kind", [*FLOAT8, "bfloat16"])
def test_without_ml_dtypes_arrays_hold_bits(kind: str) -> None:
    numbers = np.float32([1.5, -0.25, 300.0])
    for given in (numbers, to_bits(numbers, kind), [1.5, -0.25, 300.0]):
        bits = array(given, type=kind).numpy()
        assert bits.dtype.kind == "u"
        np.testing.assert_array_equal(bits, to_bits(numbers, kind))


def edges(kind: str) -> np.ndarray:
    """Numbers of a type, what lies between two, what is beyond the largest; float32 has all."""
    between = np.asarray(middles(kind), "float32")
    most = np.float32(np.nanmax(np.where(np.isinf(values(kind)), 0, values(kind))))
    near = np.concatenate([np.nextafter(between, np.float32(s)) for s in (-np.inf, np.inf)])
    beyond = np.float32([most * 1.05, most * 4, 3e38, np.inf, 1e-30, 0, 16, np.nan])
    positive = np.concatenate([np.asarray(values(kind)[:128], "float32"), between, near, beyond])
    return np.concatenate([positive, -positive])


def wanted(x: np.ndarray, kind: str) -> np.ndarray:
    """The nearest number of a type by comparing with each; ties to the one of even bits."""
    sizes = np.asarray(values(kind)[:128])
    sizes = sizes[np.isfinite(sizes)]
    far = np.abs(np.minimum(np.abs(x), 1e6).astype("float64")[:, None] - sizes)
    ties = far == far.min(1, keepdims=True)
    bits = np.where(ties.sum(1) > 1, (ties * (1 - np.arange(len(sizes)) % 2)).argmax(1),
                    ties.argmax(1))  # fmt: skip
    return np.where(np.isnan(x), np.nan, np.copysign(sizes[bits], x)).astype("float32")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", FLOAT8)
def test_conversions_round_to_nearest_even_and_saturate(kind: str, target: str) -> None:
    x = edges(kind)
    n = len(x)
    a = te.placeholder((n,), "float32", name="A")
    short = te.compute((n,), lambda i: a[i].astype(kind), name="Short")
    double = te.compute((n,), lambda i: a[i].astype("float64").astype(kind), name="Double")
    back = te.compute((n,), lambda i: short[i].astype("float16").astype("float32"), name="Back")
    again = te.compute((n,), lambda i: short[i].astype("bfloat16").astype(kind), name="Again")
    made = [short, double, back, again]
    s = te.create_schedule([t.op for t in made])
    for t in made:
        outer, inner = s[t].split(t.op.axis[0], 32)
        if target == "llvm":
            s[t].vectorize(inner)
        else:
            s[t].bind(outer, te.thread_axis("blockIdx.x"))
            s[t].bind(inner, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [a, *made], target)
    place = "cuda" if target == "cuda" else "cpu"
    found = [array(np.full(n, 0x55, "uint8"), place, kind) for _ in range(4)]
    found[2] = array(np.zeros(n, "float32"), place)
    kernel(array(x, place), *found)
    exact = wanted(x, kind)
    for t in (found[0], found[1], found[3]):
        got = from_bits(t.numpy().view("uint8"), kind)
        np.testing.assert_array_equal(got, exact)
        number = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(exact)[number])
    np.testing.assert_array_equal(found[2].numpy(), exact)


@pytest.mark.parametrize("kind", FLOAT8)
def test_a_wider_copy_is_read_without_the_type_of_eight_bits(kind: str) -> None:
    a = te.placeholder((8,), kind, name="A")
    b = te.compute((8,), lambda i: a[i].astype("float32") * 2.0, name="B")
    s = te.create_schedule(b.op)
    s.cache_read(a, "global", [b], "float16")
    text = str(tilewright.lower(s, [a, b]))
    assert "T.Cast('float16', A[" in text
    assert "T.Cast('float32', A_global[" in text
    assert f"T.Cast('{kind}'" not in text


@pytest.mark.parametrize("kind", FLOAT8)
def test_constants_are_rounded_once(kind: str) -> None:
    assert te.const(-1e9, kind).value == -max(x for x in values(kind) if x < np.inf)
    assert te.const(1.0625, kind).value == 1.0
    assert te.const(3, kind).astype("float32").value == 3.0
