"""Programs of rows on a CPU: each reduction in vectors along the row."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import relative

from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.operators import Program
from tilewright.topi.pieces.rows import rows_of
from tilewright.topi.templates import TEMPLATES, candidates

ROWS = TEMPLATES["cpu.rows"]
NORM = (
    "sum(a0, axis=(2,), keepdims=True)", "divide(t0, {n})", "subtract(a0, t1)",
    "multiply(t2, t2)", "sum(t3, axis=(2,), keepdims=True)", "divide(t4, {n})", "add(t5, 1e-06)",
    "rsqrt(t6)", "multiply(t2, t7)", "multiply(t8, a1)", "add(t9, a2)",
)  # fmt: skip


def norm(n: int, dtype: str = "float32", rows: str = "3x7") -> Program:
    return Program(
        operands=(f"{dtype}[{rows}x{n}]", f"{dtype}[{n}]", f"{dtype}[{n}]"),
        body=tuple(text.format(n=n) for text in NORM),
    )


def run(p: Program, *arrays, target: str = "llvm"):
    machine = Target.parse(target)
    made = []
    for config in ROWS.candidates(p, machine):
        y = np.full(p.result.shape, np.nan, p.dtype)
        Scheduled(ROWS).kernel(p, config, machine)(*arrays, y)
        made.append(y)
    assert made
    return made


@pytest.mark.parametrize("target", ["llvm", "llvm -threads=1 -arch=baseline"])
@pytest.mark.parametrize(("n", "dtype"), [(16, "float32"), (37, "float32"), (401, "float32"),
                                          (96, "float64")])  # fmt: skip
def test_rows_are_normalised(n, dtype, target):
    random = np.random.default_rng(n)
    x, scale, shift = (random.standard_normal(s).astype(dtype) for s in ((3, 7, n), n, n))
    exact = x.astype("float64")
    exact = exact - exact.mean(-1, keepdims=True)
    wanted = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6) * scale + shift
    for y in run(norm(n, dtype), x, scale, shift, target=target):
        assert relative(y, wanted) < 1e-6


@pytest.mark.parametrize("n", [16, 50, 130])
def test_softmax_and_sums_of_rows(n):
    x = np.random.default_rng(n).standard_normal((5, n)).astype("float32") * 20
    e = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    soft = Program(operands=(f"float32[5x{n}]",), body=("softmax(a0, axis=1)",))
    for y in run(soft, x):
        assert relative(y, e / e.sum(-1, keepdims=True)) < 1e-6
    body = ("max(a0, axis=(1,), keepdims=True)", "add(t0, 1.0)")
    most = Program(operands=(f"float32[5x{n}]",), body=body)
    for y in run(most, x):
        np.testing.assert_array_equal(y, x.max(-1, keepdims=True) + 1)
    whole = np.trunc(x)  # exact in every order
    mean = Program(operands=(f"float32[1x5x{n}]",), body=("sum(a0, axis=(1, 2))",))
    for y in run(mean, whole[None]):
        np.testing.assert_array_equal(y, whole.sum(keepdims=True).reshape(1))


@pytest.mark.parametrize("n", [32, 50])
def test_rows_that_are_looked_up_are_whole_rows(n):
    """As an embedding is normalised: which row of a table is read, another argument says."""
    shapes = (f"float32[11x{n}]", "int64[1x7]", f"float32[1x7x{n}]", f"float32[{n}]")
    body = (
        "take(a0, a1, axis=0)", "add(t0, a2)", "sum(t1, axis=(2,), keepdims=True)",
        f"divide(t2, {n})", "subtract(t1, t3)", "multiply(t4, a3)",
    )  # fmt: skip
    p = Program(operands=shapes, body=body)
    rows = rows_of(p)
    assert rows is not None
    assert (rows.whole, rows.count, rows.length, rows.read) == (True, 7, n, ("a2",))
    random = np.random.default_rng(n)
    table, more, scale = (random.standard_normal(s) for s in ((11, n), (1, 7, n), n))
    which = random.integers(-11, 11, (1, 7))
    x = table[which] + more
    wanted = (x - x.mean(-1, keepdims=True)) * scale
    given = (table.astype("f4"), which, more.astype("f4"), scale.astype("f4"))
    for y in run(p, *given):
        assert relative(y, wanted) < 1e-6


def test_rows_of_another_shape_are_reduced_along_them():
    """As windows of Swin are, to which a mask of each is added; turned ones are not."""
    body = (
        "reshape(a0, newshape=(1, 4, 3, 20, 20))", "add(t0, a1)",
        "reshape(t1, newshape=(12, 20, 20))", "softmax(t2, axis=2)",
    )  # fmt: skip
    p = Program(operands=("float32[12x20x20]", "float32[1x4x1x20x20]"), body=body)
    assert next(candidates(p, "llvm"))[0].name == "cpu.rows"
    random = np.random.default_rng(0)
    x, mask = random.standard_normal((12, 20, 20)), random.standard_normal((1, 4, 1, 20, 20))
    e = np.exp((x.reshape(1, 4, 3, 20, 20) + mask).reshape(12, 20, 20))
    for y in run(p, x.astype("f4"), mask.astype("f4")):
        assert relative(y, e / e.sum(-1, keepdims=True)) < 1e-6
    turned = ("transpose(a0, axes=(0, 2, 1))", "softmax(t0, axis=2)")
    p = Program(operands=("float32[12x20x20]",), body=turned)
    assert next(candidates(p, "llvm"))[0].name == "cpu.loops"


def test_they_are_chosen_for_rows_and_for_nothing_else():
    def first(p: Program) -> str:
        return next(candidates(p, "llvm"))[0].name

    assert first(norm(96)) == "cpu.rows"
    short = Program(operands=("float32[5x8]",), body=("softmax(a0, axis=1)",))
    columns = Program(operands=("float32[50x64]",), body=("sum(a0, axis=(0,), keepdims=True)",))
    one = Program(operands=("float32[64]",), body=("softmax(a0, axis=0)",))
    integers = Program(operands=("int32[5x64]",), body=("sum(a0, axis=(1,), keepdims=True)",))
    assert {first(p) for p in (short, columns, one, integers)} == {"cpu.loops"}
