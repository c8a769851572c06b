"""Every type of value: read and written, converted, promoted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.schedules import (
    FLOATS,
    INTEGERS,
    NUMPY,
    Cases,
    apply,
    apply_all,
    check,
    everywhere,
    lacking,
    skip_without,
)

from tilewright import te


def bfloat16_bits(x: np.ndarray) -> np.ndarray:
    """Rounded to the nearest, of two to the even one."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def as_array(values: np.ndarray, type: str) -> np.ndarray:
    return bfloat16_bits(values) if type == "bfloat16" else values.astype(type)


def as_values(array: np.ndarray, type: str) -> np.ndarray:
    if type != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def types_of(target: str) -> list[str]:
    """All of them; of OpenCL those that the device has."""
    types = [*FLOATS, *INTEGERS, "bool"]
    return [t for t in types if target != "opencl" or not lacking(t)]


@everywhere
def test_every_type_is_read_and_written(target: str) -> None:
    types = types_of(target)
    arrays = [as_array(np.arange(37) % 2 if t == "bool" else np.arange(37), t) for t in types]
    apart = [lambda *x, k=k: x[k] for k in range(len(types))]
    found = apply_all(apart, *arrays, types=types, target=target)
    for got, want, type in zip(found, arrays, types):
        assert got.dtype == np.dtype(NUMPY.get(type, type))
        np.testing.assert_array_equal(got, want, err_msg=type)


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
@everywhere
def test_casts_keep_the_value(source: str, target: str) -> None:
    skip_without(target, source)
    values = np.arange(37) % 2 if source == "bool" else np.arange(37)
    types = types_of(target)
    found = apply_all(
        [lambda v, to=to: v.astype(to) for to in types],
        as_array(values, source), types=[source], target=target,
    )  # fmt: skip
    for got, to in zip(found, types):
        want = values != 0 if to == "bool" else values
        np.testing.assert_array_equal(as_values(got, to), want, err_msg=f"{source} to {to}")


@everywhere
def test_casts_of_floats_to_integers_truncate_and_of_integers_wrap(target: str) -> None:
    x = np.array([-2.9, -1.5, -0.5, 0.5, 1.5, 2.9, 100.7, -100.7], np.float32)
    found = apply(lambda v: v.astype("int32"), x, types=["float32"], target=target)
    np.testing.assert_array_equal(found, np.trunc(x).astype(np.int32))
    y = np.array([-1, 255, 256, 300, -129, 127, 128, 70000], np.int32)
    narrow = ("int8", "uint8", "int16", "uint16")
    cases: Cases = [(lambda v, to=to: v.astype(to), y.astype(to)) for to in narrow]
    check(cases, y, types=["int32"], target=target)


@everywhere
def test_bfloat16_rounds_to_the_nearest_even(target: str) -> None:
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-9, 3.14159, -2.71828, 1e30, 0], np.float32)
    found = apply(lambda v: v.astype("bfloat16"), x, types=["float32"], target=target)
    np.testing.assert_array_equal(found, bfloat16_bits(x))


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int8", "int32", "int32"), ("uint8", "int8", "int8"), ("float32", "int64", "float32"),
        ("float16", "float32", "float32"), ("float16", "bfloat16", "float32"),
        ("float64", "float32", "float64"), ("bool", "int32", "int32"), ("bool", "bool", "int32"),
    ],
)  # fmt: skip
def test_operands_are_promoted(a: str, b: str, result: str) -> None:
    x, y = te.placeholder((4,), a, name="X"), te.placeholder((4,), b, name="Y")
    assert (x[0] + y[1]).dtype == result


def test_a_python_number_takes_the_type_of_the_other_operand() -> None:
    half = te.placeholder((4,), "float16", name="X")
    byte = te.placeholder((4,), "uint8", name="Y")
    assert (half[0] * 2).dtype == "float16"
    assert (1.5 - half[0]).dtype == "float16"
    assert (byte[0] + 1).dtype == "uint8"
    assert (byte[0] * 0.5).dtype == "float32"
    assert (half[0] + np.float32(1)).dtype == "float32"
