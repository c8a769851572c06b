"""What expressions mean, on every target, against NumPy in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.support.schedules import (
    INTEGERS,
    Cases,
    apply,
    apply_all,
    assert_computes,
    check,
    everywhere,
    integers,
    skip_without,
)

from tilewright import te

# -- functions -----------------------------------------------------------------------------------

POSITIVE = np.linspace(0.05, 9, 37)
AROUND = np.linspace(-3.1, 3.3, 37)
UNIT = np.linspace(-0.97, 0.97, 37)
HALVES = np.arange(-18, 19) / 4

FUNCTIONS: dict[str, tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (AROUND, np.exp), "exp2": (AROUND, np.exp2), "exp10": (AROUND, lambda x: 10.0**x),
    "log": (POSITIVE, np.log), "log2": (POSITIVE, np.log2), "log10": (POSITIVE, np.log10),
    "log1p": (POSITIVE, np.log1p), "expm1": (AROUND, np.expm1), "sqrt": (POSITIVE, np.sqrt),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)), "sin": (AROUND, np.sin),
    "cos": (AROUND, np.cos), "tan": (UNIT, np.tan), "asin": (UNIT, np.arcsin),
    "acos": (UNIT, np.arccos), "atan": (AROUND, np.arctan), "sinh": (AROUND, np.sinh),
    "cosh": (AROUND, np.cosh), "tanh": (AROUND, np.tanh), "erf": (AROUND, np.vectorize(math.erf)),
    "erfc": (AROUND, np.vectorize(math.erfc)),
    "sigmoid": (AROUND, lambda x: 1 / (1 + np.exp(-x))), "floor": (HALVES, np.floor),
    "ceil": (HALVES, np.ceil), "trunc": (HALVES, np.trunc), "nearbyint": (HALVES, np.rint),
    "round": (HALVES, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "abs": (AROUND, np.abs),
}  # fmt: skip


def check_functions(names: Sequence[str], type: str, tolerance: float, target: str) -> None:
    skip_without(target, type)
    given = [FUNCTIONS[name][0].astype(type) for name in names]
    apart = [lambda *x, k=k, n=name: getattr(te, n)(x[k]) for k, name in enumerate(names)]
    found = apply_all(apart, *given, types=[type] * len(given), target=target)
    for name, x, y in zip(names, given, found):
        assert y.dtype == type
        want = FUNCTIONS[name][1](x.astype(np.float64))
        np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance / 5, err_msg=name)


@pytest.mark.parametrize(("type", "tolerance"), [("float32", 2e-6), ("float64", 1e-13)])
@everywhere
def test_functions_of_floats(type: str, tolerance: float, target: str) -> None:
    names = list(FUNCTIONS)
    for some in (names[:9], names[9:18], names[18:]):
        check_functions(some, type, tolerance, target)


@everywhere
def test_functions_of_halves(target: str) -> None:
    check_functions(
        ["exp", "tanh", "erf", "erfc", "sqrt", "sigmoid", "floor"], "float16", 3e-3, target
    )


@everywhere
def test_functions_of_two_and_three(target: str) -> None:
    x, y = POSITIVE.astype(np.float32), UNIT.astype(np.float32)
    two = ["float32", "float32"]
    wide = x.astype(np.float64)
    power, product, clipped = apply_all(
        [te.power, lambda a, b: te.fma(a, b, -1.0), lambda a, b: te.clip(a, 1.0, 4.5)],
        x, y, types=two, target=target,
    )  # fmt: skip
    np.testing.assert_allclose(power, wide**y, rtol=3e-6)
    np.testing.assert_allclose(product, wide * y - 1, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(clipped, np.clip(x, 1, 4.5))


@everywhere
def test_nan_and_infinities(target: str) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, -0.0, 0, 7, np.nan], np.float32)
    cases: Cases = [
        (te.isnan, np.isnan(x)),
        (lambda v: te.if_then_else(v > 0.0, 1, 0), (x > 0).astype(np.int32)),
        (lambda v: te.logical_not(v > 0.0), ~(x > 0)),
        (lambda v: -v, -x),
    ]
    check(cases, x, types=["float32"], target=target)


@everywhere
def test_popcount(target: str) -> None:
    types = ["uint8", "int32", "uint32", "int64"]
    arrays, cases = [], []
    for k, type in enumerate(types):
        x = np.arange(-20, 17).astype(type)
        bits = 8 * x.itemsize
        want = [bin(int(v) & (2**bits - 1)).count("1") for v in x]
        arrays.append(x)
        cases.append((lambda *x, k=k: te.popcount(x[k]), np.array(want, type)))
    check(cases, *arrays, types=types, target=target)


@everywhere
def test_bits_of_another_type(target: str) -> None:
    x = np.array([1.5, -0.0, np.inf, 1e-40, -7.25, 3e38, 2.0**-126], np.float32)
    cases: Cases = []
    for real, bits in (("float32", 32), ("float64", 64)):
        wide = x.astype(real)
        k = int(bits == 64)
        for kind in (f"int{bits}", f"uint{bits}"):
            cases.append((lambda *v, k=k, t=kind: te.reinterpret(t, v[k]), wide.view(kind)))
            turned = (wide.view(kind) ^ np.array(1, kind)).view(real)
            cases.append(
                (
                    lambda *v, k=k, t=kind, r=real: te.reinterpret(r, te.reinterpret(t, v[k]) ^ 1),
                    turned,
                )
            )
    small = np.arange(-3, 4).astype("int16")
    cases.append((lambda *v: te.reinterpret("uint16", v[2]), small.view("uint16")))
    types = ["float32", "float64", "int16"]
    check(cases, x, x.astype("float64"), small, types=types, target=target)


# -- integers ------------------------------------------------------------------------------------

DIVIDENDS = np.repeat(np.arange(-9, 10), 6)
DIVISORS = np.tile([-4, -3, -1, 1, 3, 5], 19)


@pytest.mark.parametrize("type", ["int8", "int32", "int64"])
@everywhere
def test_division_rounds_down_or_towards_zero(type: str, target: str) -> None:
    a, b = DIVIDENDS.astype(type), DIVISORS.astype(type)
    quotient = np.trunc(DIVIDENDS / DIVISORS).astype(type)
    cases: Cases = [
        (te.floordiv, a // b), (te.floormod, a % b),
        (te.truncdiv, quotient), (te.truncmod, a - quotient * b),
        (lambda x, y: x // y, a // b), (lambda x, y: x % y, a % b),
    ]  # fmt: skip
    check(cases, a, b, types=[type, type], target=target)


@everywhere
def test_division_by_a_constant(target: str) -> None:
    a = np.arange(-20, 21, dtype=np.int32)
    for divisors in ((-5, -4, -1), (1, 2, 3, 8)):
        cases: Cases = []
        for d in divisors:
            quotient = np.trunc(a / d).astype(np.int32)
            cases += [
                (lambda x, d=d: te.floordiv(x, d), a // d),
                (lambda x, d=d: te.floormod(x, d), a % d),
                (lambda x, d=d: te.truncdiv(x, d), quotient),
                (lambda x, d=d: te.truncmod(x, d), a - quotient * d),
            ]
        check(cases, a, types=["int32"], target=target)


@everywhere
def test_ceildiv_and_division_of_floats(target: str) -> None:
    a = np.arange(0, 41, dtype=np.int32)
    found = apply(lambda x: te.ceildiv(x, 7), a, types=["int32"], target=target)
    np.testing.assert_array_equal(found, -(-a // 7))
    x = np.arange(-20, 21).astype(np.float32)
    cases: Cases = [(lambda v: v // 4.0, x // 4), (lambda v: te.div(v, 4.0), x / 4)]
    check(cases, x, types=["float32"], target=target)


@pytest.mark.parametrize("type", ["int8", "int32", "uint8", "uint32", "int64"])
@everywhere
def test_bits(type: str, target: str) -> None:
    a = np.arange(37).astype(type)
    b = (np.arange(37) * 5 % 64).astype(type)
    n = (np.arange(37) % 7).astype(type)
    cases: Cases = [
        (lambda x, y, n: x & y, a & b), (lambda x, y, n: x | y, a | b),
        (lambda x, y, n: x ^ y, a ^ b), (lambda x, y, n: x << n, a << n),
        (lambda x, y, n: x >> n, a >> n), (lambda x, y, n: ~x, ~a),
    ]  # fmt: skip
    check(cases, a, b, n, types=[type] * 3, target=target)


@everywhere
def test_arithmetic_wraps_in_the_type_of_its_operands(target: str) -> None:
    arrays, cases = [], []
    for k, type in enumerate(INTEGERS):
        low, high = np.iinfo(type).min, np.iinfo(type).max
        a = np.array([low, high, 0, 1, high - 1, 7, 3, 5], type)
        arrays.append(a)
        with np.errstate(over="ignore"):
            cases.append((lambda *x, k=k: x[k] * x[k] + x[k], a * a + a))
    check(cases, *arrays, types=INTEGERS, target=target)


# -- choices -------------------------------------------------------------------------------------


@everywhere
def test_conditions(target: str) -> None:
    a, b = integers(37, type="int32", seed=1), integers(37, type="int32", seed=2)
    cases: Cases = [
        (lambda x, y: te.all(x < y, y < 3), (a < b) & (b < 3)),
        (lambda x, y: te.any(x <= y, y > 3, x == 2), (a <= b) | (b > 3) | (a == 2)),
        (lambda x, y: ~te.all(x >= y, x != 0), ~((a >= b) & (a != 0))),
        (lambda x, y: (x < y) ^ (y < 0), (a < b) ^ (b < 0)),
        (lambda x, y: (x < y) & (y < 0), (a < b) & (b < 0)),
        (lambda x, y: te.all([x < y]), a < b),
    ]
    check(cases, a, b, types=["int32", "int32"], target=target)


@everywhere
def test_a_choice_evaluates_what_it_chooses(target: str) -> None:
    n = 37
    a = te.placeholder((n,), name="A")
    lazy = te.compute((n,), lambda i: te.if_then_else(i > 0, a[i - 1], -1.0), name="lazy")
    both = te.compute((n,), lambda i: te.Select(a[i] > 0.0, a[i], a[n - 1 - i]), name="both")
    s = te.create_schedule([lazy.op, both.op])
    if target != "llvm":
        for t in (lazy, both):
            s[t].bind(t.op.axis[0], te.thread_axis("threadIdx.x"))
    x = integers(n)
    expected = [np.concatenate([[-1], x[:-1]]).astype(np.float32), np.where(x > 0, x, x[::-1])]
    assert_computes(s, [a, lazy, both], [x], expected, target)


@everywhere
def test_a_select_that_would_read_out_of_bounds_chooses_first(target: str) -> None:
    n = 37
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.select(i > 0, a[i - 1], -1.0), name="B")
    s = te.create_schedule(b.op)
    if target != "llvm":
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    x = integers(n)
    assert_computes(s, [a, b], [x], np.concatenate([[-1], x[:-1]]).astype(np.float32), target)
