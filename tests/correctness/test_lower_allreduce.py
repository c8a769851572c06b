"""Reductions across threads become shuffles within a warp and shared memory beyond."""

import numpy as np
import pytest
from tests.support.lockstep import run_kernel

from tilewright.ir import Func, dtype
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Call, Reducer
from tilewright.ir.ops import const, select
from tilewright.ir.stmt import AllReduce, Sync
from tilewright.ir.visit import allocated, walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
from tilewright.lower.loops.lower_allreduce import lower_allreduce
from tilewright.lower.loops.split_kernels import split_kernels
from tilewright.target import Target

X, Y = axes("x y", "float32")
I, J = axes("i j")
SUM = Reducer("sum", (X,), (Y,), (X + Y,), (const(0.0),))
ARGMAX = Reducer(
    "argmax",
    (I, X),
    (J, Y),
    (select((X > Y) | ((X.equal(Y)) & (I < J)), I, J), select(X > Y, X, Y)),
    (const(2**31 - 1), const(-1e30)),
)


def row_sums(rows: int, extents: tuple[int, ...], reduced: str, target: str = "sim") -> Func:
    """B[b, kept] = sum of A[b, x, y, z] over the ``reduced`` of the thread axes x, y, z."""
    b, *threads = axes("b x y z")
    names = "xyz"[: len(extents)]
    threads = threads[: len(extents)]
    kept = [v for v in threads if v.name not in reduced]
    a = buffer("A", rows, *extents)
    out = buffer("B", rows, *(n for v, n in zip(threads, extents, strict=True) if v in kept))
    r = AllReduce(SUM, (out,), (b, *kept), (a[(b, *threads)],), const(True),
                  tuple(v for v in threads if v.name in reduced), False)  # fmt: skip
    body = r
    for v, n, name in reversed(list(zip(threads, extents, names, strict=True))):
        body = loop(v, n, body, tag=f"threadIdx.{name}")
    made = func(loop(b, rows, body, tag="blockIdx.x"), target=target)
    made = Func("main", (a, out), made.body, (), made.target)
    (kernel,) = split_kernels(made).funcs
    return lower_allreduce(kernel)


def counts(kernel: Func) -> tuple[int, int, int]:
    """Shuffles, barriers and elements of shared memory."""
    nodes = list(walk(kernel.body))
    return (
        sum(isinstance(n, Call) and n.name == "shuffle_xor" for n in nodes),
        sum(isinstance(n, Sync) for n in nodes),
        sum(int(b.size) for b in allocated(kernel.body) if b.scope == "shared"),
    )


@pytest.mark.parametrize(
    ("extents", "reduced", "cost"),
    [
        ((32,), "x", (5, 0, 0)),
        ((8,), "x", (3, 0, 0)),
        ((8, 6), "x", (3, 0, 0)),
        ((8, 4), "y", (2, 0, 0)),
        ((4, 8, 2), "xz", (2, 1, 16)),
        ((64,), "x", (6, 1, 2)),
        ((96,), "x", (7, 1, 3)),
        ((48,), "x", (4, 1, 3)),
        ((5,), "x", (0, 1, 5)),
        ((16, 8), "y", (1, 1, 64)),
        ((32, 4), "y", (0, 1, 128)),
        ((3, 5), "y", (0, 1, 15)),
        ((32, 8), "xy", (8, 1, 8)),
        ((35,), "x", (0, 7, 35)),
        ((1,), "x", (0, 0, 0)),
    ],
)
def test_sums_over_threads_are_right_and_cost_what_they_should(
    extents: tuple[int, ...], reduced: str, cost: tuple[int, int, int]
) -> None:
    kernel = row_sums(2, extents, reduced)
    a = np.random.default_rng(0).integers(-9, 9, (2, *extents)).astype("float32")
    over = tuple(1 + "xyz".index(name) for name in reduced)
    want = a.sum(axis=over)
    found = run_kernel(kernel, {"A": a, "B": np.full(want.shape, np.nan, "float32")})
    assert (found["B"] == want).all()
    assert counts(kernel) == cost


def test_without_shuffles_everything_meets_in_shared_memory() -> None:
    kernel = row_sums(1, (64,), "x", target="opencl")
    a = np.arange(64, dtype="float32")[None]
    assert run_kernel(kernel, {"A": a, "B": np.zeros(1, "float32")})["B"] == [2016]
    assert counts(kernel) == (0, 7, 64)


