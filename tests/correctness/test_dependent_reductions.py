"""A reduction whose domain depends on other axes: rows of a triangle, windows that grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.schedules import integers, run

import tilewright
from tilewright import te
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.lower.pipeline import lower
from tilewright.schedule import Schedule
from tilewright.te import Tensor

X = te.placeholder((11, 13), name="X")
ROWS, COLUMNS = 10, 7

#: By name: the domains of the axes for row i and column j, each given the ones before it.
DOMAINS: dict[str, tuple[Callable[..., Any], ...]] = {
    "growing": (lambda i, j: (0, i + 1),),
    "moving": (lambda i, j: (i // 2, i + 1),),
    "of the column": (lambda i, j: (0, j + 3),),
    "nested": (lambda i, j: (0, i + 1), lambda i, j, k: (k // 2, k + 2)),
}


def declare(kind: str) -> tuple[Tensor, Tensor]:
    def sums(i: Any, j: Any) -> Any:
        axes: list[Any] = []
        for domain in DOMAINS[kind]:
            axes.append(te.reduce_axis(domain(i, j, *axes), "kl"[len(axes)]))
        return te.sum(X[axes[0], axes[-1]] + te.cast("float32", j), axis=axes)

    Y = te.compute((ROWS, COLUMNS), sums, name="Y")
    return Y, te.compute((ROWS, COLUMNS), lambda i, j: Y[i, j] * 2, name="Z")


def expected(kind: str, x: np.ndarray) -> np.ndarray:
    made = np.zeros((ROWS, COLUMNS), "float32")
    for i, j in np.ndindex(ROWS, COLUMNS):
        points: list[tuple[int, ...]] = [()]
        for domain in DOMAINS[kind]:
            points = [(*p, k) for p in points for k in range(*domain(i, j, *p))]
        made[i, j] = 2 * sum(x[p[0], p[-1]] + j for p in points)
    return made


def split_data(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    i, j = s[Y].op.axis
    s[Y].split(i, 3)
    s[Y].vectorize(s[Y].split(j, 4)[1])


def split_reduction(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    s[Y].split(s[Y].op.reduce_axis[-1], 4)


def fused(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    s[Y].split(s[Y].fuse(*s[Y].op.axis), 6)


def written(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    L = s.cache_write(Y, "global")
    s[L].split(s[L].op.reduce_axis[0], 4)


def tiled(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    outer, _ = s[Z].split(s[Z].op.axis[1], 3)
    s[Y].compute_at(s[Z], outer)
    s[Y].set_scope("local")
    s[Y].split(s[Y].op.reduce_axis[0], 4)


def read(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    copy = s.cache_read(X, "local", [Y])
    s[copy].compute_at(s[Y], s[Y].op.reduce_axis[0])


def factored(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    s.rfactor(Y, s[Y].split(s[Y].op.reduce_axis[0], 4)[1])


def as_declared(s: Schedule, Y: Tensor, Z: Tensor) -> None:
    pass


WAYS = [as_declared, split_data, split_reduction, fused, written, tiled, read, factored]


@pytest.mark.parametrize("kind", DOMAINS)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_it_is_scheduled_as_any_other(kind: str, target: str) -> None:
    x = integers(11, 13)
    for variant in WAYS:
        if kind == "nested" and variant is factored:
            continue
        Y, Z = declare(kind)
        s = te.create_schedule(Z.op)
        variant(s, Y, Z)
        if target != "llvm":
            for stage in s.stages:
                if stage.attachment.kind != "at" and stage.op.inputs:
                    rows = stage.leaf_iter_vars[variant is factored and stage.name == "Y.rf"]
                    stage.bind(rows, te.thread_axis("threadIdx.x"))
        (found,) = run(s, [X, Z], [x], target)
        np.testing.assert_array_equal(found, expected(kind, x), err_msg=f"{variant.__name__}")


def test_a_copy_of_the_stage_has_axes_of_its_own() -> None:
    Y, _ = declare("growing")
    s = te.create_schedule(Y.op)
    L = s.cache_write(Y, "local")
    assert "range(i_c + 1)" in str(lower(s, [X, Y], "llvm"))
    assert s[L].op.reduce_axis[0] is not Y.op.reduce_axis[0]


def test_the_loop_that_a_domain_depends_on_stands_around_it() -> None:
    Y, _ = declare("of the column")
    s = te.create_schedule(Y.op)
    i, j = s[Y].op.axis
    (k,) = s[Y].op.reduce_axis
    s[Y].reorder(i, k, j)
    with pytest.raises(LoweringError, match=r"loop over 'k' runs, j \+ 3, depends on an axis"):
        lower(s, [X, Y], "llvm")


def test_axes_of_which_one_depends_on_the_other_are_not_fused() -> None:
    Y, _ = declare("nested")
    s = te.create_schedule(Y.op)
    s[Y].fuse(*s[Y].op.reduce_axis)
    with pytest.raises(LoweringError, match=r"depends on an axis.*do not fuse it"):
        lower(s, [X, Y], "llvm")


def test_an_axis_of_no_constant_length_is_no_dimension() -> None:
    Y, _ = declare("growing")
    s = te.create_schedule(Y.op)
    with pytest.raises(ScheduleError, match=r"runs, i \+ 1, depends on a data axis.*Split"):
        s.rfactor(Y, s[Y].op.reduce_axis[0])
    Y, _ = declare("nested")
    s = te.create_schedule(Y.op)
    with pytest.raises(ScheduleError, match=r"depends on another axis.*where="):
        s.rfactor(Y, s[Y].split(s[Y].op.reduce_axis[0], 4)[1])


def test_what_says_how_often_a_reduction_runs_is_computed_before_it() -> None:
    A, X = te.placeholder((5,), "int32", name="A"), te.placeholder((9,), name="X")
    M = te.compute((5,), lambda i: A[i] * 2 - 1, name="M")

    def total(i: Any) -> Any:
        k = te.reduce_axis((0, M[i]))
        return te.sum(X[te.max(te.min(k, 8), 0)], axis=k)

    B = te.compute((5,), total, name="B")
    built = tilewright.build(te.create_schedule([B.op, M.op]), [A, X, M, B], "llvm")
    often, x = np.array([3, 0, 1, -4, 5], "int32"), np.arange(9, dtype="float32")
    made, sums = np.zeros(5, "int32"), np.zeros(5, "float32")
    built(often, x, made, sums)
    assert sums.tolist() == [x[: max(n, 0)].sum() for n in made]
