"""What one condition guards in unrolled loops stands in one branch, in the order it had."""

from __future__ import annotations

import pytest

from tilewright.ir.expr import Expr
from tilewright.ir.ops import logical_and
from tilewright.ir.stmt import Stmt
from tilewright.lower.ir_builder import axes, buffer, func, loop, store, when
from tilewright.lower.loops.group_guards import group_guards

i, d, y, x = axes("i d y x")
A, W, S, T = buffer("A", 90), buffer("W", 5), buffer("S", 9), buffer("T", 9)


def nest(row: Expr, body: Stmt, taps: int = 3, rows: int = 3, guard: Expr | None = None) -> Stmt:
    inside = logical_and(row >= 0, row < 28) if guard is None else guard
    return loop(d, taps, loop(y, rows, when(inside, body), kind="unrolled"), kind="unrolled")


def add(row: Expr, place: Expr = y) -> Stmt:
    return store(S[place], S[place] + A[row] * W[d])


def branches(body: Stmt, target: str = "llvm") -> int:
    """Iterations of the loops around the branch; 0 where the nest stays."""
    before = func(loop(i, 9, body), target=target)
    after = group_guards(before)
    if after.body is before.body:
        return 0
    return int(after.body.body.extent)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stride", "count"), [(1, 5), (2, 7), (-1, 5)], ids=["window", "strided", "gradient"]
)
def test_rows_that_taps_and_pixels_share_are_asked_for_once(stride: int, count: int) -> None:
    row = i * 3 + y * stride + d - 1
    assert branches(nest(row, add(row))) == count


def test_conditions_that_no_iterations_share_stay() -> None:
    row = i * 3 + y * 3 + d - 1
    assert branches(nest(row, add(row))) == 0


def test_conditions_on_both_loops_by_themselves_stay() -> None:
    row = i * 3 + y + d - 1
    assert branches(nest(row, add(row), guard=logical_and(i + y < 9, i + d < 9))) == 0


def test_a_condition_that_reads_memory_stays() -> None:
    row = i * 3 + y + d - 1
    assert branches(nest(row, add(row), guard=A[i + y + d] > 0)) == 0


def test_places_that_iterations_of_other_sums_write_too_stay() -> None:
    row = i * 3 + y + d - 1
    assert branches(nest(row, add(row, d + y))) == 0
    both = nest(row, store(S[y], S[y] + S[8 - y] * A[row]))
    assert branches(both) == 0


def test_sums_over_a_falling_variable_keep_their_order() -> None:
    # S[d] adds the rows of y in order; with d - 2 y growing, they would come in reverse.
    row = i * 3 + d - y * 2 + 4
    assert branches(nest(row, store(S[d], S[d] + A[row]))) == 0
    rising = i * 3 + d + y
    assert branches(nest(rising, store(S[d], S[d] + A[rising]))) == 5


def test_long_nests_and_those_of_a_gpu_stay() -> None:
    row = i * 3 + y + d - 1
    assert branches(nest(row, add(row), taps=40, rows=9)) == 0
    assert branches(nest(row, add(row)), target="cuda") == 0
