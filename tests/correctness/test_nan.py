"""What minima, maxima and reductions make of NaN, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import Cases, apply_all, check, everywhere, run, skip_without

from tilewright import te
from tilewright.topi import reduction, selection


@everywhere
def test_nan_beside_a_number_stays_nan(target: str) -> None:
    a = np.array([np.nan, 1, np.nan, -2, np.inf, -np.inf, 0, 5], "float32")
    b = np.array([3, np.nan, np.nan, 7, np.nan, np.nan, np.nan, 4], "float32")
    largest, smallest, clipped, positive, kept, bounded = apply_all(
        [
            lambda a, b: te.max(a, b),
            lambda a, b: te.min(a, b),
            lambda a, b: te.clip(a, -1.0, 2.0),
            lambda a, b: te.max(a, 0.0),
            lambda a, b: te.select(a < 0.0, 0.0, a),
            lambda a, b: te.select(a > 0.0, a, 0.0),
        ],
        a, b, types=["float32", "float32"], target=target,
    )  # fmt: skip
    np.testing.assert_array_equal(largest, np.maximum(a, b))
    np.testing.assert_array_equal(smallest, np.minimum(a, b))
    np.testing.assert_array_equal(clipped, np.clip(a, np.float32(-1), np.float32(2)))
    np.testing.assert_array_equal(positive, np.maximum(a, np.float32(0)))
    np.testing.assert_array_equal(bounded, np.fmax(a, np.float32(0)))
    np.testing.assert_array_equal(kept, np.where(a < 0, np.float32(0), a))


@everywhere
@pytest.mark.parametrize("type", ["float32", "float64"])
def test_a_choice_by_nan_or_infinity_is_what_its_comparison_says(target: str, type: str) -> None:
    skip_without(target, type)
    a = np.array([np.nan, 1, -np.inf, -2, np.inf, 0, 3, 5], type)
    nan, inf = te.const(float("nan"), type), te.const(float("inf"), type)
    cases: Cases = [
        (lambda a: te.select(a > nan, a, nan), np.full(8, np.nan, type)),
        (lambda a: te.select(a < nan, nan, a), a),
        (lambda a: te.select(a > -inf, a, -inf), np.fmax(a, -np.inf)),
        (lambda a: te.select(a < inf, a, inf), np.fmin(a, np.inf)),
    ]
    check(cases, a, types=[type], target=target)


@everywhere
def test_a_maximum_over_an_axis_is_nan_where_an_element_is(target: str) -> None:
    A = te.placeholder((8, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    B = te.compute((8,), lambda i: te.max(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    a = np.random.default_rng(0).standard_normal((8, 5)).astype("float32")
    a[np.arange(6), np.arange(6) % 5] = np.nan
    (found,) = run(s, [A, B], [a], target)
    np.testing.assert_array_equal(found, np.max(a, axis=1))


@pytest.mark.parametrize(("extremum", "expected"), [(te.max, np.maximum), (te.min, np.minimum)])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("type", ["float32", "float64", "float16"])
def test_nan_beside_an_integer_stays_in_every_lane(
    extremum: Any, expected: Any, swapped: bool, type: str
) -> None:
    # LLVM knows that a converted integer is no NaN. Of each vector one element is read, which lets
    # LLVM compute it as a scalar.
    a = np.arange(-5, 6, dtype="int8")
    b = np.where(np.arange(11) % 3 == 0, np.nan, -a[::-1]).astype(type)
    A = te.placeholder((11,), "int8", name="A")
    B = te.placeholder((11,), type, name="B")

    def body(i: Any) -> Any:
        pair = (B[i], te.cast(type, A[i]))
        return extremum(*(reversed(pair) if swapped else pair))

    T = te.compute((11,), body, name="T")
    C = te.compute((11,), lambda i: T[i], name="C")
    s = te.create_schedule(C.op)
    _, inner = s[C].split(C.op.axis[0], factor=1)
    pairs, _ = s[C].split(inner, factor=2)
    s[T].compute_at(s[C], pairs)
    s[T].vectorize(T.op.axis[0])
    (found,) = run(s, [A, B, C], [a, b], "llvm")
    np.testing.assert_array_equal(found, expected(a.astype(type), b))


def test_the_place_of_nan_is_that_of_the_largest_and_of_the_smallest() -> None:
    a = np.array([[1, np.nan, np.inf, np.nan], [0, -np.inf, 2, 1]], "float32")
    A = te.placeholder(a.shape, name="A")
    places = [
        reduction.argmax(A, 1), reduction.argmin(A, 1), reduction.argmax(A, 1, last=True),
        selection.topk_places(A, 4, 1), selection.topk_places(A, 4, 1, largest=False),
    ]  # fmt: skip
    first, least, last, down, up = run(
        te.create_schedule([p.op for p in places]), [A, *places], [a], "llvm"
    )
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(least, [1, 1])
    np.testing.assert_array_equal(last, [3, 2])
    np.testing.assert_array_equal(down, [[1, 3, 2, 0], [2, 3, 0, 1]])
    np.testing.assert_array_equal(up, [[0, 2, 1, 3], [1, 0, 3, 2]])
