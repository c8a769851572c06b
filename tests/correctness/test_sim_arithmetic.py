"""The simulator's arithmetic is the machine's: widths, rounding, division, functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.kernels import Launch, buffer, module, store
from tests.support.narrow import from_bits, to_bits

from tilewright.ir import dtype, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.runtime.sim import simulate


def compute(make: object, *inputs: np.ndarray, types: tuple[str, ...], out: str) -> np.ndarray:
    """``make(values...)`` for each element, one a thread."""
    n = len(inputs[0])
    args = [buffer(f"A{k}", (n,), type=t) for k, t in enumerate(types)]
    b = buffer("B", (n,), type=out)
    at = Launch(threadIdx_x=n)
    value: Expr = make(*(a[at.threadx] for a in args))
    result = np.zeros(n, "uint16" if out == "bfloat16" else out)
    report = simulate(
        module(at.func("f", [*args, b], store(b, at.threadx, value))), [*inputs, result]
    )
    assert report.ok, str(report)
    return result


SIGNED = np.array([-7, -6, -1, 0, 1, 6, 7, 100], "int32")
DIVISORS = np.array([2, -4, 3, 5, -2, 4, -3, 7], "int32")
BOTH = {"types": ("int32", "int32"), "out": "int32"}


def test_floor_and_truncated_division_differ_below_zero() -> None:
    floor = compute(E.FloorDiv, SIGNED, DIVISORS, **BOTH)
    assert floor.tolist() == [a // b for a, b in zip(SIGNED, DIVISORS, strict=True)]
    modulo = compute(E.FloorMod, SIGNED, DIVISORS, **BOTH)
    assert modulo.tolist() == [a % b for a, b in zip(SIGNED, DIVISORS, strict=True)]
    trunc = compute(E.TruncDiv, SIGNED, DIVISORS, **BOTH)
    assert trunc.tolist() == [math.trunc(a / b) for a, b in zip(SIGNED, DIVISORS, strict=True)]
    rest = compute(E.TruncMod, SIGNED, DIVISORS, **BOTH)
    assert (trunc * DIVISORS + rest == SIGNED).all()


@pytest.mark.parametrize("type", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
def test_integers_wrap_around(type: str) -> None:
    low, high = np.iinfo(type).min, np.iinfo(type).max
    x = np.array([low, high, 3], type)
    one = ops.const(1, type)
    assert compute(lambda a: E.Add(a, one), x, types=(type,), out=type)[1] == low
    assert compute(lambda a: E.Sub(a, one), x, types=(type,), out=type)[0] == high


def test_bfloat16_rounds_to_nearest_even_after_every_operation() -> None:
    x = np.array([1.0, 1.0, 256.0, -3.0], "float32")
    y = np.array([2.0**-8, 3 * 2.0**-8, 1.0, 2.0**-7], "float32")
    found = compute(E.Add, to_bits(x), to_bits(y), types=("bfloat16",) * 2, out="bfloat16")
    assert from_bits(found).tolist() == [1.0, 1.0 + 2.0**-6, 256.0, -3.0]


def test_conversions_truncate_and_wrap() -> None:
    x = np.array([1.9, -1.9, 300.0, -0.5], "float32")
    for t in ("int32", "int8", "bool"):
        found = compute(lambda a, t=t: ops.cast(t, a), x, types=("float32",), out=t)
        assert (found == np.trunc(x).astype("int64").astype(t)).all() or t == "bool"
    assert compute(lambda a: ops.cast("bool", a), x, types=("float32",), out="bool").all()


def test_fma_rounds_once() -> None:
    x = np.array([1 + 2.0**-12], "float32")
    found = compute(lambda a: ops.fma(a, a, -1.0), x, types=("float32",), out="float32")
    assert found[0] == np.float32(2.0**-11 + 2.0**-24)
    y = np.array([1 + 2.0**-30])
    found = compute(lambda a: ops.fma(a, a, -1.0), y, types=("float64",), out="float64")
    assert found[0] == 2.0**-29 + 2.0**-60


@pytest.mark.parametrize("name", ops.FLOAT_FUNCTIONS)
@pytest.mark.parametrize("type", ["float32", "float16", "float64"])
def test_functions_agree_with_the_c_library(name: str, type: str) -> None:
    x = np.array([0.1, 0.25, 0.5, 0.75, 0.99], type)
    reference = {
        "exp10": lambda v: 10.0**v, "rsqrt": lambda v: v**-0.5, "nearbyint": round,
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "round": lambda v: math.floor(v + 0.5),
    }  # fmt: skip
    f = reference.get(name) or getattr(math, name)
    found = compute(lambda a: ops.unary(name, a), x, types=(type,), out=type)
    expected = np.array([f(float(v)) for v in x])
    assert np.allclose(found, expected, rtol=4 * np.finfo(type).eps, atol=1e-7)


def test_popcount_sees_the_bits_of_negative_numbers() -> None:
    found = compute(ops.popcount, np.array([-1, 0, 5, -2], "int32"), types=("int32",), out="int32")
    assert found.tolist() == [32, 0, 2, 31]


def test_a_call_of_the_c_library_is_the_function_of_that_name() -> None:
    x = np.array([0.5, -1.5], "float32")
    call = lambda a: E.Call(dtype("float32"), "extern:fabsf", (a,))  # noqa: E731
    assert compute(call, x, types=("float32",), out="float32").tolist() == [0.5, 1.5]
