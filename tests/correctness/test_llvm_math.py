"""Functions of floats on the CPU agree with float64 to a few units in the last place."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from tests.support.cpu import elementwise

from tilewright.ir import ops
from tilewright.ir.expr import Expr

_RANGES = {
    "exp": (-104, 89), "exp2": (-150, 129), "exp10": (-45, 39), "expm1": (-20, 89),
    "tanh": (-12, 12), "sigmoid": (-100, 100), "erf": (-5, 5), "erfc": (-5, 10.3), "sin": (-10, 10),
    "cos": (-10, 10), "tan": (-1.5, 1.5), "asin": (-1, 1), "acos": (-1, 1), "atan": (-50, 50),
    "sinh": (-80, 80), "cosh": (-80, 80), "log": (0, 1e30), "log2": (0, 1e30), "log10": (0, 1e30),
    "log1p": (-0.999, 1e6), "sqrt": (0, 1e30), "rsqrt": (1e-30, 1e30), "floor": (-1e7, 1e7),
    "ceil": (-1e7, 1e7), "trunc": (-1e7, 1e7), "round": (-1e7, 1e7), "nearbyint": (-1e7, 1e7),
}  # fmt: skip
_vector_erf = np.vectorize(math.erf, otypes=[np.float64])
_vector_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _truth(name: str, x: np.ndarray) -> np.ndarray:
    match name:
        case "exp10":
            return 10.0**x
        case "sigmoid":
            return np.where(
                x >= 0, 1 / (1 + np.exp(-abs(x))), np.exp(-abs(x)) / (1 + np.exp(-abs(x)))
            )
        case "erf":
            return _vector_erf(x)
        case "erfc":
            return _vector_erfc(x)
        case "rsqrt":
            return 1 / np.sqrt(x)
        case "round":
            return np.copysign(np.floor(np.abs(x) + 0.5), x)
        case "nearbyint":
            return np.rint(x)
        case "asin" | "acos" | "atan":
            return getattr(np, "arc" + name[1:])(x)
    return getattr(np, name)(x)


def _samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    some = rng.uniform(low, high, 3000)
    near = rng.standard_normal(800) * 10.0 ** rng.uniform(-8, 0, 800)
    halves = np.arange(-140, 140) / 2
    found = np.concatenate([some, np.clip(near, low, high), np.clip(halves, low, high)])
    return np.resize(found, 4096).astype(np.float32)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("name", sorted(_RANGES))
def test_function_of_float32_is_within_4_units_in_the_last_place(name: str, lanes: int) -> None:
    x = _samples(*_RANGES[name])
    found = elementwise(
        lambda e: ops.unary(name, e), x, types=["float32"], result="float32", lanes=lanes
    )
    with np.errstate(all="ignore"):
        truth = _truth(name, x.astype(np.float64))
        rounded = truth.astype(np.float32)
        unit = np.spacing(np.minimum(abs(rounded), np.float32(3e38)))
        exact = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        error = np.where(exact, 0, abs(found.astype(np.float64) - truth) / unit)
    assert error.max() <= 4, (x[error.argmax()], found[error.argmax()], truth[error.argmax()])


_ENDS = ["exp", "log", "tanh", "erf", "erfc", "sigmoid", "log1p", "expm1", "exp2"]


@pytest.mark.parametrize("name", _ENDS)
def test_ends_of_the_range(name: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1e-42, 200, -200], np.float32)
    found = elementwise(
        lambda e: ops.unary(name, e), x, types=["float32"], result="float32", lanes=8
    )
    with np.errstate(all="ignore"):
        truth = _truth(name, x.astype(np.float64)).astype(np.float32)
    if name == "sigmoid":
        truth[1] = 0
    np.testing.assert_allclose(found, truth, rtol=3e-6, atol=2e-45)


_DOUBLES = ["exp", "log", "tanh", "erf", "erfc", "sqrt", "sigmoid", "exp10", "rsqrt"]


@pytest.mark.parametrize("name", _DOUBLES)
def test_function_of_float64(name: str) -> None:
    low, high = _RANGES[name]
    x = np.linspace(max(low, -30) + 0.01, min(high, 30), 64)
    found = elementwise(
        lambda e: ops.unary(name, e), x, types=["float64"], result="float64", lanes=4
    )
    np.testing.assert_allclose(found, _truth(name, x), rtol=1e-14)


@pytest.mark.parametrize("lanes", [1, 8])
def test_functions_of_several_values(lanes: int) -> None:
    rng = np.random.default_rng(1)
    x, y, z = (rng.uniform(0.5, 3, 64).astype(np.float32) for _ in range(3))
    three = {"types": ["float32"] * 3, "result": "float32", "lanes": lanes}
    found = elementwise(lambda a, b, c: ops.fma(a, b, c), x, y, z, **three)
    exact = (x.astype(np.float64) * y + z).astype(np.float32)
    np.testing.assert_array_equal(found, exact)
    found = elementwise(lambda a, b, c: ops.power(a, b) + c, x, y, z, **three)
    np.testing.assert_allclose(found, x.astype(np.float64) ** y + z, rtol=1e-6)


@pytest.mark.parametrize("lanes", [1, 8])
def test_extrema_keep_nan(lanes: int) -> None:
    nan = np.float32("nan")
    x = np.array([1, nan, 3, nan, -1, 0, 2, 5], np.float32)
    y = np.array([2, 2, nan, nan, -3, 4, 2, nan], np.float32)
    two = {"types": ["float32"] * 2, "result": "float32", "lanes": lanes}
    found = elementwise(lambda a, b: ops.maximum(a, b), x, y, **two)
    np.testing.assert_array_equal(found, np.maximum(x, y))
    found = elementwise(lambda a, b: ops.minimum(a, b), x, y, **two)
    np.testing.assert_array_equal(found, np.minimum(x, y))
    found = elementwise(lambda a, b: ops.maximum(a, 0.0) + ops.minimum(1.0, b), x, y, **two)
    np.testing.assert_array_equal(found, np.maximum(x, 0) + np.minimum(y, 1))


def test_vectors_of_exp_call_no_library() -> None:
    from tests.support.cpu import kernel, ramp
    from tests.support.kernels import buffer, loop, store

    from tilewright.ir import expr as E

    a, b = buffer("a", (64,)), buffer("b", (64,))

    def body(i: Expr) -> object:
        x = E.Load(a, (ramp(i * 16, 16),), None)
        return store(
            b, (ramp(i * 16, 16),), ops.unary("tanh", ops.unary("erf", ops.unary("exp", x)))
        )

    assembly = kernel([a, b], loop("i", 4, body)).assembly
    assert set(re.findall(r"call\w*\s+(\S+)", assembly)) <= {"f.test"}  # the kernel's own
