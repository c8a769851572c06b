"""Selections: one of two values, places of the largest elements, running sums of long axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.target import Target
from tilewright.topi.operators import Program
from tilewright.topi.templates import templates

TARGETS = ["llvm", "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl)]


def computed(x: np.ndarray, body: str | tuple[str, ...], target: str) -> np.ndarray:
    """What the first schedule of calls computes, into a result that is not zero before."""
    operand = f"{x.dtype}[{'x'.join(map(str, x.shape))}]"
    p = Program(operands=(operand,), body=(body,) if isinstance(body, str) else body)
    template = templates(p, Target.parse(target))[0]
    config = template.candidates(p, Target.parse(target))[0]
    kernel = tilewright.build(*template.scheduled(p, config), target)
    out = np.full(p.result.shape, -7, p.result.dtype)
    kernel(x, out)
    return out


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of which many are equal; of floats some are NaN, infinite, and zeros of both signs;
    of integers some are the least and the largest."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(shape) * 20).astype(dtype)
    special: list[Any] = [np.nan, np.inf, -np.inf, -0.0, 0.0, -np.nan]
    if x.dtype.kind in "iu":
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    for k, value in enumerate(special):
        x.reshape(-1)[k :: 41 + k] = value
    return x


def places(x: np.ndarray, k: int, axis: int, largest: bool) -> np.ndarray:
    """By a stable sort, of which NaN is the largest."""
    kind = (x.astype("float64") if x.dtype.kind == "f" else x).copy()
    ranks = np.unique(np.where(np.isnan(kind), np.inf, kind) if x.dtype.kind == "f" else kind,
                      return_inverse=True)[1].reshape(x.shape)  # fmt: skip
    if x.dtype.kind == "f":
        ranks[np.isnan(kind)] = ranks.max() + 1
    order = np.argsort(-ranks if largest else ranks, axis, kind="stable")
    return np.take(order, range(k), axis)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int32",
                                   "int64", "uint32", "uint64"])  # fmt: skip
def test_the_largest_are_found_by_the_bits_of_their_keys(dtype: str, largest: bool) -> None:
    x = drawn((3, 71), dtype)
    found = computed(x, f"topk_places(a0, k=9, axis=1, largest={largest}, many=24)", "llvm")
    np.testing.assert_array_equal(found, places(x, 9, 1, largest))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "k", "axis"), [((65,), 1, 0), ((2, 64, 3), 32, 1),
                                                  ((40, 5), 7, 0)], ids=str)  # fmt: skip
def test_axes_and_targets(shape: tuple[int, ...], k: int, axis: int, target: str) -> None:
    x = drawn(shape, "float32", k)
    found = computed(x, f"topk_places(a0, k={k}, axis={axis}, largest=True, many=24)", target)
    np.testing.assert_array_equal(found, places(x, k, axis, True))


def test_all_elements_may_be_equal_or_nan() -> None:
    for value in (0.0, np.nan, -np.inf):
        x = np.full((2, 5000), value, "float32")
        for largest in (True, False):
            found = computed(x, f"topk_places(a0, k=30, axis=1, largest={largest})", "llvm")
            np.testing.assert_array_equal(found, np.tile(np.arange(30), (2, 1)))


def test_a_hundred_of_a_hundred_thousand_are_not_found_by_comparing_all_with_all() -> None:
    p = Program(operands=("float32[100000]",), body=("topk_places(a0, k=100, axis=0)",))
    assert p.flops < 1000 * 100_000


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_running_sums_of_long_axes(exclusive: int, reverse: int, target: str) -> None:
    modes = f"exclusive={bool(exclusive)}, reverse={bool(reverse)}"
    for shape, axis in (((2, 301), 1), ((160, 3), 0)):
        x = np.random.default_rng(0).standard_normal(shape).astype("float32")
        y = np.flip(x, axis) if reverse else x
        wanted = y.astype("float64").cumsum(axis) - (y if exclusive else 0)
        wanted = np.flip(wanted, axis) if reverse else wanted
        found = computed(x, f"cumsum(a0, axis={axis}, {modes})", target)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_running_products_and_what_is_behind_running_sums() -> None:
    x = (1 + np.random.default_rng(0).standard_normal((2, 200)) / 10).astype("float32")
    found = computed(x, "cumprod(a0, axis=1)", "llvm")
    np.testing.assert_allclose(found, x.astype("float64").cumprod(1), rtol=1e-4)
    found = computed(x, ("cumsum(a0, axis=1)", "multiply(t0, a0)", "max(t1, axis=1)"), "llvm")
    wanted = (x.astype("float64").cumsum(1) * x).max(1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_a_selection_takes_numbers_in_the_place_of_expressions() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: te.Select(A[i] > 0, A[i], 0), name="B")
    kernel = tilewright.build(te.create_schedule(B.op), [A, B], "llvm")
    x, y = np.array([1, -1, 2.5, -np.inf], "float32"), np.full(4, np.nan, "float32")
    kernel(x, y)
    np.testing.assert_array_equal(y, [1, 0, 2.5, 0])
