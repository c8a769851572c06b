"""One-dimensional buffers hold every element where the layout says."""

from __future__ import annotations

import itertools

import pytest

from tilewright.ir import Buffer, Layout, dtype
from tilewright.ir.expr import Expr, IntImm, Ramp, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Store
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
from tilewright.lower.substitution import put

i, j = axes("i j")


def offset(b: Buffer, *indices: Expr) -> Expr:
    s = flatten(func(store(b[indices], 1.0))).body
    assert isinstance(s, Store)
    return s.indices[0]


def test_rows_follow_one_another() -> None:
    assert repr(offset(buffer("A", 4, 8, 16), i, j, const(3))) == "i * 128 + j * 16 + 3"


def test_a_ramp_in_the_last_dimension_stays_a_ramp() -> None:
    one = const(1)
    assert (
        repr(offset(buffer("A", 4, 16), i, Ramp(j * 4, one, 4))) == "T.Ramp(i * 16 + j * 4, 1, 4)"
    )
    assert repr(offset(buffer("A", 4, 16), Ramp(i, one, 4), j)) == "T.Ramp(i * 16 + j, 16, 4)"


def test_symbolic_extents_are_strides() -> None:
    n = Var.make("n")
    A = buffer("A", 4, n)
    f = flatten(func(store(A[i, j], 1.0)))
    assert repr(f.body) == "A[n * i + j] = T.float32(1)"
    assert repr(next(p for p in f.params if isinstance(p, Buffer)).shape) == "(n * 4,)"


@pytest.mark.parametrize("swizzle", [None, (2, 1, 3)])
def test_a_layout_is_a_bijection_into_its_size(swizzle: tuple[int, int, int] | None) -> None:
    layout = Layout((const(10), const(1)) if swizzle is None else (const(8), const(1)),
                    const(2) if swizzle is None else const(0), swizzle)  # fmt: skip
    A = Buffer("A", (const(8), const(8)), dtype("float32"), "shared", layout)
    f = flatten(func(allocate(A, loop(i, 8, loop(j, 8, store(A[i, j], 1.0))))))
    flat = f.body.buffer
    place = f.body.body.body.body.indices[0]
    found = {
        put(place, {i: const(x), j: const(y)}) for x, y in itertools.product(range(8), repeat=2)
    }
    assert len(found) == 64
    if swizzle is None:
        assert all(0 <= int(e) < int(flat.shape[0]) for e in found if isinstance(e, IntImm))


def test_what_is_in_bounds_needs_no_remainder() -> None:
    A = buffer("A", 4, 6)
    f = flatten(func(loop(i, 24, store(A[i // 6, i % 6], 1.0))))
    assert repr(f.body) == "for i in range(24):\n    A[i] = T.float32(1)"
