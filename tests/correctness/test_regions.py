"""The region that an index covers holds every value of it, and is no larger than it need be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.integers import domain, integers, value

from tilewright.arith import Analyzer, Unbounded
from tilewright.ir import Buffer, dtype, ops
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const, maximum, minimum

D = domain(("x", 0, 7), ("y", -3, 4), ("z", 2, 5), ("w", 0, 2))
X, Y, Z, W = D.variables
REGIONS: list[dict[Var, tuple[Expr, Expr]]] = [
    {X: (Z * 2, Z * 2 + W)},
    {X: (W * 4, minimum(W * 4 + 3, 10)), Y: (Z - 3, Z)},
    {Y: (const(-2), const(5))},
    {X: (Y, Y + 7), Z: (const(0), W)},
]
_MANY = 2 * settings().max_examples


@settings(max_examples=_MANY)
@given(integers(D.variables, 3), st.sampled_from(REGIONS))
def test_a_region_holds_every_value(e: Expr, region: dict[Var, tuple[Expr, Expr]]) -> None:
    try:
        lo, hi = D.analyzer.relax(e, region)
    except Unbounded:
        assume(False)
    least, most = value(lo, D.points), value(hi, D.points)
    starts = {v: value(a, D.points) for v, (a, _) in region.items()}
    ends = {v: value(b, D.points) for v, (_, b) in region.items()}
    for steps in itertools.product(range(8), repeat=len(region)):
        at = dict(D.points)
        for var, step in zip(region, steps, strict=True):
            at[var] = starts[var] + step
        inside = np.all([at[v] <= ends[v] for v in region], axis=0)
        found = value(e, at)
        assert (~inside | ((least <= found) & (found <= most))).all(), (e, lo, hi)


@settings(max_examples=_MANY)
@given(integers(D.variables, 2), integers(D.variables, 2), st.integers(0, 9))
def test_an_extent_is_never_too_small(e: Expr, other: Expr, k: int) -> None:
    for lo, hi in ((e, minimum(e + k, other)), (maximum(e, other), e + k), (e, other)):
        found = value(D.analyzer.extent(lo, hi), D.points)
        assert (found >= value(hi - lo + 1, D.points)).all(), (lo, hi)


@pytest.fixture
def az() -> Analyzer:
    return Analyzer()


def bind(az: Analyzer, **extents: int) -> list[Var]:
    made = [Var.make(name) for name in extents]
    for var, extent in zip(made, extents.values(), strict=True):
        az.bind(var, 0, extent)
    return made


@pytest.mark.parametrize(
    ("stride", "dilation", "taps"), [(1, 1, 3), (2, 1, 3), (1, 2, 5), (3, 4, 7)]
)
def test_the_halo_of_a_tile_is_exact(az: Analyzer, stride: int, dilation: int, taps: int) -> None:
    o, i, k = bind(az, o=6, i=16, k=taps)
    index = (o * 16 + i) * stride + k * dilation - 1
    lo, hi = az.relax(index, {i: (const(0), const(15)), k: (const(0), const(taps - 1))})
    assert lo is az.simplify(o * (16 * stride) - 1)
    assert az.extent(lo, hi) is const(15 * stride + (taps - 1) * dilation + 1)


def test_a_halo_cut_at_the_edges_has_a_constant_extent(az: Analyzer) -> None:
    (o,) = bind(az, o=6)
    assert az.extent(maximum(o * 16 - 1, 0), minimum(o * 16 + 16, 95)) is const(18)
    assert az.extent(o * 16, minimum(o * 16 + 15, 20)) is const(16)


def test_the_rows_of_a_fused_tile(az: Analyzer) -> None:
    b, i = bind(az, b=84, i=32)
    whole = {i: (const(0), const(31))}

    def rows(width: int) -> Expr:
        return az.extent(*az.relax((b * 32 + i) // width, whole))

    assert rows(32) is const(1)
    assert rows(96) is const(1)  # a tile never straddles a row
    assert rows(16) is const(2)
    assert rows(28) is const(2)
    assert rows(5) is const(8)
    assert [str(end) for end in az.relax((b * 32 + i) % 96, whole)] == [
        "b % 3 * 32", "b % 3 * 32 + 31"
    ]  # fmt: skip
    assert [str(end) for end in az.relax((b * 32 + i) % 28, whole)] == ["0", "27"]


def test_symbolic_extents_stay_symbolic_unless_a_tile_bounds_them(az: Analyzer) -> None:
    n, o = Var.make("n"), Var.make("o")
    az.bind(n, 1, None)
    az.bind(o, 0, ops.ceildiv(n, 16))
    assert az.extent(const(0), n - 1) is n
    assert az.extent(o * 16, minimum(o * 16 + 15, n - 1)) is const(16)


def test_a_region_does_not_use_the_domain_that_a_variable_was_bound_to(az: Analyzer) -> None:
    (i,) = bind(az, i=4)
    lo, hi = az.relax(i // 4, {i: (const(0), const(11))})
    assert (lo, hi) == (const(0), const(2))


def test_an_index_read_from_memory_has_no_region(az: Analyzer) -> None:
    (i,) = bind(az, i=4)
    table = Buffer("table", (const(4),), dtype("int32"))
    with pytest.raises(Unbounded, match="table"):
        az.relax(table[i] + 1, {i: (const(0), const(3))})
    assert az.relax(ops.clip(table[i], 0, 7), {i: (const(0), const(3))}) == (const(0), const(7))
    assert az.relax(table[i] % 4, {i: (const(0), const(3))}) == (const(0), const(3))
