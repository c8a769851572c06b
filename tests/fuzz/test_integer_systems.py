"""Systems of constraints have a solution exactly where trying every value finds one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.integers import conditions, domain, integers, value

from tilewright.arith.encode import Instance
from tilewright.arith.system import System, minus
from tilewright.ir.expr import Expr
from tilewright.ir.ops import floordiv, floormod
from tilewright.lower.analysis import domain as moments

D = domain(("i", -3, 4), ("j", 0, 5), ("k", 1, 3))
i, j, k = D.variables
RANGES = ((i, -3, 4), (j, 0, 5), (k, 1, 3))


def instance(system: System, twin: Instance | None = None) -> Instance:
    made = Instance(system, twin=twin)
    for var, low, high in RANGES:
        made.bind(var, low, high)
    return made


def check_point(one: Instance, solution: list[int], e: Expr, expected: Any) -> None:
    """A solution is a point of the domain, at which ``e`` has the value that it gives."""
    at = {v: np.int64(moments.value(one.values[v], solution)) for v in D.variables}
    assert all(low <= at[v] <= high for v, low, high in RANGES)
    assert value(e, at) == expected, at


@settings(max_examples=150, deadline=None)
@given(conditions(D.variables), conditions(D.variables))
def test_of_conditions(first: Expr, second: Expr) -> None:
    system = System()
    one = instance(system)
    one.require(first)
    one.require(second, False)
    solution = system.solve()
    holds = value(first, D.points) & ~value(second, D.points)
    if solution is not None and system.exact:
        check_point(one, solution, first, True)
        check_point(one, solution, second, False)
    assert (solution is not None) == bool(np.any(holds)) or not system.exact
    assert solution is not None or not np.any(holds)


@st.composite
def indices(draw: Any) -> Expr:
    """Also divided by a variable, which is positive."""
    e = draw(integers(D.variables, 2))
    return draw(st.sampled_from([e, e, floordiv(e, k), floormod(e, k)]))


@settings(max_examples=150, deadline=None)
@given(indices(), indices(), conditions(D.variables, 1), conditions(D.variables, 1))
def test_of_two_moments_at_which_indices_coincide(a: Expr, b: Expr, p: Expr, q: Expr) -> None:
    system = System()
    one = instance(system)
    one.require(p)
    left = one.form(a)
    two = instance(system, one)
    two.require(q)
    system.require(minus(two.form(b), left), equal=True)
    system.require(minus(two.values[i], one.values[i]))
    solution = system.solve()
    n = len(D.points[i])
    here = {v: np.repeat(D.points[v], n) for v in D.variables}
    there = {v: np.tile(D.points[v], n) for v in D.variables}
    holds = value(p, here) & value(q, there) & (value(a, here) == value(b, there))
    found = bool(np.any(holds & (there[i] >= here[i])))
    assert solution is not None or not found
    if system.exact:
        assert (solution is not None) == found


@settings(max_examples=100, deadline=None)
@given(indices(), indices())
def test_bounds_hold_at_every_point(a: Expr, b: Expr) -> None:
    system = System()
    one = instance(system)
    form = one.form(a + b)
    low, high = system.bounds(form)
    values = value(a + b, D.points)
    assert low <= values.min()
    assert values.max() <= high
    assert system.settle()
    low, high = system.bounds(form)
    assert low <= values.min()
    assert values.max() <= high
