"""A choice evaluates only what it chooses, wherever the other value may not be read."""

from __future__ import annotations

from tilewright.ir.ops import logical_and, select
from tilewright.lower.build.lazy_select import lazy_select
from tilewright.lower.ir_builder import axes, buffer, func, loop, store

i, j = axes("i j")
A, C = buffer("A", 8), buffer("C", 16)


def test_a_padded_input_is_read_lazily() -> None:
    padded = select(logical_and(i >= 1, i < 9), A[i - 1], 0.0)
    assert "if_then_else" in repr(lazy_select(func(loop(i, 10, store(C[i], padded)))))


def test_a_choice_between_values_that_exist_stays() -> None:
    f = func(loop(i, 8, store(C[i], select(i < 4, A[i], A[7 - i]))))
    assert "Select" in repr(lazy_select(f))


def test_an_inner_choice_is_judged_under_the_outer_condition() -> None:
    inner = select(i > 3, A[i], 1.0)
    f = func(loop(i, 16, store(C[i], select(i < 8, inner, 0.0))))
    made = repr(lazy_select(f))
    assert "T.if_then_else(i < 8, T.Select(i > 3, A[i]" in made


def test_a_read_at_a_place_that_is_read_from_memory_is_lazy() -> None:
    place = buffer("P", 16, type="int32")
    f = func(loop(i, 16, store(C[i], select(place[i] < 8, A[place[i]], 0.0))))
    assert "if_then_else" in repr(lazy_select(f))
