"""How types are promoted: as TVM's do in declarations under its names, and by te's own rules in
te."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import te, tvm
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError

INTEGERS = [f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32)] + ["int64"]
FLOATS = ["float16", "float32", "float64"]


def in_tvm(left: str, right: str) -> str:
    """The type in which TVM 0.18 computes: BinaryOpMatchTypes, restated."""
    a, b = np.dtype(left), np.dtype(right)
    if "f" in (a.kind, b.kind):
        floats = [t for t in (a, b) if t.kind == "f"]
        return max(floats, key=lambda t: t.itemsize).name
    if a.itemsize != b.itemsize:
        return max(a, b, key=lambda t: t.itemsize).name
    return left if a.kind == "u" else right


def promoted(language: Any, left: str, right: Any) -> str:
    """The type of the sum of an element and another one, or a number."""
    A = language.placeholder((4,), dtype=left, name="A")
    if isinstance(right, str):
        B = language.placeholder((4,), dtype=right, name="B")
        return str(language.compute((4,), lambda i: A[i] + B[i]).dtype)
    return str(language.compute((4,), lambda i: A[i] + right).dtype)


@pytest.mark.parametrize("language", [tvm, tvm.te], ids=["tvm", "tvm.te"])
def test_two_types_and_a_type_with_a_number_meet_as_in_tvm(language):
    for left, right in itertools.product(INTEGERS + FLOATS, repeat=2):
        assert promoted(language, left, right) == in_tvm(left, right), (left, right)
    for left in INTEGERS + FLOATS:
        for number in (1, -128, np.int64(3), np.uint8(3), True):
            other = "bool" if number is True else "int32"
            wanted = left if number is True else in_tvm(left, other)
            assert promoted(language, left, number) == wanted, (left, number)
        for number in (2.0, np.float64(2), np.float16(2), np.sqrt(2)):
            assert promoted(language, left, number) == in_tvm(left, "float32"), (left, number)


def test_functions_of_tvm_promote_outside_of_a_declaration_too():
    x, y = te.var("x", "int8"), te.var("y", "uint32")
    assert tvm.te.max(x, 200).dtype == "int32"
    assert tvm.tir.if_then_else(x > 0, x, 1).dtype == "int32"
    assert tvm.te.floordiv(x, 3).dtype == "int32"
    assert tvm.tir.bitwise_and(y, te.var("z")).dtype == "uint32"
    assert (x + 1).dtype == "int8"  # the mode has ended


UNSIGNED = np.array([250, 3, 0, 128], "uint8")
SIGNED = np.array([127, -128, 100, 5], "int8")
HALF = np.array([2048, 1, 1000, 65504], "float16")


@pytest.mark.parametrize(
    ("values", "written", "exact"),
    [
        (UNSIGNED, lambda x: (x - 128).astype("int32"), UNSIGNED.astype("int32") - 128),
        (UNSIGNED, lambda x: (x - 1).astype("float32"), UNSIGNED.astype("float32") - 1),
        (UNSIGNED, lambda x: x << 3, UNSIGNED.astype("int32") << 3),
        (SIGNED, lambda x: x * 2, SIGNED.astype("int32") * 2),
        (SIGNED, lambda x: tvm.te.max(x, 200), np.full(4, 200, "int32")),
        (HALF, lambda x: (x * 2.0).astype("float32"), HALF.astype("float32") * 2),
        (HALF, lambda x: x + 1.0, HALF.astype("float32") + 1),
    ],
)
def test_results_are_those_of_the_wider_type(values, written, exact):
    A = tvm.te.placeholder((4,), dtype=values.dtype, name="A")
    B = tvm.te.compute((4,), lambda i: written(A[i]), name="B")
    out = np.zeros(4, exact.dtype)
    assert out.dtype == str(B.dtype)
    tvm.build(tvm.te.create_schedule(B.op), [A, B], "llvm")(values, out)
    np.testing.assert_array_equal(out, exact)


def test_a_literal_takes_the_other_type_in_te():
    for left in INTEGERS + FLOATS:
        for number in (1, np.int64(1), True):
            assert promoted(te, left, number) == left
    for left in FLOATS:
        for number in (2.0, np.float64(2), np.sqrt(2)):
            assert promoted(te, left, number) == left
    assert promoted(te, "int32", "uint32") == "int32"


def test_a_numpy_scalar_whose_type_was_chosen_keeps_it_in_te():
    assert promoted(te, "float16", np.float16(2)) == "float16"
    assert promoted(te, "float16", np.float32(2)) == "float32"
    assert promoted(te, "int8", np.int32(2)) == "int32"
    assert promoted(te, "int32", np.uint8(2)) == "int32"


@pytest.mark.parametrize("make", [te.const, tvm.tir.const, tvm.te.const, tvm.runtime.convert])
def test_a_constant_has_the_type_of_its_numpy_scalar(make):
    for name in [*INTEGERS, *FLOATS, "uint64", "bool"]:
        for value in (np.dtype(name).type(1), np.array(1, name)):
            assert str(make(value).dtype) == name
    assert make(np.int64(16777217)).value == 16777217


def test_a_constant_that_32_bits_do_not_hold_has_64():
    assert [str(te.const(v).dtype) for v in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1)] == [
        "int32", "int64", "int32", "int64"
    ]  # fmt: skip
    assert [str(te.const(v).dtype) for v in (1e38, 1e39, float("inf"), float("nan"))] == [
        "float32", "float64", "float32", "float32"
    ]  # fmt: skip


def test_an_extent_and_an_index_of_numpy_are_as_wide_as_python_numbers():
    A = te.placeholder((np.prod([2, 4]),), name="A")
    assert str(A.shape[0].dtype) == "int32"
    assert str(A[np.int64(1)].indices[0].dtype) == "int32"
    with pytest.raises(LanguageError):
        te.placeholder((np.float64(4.5),))


def test_the_mode_ends_where_a_declaration_fails():
    with pytest.raises(ZeroDivisionError):
        tvm.te.compute((4,), lambda i: 1 // 0)
    assert ops.add(te.var("x", "int8"), 1).dtype == "int8"
