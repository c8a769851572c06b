"""A condition taken apart into bounds of a variable holds where it held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.integers import conditions, domain, symbolic_domain, value

from tilewright.arith import Analyzer, solve
from tilewright.arith.implied import implied
from tilewright.ir.expr import Var
from tilewright.ir.ops import logical_and, logical_or, maximum, minimum
from tilewright.ir.visit import uses

DOMAINS = {
    "constant": domain(("x", 0, 7), ("y", -3, 4), ("z", 2, 9), ("w", 0, 2)),
    "symbolic": symbolic_domain(),
}


@pytest.mark.parametrize("kind", DOMAINS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_the_bounds_and_the_rest_are_the_condition(kind: str, data: st.DataObject) -> None:
    d = DOMAINS[kind]
    condition = data.draw(conditions(d.variables, 2, kind == "symbolic"))
    var = data.draw(st.sampled_from(d.variables))
    found = solve(condition, var, d.analyzer)
    at = d.points[var]
    holds = np.ones_like(at, dtype=bool)
    for bound in found.lower:
        holds &= at >= value(bound, d.points)
    for bound in found.upper:
        holds &= at <= value(bound, d.points)
    for part in found.rest:
        holds &= value(part, d.points)
    assert (holds == value(condition, d.points)).all(), (condition, var, found)
    assert not any(uses(bound, {var}) for bound in found.lower + found.upper)


def texts(*args: object) -> list[list[str]]:
    return [[str(e) for e in part] for part in solve(*args)]


def test_a_padded_input_gives_the_taps_inside_of_it() -> None:
    h, k = Var.make("h"), Var.make("k")
    az = Analyzer()
    az.bind(h, 0, 16)
    az.bind(k, 0, 7)
    guard = logical_and(h * 2 + k - 3 >= 0, h * 2 + k - 3 < 32)
    assert texts(guard, k, az) == [["3 - h * 2"], ["34 - h * 2"], []]
    assert texts(guard, h, az) == [["2 - (k + 1) // 2"], ["17 - (k + 1) // 2"], []]


def test_coefficients_divide_out_exactly() -> None:
    x, n = Var.make("x"), Var.make("n")
    assert texts(logical_and(x * 2 >= 3, x * 4 < 50), x) == [["2"], ["12"], []]
    assert texts(x * 4 < n, x) == [[], ["(n + 3) // 4 - 1"], []]
    assert texts((x * 3).equal(n), x) == [["(n + 2) // 3"], ["n // 3"], []]


def test_minima_maxima_and_divisions_are_undone() -> None:
    x, n = Var.make("x"), Var.make("n")
    assert texts(maximum(x, n) < 8, x) == [[], ["7"], ["n < 8"]]
    assert texts(minimum(x * 2, n) >= 3, x) == [["2"], [], ["3 <= n"]]
    assert texts((x // 3 * 2).equal(n * 2), x) == [["n * 3"], ["n * 3 + 2"], []]
    assert texts((x + 1) // 4 < n, x) == [[], ["n * 4 - 2"], []]


def test_what_gives_no_bound_is_left() -> None:
    x, n = Var.make("x"), Var.make("n")
    condition = logical_and(x < n, x % 2 != 0, logical_or(x < 3, n < 5), n > 2)
    assert texts(condition, x) == [
        ["n - 1"][:0],
        ["n - 1"],
        ["x % 2 != 0", "x < 3 or n < 5", "3 <= n"],
    ]


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_a_condition_is_implied_where_it_holds_at_all_points(data: st.DataObject) -> None:
    d = DOMAINS["constant"]
    known = [data.draw(conditions(d.variables, 1)) for _ in range(data.draw(st.integers(0, 2)))]
    condition = data.draw(conditions(d.variables, 1))
    bounds = {v: d.analyzer.bounds(v) for v in d.variables}
    if implied(condition, known, bounds):
        assumed = np.ones_like(d.points[d.variables[0]], dtype=bool)
        for c in known:
            assumed &= value(c, d.points)
        assert (value(condition, d.points) | ~assumed).all()


@pytest.mark.parametrize("step", [2, 3, 5])
def test_remainders_and_bounds_imply_bounds_together(step: int) -> None:
    d = domain(("x", 0, 40), ("y", 0, 9))
    x, y = d.variables
    bounds = {v: d.analyzer.bounds(v) for v in d.variables}
    known = [(x - y < 4 * step), ((x - y) % step).equal(0)]
    assert implied(x - y <= 3 * step, known, bounds)
    assert not implied(x - y < 3 * step, known, bounds)
    assert not implied(x - y <= 3 * step, known[:1], bounds)
