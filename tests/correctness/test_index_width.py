"""Indices are 64 bits wide exactly where 32 do not suffice."""

import pytest

from tilewright.ir import Buffer, Func
from tilewright.ir.buffer import Layout
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Cast, Expr, Load, Ramp, Var
from tilewright.ir.ops import const, truncmod
from tilewright.ir.stmt import For, Let, Store
from tilewright.ir.visit import exprs, loads, stores, walk
from tilewright.lower.ir_builder import axes, buffer, func, loop, store, when
from tilewright.lower.loops.index_width import index_width

BIG = 2**31


def only_store(f: Func) -> Store:
    (found,) = stores(f.body)
    return found


def bits(indices: tuple[Expr, ...]) -> set[int]:
    return {i.dtype.bits for i in indices}


def loop_vars(f: Func) -> list[Var]:
    return [s.var for s in walk(f.body) if isinstance(s, For)]


def test_a_small_program_is_left_as_it_is() -> None:
    i, j = axes("i j")
    a, b = buffer("A", 1024, 1024), buffer("B", 1024, 1024)
    before = func(loop(i, 1024, loop(j, 1024, store(b[i, j], a[j, i]))))
    assert index_width(before).body is before.body


def test_the_limit_is_at_two_to_the_31_elements() -> None:
    for extent, want in ((2**15, 32), (2**15 + 1, 64)):
        i, j = axes("i j")
        b = buffer("B", extent, 2**16)
        found = only_store(index_width(func(loop(i, extent, loop(j, 2**16, store(b[i, j], 0.0))))))
        assert bits(found.indices) == {want}


def test_an_offset_counts_and_not_the_elements_where_rows_have_gaps() -> None:
    i, j = axes("i j")
    wide = Layout((const(2**29), const(1)))
    b = Buffer("B", (const(8), const(4)), buffer("x", 1).dtype, "global", wide)
    found = only_store(index_width(func(loop(i, 8, loop(j, 4, store(b[i, j], 0.0))))))
    assert bits(found.indices) == {64}


def test_a_loop_over_more_than_two_to_the_31_counts_in_64_bits() -> None:
    (i,) = axes("i")
    b = buffer("B", const(3 * 2**30, "int64"))
    body = For(i, const(0), const(3 * 2**30, "int64"), loop(i, 1).kind, store(b[i], 1.0))
    made = index_width(func(body))
    (var,) = loop_vars(made)
    (one,) = (s for s in walk(made.body) if isinstance(s, For))
    assert {var.dtype, one.min.dtype, one.extent.dtype} == {"int64"}
    assert only_store(made).indices == (var,)


def test_an_intermediate_product_that_leaves_32_bits_is_computed_in_64() -> None:
    i, j = axes("i j")
    a, b = buffer("A", 4), buffer("B", 2**20)
    mixed = (i * 65536 + j) % 4
    made = index_width(func(loop(i, 2**20, loop(j, 65536, store(b[i], a[mixed])))))
    (read,) = loads(only_store(made).value)
    assert read.indices[0].dtype == "int32"
    inner = [e for e in exprs(read.indices[0]) if not isinstance(e, Cast)]
    assert any(e.dtype == "int64" for e in inner)
    assert only_store(made).indices == (i,)


def test_values_of_tensors_keep_their_arithmetic() -> None:
    (i,) = axes("i")
    a, b = buffer("A", 8, type="int32"), buffer("B", 8, type="int32")
    before = func(loop(i, 8, store(b[i], a[i] * a[i] * 65536 + i)))
    assert index_width(before).body is before.body


def test_an_index_that_is_a_value_wraps_around_in_the_type_of_the_value() -> None:
    (i,) = axes("i")
    b = buffer("B", 8, type="int32")
    made = index_width(func(loop(i, 8, store(b[i], i * (2**30) // 3))))
    assert str(only_store(made).value) == "T.Cast('int32', T.Cast('int64', i) * 1073741824 // 3)"
    assert not only_store(made).value.exact


def test_constants_beyond_64_bits_are_refused() -> None:
    (i,) = axes("i")
    beyond = const(-(2**31), "int64") - const(2**63 - 1, "int64")
    b = buffer("B", 8, type="int64")
    with pytest.raises(LoweringError, match="64 bits"):
        index_width(func(loop(i, 8, store(b[i], truncmod(beyond, i + 3)))))


def test_indices_beyond_64_bits_are_refused() -> None:
    (i,) = axes("i")
    b = buffer("B", 8)
    with pytest.raises(LoweringError, match="64 bits"):
        index_width(func(loop(i, 2**20, store(b[i * (2**30) * (2**30) % 8], 0.0))))


def test_a_wide_variable_is_still_a_32_bit_value() -> None:
    (i,) = axes("i")
    b = Buffer("B", (const(BIG, "int64"),), buffer("x", 1, type="int32").dtype)
    made = index_width(func(For(i, const(0), const(BIG, "int64"), loop(i, 1).kind, store(b[i], i))))
    value = only_store(made).value
    assert isinstance(value, Cast)
    assert value.dtype == "int32"


def test_two_symbolic_extents_may_overflow_and_one_may_not() -> None:
    n, m, i, j = axes("n m i j")
    one, two = buffer("A", n), buffer("B", n, m)
    assert bits(only_store(index_width(func(loop(i, n, store(one[i], 0.0))))).indices) == {32}
    made = index_width(func(loop(i, n, loop(j, m, store(two[i, j], 0.0)))))
    assert bits(only_store(made).indices) == {64}
    assert [v.dtype for v in loop_vars(made)] == ["int32", "int32"]


def test_an_extent_that_is_known_to_be_small_is_counted_in_32_bits() -> None:
    i, j = axes("i j")
    for most, width in ((2**15, 32), (2**15 + 1, 64)):
        n = Var.make("n", most=most)
        b = buffer("B", n, 2**16)
        made = index_width(func(loop(i, n, loop(j, 2**16, store(b[i, j], 0.0)))))
        assert bits(only_store(made).indices) == {width}


def test_a_guard_on_a_wide_sum_compares_in_64_bits() -> None:
    n, i, j = axes("n i j")
    b = buffer("B", n)
    place = i * 1024 + j
    body = loop(i, (n + 1023) // 1024, loop(j, 1025, when(place < n, store(b[place], 0.0))))
    made = index_width(func(body))
    for e in walk(made.body):
        if hasattr(e, "symbol") and hasattr(e, "a"):
            assert e.a.dtype == e.b.dtype
    assert any(e.dtype == "int64" for e in walk(made.body) if isinstance(e, Expr))


def test_a_vector_of_neighbours_stays_one() -> None:
    i, j = axes("i j")
    b = buffer("B", 2**16, 2**16)
    value = const(0.0, "float32x4")
    put = Store(b, (i, Ramp(j * 4, const(1), 4)), value)
    found = only_store(index_width(func(loop(i, 2**16, loop(j, 2**14, put)))))
    ramp = found.indices[1]
    assert isinstance(ramp, Ramp)
    assert ramp.dtype == "int64x4"


def test_a_name_for_a_wide_value_is_wide() -> None:
    i, j, k = axes("i j k")
    b = buffer("B", 2**16, 2**16)
    body = Let(k, i * 65536 + j, store(b[k // 65536, k % 65536], 0.0))
    made = index_width(func(loop(i, 2**16, loop(j, 2**16, body))))
    (let,) = (s for s in walk(made.body) if isinstance(s, Let))
    assert let.var.dtype == let.value.dtype == "int64"
    assert all(not isinstance(e, Load) for e in exprs(let.value))
