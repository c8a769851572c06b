"""A rolling buffer keeps what iterations share with those before; copies may be of wider types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.arith import Analyzer
from tilewright.ir.expr import IntImm
from tilewright.ir.ops import const
from tilewright.ir.stmt import For, If, Stmt, Store
from tilewright.ir.visit import children, loads, substitute


def windows(height: int, width: int, taps: int, stride: int, dtype: str = "float32") -> Any:
    """Sums over ``taps`` rows of an image, every ``stride``-th; (image, sums)."""
    image = te.placeholder((height, width), dtype, name="image")
    k = te.reduce_axis((0, taps), name="k")
    rows = (height - taps) // stride + 1
    sums = te.compute(
        (rows, width),
        lambda i, j: te.sum(image[i * stride + k, j].astype("float32"), axis=k),
        name="sums",
    )
    return image, sums


def expected(x: np.ndarray[Any, Any], taps: int, stride: int) -> np.ndarray[Any, Any]:
    rows = (x.shape[0] - taps) // stride + 1
    wide = x.astype("float64")
    return np.stack([wide[i * stride : i * stride + taps].sum(0) for i in range(rows)])


def rolled(
    sums: Any, image: Any, rows: int, unrolled: bool, dtype: str | None = None, ahead: int = 0
) -> Any:
    """A copy of the image in registers, kept from row to row of a strip."""
    s = te.create_schedule(sums.op)
    copy = s.cache_read(image, "local", [sums], dtype)
    i, j = s[sums].op.axis
    outer, inner = s[sums].split(i, factor=rows)
    s[sums].reorder(j, outer, inner)
    if unrolled:
        s[sums].unroll(inner)
    s[copy].compute_at(s[sums], inner)
    s[copy].rolling_buffer(ahead)
    return s


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.parametrize(("taps", "stride", "rows"), [(3, 1, 4), (5, 2, 3), (3, 1, 1), (7, 1, 8)])
def test_the_result_is_what_it_was(
    taps: int, stride: int, rows: int, unrolled: bool, ahead: int
) -> None:
    image, sums = windows(37, 5, taps, stride)
    s = rolled(sums, image, rows, unrolled, ahead=ahead)
    kernel = tilewright.build(s, [image, sums], "llvm")
    x = np.random.default_rng(0).standard_normal((37, 5)).astype("float32")
    found = np.full((expected(x, taps, stride)).shape, np.nan, "float32")
    kernel(x, found)
    np.testing.assert_allclose(found, expected(x, taps, stride), rtol=1e-5, atol=1e-5)


def times(statement: Stmt, name: str) -> int:
    """How often a buffer is read by loops of constant extents."""
    match statement:
        case For(var, _, IntImm(_, extent), _, body):
            return sum(times(substitute(body, {var: const(n)}), name) for n in range(extent))
        case If(condition, then):
            return times(then, name) if Analyzer().prove(condition) else 0
        case Store(_, _, value):
            return sum(e.buffer.name == name for e in loads(value))
    return sum(times(part, name) for part in children(statement) if isinstance(part, Stmt))


@pytest.mark.parametrize("ahead", [0, 1])
def test_every_row_of_a_strip_is_read_once(ahead: int) -> None:
    """Three strips of four sums of three rows read six rows each, and not twelve."""
    image, sums = windows(14, 1, 3, 1)
    s = rolled(sums, image, 4, True, ahead=ahead)
    module = tilewright.lower(s, [image, sums], "llvm")
    assert sum(times(f.body, "image") for f in module.funcs) == 3 * 6


def test_a_step_as_long_as_the_window_keeps_nothing() -> None:
    image, sums = windows(12, 4, 2, 2)
    s = rolled(sums, image, 3, True)
    text = str(tilewright.lower(s, [image, sums], "llvm"))
    assert "warm" not in text


def test_a_copy_of_a_wider_type_is_converted_once() -> None:
    image, sums = windows(20, 8, 3, 1, "float16")
    s = rolled(sums, image, 6, True, "float32")
    module = tilewright.lower(s, [image, sums], "llvm")
    kept = {e.buffer.dtype for f in module.funcs for e in loads(f.body)}
    assert "float32" in kept
    x = np.random.default_rng(1).standard_normal((20, 8)).astype("float16")
    found = np.full((18, 8), np.nan, "float32")
    tilewright.build(s, [image, sums], "llvm")(x, found)
    np.testing.assert_allclose(found, expected(x, 3, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("constant", ["the first rows", "the rows added"])
def test_what_no_result_needs_is_summed_only_where_it_is_there_of_all_rows(constant: str) -> None:
    """Columns beyond the image are not read, but constants may be kept for them: in the rows before
    the loop and not in those that it adds, or the other way round."""

    def known(row: Any) -> Any:
        return row < 2 if constant == "the first rows" else row >= 2

    image = te.placeholder((6, 10), name="image")
    rows = te.compute(
        (6, 10), lambda i, j: te.select(known(i), te.const(0.5), image[i, j]), name="rows"
    )
    k = te.reduce_axis((0, 3), name="k")
    sums = te.compute((4, 10), lambda i, j: te.sum(rows[i + k, j], axis=k), name="sums")
    s = te.create_schedule(sums.op)
    results = s.cache_write(sums, "local")
    copy = s.cache_read(rows, "local", [results])
    s[rows].compute_inline()
    i, j = s[sums].op.axis
    thread, lane = s[sums].split(j, factor=4)
    s[sums].reorder(thread, i, lane)
    s[sums].bind(thread, te.thread_axis("threadIdx.x"))
    s[results].compute_at(s[sums], i)
    s[copy].compute_at(s[sums], i)
    s[copy].rolling_buffer()
    x = np.random.default_rng(2).standard_normal((6, 10)).astype("float32")
    found = np.full((4, 10), np.nan, "float32")
    tilewright.build(s, [image, sums], "sim")(x, found)  # which reports reads of what nobody wrote
    x = np.where(known(np.arange(6)[:, None]), np.float32(0.5), x)
    np.testing.assert_allclose(found, expected(x, 3, 1), rtol=1e-5, atol=1e-5)
