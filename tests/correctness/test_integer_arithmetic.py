"""What integers do at the ends of their range, and when divided by zero, on every target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import cuda_on_cpu
from tests.support.found import agree
from tests.support.schedules import INTEGERS, apply_all, everywhere, run

import tilewright
from tilewright import te
from tilewright.ir.errors import LanguageError, LoweringError

Number = np.ndarray[Any, Any]


def extremes(type: str, seed: int = 0) -> np.ndarray:
    """Ends of the range, small numbers, zeros and random ones, 64 in all."""
    info = np.iinfo(type)
    fixed = [info.min, info.max, 0, 1, 2, 3, 7, info.max - 1, info.min + 1]
    if info.min < 0:
        fixed += [-1, -2, -3]
    rng = np.random.default_rng(seed)
    rest = rng.integers(info.min, info.max, 64 - len(fixed), type, endpoint=True)
    return rng.permutation(np.concatenate([np.array(fixed, type), rest]))


def pairs(type: str) -> tuple[np.ndarray, np.ndarray]:
    """Operands that meet at the ends, with a divisor of 0 and of -1 for every kind of dividend."""
    a, b = extremes(type, 1), extremes(type, 2)
    ends = [np.iinfo(type).min, np.iinfo(type).max, 5, 0]
    divisors = [0, -1 if np.iinfo(type).min < 0 else 1]
    x, y = np.meshgrid(np.array(ends, type), np.array(divisors, type))
    return np.concatenate([a, x.reshape(-1)]), np.concatenate([b, y.reshape(-1)])


def exactly(f: Callable[[int, int], int], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``f`` of numbers without end, brought into the type of the operands."""
    bits = a.dtype.itemsize * 8
    found = [f(int(x), int(y)) & (2**bits - 1) for x, y in zip(a, b)]
    return np.array(found, f"uint{bits}").astype(a.dtype)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


ARITHMETIC: list[tuple[Callable[..., Any], Callable[[int, int], int]]] = [
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a * b, lambda a, b: a * b),
    (te.floordiv, lambda a, b: a // b if b else 0),
    (te.floormod, lambda a, b: a % b if b else 0),
    (te.truncdiv, truncated),
    (te.truncmod, lambda a, b: a - truncated(a, b) * b if b else 0),
    (
        lambda a, b: a // 3 + a % 3 + te.truncdiv(a, 5),
        lambda a, b: a // 3 + a % 3 + truncated(a, 5),
    ),
]


@pytest.mark.parametrize("type", INTEGERS)
@everywhere
def test_arithmetic_wraps_around_and_division_by_zero_is_zero(type: str, target: str) -> None:
    a, b = pairs(type)
    functions = [f for f, _ in ARITHMETIC]
    found = apply_all(functions, a, b, types=[type, type], target=target)
    for k, (got, (_, want)) in enumerate(zip(found, ARITHMETIC)):
        np.testing.assert_array_equal(got, exactly(want, a, b), err_msg=f"operation {k}")


@pytest.mark.parametrize("type", INTEGERS)
@everywhere
def test_a_shift_by_the_width_or_more_leaves_zeros_or_the_sign(type: str, target: str) -> None:
    bits = np.iinfo(type).bits
    a = extremes(type)
    by = np.resize(np.array([0, 1, bits - 1, bits, bits + 1, 100], type), a.shape)
    left = exactly(lambda x, k: x << k if k < bits else 0, a, by)
    right = exactly(lambda x, k: x >> min(k, bits), a, by)
    found = apply_all(
        [lambda a, b: a << b, lambda a, b: a >> b, lambda a, b: a >> (bits + 3)],
        a, by, types=[type, type], target=target,
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], left)
    np.testing.assert_array_equal(found[1], right)
    np.testing.assert_array_equal(found[2], exactly(lambda x, _: x >> bits, a, by))


@pytest.mark.parametrize("type", INTEGERS)
@everywhere
def test_the_size_of_the_least_integer_is_itself_in_wider_types_too(type: str, target: str) -> None:
    a = extremes(type)
    found = apply_all(
        [lambda a: te.abs(a), lambda a: te.min(te.cast("int64", te.abs(a)), 7)],
        a, types=[type], target=target,
    )  # fmt: skip
    sizes = exactly(lambda x, _: abs(x), a, a)
    np.testing.assert_array_equal(found[0], sizes)
    np.testing.assert_array_equal(found[1], np.minimum(sizes.astype("int64"), 7))