@pytest.mark.parametrize("extent", [8, 40, 64])
def test_the_position_of_a_maximum_is_found_everywhere_and_under_a_condition(extent: int) -> None:
    (t,) = axes("t")
    a, best, at = buffer("A", extent), buffer("best", extent), buffer("at", extent, type="int32")
    here = buffer("here", 1, type="int32", scope="local"), buffer("top", 1, scope="local")
    r = AllReduce(ARGMAX, here, (const(0),), (t, a[t]), t >= 3, (t,), True)
    body = allocate(
        here[0], allocate(here[1], r, store(at[t], here[0][0]), store(best[t], here[1][0]))
    )
    made = func(loop(t, extent, body, tag="threadIdx.x"), target="sim")
    (kernel,) = split_kernels(Func("main", (a, at, best), made.body, (), made.target)).funcs
    values = np.array([9, 9, 9] + [(7 * k) % 5 for k in range(extent - 3)], "float32")
    arrays = {"A": values, "at": np.zeros(extent, "int32"), "best": np.zeros(extent, "float32")}
    found = run_kernel(lower_allreduce(kernel), arrays)
    assert (found["best"] == 4).all()
    assert (found["at"] == 3 + np.argmax(values[3:])).all()


def test_a_reduction_under_a_smaller_thread_loop_is_reached_by_every_thread() -> None:
    # One stage has 8 rows of threads, the reduction only 5: the other rows take part idly.
    i, j, k, t = axes("i j k t")
    a, b, c = buffer("A", 5, 4), buffer("B", 5), buffer("C", 8, 4)
    fill = loop(i, 8, loop(t, 4, store(c[i, t], 1.0), tag="threadIdx.x"), tag="threadIdx.y")
    r = AllReduce(SUM, (b,), (j,), (a[j, k],), const(True), (k,), False)
    rows = loop(j, 5, loop(k, 4, r, tag="threadIdx.x"), tag="threadIdx.y")
    (z,) = axes("z")
    made = func(loop(z, 1, fill, rows, tag="blockIdx.x"), target="sim")
    (kernel,) = split_kernels(Func("main", (a, b, c), made.body, (), made.target)).funcs
    x = np.arange(20, dtype="float32").reshape(5, 4)
    arrays = {"A": x, "B": np.zeros(5, "float32"), "C": np.zeros((8, 4), "float32")}
    assert (run_kernel(lower_allreduce(kernel), arrays)["B"] == x.sum(1)).all()


def test_small_integers_and_conditions_are_shuffled_as_words() -> None:
    p, q = axes("p q", "bool")
    every = Reducer("all", (p,), (q,), (p & q,), (const(True),))
    (t,) = axes("t")
    a, b = buffer("A", 16, type="bool"), buffer("B", 1, type="bool")
    r = AllReduce(every, (b,), (const(0),), (a[t],), const(True), (t,), False)
    made = func(loop(t, 16, r, tag="threadIdx.x"), target="sim")
    (kernel,) = split_kernels(Func("main", (a, b), made.body, (), made.target)).funcs
    kernel = lower_allreduce(kernel)
    shuffles = [e for e in walk(kernel.body) if isinstance(e, Call)]
    assert {e.dtype for e in shuffles} == {dtype("int32")}
    for values in (np.ones(16, bool), np.arange(16) != 5):
        found = run_kernel(kernel, {"A": values, "B": np.zeros(1, bool)})
        assert found["B"] == [values.all()]


def test_a_reduction_over_no_thread_is_an_error() -> None:
    (k,) = axes("k")
    b = buffer("B", 1)
    r = AllReduce(SUM, (b,), (const(0),), (const(1.0),), const(True), (k,), False)
    with pytest.raises(LoweringError, match="'k', which is no thread"):
        lower_allreduce(Func("main", (b,), r, (), Target.parse("sim")))


def test_a_sum_that_no_thread_would_store_is_refused() -> None:
    """No result would be written; a row of no results is one that there is not."""
    with pytest.raises(LoweringError, match=r"no threads along threadIdx\.x"):
        lower_allreduce(row_sums(3, (0, 2), "x"))
    lower_allreduce(row_sums(3, (2, 0), "x"))
