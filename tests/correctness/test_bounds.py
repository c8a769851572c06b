"""What is said to hold holds: bounds, proofs, and both under assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.integers import Domain, conditions, domain, integers, symbolic_domain, value

from tilewright.arith import Analyzer, Interval
from tilewright.ir import Buffer, dtype, ops
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const, logical_and, minimum

DOMAINS = {
    "constant": domain(("x", 0, 7), ("y", -3, 4), ("z", 2, 9), ("w", 0, 2)),
    "symbolic": symbolic_domain(),
}
_MANY = 2 * settings().max_examples


def values(d: Domain, e: Expr) -> np.ndarray:
    size = len(next(iter(d.points.values())))
    return np.broadcast_to(value(e, d.points), (size,))


@pytest.mark.parametrize("kind", DOMAINS)
@settings(max_examples=_MANY)
@given(data=st.data())
def test_bounds_hold_every_value(kind: str, data: st.DataObject) -> None:
    d = DOMAINS[kind]
    e = data.draw(integers(d.variables, products=kind == "symbolic"))
    bounds, found = d.analyzer.bounds(e), values(d, e)
    assert int(found.min()) in bounds
    assert int(found.max()) in bounds


@pytest.mark.parametrize("kind", DOMAINS)
@settings(max_examples=_MANY)
@given(data=st.data())
def test_nothing_false_is_proved(kind: str, data: st.DataObject) -> None:
    d, products = DOMAINS[kind], kind == "symbolic"
    az = d.analyzer
    condition = data.draw(conditions(d.variables, products=products))
    assumed = data.draw(st.lists(conditions(d.variables, 1, products), max_size=2))
    e = data.draw(integers(d.variables, 3, products))
    holds = np.ones_like(next(iter(d.points.values())), dtype=bool)
    for fact in assumed:
        holds &= values(d, fact)
    with assuming(az, assumed):
        proved, made, bounds = az.prove(condition), az.simplify(e), az.bounds(e)
    assert not proved or values(d, condition)[holds].all()
    before, after = values(d, e)[holds], values(d, made)[holds]
    assert (before == after).all()
    if holds.any():
        assert int(before.min()) in bounds
        assert int(before.max()) in bounds


@contextmanager
def assuming(az: Analyzer, facts: list[Expr]) -> Iterator[None]:
    if not facts:
        yield
        return
    with az.assume(facts[0]), assuming(az, facts[1:]):
        yield


@pytest.fixture
def az() -> Analyzer:
    return Analyzer()


def variables(names: str) -> list[Var]:
    return [Var.make(name) for name in names.split()]


def test_bounds_of_affine_forms_are_tight(az: Analyzer) -> None:
    i, j = variables("i j")
    az.bind(i, 0, 8)
    az.bind(j, 2, 3)
    assert az.bounds(i * 4 - j) == Interval(-4, 26)
    assert az.bounds(i * 4 - j).extent == 31
    assert az.bounds((i * 4 + j) // 3) == Interval(0, 10)


def test_ends_that_are_not_known_are_none(az: Analyzer) -> None:
    n, m = variables("n m")
    az.bind(n, 1, None)
    assert az.bounds(n * 2 - 1) == Interval(1, None)
    assert az.bounds(n - m) == Interval(None, None)
    assert az.bounds(m % 4) == Interval(0, 3)


def test_types_bound_what_is_read_from_memory(az: Analyzer) -> None:
    table = Buffer("table", (const(8),), dtype("uint8"))
    assert az.bounds(ops.cast("int32", table[0]) + 1) == Interval(1, 256)


def test_loops_over_symbolic_extents_stay_below_them(az: Analyzer) -> None:
    n, o, i = variables("n o i")
    az.bind(n, 1, None)
    az.bind(o, 0, ops.ceildiv(n, 16))
    az.bind(i, 0, 16)
    assert not az.prove(o * 16 + i < n)
    assert az.prove(o * 16 < n)
    assert az.prove(o * 16 + i < n + 15)
    with az.assume(o * 16 + i < n):
        assert az.prove(o * 16 + i <= n - 1)
        assert az.prove(o * 16 < n)
    assert not az.prove(o * 16 + i < n)


def test_a_partial_tile_ends_where_its_extent_says(az: Analyzer) -> None:
    o, k = variables("o k")
    az.bind(o, 0, 6)
    az.bind(k, o * 16, minimum(16, 90 - o * 16))
    assert az.prove(k < 90)
    assert az.prove(k - o * 16 < 16)
    assert az.prove(k >= o * 16)
    assert not az.prove(k < 89)


def test_a_ceiling_covers_what_it_divides(az: Analyzer) -> None:
    (n,) = variables("n")
    az.bind(n, 1, None)
    assert az.prove(ops.ceildiv(n, 16) * 16 >= n)
    assert az.prove(ops.ceildiv(n, 16) * 16 < n + 16)
    assert az.prove(n // 16 * 16 <= n)
    assert az.prove(ops.ceildiv(n, 16) >= 1)


def test_facts_combine(az: Analyzer) -> None:
    a, b, c, d = variables("a b c d")
    with az.assume(logical_and(a <= b, b < c, c <= d)):
        assert az.prove(a < d)
        assert az.prove(d - a >= 1)
        assert not az.prove(a + 1 < d)


def test_what_is_said_of_a_quotient_is_known_of_the_dividend(az: Analyzer) -> None:
    x, y = variables("x y")
    with az.assume((x // 4).equal(2)):
        assert az.bounds(x) == Interval(8, 11)
    with az.assume(logical_and((x // 4).equal(y), x >= 1)):
        assert az.prove(x <= y * 4 + 3)
        assert az.prove(x >= y * 4)
        assert not az.prove(x < y * 4 + 3)
        assert az.prove(y >= 0)


def test_definitions_are_known(az: Analyzer) -> None:
    o, i, y = variables("o i y")
    az.bind(o, 0, 6)
    az.bind(i, 0, 16)
    with az.scope():
        az.define(y, o * 16 + i)
        assert az.simplify(y + 1) is y + 1
        assert az.bounds(y) == Interval(0, 95)
        assert az.prove(y - o * 16 < 16)
        assert az.prove(y.equal(o * 16 + i))
        assert az.prove((y % 16).equal(i))
    assert az.bounds(y) == Interval(None, None)


def test_a_variable_bound_anew_forgets_its_old_domain(az: Analyzer) -> None:
    i, j = variables("i j")
    az.bind(i, 0, 4)
    az.bind(j, i, 4)
    assert az.prove(i < 4)
    assert az.simplify(i // 4) is const(0)
    az.bind(i, 0, 8)
    assert not az.prove(i < 4)
    assert not az.prove(j >= i)
    assert str(az.simplify(i // 4)) == "i // 4"


def test_scopes_and_assumptions_end(az: Analyzer) -> None:
    (i,) = variables("i")
    with az.scope():
        az.bind(i, 0, 4)
        assert az.prove(i < 4)
    assert not az.prove(i < 4)
    with az.assume(i < 4):
        assert az.prove(i < 4)
    assert not az.prove(i < 4)


def test_what_is_bound_under_an_assumption_ends_with_it(az: Analyzer) -> None:
    i, j = variables("i j")
    for extent in (4, 8):
        with az.assume(i < 4):
            assert not az.prove(j < extent)
            az.bind(j, 0, extent)
            assert az.prove(j < extent)
            assert az.bounds(j + i) == Interval(None, extent + 2)
        assert not az.prove(j < extent)


def test_the_definition_of_a_condition_holds_with_it(az: Analyzer) -> None:
    i, inside = Var.make("i"), Var.make("inside", "bool")
    az.define(inside, i < 4)
    with az.assume(inside):
        assert az.prove(i < 5)
    assert not az.prove(i < 5)


def test_memory_may_change_under_an_assumption(az: Analyzer) -> None:
    (i,) = variables("i")
    table = Buffer("table", (const(8),), dtype("int32"))
    with az.assume(logical_and(i < 4, table[i] < 5)):
        assert az.prove(i < 4)
        assert not az.prove(table[i] < 5)
    stale = Var.make("stale", "bool")
    az.define(stale, table[i] < 5)
    with az.assume(stale):
        assert not az.prove(table[i] < 5)
    old = Var.make("old", exact=False)
    az.define(old, table[i])
    assert not az.prove(old.equal(table[i]))
