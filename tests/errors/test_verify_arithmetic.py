"""Proofs that would hold of integers without end, or of extents that are never 0, are no proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import ArgumentError, LanguageError, VerificationError
from tilewright.ir.expr import Expr
from tilewright.verify import verify

A = te.placeholder((300,), name="A")


def kernel(f: Callable[[Expr], Any], type: str, target: str) -> Any:
    I = te.placeholder((4,), type, name="I")
    B = te.compute((4,), lambda i: f(I[i]), name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    return s, [I, A, B]


ANY_TARGET = pytest.mark.parametrize("target", ["llvm", "sim", "opencl", "cuda -arch=sm_90a"])


def _ends(x: Expr) -> Expr:
    """Holds of the least number of 64 bits, whose products are 0."""
    return te.all(x <= te.min_value("int64"), (x * (x + 2)).equal(0))


WRAPS: list[tuple[str, Callable[[Any], Any]]] = [
    ("int32", lambda x: te.if_then_else(te.all(x >= 0, x + x < 8), A[x + x], 0.0)),
    ("int32", lambda x: te.if_then_else(te.all(x >= 0, x + 1 < 300), A[x + 1], 0.0)),
    ("int32", lambda x: te.if_then_else(x <= 5, A[te.max(x - 7, -2) + 2], 0.0)),
    ("int32", lambda x: A[te.abs(x) % 300 + te.min(te.abs(x), 0)]),
    ("int32", lambda x: A[te.max(-te.max(x, -300) + 299, 0)]),
    ("int32", lambda x: A[te.min(te.max(x, 0) << 4, 299)]),
    ("int32", lambda x: te.if_then_else(x > 0, A[te.min(x * x, 299)], 0.0)),
    ("int32", lambda x: te.if_then_else(x < 0, A[te.min(te.truncdiv(x, -1), 299)], 0.0)),
    ("uint32", lambda x: A[te.min(te.cast("int32", x), 299)]),
    ("int64", lambda x: te.if_then_else(x >= 0, A[te.min(te.cast("int32", x), 299)], 0.0)),
    ("int64", lambda x: te.if_then_else(te.all(x >= 0, x * 2 < 300), A[x * 2], 0.0)),
    ("int8", lambda x: te.if_then_else(x >= 0, A[x * te.const(2, "int8")], 0.0)),
    ("uint8", lambda x: te.if_then_else(x < 9, A[te.cast("int32", x - 1) + 46], 0.0)),
    ("int16", lambda x: A[te.cast("int32", te.cast("int8", te.clip(x, 0, 200)))]),
    ("int8", lambda x: A[te.cast("int32", te.floordiv(x, te.const(-2, "int8"))) + 236]),
    ("int8", lambda x: A[te.cast("int32", te.truncdiv(x, te.const(-2, "int8"))) + 236]),
    ("int8", lambda x: A[236 - te.cast("int32", te.truncdiv(x, te.const(2, "int8")))]),
    ("int64", lambda x: te.if_then_else(_ends(x), A[x], 0.0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRAPS)))
@ANY_TARGET
def test_an_index_of_data_that_may_wrap_around_is_not_proved(number: int, target: str) -> None:
    type, f = WRAPS[number]
    s, args = kernel(f, type, target)
    with pytest.raises(VerificationError, match="bounds|could not prove"):
        verify(tilewright.lower(s, args, target).funcs[0])


HOLDS: list[tuple[str, Callable[[Any], Any]]] = [
    ("int32", lambda x: te.if_then_else(te.all(x * 4 + 1 >= 0, x * 4 + 1 < 8), A[x * 4 + 1], 0.0)),
    ("int32", lambda x: te.if_then_else(te.all(x >= 0, x < 70), A[x * 4 + 1], 0.0)),
    ("int32", lambda x: A[te.clip(x, 0, 70) * 4 + 1]),
    ("int32", lambda x: A[te.floormod(x, 290) + te.floormod(x + 3, 10)]),
    ("int32", lambda x: A[te.floormod(x >> 40, 8)]),
    ("int8", lambda x: A[te.cast("int32", x) + 128]),
    ("uint8", lambda x: A[te.cast("int32", x) + 44]),
    ("int64", lambda x: A[te.clip(x, 0, 299)]),
    ("int32", lambda x: A[te.cast("int32", te.cast("int8", x)) + 128]),
    ("int32", lambda x: A[te.max(te.min(x, 299), 0) // 2 * 2]),
]


@pytest.mark.parametrize("number", range(len(HOLDS)))
@ANY_TARGET
def test_an_index_of_data_that_is_kept_in_range_is_proved(number: int, target: str) -> None:
    type, f = HOLDS[number]
    s, args = kernel(f, type, target)
    verify(tilewright.lower(s, args, target).funcs[0])


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_what_is_proved_of_data_reads_within_bounds(target: str) -> None:
    numbers = [-(2**31), 2**31 - 1, 2**30, -(2**30), 2**29 + 1, -1, 0, 1]
    for type, f in HOLDS:
        info = np.iinfo(type)
        s, args = kernel(f, type, target)
        run = tilewright.build(s, args, target)
        for n in numbers:
            found = np.full(4, -1, "float32")
            run(
                np.full(4, min(max(n, info.min), info.max), type),
                np.arange(300.0, dtype="f4"),
                found,
            )
            assert (found >= 0).all()
            assert (found < 300).all()


n = te.var("n")
X = te.placeholder((n,), "int32", name="X")

EMPTY: list[Callable[[Any], Any]] = [
    lambda i: X[te.min(i, n - 1)],
    lambda i: X[te.clip(i, 0, n - 1)],
    lambda i: X[i % n],
    lambda i: X[te.max(n - 1 - i, 0)],
    lambda i: X[te.floormod(n - 1, n)],
    lambda i: X[(i * n) // n * 0],
    lambda i: X[0],
]


@pytest.mark.parametrize("number", range(len(EMPTY)))
@ANY_TARGET
def test_an_array_that_may_be_empty_is_not_read(number: int, target: str) -> None:
    B = te.compute((4,), EMPTY[number], name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(VerificationError, match=r"least=1|could not prove"):
        verify(tilewright.lower(s, [X, B], target).funcs[0])


def test_an_extent_that_is_never_zero_is_declared_and_checked() -> None:
    n = te.var("n", least=1)
    X = te.placeholder((n,), "int32", name="X")
    B = te.compute((4,), lambda i: X[te.clip(i, 0, n - 1)] + X[i % n], name="B")
    run = tilewright.build(te.create_schedule(B.op), [X, B])
    found = np.zeros(4, "int32")
    run(np.arange(3, dtype="int32"), found)
    assert found.tolist() == [0, 2, 4, 2]
    with pytest.raises(ArgumentError, match="at least 1: lower least"):
        run(np.zeros(0, "int32"), found)


def test_a_scalar_has_the_least_value_that_is_said_of_it() -> None:
    p = te.var("p", least=1)
    X = te.placeholder((5,), "int32", name="X")
    B = te.compute((4,), lambda i: X[i // p] * p, name="B")
    run = tilewright.build(te.create_schedule(B.op), [X, p, B])
    found = np.zeros(4, "int32")
    run(np.arange(5, dtype="int32"), 2, found)
    assert found.tolist() == [0, 0, 2, 2]
    with pytest.raises(ArgumentError, match="p is -2 .* at least 1: lower least"):
        run(np.arange(5, dtype="int32"), -2, found)


def test_a_tensor_between_two_stages_has_no_negative_extent() -> None:
    n = te.var("n")
    X = te.placeholder((n,), "int32", name="X")
    T = te.compute((n - 2,), lambda i: X[i] + 1, name="T")
    B = te.compute((4,), lambda i: te.if_then_else(i < n - 2, T[i], 0), name="B")
    run = tilewright.build(te.create_schedule(B.op), [X, B])
    found = np.zeros(4, "int32")
    run(np.arange(3, dtype="int32"), found)
    assert found.tolist() == [1, 0, 0, 0]
    with pytest.raises(ArgumentError, match="n - 2, an extent of T, is negative: -1"):
        run(np.arange(1, dtype="int32"), found)


@pytest.mark.parametrize("limits", [{"least": -1}, {"least": 3, "most": 2}, {"most": 2**31}])
def test_a_range_that_no_extent_has_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(LanguageError, match="least"):
        te.var("n", **limits)


def test_an_extent_is_of_a_type_that_indices_have() -> None:
    with pytest.raises(LanguageError, match="int32 or int64"):
        te.placeholder((te.var("n", "uint8"),), name="A")