@everywhere
def test_comparisons_see_what_wrapped_around(target: str) -> None:
    a, b = pairs("int32")
    found = apply_all(
        [
            lambda a, b: te.cast("int32", a + 1 > a),
            lambda a, b: te.max(a + b, a),
            lambda a, b: te.if_then_else(a * 2 >= 0, a * 2 // 2, -1),
        ],
        a, b, types=["int32", "int32"], target=target,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found[0], (a + np.int32(1) > a).astype("int32"))
        np.testing.assert_array_equal(found[1], np.maximum(a + b, a))
        double = a * np.int32(2)
        np.testing.assert_array_equal(found[2], np.where(double >= 0, double // 2, -1))


def divided(m: Any, i: Any) -> Any:
    """Of Python's and NumPy's integers, and of expressions."""
    return (m + i) // 3 + (m + i) % 4 * 100


def launched(s: Any, tensor: te.Tensor, target: str) -> None:
    if target == "llvm":
        return
    outer, inner = s[tensor].split(tensor.op.axis[0], factor=32)
    s[tensor].bind(outer, te.thread_axis("blockIdx.x"))
    s[tensor].bind(inner, te.thread_axis("threadIdx.x"))


@everywhere
def test_index_arithmetic_is_exact(target: str) -> None:
    n = 50000
    B = te.compute((n,), lambda i: i * 100000 // 100000 - (i * 100000) % 99999, name="B")
    s = te.create_schedule(B.op)
    launched(s, B, target)
    (found,) = run(s, [B], [], target)
    i = np.arange(n, dtype="int64")
    np.testing.assert_array_equal(found, i - i * 100000 % 99999)


@pytest.mark.parametrize("inline", [False, True])
@everywhere
def test_an_element_is_the_same_number_kept_or_computed_where_it_is_read(
    inline: bool, target: str
) -> None:
    n = 50000
    A = te.placeholder((n,), "int32", name="A")
    S = te.compute((n,), lambda i: i * 100000, name="S")
    B = te.compute((n,), lambda i: te.floordiv(te.max(S[i], A[i]), 1000), name="B")
    s = te.create_schedule(B.op)
    if inline:
        s[S].compute_inline()
    else:
        launched(s, S, target)
    launched(s, B, target)
    a = np.full(n, -(2**31), "int32")
    (found,) = run(s, [A, B], [a], target)
    wrapped = (np.arange(n) * 100000).astype("int32")
    np.testing.assert_array_equal(found, wrapped // 1000)


@pytest.mark.parametrize("value", [-(2**31), -7, -1, 0, 5, 2**31 - 1])
@everywhere
def test_a_number_that_is_no_extent_may_be_negative(value: int, target: str) -> None:
    m = te.var("m")
    A = te.placeholder((16,), "int32", name="A")
    B = te.compute((16,), lambda i: divided(m, i) + A[te.floormod(m - i, 16)], name="B")
    s = te.create_schedule(B.op)
    launched(s, B, target)
    a, b, i = np.arange(16, dtype="int32"), np.empty(16, "int32"), np.arange(16, dtype="int64")
    tilewright.build(s, [A, B, m], target)(a, b, value)
    np.testing.assert_array_equal(b, divided(value, i).astype("int32") + a[(value - i) % 16])


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler")
def test_a_number_that_is_no_extent_may_be_negative_in_cuda_source(tmp_path: Path) -> None:
    m = te.var("m")
    B = te.compute((16,), lambda i: divided(m, i), name="B")
    s = te.create_schedule(B.op)
    launched(s, B, "cuda")
    module = tilewright.lower(s, [B, m], "cuda -arch=sm_90a")
    b = cuda_on_cpu.aligned(np.zeros(16, "int32"))
    assert cuda_on_cpu.run(module, [b], {"m": -7}, tmp_path) == 0
    np.testing.assert_array_equal(b, divided(-7, np.arange(16)).astype("int32"))


@everywhere
def test_a_constant_is_brought_into_its_type_where_it_is_a_value(target: str) -> None:
    a = np.array([-(2**31), -5, -4, 0, 2**31 - 1], "int32")
    most = te.const(2**31 - 1, "int32")
    (found,) = apply_all(
        [lambda a: te.select(a < most * 4, 1, 0) + te.select(a < most + 1, 2, 0)],
        a, types=["int32"], target=target,
    )  # fmt: skip
    np.testing.assert_array_equal(found, (a < -4).astype("int32"))


def test_a_constant_beyond_64_bits_is_refused() -> None:
    A = te.placeholder((4,), "int64", name="A")
    with pytest.raises(LanguageError, match="beyond what 64 bits hold"):
        te.compute((4,), lambda i: A[i] * -te.const(-(2**63), "int64"), name="B")


def test_an_index_beyond_64_bits_is_refused() -> None:
    n = te.var("n", "int64", most=2**62)
    A = te.placeholder((n,), name="A")
    with pytest.raises(LanguageError, match="beyond what 64 bits hold"):
        te.compute((n,), lambda i: i * i, name="B")
    B = te.compute((4,), lambda i: te.if_then_else(n * n % 4 > i, 1.0, 0.0), name="B")
    with pytest.raises(LoweringError, match="64 bits"):
        tilewright.lower(te.create_schedule(B.op), [A, B, n], "llvm")


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("value", [
    lambda p, i: te.clip(p + i, 0, 7),
    lambda p, i: te.if_then_else(p + i > 0, 1, 2),
    lambda p, i: (p + i) * 3 // 3,
], ids=["clip", "condition", "product"])  # fmt: skip
def test_what_is_computed_where_it_is_read_is_the_same_by_an_index_from_memory(value, target):
    """Fuzzing, llvm 13024886: of data, ``p + i`` wrapped around where that of an axis does not."""
    p = te.var("p", "int32")
    first = te.compute((5,), lambda i: te.cast("int64", value(p, i)), name="first")
    places = te.placeholder((11,), "uint8", name="places")
    second = te.compute((11,), lambda i: first[te.min(places[i], 4)], name="second")
    s = te.create_schedule(second.op)
    s[first].compute_inline()
    if target == "sim":
        s[second].bind(s[second].op.axis[0], te.thread_axis("threadIdx.x"))
    agree(s, [places], [second], target, {p: 2**31 - 3})


def test_a_signed_number_widened_as_an_unsigned_one_compares_as_that():
    """LLVM 22's vectoriser of straight code compared it in 32 bits, as a signed one
    (llvm, seed 15007780 of the fuzzer)."""
    b, c, d = (te.placeholder((9,), t, name=t) for t in ("int32", "int8", "uint16"))

    def element(j: te.Var) -> te.Expr:
        wide = c[j].astype("uint32").astype("int64")
        return te.Select((40 // (0 - b[j])).astype("int64") <= wide, wide, d[j].astype("int64"))

    out = te.compute((9,), element, name="out")
    kernel = tilewright.build(te.create_schedule(out.op), [b, c, d, out], target="llvm")
    divisors = np.array([-2, 3, 1, -40, 7, 40, -1, 2, 5], "int32")
    numbers = np.array([-2, -1, 5, -128, 127, 0, 3, -3, 9], "int8")
    others, found = np.arange(9, dtype="uint16"), np.empty(9, "int64")
    kernel(divisors, numbers, others, found)
    wide = numbers.astype("uint32").astype("int64")
    assert np.array_equal(found, np.where(40 // -divisors.astype("int64") <= wide, wide, others))


OF_AN_ELEMENT = {
    "product": lambda x: te.floordiv(x * x, 7),
    "sum": lambda x: te.floordiv(x + x, 3),
    "difference": lambda x: te.if_then_else(0 - x - x < -2000000000, 1, 2),
    "shift": lambda x: te.floordiv(x << 14, 5),
    "constant": lambda x: te.if_then_else(te.if_then_else(x < -1, x, 2**30) * 2 < 1, 1, 0),
}


@pytest.mark.parametrize("value", list(OF_AN_ELEMENT))
@everywhere
def test_arithmetic_on_an_element_wraps_around_where_the_element_is_an_index(value, target):
    """Fuzzing, llvm 15029768: what data is simplified to, or computed from where it is read, may
    be an index or a constant, and arithmetic on it still wraps around."""
    n, results = 300, []
    for inline in (False, True):
        S = te.compute((n,), lambda i: i * 7000000, name="S")
        B = te.compute((n,), lambda i: OF_AN_ELEMENT[value](S[i]), name="B")  # noqa: B023
        s = te.create_schedule(B.op)
        if inline:
            s[S].compute_inline()
        else:
            launched(s, S, target)
        launched(s, B, target)
        results += run(s, [B], [], target)
    x = (np.arange(n) * 7000000).astype("int32")
    expected = {
        "product": x * x // 7,
        "sum": (x + x) // 3,
        "difference": np.where(0 - x - x < -2000000000, 1, 2),
        "shift": (x << 14) // 5,
        "constant": np.ones(n),
    }
    for found in results:
        np.testing.assert_array_equal(found, expected[value])


@everywhere
def test_a_product_of_data_and_an_axis_has_the_sign_of_its_factors(target):
    """Fuzzing, llvm 15016003: after a split and a fuse, the axis is a sum of quotients whose terms
    do not tell that it is not negative; the product's lower bound was less than zero for it."""
    F = te.placeholder((7, 3), "uint16", name="F")
    E = te.placeholder((200,), name="E")
    B = te.compute(
        (7, 3), lambda i, j: E[te.min(te.max(te.cast("int64", F[i, j]) * i, 0), 199)], name="B"
    )
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(s[B].op.axis[0], factor=6)
    middle, inner = s[B].split(inner, nparts=4)
    outer = s[B].fuse(outer, middle)
    if target != "llvm":
        s[B].bind(outer, te.thread_axis("blockIdx.x"))
        s[B].bind(inner, te.thread_axis("threadIdx.x"))
    rng = np.random.default_rng(0)
    f = rng.integers(0, 2**16, (7, 3)).astype("uint16")
    f[::2] %= 40
    e = rng.standard_normal(200).astype("float32")
    (found,) = run(s, [F, E, B], [f, e], target)
    index = np.minimum(f.astype("int64") * np.arange(7)[:, None], 199)
    np.testing.assert_array_equal(found, e[index])
