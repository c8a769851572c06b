"""Loops over a guarded body run only where the guard can hold."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.interpreter import interpret
from tests.support.well_formed import check

from tilewright.ir import ops
from tilewright.ir.expr import Expr, Select
from tilewright.ir.func import Func
from tilewright.ir.ops import if_then_else, logical_and
from tilewright.ir.stmt import If, Pragma, Stmt
from tilewright.ir.visit import stores, walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.trim_loops import trim_loops

i, d, e = axes("i d e")
A, W, C = buffer("A", 32), buffer("W", 15), buffer("C", 32)


def padded(otherwise: float = 0.0) -> Expr:
    n = i + d - 7
    return if_then_else(logical_and(n >= 0, n < 32), A[n], otherwise)


def trimmed(update: Stmt, target: str = "llvm", **options: object) -> str:
    inner = loop(d, 15, update, **options)  # type: ignore[arg-type]
    return repr(trim_loops(func(loop(i, 32, inner), target=target)).body)


TRIMMED = "for d in range(T.max(7 - i, 0), T.min(39 - i, 15)):"


def test_what_only_guarded_statements_read_is_not_made_elsewhere() -> None:
    scratch, inside = buffer("S", 1, scope="local"), logical_and(i + d >= 7, i + d < 39)
    fill = store(scratch[0], W[d] * 2.0)
    use = when(inside, store(C[i], C[i] + A[i + d - 7] * scratch[0]))
    made = trimmed(allocate(scratch, fill, use))
    assert TRIMMED in made
    assert "if" not in made
    kept = buffer("K", 15)
    assert TRIMMED not in trimmed(allocate(scratch, fill, store(kept[d], scratch[0]), use))


def test_what_threads_make_for_each_other_is_made_whatever_one_of_them_needs() -> None:
    tile, inside = buffer("S", 1, scope="shared"), logical_and(i + d >= 7, i + d < 39)
    use = when(inside, store(C[i], C[i] + A[i + d - 7] * tile[0]))
    inner = loop(d, 15, allocate(tile, store(tile[0], W[d] * 2.0), use))
    threads = func(loop(i, 32, inner, tag="threadIdx.x"), target="sim")
    assert "for d in range(15):" in repr(trim_loops(threads).body)
    together = func(loop(i, 32, inner), target="sim")  # all threads have the same i
    assert TRIMMED in repr(trim_loops(together).body)
    block = func(loop(i, 32, inner, tag="blockIdx.x"), target="sim")  # and those of a block
    assert TRIMMED in repr(trim_loops(block).body)


@pytest.mark.parametrize(
    "update",
    [
        store(C[i], C[i] + padded() * W[d]),
        store(C[i], W[d] * padded() + C[i]),
        store(C[i], C[i] - padded()),
        store(C[i], ops.maximum(C[i], padded(-np.inf))),
        store(C[i], ops.minimum(C[i], padded(np.inf))),
        store(C[i], C[i] * padded(1.0)),
        store(C[i], ops.fma(padded(), W[d], C[i])),
        when(logical_and(i + d >= 7, i + d < 39), store(C[i], A[i + d - 7])),
    ],
    ids=str,
)
def test_what_changes_nothing_outside_its_guard_is_not_done_there(update: Stmt) -> None:
    made = trimmed(update)
    assert TRIMMED in made
    assert "if" not in made


@pytest.mark.parametrize(
    "update",
    [
        store(C[i], C[i] + padded(1.0)),
        store(C[i], ops.maximum(C[i], padded(0.0))),
        store(C[i], padded() * W[d]),
        store(C[d], C[i] + padded()),
    ],
    ids=str,
)
def test_what_changes_something_outside_its_guard_is_done_everywhere(update: Stmt) -> None:
    assert "for d in range(15):" in trimmed(update)


def test_a_guard_of_two_loops_trims_each_by_its_part() -> None:
    B, D = buffer("B", 8, 8), buffer("D", 8, 8)
    j = axes("j")[0]
    y, x = i + d - 1, j + e - 1
    guard = logical_and(y >= 0, y < 8, x >= 0, x < 8)
    update = store(D[i, j], D[i, j] + if_then_else(guard, B[y, x], 0.0))
    f = func(loop(i, 8, loop(j, 8, loop(d, 3, loop(e, 3, update)))))
    made = trim_loops(f)
    assert "for d in range(T.max(1 - i, 0), T.min(9 - i, 3)):" in repr(made)
    assert "for e in range(T.max(1 - j, 0), T.min(9 - j, 3)):" in repr(made)
    rng = np.random.default_rng(1)
    data = {n: rng.integers(-5, 5, (8, 8)).astype("float32") for n in ("B", "D")}
    np.testing.assert_array_equal(interpret(made, data)["D"], interpret(f, data)["D"])


def test_a_loop_that_no_iteration_of_is_needed_runs_none() -> None:
    """Dilation beyond the image: for some ``i`` the ends cross."""
    n = i + d * 40 - 40
    update = store(C[i], C[i] + if_then_else(logical_and(n >= 1, n < 32), A[n], 0.0))
    f = func(loop(i, 32, loop(d, 3, update)))
    data = {"A": np.arange(32.0), "C": np.zeros(32)}
    made = interpret(trim_loops(f), data)["C"]
    np.testing.assert_array_equal(made, interpret(f, data)["C"])


def tiled(kind: str = "unrolled", target: str = "llvm") -> Func:
    """Sums of four neighbours in turn, each a vector of eight channels."""
    p, v = axes("p v")
    B, D = buffer("B", 32, 8), buffer("D", 32, 8)
    n, m = i * 4 + p + d - 7, i * 4 + p
    inside = if_then_else(logical_and(n >= 0, n < 32), B[n, v], 0.0)
    lanes = loop(v, 8, store(D[m, v], D[m, v] + inside * W[d]), kind="vectorized")
    return func(loop(i, 8, loop(d, 15, loop(p, 4, lanes, kind=kind))), target=target)


def test_a_loop_around_a_tile_runs_where_any_of_the_tile_needs_it() -> None:
    f = tiled()
    made = trim_loops(f)
    assert "for d in range(T.max(4 - i * 4, 0), T.min(39 - i * 4, 15)):" in repr(made.body)
    rng = np.random.default_rng(1)
    data = {n: rng.integers(-5, 5, s).astype("float32") for n, s in _TILED.items()}
    np.testing.assert_array_equal(interpret(made, data)["D"], interpret(f, data)["D"])


def test_ends_of_a_loop_name_no_loop_further_in() -> None:
    """The guard names ``d`` and ``i``, and only the ends of ``i`` name ``e``, within ``d``."""
    update = when(d + 3 <= i, store(C[i], C[i] + W[d]))
    f = func(loop(d, 15, loop(e, 4, loop(i, 5, update, min=e * 3, kind="unrolled"))))
    made = trim_loops(f)
    check("trim_loops", made)
    data = {"W": np.arange(15.0), "C": np.zeros(32)}
    np.testing.assert_array_equal(interpret(made, data)["C"], interpret(f, data)["C"])


def test_what_is_the_same_in_all_lanes_of_a_guard_is_a_branch() -> None:
    made = trim_loops(tiled())
    (update,) = stores(made.body)
    assert not any(isinstance(e, Select) for e in walk(update))
    assert any(isinstance(s, If) for s in walk(made.body))
    lanes = func(loop(i, 2, loop(d, 15, loop(e, 16, _padded_row(), kind="vectorized"))))
    assert not any(isinstance(s, If) for s in walk(trim_loops(lanes).body))


def test_a_gpu_keeps_the_loops_around_tiles() -> None:
    f = tiled(target="cuda")
    assert repr(trim_loops(f)) == repr(f)


_TILED = {"B": (32, 8), "D": (32, 8), "W": (15,)}


def _padded_row() -> Stmt:
    n = i * 16 + e + d - 7
    inside = if_then_else(logical_and(n >= 0, n < 32), A[n], 0.0)
    return store(C[i * 16 + e], C[i * 16 + e] + inside)


def test_only_serial_loops_are_trimmed() -> None:
    for kind in ("unrolled", "vectorized", "parallel"):
        assert "T.max" not in trimmed(store(C[i], C[i] + padded()), kind=kind)


def test_on_a_gpu_short_loops_and_loops_to_unroll_stay_whole() -> None:
    update = store(C[i], C[i] + padded())
    assert TRIMMED in trimmed(update, "cuda")
    pragma = ((Pragma.AUTO_UNROLL_MAX_STEP, 64),)
    assert TRIMMED not in trimmed(update, "cuda", annotations=pragma)
    short = func(loop(i, 32, loop(d, 3, update)), target="cuda")
    assert "for d in range(3):" in repr(trim_loops(short))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 5), (1, 4)])
def test_a_guard_of_constants_trims_short_loops_on_a_gpu_too(low: int, high: int) -> None:
    update = when(logical_and(d >= low, d < high), store(C[d], W[d]))
    made = repr(trim_loops(func(loop(d, 5, update), target="cuda")).body)
    assert "if" not in made
    assert f"for d in range({f'{low}, ' if low else ''}{high}):" in made
