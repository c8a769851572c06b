"""Every operator in every type gives the same on every target, for extreme values as for others.

A result is used three ways: widened, compared, and as the operand of a maximum. C computes narrow
integers as int, so a value that is not brought back into its type shows in the first two, and a
type that is not the declared one in the third, where functions are overloaded. Sums, differences
and products of int32 and int64 are of operands that leave room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import cuda_on_cpu
from tests.support.narrow import from_bits, to_bits
from tests.support.schedules import lacking

import tilewright
from tilewright import te
from tilewright.ir.dtype import dtype, int_range
from tilewright.ir.expr import Max, Min
from tilewright.lower.pipeline import lower

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "bfloat16"]
COUNT = 128
LANES = 8

Array = np.ndarray[Any, Any]
#: An operator by its name: what te computes, and what it means for Python's numbers.
Operators = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]


def trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _both(operator: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What te and Python write alike."""
    return operator, operator


def integer_operators(type: str) -> Operators:
    """Of x and y, a divisor d and a shift k."""
    t = dtype(type)
    mask = 2**t.bits - 1
    spare_bits = t.bits // 2 + 1 if t.kind == "int" and t.bits >= 32 else 0

    def c(value: int) -> Any:
        return te.const(value, type)

    def less(e: Any) -> Any:
        """So much less of a value that products fit."""
        return e if not spare_bits else e >> (spare_bits if isinstance(e, int) else c(spare_bits))

    found: Operators = {
        "x + y": _both(lambda x, y, d, k: less(x) + less(y)),
        "x - y": _both(lambda x, y, d, k: less(x) - less(y)),
        "x * y": _both(lambda x, y, d, k: less(x) * less(y)),
        "x * y + d": _both(lambda x, y, d, k: less(x) * less(y) + less(d)),
        "x + x - 100": _both(lambda x, y, d, k: less(x) + less(x) - 100),
        "x // d": (lambda x, y, d, k: te.floordiv(x, d), lambda x, y, d, k: x // d),
        "x % d": (lambda x, y, d, k: te.floormod(x, d), lambda x, y, d, k: x % d),
        "truncdiv": (lambda x, y, d, k: te.truncdiv(x, d), lambda x, y, d, k: trunc_div(x, d)),
        "truncmod": (
            lambda x, y, d, k: te.truncmod(x, d),
            lambda x, y, d, k: x - d * trunc_div(x, d),
        ),
        "x // 4": _both(lambda x, y, d, k: x // 4),
        "x % 4": _both(lambda x, y, d, k: x % 4),
        "x // 3": _both(lambda x, y, d, k: x // 3),
        "x % 3": _both(lambda x, y, d, k: x % 3),
        "min": (lambda x, y, d, k: te.min(x, y), lambda x, y, d, k: min(x, y)),
        "max": (lambda x, y, d, k: te.max(x, y), lambda x, y, d, k: max(x, y)),
        "clip": (lambda x, y, d, k: te.clip(x, c(1), c(9)), lambda x, y, d, k: min(max(x, 1), 9)),
        "x & y": _both(lambda x, y, d, k: x & y),
        "x | y": _both(lambda x, y, d, k: x | y),
        "x ^ y": _both(lambda x, y, d, k: x ^ y),
        "~x": _both(lambda x, y, d, k: ~x),
        "x << k": _both(lambda x, y, d, k: (x & 1 if spare_bits else x) << k),
        "x >> k": _both(lambda x, y, d, k: x >> k),
        "popcount": (lambda x, y, d, k: te.popcount(x), lambda x, y, d, k: (x & mask).bit_count()),
        "select": (
            lambda x, y, d, k: te.select(x < y, x, c(7)),
            lambda x, y, d, k: x if x < y else 7,
        ),
        "if_then_else": (
            lambda x, y, d, k: te.if_then_else(x == y, x, d),
            lambda x, y, d, k: x if x == y else d,
        ),
        "of constants": (
            lambda x, y, d, k: te.if_then_else(x >= y, c(1), c(3)),
            lambda x, y, d, k: 1 if x >= y else 3,
        ),
        "conditions": (
            lambda x, y, d, k: te.cast(type, te.max(x < y, te.min(y != d, x <= d))),
            lambda x, y, d, k: int(x < y or (y != d and x <= d)),
        ),
        "bool": (
            lambda x, y, d, k: te.cast(type, Max(x < y, Min(y.equal(d), x <= d))),
            lambda x, y, d, k: int(x < y or (y == d and x <= d)),
        ),
        "not": (
            lambda x, y, d, k: te.cast(type, (~(x > y)) & (y < d)),
            lambda x, y, d, k: int(not x > y and y < d),
        ),
    }
    if t.kind == "int":
        found["-x"] = _both(lambda x, y, d, k: -less(x))
        found["abs"] = (lambda x, y, d, k: te.abs(less(x)), lambda x, y, d, k: abs(x >> spare_bits))
    for other in INTEGERS:
        o = dtype(other)
        found[f"as {other}"] = (
            lambda x, y, d, k, other=other: te.cast(type, te.cast(other, x)),
            lambda x, y, d, k, o=o: wrapped(x, o),
        )
    return found


def wrapped(value: int, t: Any) -> int:
    """``value`` as an integer type holds it."""
    low, _ = int_range(t)
    return (value - low) % 2**t.bits + low


def integer_values(type: str) -> list[Array]:
    """Operands, divisors and shifts: all pairs of extreme values, and random ones."""
    low, high = int_range(dtype(type))
    bits = dtype(type).bits
    edges = [low, low + 1, low // 2, 0, 1, 2, high // 2 + 1, high - 1, high]
    edges += [-1] if low else [3]
    rng = np.random.default_rng(bits)
    pairs = [(x, y) for x in edges for y in edges]
    rest = rng.integers(low, high, (COUNT - len(pairs), 2), type, endpoint=True)
    x, y = (np.array([*column], type) for column in zip(*pairs, *rest.tolist()))
    d = np.where(y == 0, np.array(5, type), y)
    if low:
        d = np.where((d == -1) & (x == low), np.array(-3, type), d)  # the quotient has no value
    return [x, y, d.astype(type), rng.integers(0, bits, COUNT).astype(type)]


#: What the three uses of a result are multiplied by before they are put together.
WEIGHTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


def uses(v: Any, y: Any) -> Any:
    """A result widened, compared, and as an operand, in one number."""
    wide, other = (te.const(w, "uint64") for w in WEIGHTS)
    most = te.cast("uint64", te.max(v, y)) * other
    return te.cast("uint64", v) * wide + most + te.cast("uint64", v < y)


def used(v: int, y: int) -> int:
    return (v * WEIGHTS[0] + max(v, y) * WEIGHTS[1] + (v < y)) % 2**64


def evaluate(
    make: Callable[..., tuple[Any, ...]],
    inputs: Sequence[Array],
    types: Sequence[str],
    target: str,
    vector: bool,
    folder: Path,
) -> list[Array]:
    """What ``make(*elements)`` gives for each element: all values by one kernel."""
    tensors = [te.placeholder((COUNT,), t, name=f"A{n}") for n, t in enumerate(types)]
    made = te.compute((COUNT,), lambda i: make(*(a[i] for a in tensors)), name="B")
    made = made if isinstance(made, (list, tuple)) else [made]
    s = te.create_schedule(made[0].op)
    outer, inner = s[made[0]].split(made[0].op.axis[0], factor=LANES)
    if target != "llvm":
        s[made[0]].bind(outer, te.thread_axis("threadIdx.x"))
    if vector:
        s[made[0]].vectorize(inner)
    outputs = [cuda_on_cpu.aligned(np.zeros(COUNT, numpy_type(t.dtype))) for t in made]
    if target == "cuda":
        module = lower(s, [*tensors, *made], "cuda -arch=sm_90a")
        arrays = [cuda_on_cpu.aligned(a) for a in inputs]
        folder = folder / types[0]  # a library once loaded is not loaded again
        folder.mkdir()
        assert cuda_on_cpu.run(module, [*arrays, *outputs], {}, folder) == 0
    else:
        tilewright.build(s, [*tensors, *made], target)(*inputs, *outputs)
    return outputs


def numpy_type(type: str) -> str:
    return "uint16" if type == "bfloat16" else type


TARGETS = [
    "llvm",
    "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param(
        "cuda", marks=pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no C++ compiler")
    ),
]


@pytest.mark.parametrize("vector", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("target", TARGETS)
def test_operators_of_integers_agree(target: str, vector: bool, tmp_path: Path) -> None:
    for type in INTEGERS:
        operators = integer_operators(type)
        inputs = integer_values(type)

        def make(x: Any, y: Any, d: Any, k: Any, operators: Operators = operators) -> Any:
            return tuple(uses(e(x, y, d, k), y) for e, _ in operators.values())

        found = evaluate(make, inputs, [type] * 4, target, vector, tmp_path)
        for name, got in zip(operators, found, strict=True):
            meaning = operators[name][1]
            for x, y, d, k, value in zip(*(a.tolist() for a in (*inputs, got)), strict=True):
                want = wrapped(int(meaning(x, y, d, k)), dtype(type))
                assert value == used(want, y), f"{name} of {type} {x}, {y}, {d}, {k} is not {want}"


def float_operators(type: str) -> Operators:
    """Of x, y and d, in what is exact or rounded once; NumPy's functions are of arrays."""

    def c(value: float) -> Any:
        return te.const(value, type)

    found: Operators = {
        "x + y": _both(lambda x, y, d: x + y),
        "x - y": _both(lambda x, y, d: x - y),
        "x * y": _both(lambda x, y, d: x * y),
        "-x": _both(lambda x, y, d: -x),
        "abs": (lambda x, y, d: te.abs(x), lambda x, y, d: np.abs(x)),
        "min": (lambda x, y, d: te.min(x, y), lambda x, y, d: np.minimum(x, y)),
        "max": (lambda x, y, d: te.max(x, y), lambda x, y, d: np.maximum(x, y)),
        "clip": (
            lambda x, y, d: te.clip(x, c(-1.5), c(2)),
            lambda x, y, d: np.minimum(np.maximum(x, -1.5), 2),
        ),
        "select": (
            lambda x, y, d: te.select(x < y, x, c(7)),
            lambda x, y, d: np.where(x < y, x, 7),
        ),
        "if_then_else": (
            lambda x, y, d: te.if_then_else(x >= y, te.max(x, d), c(3)),
            lambda x, y, d: np.where(x >= y, np.maximum(x, d), 3),
        ),
        "relu": (
            lambda x, y, d: te.select(x < c(0), c(0), x),
            lambda x, y, d: np.where(x < 0, np.zeros_like(x), x),
        ),
        "comparisons": (
            lambda x, y, d: te.cast(type, te.any(x < y, te.all(y != d, ~(x <= d)))),
            lambda x, y, d: np.logical_or(x < y, np.logical_and(y != d, ~(x <= d))),
        ),
        "isnan": (lambda x, y, d: te.cast(type, te.isnan(x)), lambda x, y, d: np.isnan(x)),
    }  # fmt: skip
    for other in INTEGERS:
        found[f"of {other}"] = (
            lambda x, y, d, other=other: te.cast(type, te.cast(other, te.clip(d, c(0), c(100)))),
            lambda x, y, d, other=other: np.clip(d, 0, 100).astype(other),
        )
    return found


def float_values() -> list[Array]:
    """Pairs of specials, and a third operand that is a small number; each type holds them."""
    specials = [0.0, -0.0, 1.0, -1.5, 2.0**-14, 3.25, -96.0, 1024.0, np.inf, -np.inf, np.nan]
    pairs = [(x, y) for x in specials for y in specials]
    pairs += pairs[: COUNT - len(pairs)]
    x, y = (np.array(column, "float32") for column in zip(*pairs))
    return [x, y, np.random.default_rng(0).integers(-3, 100, COUNT).astype("float32")]


def rounded(values: Array, type: str) -> Array:
    """Values of float64 as those of ``type``, in an array of float64."""
    with np.errstate(all="ignore"):
        if type == "bfloat16":
            return from_bits(to_bits(values)).astype("float64")
        return np.asarray(values, type).astype("float64")


def as_stored(values: Array, type: str) -> Array:
    return to_bits(values) if type == "bfloat16" else values.astype(type)


@pytest.mark.parametrize("vector", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("target", TARGETS)
def test_operators_of_floats_agree(target: str, vector: bool, tmp_path: Path) -> None:
    inputs = float_values()
    wide = [a.astype("float64") for a in inputs]
    for type in FLOATS:
        if target == "opencl" and lacking(type):
            continue
        operators = float_operators(type)

        def make(x: Any, y: Any, d: Any, operators: Operators = operators) -> Any:
            return tuple(e(x, y, d) for e, _ in operators.values())

        stored = [as_stored(a, type) for a in inputs]
        found = evaluate(make, stored, [type] * 3, target, vector, tmp_path)
        for name, got in zip(operators, found, strict=True):
            with np.errstate(all="ignore"):
                want = rounded(operators[name][1](*wide), type)
            value = from_bits(got) if type == "bfloat16" else got
            np.testing.assert_array_equal(value, want, err_msg=f"{name} of {type}")
