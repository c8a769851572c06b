"""as_matmul finds rows, columns and groups in what is declared, and changes no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import ScheduleError


def gemm(m: Any, n: Any, k: int, turned: bool = False, dtype: str = "float32") -> tuple[Any, ...]:
    a = te.placeholder((m, k), dtype, name="a")
    b = te.placeholder((n, k) if turned else (k, n), dtype, name="b")
    r = te.reduce_axis((0, k), "r")
    wide = "int32" if dtype == "int8" else dtype

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, r].astype(wide) * b[(j, r) if turned else (r, j)].astype(wide), axis=r)

    return a, b, te.compute((m, n), element, name="c")


def grouped(groups: int, rows: int, columns: int, k: int) -> tuple[Any, ...]:
    """Rows of several groups in one axis, as of a convolution in groups."""
    a = te.placeholder((groups * rows, k), name="a")
    b = te.placeholder((groups, k, columns), name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute(
        (groups * rows, columns),
        lambda i, j: te.sum(a[i, r] * b[i // rows, r, j], axis=r), name="c",
    )  # fmt: skip
    return a, b, c


def batched(batch: int, m: int, n: int, k: int) -> tuple[Any, ...]:
    a, b = te.placeholder((batch, m, k), name="a"), te.placeholder((batch, k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((batch, m, n), lambda g, i, j: te.sum(a[g, i, r] * b[g, r, j], axis=r), name="c")
    return a, b, c


def outer(m: int, h: int, w: int, k: tuple[int, int]) -> tuple[Any, ...]:
    """Rows between the columns, several axes of a sum, and a window."""
    x = te.placeholder((h + k[0] - 1, w + k[1] - 1), name="a")
    f = te.placeholder((m, *k), name="b")
    i, j = te.reduce_axis((0, k[0]), "i"), te.reduce_axis((0, k[1]), "j")

    def element(y: Any, c: Any, z: Any) -> Any:
        inside = te.all(y + i < h, z + j < w)
        value = te.if_then_else(inside, x[y + i, z + j], te.const(0, "float32"))
        return te.sum(value * f[c, i, j], axis=[i, j])

    return x, f, te.compute((h, m, w), element, name="c")


def masked(m: int, n: int, k: int) -> tuple[Any, ...]:
    """Rows that count where another tensor says so, which has no rows that fill up."""
    a, b = te.placeholder((m,), "int32", name="a"), te.placeholder((k, n), "int32", name="b")
    r = te.reduce_axis((0, k), "r")

    def element(i: Any, j: Any) -> Any:
        value = te.if_then_else(a[i] > 0, a[i], te.const(0, "int32"))
        return te.sum(value * b[r, j], axis=r)

    return a, b, te.compute((m, n), element, name="c")


CASES = {
    "masked": masked(5, 7, 3),
    "plain": gemm(5, 7, 3),
    "turned": gemm(5, 7, 3, turned=True),
    "int8": gemm(4, 9, 5, dtype="int8"),
    "groups": grouped(3, 4, 5, 6),
    "one row a group": grouped(3, 1, 5, 6),
    "one group": grouped(1, 4, 5, 6),
    "batch": batched(3, 4, 5, 6),
    "windows": outer(3, 6, 5, (2, 3)),
}


@pytest.mark.parametrize("whole", [(1, 1, 1), (4, 8, 1), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_are_the_same(name, whole):
    a, b, c = CASES[name]
    plain = tilewright.build(te.create_schedule(c.op), [a, b, c])
    s = te.create_schedule(c.op)
    s.as_matmul(c, whole)
    kernel = tilewright.build(s, [a, b, c])
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-5, 6, [int(e) for e in t.shape]).astype(str(t.dtype)) for t in (a, b)
    ]  # fmt: skip
    found = [np.empty([int(e) for e in c.shape], str(c.dtype)) for _ in range(2)]
    for result, run in zip(found, (plain, kernel), strict=True):
        run(*given, result)
    np.testing.assert_array_equal(*found)


def test_it_says_what_it_found():
    def found(name: str) -> Any:
        c = CASES[name][2]
        return te.create_schedule(c.op).as_matmul(c)

    m = found("groups")
    assert (m.groups, m.height, m.depth, m.rows, m.across, m.apart) == (3, 4, 6, (0,), (1,), None)
    m = found("batch")
    assert (m.groups, m.height, m.rows, m.across, m.apart) == (3, 4, (1,), (2,), 0)
    m = found("windows")
    assert (m.groups, m.height, m.depth, m.rows, m.across) == (1, 3, 6, (1,), (0, 2))
    assert m.contiguous  # the filter
    assert [found(name).contiguous for name in ("plain", "turned")] == [True, True]


def test_rows_of_any_number_are_columns():
    n = te.var("n")
    a, b, c = gemm(4, n, 3, turned=True)
    s = te.create_schedule(c.op)
    s.as_matmul(c, (2, 8, 1))
    kernel = tilewright.build(s, [a, b, c])
    for count in (0, 5, 16):
        x, y = np.ones((4, 3), "float32"), np.ones((count, 3), "float32")
        out = np.empty((4, count), "float32")
        kernel(x, y, out)
        assert (out == 3).all()


def refused() -> dict[str, Any]:
    a = te.placeholder((4, 4), name="a")
    r = te.reduce_axis((0, 4), "r")
    return {
        "it is no sum": te.compute((4, 4), lambda i, j: a[i, j] + 1),
        "its terms are no products": te.compute((4,), lambda i: te.sum(a[i, r], axis=r)),
        "no rows and columns": te.compute((4,), lambda i: te.sum(a[i, r] * a[0, r], axis=r)),
        "or some are left out": te.compute(
            (4, 4), lambda i, j: te.sum(a[i, r] * a[r, j], axis=r, where=r < i)
        ),
        "factors are float32 and float64": te.compute(
            (4, 4),
            lambda i, j: te.sum(a[i, r].astype("float64") * te.const(2, "float64"), axis=r),
        ),
        "has no rows and columns": te.compute(
            (6,), lambda i: te.sum(a[i // 3, r] * a[i % 3, r] * a[i // 3, r], axis=r)
        ),
        "several of its axes": te.compute(
            (4, 4), lambda i, j: te.sum(a[i, j] * a[i, (j + r) % 4], axis=r)
        ),
    }


@pytest.mark.parametrize("words", refused())
def test_what_is_no_product_of_matrices_is_refused(words):
    c = refused()[words]
    with pytest.raises(ScheduleError, match=words):
        te.create_schedule(c.op).as_matmul(c)


def test_columns_that_lie_side_by_side_are_counted():
    """Whole images of a convolution of one tap, rows of a matrix; none of windows, or of images
    with channels last."""
    from tilewright.topi import Conv, Gemm
    from tilewright.topi.sketches.products import matrices

    image, one = (2, 8, 5, 6), (8, 8, 1, 1)
    assert matrices(Conv.parse(image, one, 1)).run == 30
    assert matrices(Gemm(m=3, n=24, k=16)).run == 24
    for other in (
        Conv.parse(image, one, 1, stride=2), Conv.parse(image, one, 1, layout="NHWC"),
        Conv.parse(image, (8, 8, 3, 3), 1, padding=1), Gemm(m=3, n=24, k=16, transpose_b=True),
    ):  # fmt: skip
        assert matrices(other).run == 1
    assert matrices(Conv.parse(image, (8, 8, 3, 3), 1, padding=1)).taps == (8, 3, 3)
