"""Simplified expressions mean what they did, and have the form that they should."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from tests.support.integers import Domain, conditions, domain, integers, symbolic_domain, value

from tilewright.arith import Analyzer
from tilewright.ir import Buffer, dtype, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const, logical_and, logical_not, logical_or, maximum, minimum
from tilewright.ir.visit import exprs

SMALL = domain(("x", 0, 7), ("y", -3, 4), ("z", 2, 9), ("w", 0, 2))
SYMBOLIC = symbolic_domain()
WIDE = domain(("x", -13, 14), ("y", -4, 5))

_MANY = 2 * settings().max_examples


def check(d: Domain, e: Expr) -> Expr:
    """Simplify ``e``, compare it with itself at every point, and simplify it once more."""
    az = d.analyzer
    made = az.simplify(e)
    before, after = np.broadcast_arrays(value(e, d.points), value(made, d.points))
    if not (before == after).all():
        where = int(np.argmax(before != after))
        point = {v.name: int(d.points[v][where]) for v in d.variables}
        raise AssertionError(f"{e} became {made}: {before[where]} != {after[where]} at {point}")
    az.context.forget()
    again = az.simplify(made)
    assert again is made, f"{e} became {made}, and that {again}"
    return made


# --- each rule, for all small constants


C = (2, 3, 4)
K = (-7, -2, 0, 1, 5)

DIVISIONS: dict[str, Callable[..., Expr]] = {
    "(c*x + y) // c": lambda x, y, a, c, k: (c * x + y + k) // c,
    "(c*x + y) % c": lambda x, y, a, c, k: (c * x + y + k) % c,
    "(a*x + k) // (a*c)": lambda x, y, a, c, k: (a * x + k) // (a * c),
    "(a*x + k) % (a*c)": lambda x, y, a, c, k: (a * x + k) % (a * c),
    "(a*x + y % a) // (a*c)": lambda x, y, a, c, k: (a * x + y % a + k) // (a * c),
    "(a*x + y % a) % (a*c)": lambda x, y, a, c, k: (a * x + y % a + k) % (a * c),
    "(x//a + k) // c": lambda x, y, a, c, k: (x // a + k) // c,
    "(x % (a*c)) // c": lambda x, y, a, c, k: (x % (a * c)) // c,
    "(x % (a*c) + y) % c": lambda x, y, a, c, k: (x % (a * c) + y) % c,
    "(x//a) % c": lambda x, y, a, c, k: (x // a + k) % c,
    "(k - x) // c": lambda x, y, a, c, k: (k - x) // c,
    "(k - x) % c": lambda x, y, a, c, k: (k - x) % c,
    "x // -c": lambda x, y, a, c, k: (x + k) // -c,
    "x % -c": lambda x, y, a, c, k: (x + k) % -c,
    "k*(x % c) + k*c*(x // c)": lambda x, y, a, c, k: (x % c) * a + y + (x // c) * (a * c),
    "k*((x + y//a) % c) + k*c*((a*x + y) // (a*c))": lambda x, y, a, c, k: (
        (x + y // a) % c * a + (a * x + y) // (a * c) * (a * c) + k
    ),
    "k*(x % c) + k*c*((x + c*z) // c)": lambda x, y, a, c, k: (
        (x * a + y) % c * k + (x % c * a + y) // c * (k * c)
    ),
    "k*x - k*c*(x // c)": lambda x, y, a, c, k: a * x - (x // c) * (a * c) + k,
    "a*((x//a) % c) + x % a": lambda x, y, a, c, k: ((x // a) % c) * a + x % a + y,
    "the three parts of x": lambda x, y, a, c, k: (
        x // (a * c) * (a * c) + x // a % c * a + x % a + k
    ),
    "truncdiv": lambda x, y, a, c, k: ops.truncdiv(x * a + k, c),
    "truncmod": lambda x, y, a, c, k: ops.truncmod(x + k, c),
    "truncdiv by -c": lambda x, y, a, c, k: ops.truncdiv(c * x, -c) + ops.truncdiv(x + 14, -c),
    "shifts": lambda x, y, a, c, k: ops.shr(ops.shl(x, a) + k, c),
    "masks": lambda x, y, a, c, k: ops.bitand(x % a, 3) + ops.bitand(x, 7),
}

EXTREMA: dict[str, Callable[..., Expr]] = {
    "min(x + z, y + z)": lambda x, y, a, c, k: minimum(x + y + k, x + x + k),
    "min(x + z, k) - z": lambda x, y, a, c, k: minimum(x + y, k) - x,
    "min(x, a) + k": lambda x, y, a, c, k: minimum(x, a) + k,
    "max(x, a) + min(y, k)": lambda x, y, a, c, k: maximum(x, a) + minimum(y, k) + c,
    "-max(-x, -y)": lambda x, y, a, c, k: maximum(0 - x, k - y) * -1,
    "min(max(x, y), y)": lambda x, y, a, c, k: minimum(maximum(x, y), y + k),
    "clip": lambda x, y, a, c, k: ops.clip(x + k, 0, a) * c,
    "min by bounds": lambda x, y, a, c, k: minimum(x, 14 + y % a) + maximum(y, -4 - k * k),
}

COMPARISONS: dict[str, Callable[..., Expr]] = {
    "g*x + k <= 0": lambda x, y, a, c, k: a * x <= k,
    "g*x + k >= 0": lambda x, y, a, c, k: a * x + a * c * y >= k,
    "g*x + k == 0": lambda x, y, a, c, k: (a * x + a * y).equal(k),
    "g*x + k != 0": lambda x, y, a, c, k: a * x != k,
    "g*x + y % g": lambda x, y, a, c, k: a * x + y % a < k,
    "x // c <= y": lambda x, y, a, c, k: x // c <= y + k,
    "x // c >= y": lambda x, y, a, c, k: x // c + k > y,
    "max(x, y) <= k": lambda x, y, a, c, k: maximum(x + a, y) <= k,
    "min(x, y) >= k": lambda x, y, a, c, k: minimum(x, y + a) >= k,
    "min(x, a) <= k": lambda x, y, a, c, k: minimum(x, a) <= y + k,
    "max(x, a) >= k": lambda x, y, a, c, k: maximum(x, a) >= y + k,
    "decided": lambda x, y, a, c, k: x < 15 + a * a,
    "of both sides": lambda x, y, a, c, k: x * a + k < x * a + y,
}

LOGIC: dict[str, Callable[..., Expr]] = {
    "and of bounds": lambda x, y, a, c, k: logical_and(x < a, x < k, x >= k),
    "or of bounds": lambda x, y, a, c, k: logical_or(x < a, x < k, y > 2),
    "and that cannot be": lambda x, y, a, c, k: logical_and(x + y < k, x + y > k + a),
    "or that must be": lambda x, y, a, c, k: logical_or(x + y <= k, x + y > k - a),
    "not and": lambda x, y, a, c, k: logical_not(logical_and(x < k, y > a)),
    "not or": lambda x, y, a, c, k: logical_not(logical_or(x.equal(k), y > a)),
    "a choice where it holds": lambda x, y, a, c, k: ops.if_then_else(
        x < k, minimum(x, k), maximum(x, k)
    ),
    "a choice of an equal": lambda x, y, a, c, k: ops.select(x.equal(k), x * a, k),
    "a choice in a choice": lambda x, y, a, c, k: ops.select(
        x + y < k, ops.select(x + y < k + a, x, y), ops.select(x + y < k - a, x, 7)
    ),
    "a choice of conditions": lambda x, y, a, c, k: E.Select(x < k, y < a, const(False)),
    "a let": lambda x, y, a, c, k: _let(x + k, lambda v: v // c * c + v % c + y),
}


def _let(e: Expr, body: Callable[[Expr], Expr]) -> Expr:
    var = Var.make("t")
    return E.LetExpr(var, e, body(var))


@pytest.mark.parametrize("name", [*DIVISIONS, *EXTREMA, *COMPARISONS, *LOGIC])
def test_each_rule_holds_for_all_small_constants(name: str) -> None:
    build = {**DIVISIONS, **EXTREMA, **COMPARISONS, **LOGIC}[name]
    x, y = WIDE.variables
    for a, c, k in itertools.product(C, C, K):
        check(WIDE, build(x, y, a, c, k))


# --- random ones


@settings(max_examples=_MANY)
@given(integers(SMALL.variables))
def test_random_integers_keep_their_values(e: Expr) -> None:
    check(SMALL, e)


@settings(max_examples=_MANY)
@given(conditions(SMALL.variables))
def test_random_conditions_keep_their_values(e: Expr) -> None:
    check(SMALL, e)


@settings(max_examples=_MANY)
@given(integers(SYMBOLIC.variables, products=True))
def test_random_integers_over_symbolic_extents_keep_their_values(e: Expr) -> None:
    check(SYMBOLIC, e)


@settings(max_examples=_MANY)
@given(conditions(SYMBOLIC.variables, products=True))
def test_random_conditions_over_symbolic_extents_keep_their_values(e: Expr) -> None:
    check(SYMBOLIC, e)


# --- the form


class Loops:
    """Variables of loops, by name, and an analyzer that knows them."""

    def __init__(self, **extents: int) -> None:
        self.az = Analyzer()
        for name, size in extents.items():
            var = Var.make(name)
            self.az.bind(var, 0, size)
            setattr(self, name, var)

    def __getattr__(self, name: str) -> Var:  # for the type checker: set in the constructor
        raise AttributeError(name)

    def text(self, e: Expr) -> str:
        return str(self.az.simplify(e))


def test_a_flat_index_reads_as_the_loops_stand() -> None:
    v = Loops(blockIdx_x=4, c=4, h=16, w=32, ry=7, rx=7)
    plane = v.blockIdx_x * 4 + v.c
    index = (plane * 16 + (v.h + v.ry - 3)) * 32 + (v.w + v.rx - 3)
    assert v.text(index) == "blockIdx_x * 2048 + c * 512 + h * 32 + ry * 32 + w + rx - 99"


def test_a_flat_index_splits_into_its_dimensions() -> None:
    v = Loops(b=4, c=4, h=16, w=32)
    flat = v.b * 2048 + v.c * 512 + v.h * 32 + v.w
    assert v.text(flat // 2048) == "b"
    assert v.text(flat // 512 % 4) == "c"
    assert v.text(flat // 32 % 16) == "h"
    assert v.text(flat % 32) == "w"
    assert v.text(flat // 1024 * 1024 + flat % 1024) == "b * 2048 + c * 512 + h * 32 + w"


def test_a_flat_index_in_tiles_is_put_together_from_dimensions_that_they_cross() -> None:
    v = Loops(b=4, y=4, z=16)
    for block, width in itertools.product((v.b, v.b % 3), (6, 8, 9, 12, 14)):
        flat, pixels = block * 128 + v.y * 32 + v.z, 7 * width
        image, row, column = flat // pixels, flat // width % 7, flat % width
        assert v.text(image * pixels + row * width + column) == v.text(flat)


def test_a_flat_index_in_tiles_of_pairs_is_put_together_where_a_row_is_two_pairs() -> None:
    v = Loops(b=50, y=4, z=16, lane=2)
    for block, rows in itertools.product((v.b, v.b % 5), (5, 7, 20)):
        flat = block * 128 + v.y * 32 + v.z * 2 + v.lane
        image, row, column = flat // (rows * 4), flat // 4 % rows, flat % 4
        assert v.text(image * (rows * 4) + row * 4 + column) == v.text(flat)


def test_a_flat_index_of_more_divisions_than_its_dimensions_is_put_together() -> None:
    v = Loops(block=12, turn=4, thread=128)
    flat = v.block // 3 * 64 + v.turn * 16 + v.thread // 8
    image, row, column = flat // 70, flat // 10 % 7, flat % 10
    assert v.text(image * 70 + row * 10 + column) == v.text(flat)


def test_the_guard_of_a_padded_input_reads_as_two_bounds_an_axis() -> None:
    v = Loops(h=16, w=32, ry=7, rx=7)
    y, x = v.h + v.ry - 3, v.w + v.rx - 3
    guard = logical_and(y >= 0, y < 16, x >= 0, x < 32)
    assert v.text(guard) == "3 <= h + ry and h + ry < 19 and 3 <= w + rx and w + rx < 35"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda x, y, n: 4 * x < 33, "x < 9"),
        (lambda x, y, n: 4 * x > 33, "9 <= x"),
        (lambda x, y, n: (4 * x).equal(33), "False"),
        (lambda x, y, n: x * 4 + y % 4 < 64, "x < 16"),
        (lambda x, y, n: x - y >= 3, "y + 2 < x"),
        (lambda x, y, n: x - y < 4, "x < y + 4"),
        (lambda x, y, n: x <= y, "x <= y"),
        (lambda x, y, n: x * 4 + y < n, "x * 4 + y < n"),
        (lambda x, y, n: x // 4 < 3, "x < 12"),
        (lambda x, y, n: x // 4 >= n, "n * 4 <= x"),
        (lambda x, y, n: x >= 0, "True"),
        (lambda x, y, n: (x + 1).equal(x), "False"),
        (lambda x, y, n: x < x + n, "True"),
        (lambda x, y, n: logical_and(x < 9, y < 3, x < 5), "y < 3 and x < 5"),
        (lambda x, y, n: logical_and(x < 5, x >= 5), "False"),
        (lambda x, y, n: logical_or(x < 5, x >= 5), "True"),
        (lambda x, y, n: logical_not(logical_and(x < 3, y >= 5)), "3 <= x or y < 5"),
        (lambda x, y, n: x // 4 * 4 + x % 4, "x"),
        (lambda x, y, n: x - x // 4 * 4, "x % 4"),
        (lambda x, y, n: x // 4 // 8, "x // 32"),
        (lambda x, y, n: x % 32 // 8, "x // 8 % 4"),
        (lambda x, y, n: x % 32 % 8, "x % 8"),
        (lambda x, y, n: 99 - x * 2 - y, "99 - x * 2 - y"),
        (lambda x, y, n: ops.ceildiv(n, 16) * 16 // 16, "(n + 15) // 16"),
        (lambda x, y, n: minimum(x * 16 + 15, 20) - x * 16 + 1, "T.min(21 - x * 16, 16)"),
        (lambda x, y, n: minimum(x, 200) + maximum(y, 0), "x + y"),
        (lambda x, y, n: ops.truncdiv(x, 4) + ops.truncmod(y, 8), "x // 4 + y % 8"),
        (lambda x, y, n: (x * n + y * n) // n, "x + y"),
        (lambda x, y, n: (x + 1) * n - n, "n * x"),
        (lambda x, y, n: ops.select(x < n, minimum(x, n), n), "T.Select(x < n, x, n)"),
        (lambda x, y, n: ops.if_then_else(x < 100, x, y), "x"),
        (lambda x, y, n: x - x, "0"),
    ],
)
def test_an_expression_takes_its_canonical_form(
    build: Callable[[Expr, Expr, Expr], Expr], text: str
) -> None:
    az = Analyzer()
    n, x, y = Var.make("n"), Var.make("x"), Var.make("y")
    az.bind(n, 1, None)
    az.bind(x, 0, 96)
    az.bind(y, 0, 96)
    assert str(az.simplify(build(x, y, n))) == text


def test_a_flat_index_of_symbolic_extents_splits_into_its_dimensions() -> None:
    az = Analyzer()
    extents = [Var.make(name) for name in "NCHW"]
    loops = [Var.make(name) for name in "nchw"]
    for extent in extents:
        az.bind(extent, 1, None)
    for loop, extent in zip(loops, extents, strict=True):
        az.bind(loop, 0, extent)
    (_, C, H, W), (n, c, h, w) = extents, loops
    flat = ((n * C + c) * H + h) * W + w
    assert az.simplify(flat % W) is w
    assert az.simplify(flat // W % H) is h
    assert az.simplify(flat // (H * W) % C) is c
    assert az.simplify(flat // (C * H * W)) is n
    assert az.prove(flat < extents[0] * C * H * W)


def test_a_loop_of_one_iteration_leaves_its_start() -> None:
    az = Analyzer()
    o, i = Var.make("o"), Var.make("i")
    az.bind(o, 0, 4)
    az.bind(i, o * 4, 1)
    assert str(az.simplify(i + 1)) == "o * 4 + 1"


def test_floats_stay_what_they_are_bit_for_bit() -> None:
    az, f, i = Analyzer(), Var.make("f", "float32"), Var.make("i")
    az.bind(i, 0, 8)
    kept = [f + 0.0, f * 0.0, f - f, f + f, (f + 1.0) - 1.0, f / f, f < f, f.equal(f)]
    for e in kept:
        assert az.simplify(e) is e
    assert az.simplify(f * 1.0) is f
    assert az.simplify(ops.select(i < 9, f, f * 2.0)) is f
    assert az.simplify(ops.cast("float32", i // 8)) is const(0.0)


def test_narrow_and_unsigned_integers_wrap_around() -> None:
    az = Analyzer()
    b, u = Var.make("b", "int8"), Var.make("u", "uint32")
    for e in (b + const(1, "int8") > b, u - const(1, "uint32") < u, b < const(127, "int8")):
        assert not isinstance(az.simplify(e), E.IntImm)
    assert str(az.simplify(ops.cast("int32", b) < 128)) == "True"


def test_a_guard_keeps_what_it_guards() -> None:
    az, i = Analyzer(), Var.make("i")
    table = Buffer("table", (const(8),), dtype("int32"))
    e = logical_and(i < 8, table[i] < 5)
    assert az.simplify(e) is e
    again = logical_and(i < 8, table[i] < 5, i < 8)
    assert az.simplify(again) is e
    weaker = logical_and(i < 8, table[i] < 7, table[i] < 5)
    assert az.simplify(weaker) is e


@pytest.mark.parametrize("kind", [E.Select, E.IfThenElse])
def test_conditions_of_memory_hold_in_their_branch(kind: type[E.Select]) -> None:
    az, i = Analyzer(), Var.make("i")
    table = Buffer("table", (const(8),), dtype("int32"))
    inner = kind(table[i] < 5, const(1), const(2))
    assert az.simplify(kind(table[i] < 3, inner, const(3))) is kind(
        table[i] < 3, const(1), const(3)
    )


def test_a_guard_stays_though_a_later_condition_implies_it() -> None:
    az, i = Analyzer(), Var.make("i")
    table = Buffer("table", (const(8),), dtype("int32"))
    e = logical_and(i < 8, table[i] < 5, i < 4)
    assert az.simplify(e) is e
    either = az.simplify(logical_or(i >= 8, table[i] < 5, i >= 4))
    assert repr(either) == "8 <= i or table[i] < 5 or 4 <= i"
    assert repr(az.simplify(logical_and(i < 8, i * 2 > 3, i < 4))) == "2 <= i and i < 4"


def test_both_values_of_an_eager_choice_keep_their_reads_in_bounds() -> None:
    az, i = Analyzer(), Var.make("i")
    az.bind(i, 0, 20)
    table = Buffer("table", (const(8),), dtype("int32"))
    read = table[i % 8]
    assert az.simplify(ops.if_then_else(i < 8, read, 0)) is ops.if_then_else(i < 8, table[i], 0)
    for kept in (
        ops.select(i < 8, read, 0),
        ops.select(i >= 8, 0, read + 1),
        ops.select(i < 8, ops.select(table[0] < 3, read, 1), 0),
        ops.select(i < 8, table[ops.select(i < 8, i, 0)], 0),
    ):
        assert az.simplify(kept) is az.simplify(az.simplify(kept))
        assert [e for e in exprs(az.simplify(kept)) if isinstance(e, E.Load)] == [
            e for e in exprs(kept) if isinstance(e, E.Load)
        ]
    inside = ops.if_then_else(i < 6, table[(i + 2) % 8], 1)
    lazy = ops.if_then_else(i < 6, table[i + 2], 1)
    assert az.simplify(ops.select(i < 8, inside, 0)) is ops.select(i < 8, lazy, 0)


def test_what_an_eager_choice_computes_is_simplified_under_its_condition() -> None:
    az, i = Analyzer(), Var.make("i")
    az.bind(i, 0, 20)
    assert az.simplify(ops.select(i < 8, i % 8, 0)) is ops.select(i < 8, i, 0)


def test_a_program_of_an_article_simplifies_once_and_for_all() -> None:
    v = Loops(by=256, bx=4, vy=2, vx=2, ty=8, tx=8, i=2, j=4)
    flat = ((v.by * 96 + v.bx // 2 * 32 + v.vy * 16 + v.ty * 2 + v.i) * 96) + v.tx * 4 + v.j
    made = v.az.simplify(flat)
    assert Analyzer().simplify(made) is made


def test_long_sums_and_deep_choices_are_no_matter() -> None:
    az, f, i = Analyzer(), Var.make("f", "float32"), Var.make("i")
    total: Expr = f
    for _ in range(300):
        total = total + f * 1.0
    assert az.simplify(total).dtype == "float32"
    index: Expr = i
    for k in range(300):
        index = index + i * k
    assert str(az.simplify(index)) == "i * 44851"
    chosen: Expr = const(0)
    for k in range(60):
        chosen = ops.if_then_else(i < k, i // 4 + k, chosen)
    assert az.simplify(chosen).dtype == "int32"
