"""Accesses on the CPU: vectors of neighbours, strides, masks, and reads that must not happen."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from tests.support.cpu import kernel, poisoned, ramp
from tests.support.declared import numpy_type
from tests.support.kernels import buffer, loop, store

import tilewright
from tilewright import te
from tilewright.ir import Buffer, Layout, dtype, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Let, Stmt, seq

LANES = 8


def zeros(t: str = "float32", lanes: int = LANES) -> Expr:
    return ops.const(0, f"{t}x{lanes}")


def copy(index: Expr, size: int, types: str = "float32", target: str = "llvm") -> np.ndarray:
    """``out[0:8] = in[index]`` of an ascending input."""
    a, b = buffer("a", (size,), type=types), buffer("b", (LANES,), type=types)
    run = kernel([a, b], store(b, (ramp(0, LANES),), E.Load(a, (index,), None)), target)
    found = poisoned(LANES, types)
    run(np.arange(size).astype(types), found)
    return found


@pytest.mark.parametrize("types", ["float32", "int8", "float16", "float64", "bool"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, -1, -2, 0, 16])
def test_loads_with_any_stride(stride: int, types: str) -> None:
    start = max(0, -stride * (LANES - 1))
    size = start + max(0, stride * (LANES - 1)) + 1
    expected = np.arange(size).astype(types)[[start + k * stride for k in range(LANES)]]
    np.testing.assert_array_equal(copy(ramp(start, LANES, stride), size, types), expected)


def test_arithmetic_on_ramps_is_still_one_vector() -> None:
    index = E.Add(E.Mul(ramp(3, LANES), ops.const(1, "int32x8")), E.Broadcast(const(2), LANES))
    np.testing.assert_array_equal(copy(index, 13), np.arange(5, 13))
    index = E.Sub(E.Broadcast(const(12), LANES), ramp(0, LANES))
    np.testing.assert_array_equal(copy(index, 13), 12 - np.arange(8))


@pytest.mark.parametrize("by", [1, 2, 4, 8])
def test_lanes_of_one_block_are_read_at_once(by: int) -> None:
    """The same element of the block's groups of ``by``, as an image of few channels is read."""
    a, b = buffer("a", (3, 16)), buffer("b", (3, 2, LANES))
    lanes, group = ramp(0, LANES), ops.const(by, "int32x8")
    k = by - 1

    def row(i: Expr) -> Stmt:
        def block(v: Expr) -> Stmt:
            start = E.Broadcast(v * LANES + k, LANES)
            index = E.Add(start, E.Mul(E.FloorDiv(lanes, group), group))
            read = E.Load(a, (E.Broadcast(i, LANES), index), None)
            return store(b, (E.Broadcast(i, LANES), E.Broadcast(v, LANES), lanes), read)

        return loop("v", 2, block)

    body = loop("i", 3, row)
    found, run = poisoned((3, 2, LANES)), kernel([a, b], body)
    given = np.arange(48, dtype="float32").reshape(3, 16)
    run(given, found)
    wanted = given.reshape(3, 2, LANES // by, by)[..., k].repeat(by, axis=-1)
    np.testing.assert_array_equal(found, wanted.reshape(found.shape))
    if by > 1:
        assert "shufflevector" in run.source


def test_a_block_that_may_not_be_there_is_not_read() -> None:
    """Where rows are no whole blocks, one reaches beyond the last element."""
    size = mmap.PAGESIZE // 4
    for extent in (size - 2, size):
        turned = E.FloorMod(ramp(1, LANES), ops.const(8, "int32x8"))
        index = E.Add(ops.const(extent - 8, "int32x8"), turned)
        wanted = extent - 8 + np.arange(1, 9) % 8
        np.testing.assert_array_equal(copy(index, extent), wanted)


def test_scattered_lanes() -> None:
    table = [5, 3, 7, 7, 0, 1, 12, 2]
    index = E.Concat(tuple(const(k) for k in table))
    np.testing.assert_array_equal(copy(index, 13), table)
    index = E.FloorMod(E.Mul(ramp(0, LANES), ops.const(5, "int32x8")), ops.const(13, "int32x8"))
    np.testing.assert_array_equal(copy(index, 13), np.arange(8) * 5 % 13)


@pytest.mark.parametrize("stride", [1, -1, 2])
def test_stores_with_any_stride_leave_the_rest_alone(stride: int) -> None:
    a, b = buffer("a", (LANES,)), buffer("b", (20,))
    start = 8 if stride < 0 else 1
    body = store(b, (ramp(start, LANES, stride),), E.Load(a, (ramp(0, LANES),), None))
    x = np.arange(LANES, dtype=np.float32)
    found, before = poisoned(20), poisoned(20)
    kernel([a, b], body)(x, found)
    before[[start + k * stride for k in range(LANES)]] = x
    np.testing.assert_array_equal(found.view(np.int32), before.view(np.int32))


@pytest.mark.parametrize("target", ["llvm", "llvm -arch=avx2", "llvm -arch=baseline"])
@pytest.mark.parametrize("stride", [1, -1, 2, 3])
def test_masked_accesses_touch_only_lanes_that_are_on(stride: int, target: str) -> None:
    n = 5
    a, b = buffer("a", (64,)), buffer("b", (64,))
    start = 8 if stride < 0 else 0
    on = E.LT(ramp(0, LANES), E.Broadcast(const(n), LANES))
    at = (ramp(start, LANES, stride),)
    body = store(b, at, E.Load(a, at, on) + 1.0, predicate=on)
    x = np.arange(64, dtype=np.float32)
    found, expected = poisoned(64), poisoned(64)
    kernel([a, b], body, target)(x, found)
    for k in range(n):
        expected[start + k * stride] = x[start + k * stride] + 1
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def _at_end_of_page(count: int) -> tuple[np.ndarray, mmap.mmap]:
    """An array that ends where memory that may not be read begins."""
    import ctypes

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, np.float32)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(whole.ctypes.data + page, page, 0) == 0
    last = whole[page // 4 - count : page // 4]
    last[...] = np.arange(count)
    return last, memory


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_loads_read_nothing_behind_their_last_lane(stride: int) -> None:
    count = (LANES - 1) * stride + 1
    x, _memory = _at_end_of_page(count)
    a, b = buffer("a", (count,)), buffer("b", (LANES,))
    found = poisoned(LANES)
    value = E.Load(a, (ramp(0, LANES, stride),), None)
    kernel([a, b], store(b, (ramp(0, LANES),), value))(x, found)
    np.testing.assert_array_equal(found, np.arange(0, count, stride))


@pytest.mark.parametrize("stride", [1, 2, -1, 3])
def test_masked_loads_read_nothing_beyond_the_array(stride: int) -> None:
    x, _memory = _at_end_of_page(5)
    a, b = buffer("a", (5,)), buffer("b", (LANES,))
    index = ramp(4, LANES, stride) if stride < 0 else ramp(0, LANES, stride)
    inside = E.And(
        E.LT(index, E.Broadcast(const(5), LANES)), E.GE(index, E.Broadcast(const(0), LANES))
    )
    value = E.IfThenElse(inside, E.Load(a, (index,), None), zeros())
    found = poisoned(LANES)
    kernel([a, b], store(b, (ramp(0, LANES),), value))(x, found)
    places = (4 if stride < 0 else 0) + stride * np.arange(LANES)
    good = (places >= 0) & (places < 5)
    np.testing.assert_array_equal(found, np.where(good, places, 0))


def test_strided_loads_read_nothing_beyond_their_last_lane() -> None:
    x, _memory = _at_end_of_page(15)
    a, b = buffer("a", (15,)), buffer("b", (LANES,))
    found = poisoned(LANES)
    kernel([a, b], store(b, (ramp(0, LANES),), E.Load(a, (ramp(0, LANES, 2),), None)))(x, found)
    np.testing.assert_array_equal(found, 2 * np.arange(LANES))


def test_scalars_under_a_mask_are_read_only_if_a_lane_is_on() -> None:
    x, _memory = _at_end_of_page(4)
    a, b = buffer("a", (4,)), buffer("b", (16, LANES))

    def body(i: Var) -> Stmt:
        row = E.Broadcast(E.Load(a, (i,), None), LANES)
        inside = E.LT(E.Broadcast(i, LANES), E.Broadcast(const(4), LANES))
        return store(b, (i, ramp(0, LANES)), E.IfThenElse(inside, row, zeros()))

    found = poisoned((16, LANES))
    # row 2000 would lie far beyond the page
    kernel([a, b], loop("i", 16, lambda i: body(i * 1)))(x, found)
    np.testing.assert_array_equal(found[:, 0], [0, 1, 2, 3] + [0] * 12)


def test_branch_not_taken_does_not_load() -> None:
    x, _memory = _at_end_of_page(4)
    a, b = buffer("a", (4,)), buffer("b", (10_000,))

    def body(i: Var) -> Stmt:
        guarded = E.IfThenElse(E.And(i >= 0, i < 4), E.Load(a, (i,), None), const(-1.0))
        return store(b, i, guarded * 2.0)

    found = poisoned(10_000)
    kernel([a, b], loop("i", 10_000, body))(x, found)
    np.testing.assert_array_equal(found[:6], [0, 2, 4, 6, -2, -2])


def test_left_operand_guards_the_right_one() -> None:
    x, _memory = _at_end_of_page(4)
    a, b = buffer("a", (4,)), buffer("b", (5000,), type="bool")

    def either(i: Var) -> Stmt:
        return store(b, i, E.Or(i >= 4, E.Load(a, (i,), None) > 1.0))

    found = poisoned(5000, bool)
    kernel([a, b], loop("i", 5000, either))(x, found)
    np.testing.assert_array_equal(found[:6], [False, False, True, True, True, True])

    def vector(i: Var) -> Stmt:
        at = ramp(i * LANES, LANES)
        inside = E.LT(at, E.Broadcast(const(4), LANES))
        large = E.GT(E.Load(a, (at,), None), ops.const(1.0, "float32x8"))
        return store(b, (at,), E.And(inside, large))

    found = poisoned(5000, bool)
    kernel([a, b], loop("i", 625, vector))(x, found)
    np.testing.assert_array_equal(found[:6], [False, False, True, True, False, False])


def test_lanes_that_are_off_do_not_divide_by_zero() -> None:
    a, b = buffer("a", (LANES,), type="int32"), buffer("b", (LANES,), type="int32")
    at = (ramp(0, LANES),)
    d = E.Load(a, at, None)
    value = E.IfThenElse(
        E.NE(d, zeros("int32")), E.FloorDiv(ops.const(100, "int32x8"), d), zeros("int32")
    )
    found = poisoned(LANES, np.int32)
    x = np.array([0, 3, -3, 0, 7, 0, 1, 100], np.int32)
    kernel([a, b], store(b, at, value))(x, found)
    expected = [100 // int(v) if v else 0 for v in x]
    np.testing.assert_array_equal(found, expected)

    def scalar(i: Var) -> Stmt:
        d = E.Load(a, (i,), None)
        return store(b, i, E.IfThenElse(E.NE(d, const(0)), E.TruncDiv(const(100), d), const(0)))

    found = poisoned(LANES, np.int32)
    kernel([a, b], loop("i", LANES, scalar))(x, found)
    np.testing.assert_array_equal(found, [int(100 / int(v)) if v else 0 for v in x])


def test_layouts_with_strides_and_swizzles() -> None:
    a = buffer("a", (4, 8))
    shared = Buffer(
        "s", (const(4), const(8)), dtype("float32"), "shared",
        Layout((const(8), const(1)), swizzle=(2, 1, 3)),
    )  # fmt: skip
    padded = Buffer(
        "p", (const(4), const(8)), dtype("float32"), "shared",
        Layout((const(-11), const(1)), base=const(40)),
    )  # fmt: skip
    b = buffer("b", (4, 8))
    from tilewright.ir.stmt import Allocate

    def over(f: object) -> Stmt:
        return loop("i", 4, lambda i: loop("j", 8, lambda j: f(i, j)))

    row = ramp(0, 8)
    body = seq(
        over(lambda i, j: store(shared, (i, j), a[i, j])),
        loop("i", 4, lambda i: store(padded, (i, row), E.Load(shared, (i, row), None))),
        over(lambda i, j: store(b, (i, j), padded[i, j] + 1.0)),
    )
    x, found = np.arange(32, dtype=np.float32).reshape(4, 8), poisoned((4, 8))
    kernel([a, b], Allocate(shared, Allocate(padded, body)))(x, found)
    np.testing.assert_array_equal(found, x + 1)


def test_lanes_and_their_recombination() -> None:
    a, b = buffer("a", (LANES,)), buffer("b", (LANES,))
    v, at = Var.make("v", "float32x8"), (ramp(0, LANES),)
    turned = E.Concat(tuple(E.Lane(v, LANES - 1 - k) for k in range(LANES)))
    body = Let(v, E.Load(a, at, None), store(b, at, turned))
    x, found = np.arange(LANES, dtype=np.float32), poisoned(LANES)
    kernel([a, b], body)(x, found)
    np.testing.assert_array_equal(found, x[::-1])


def test_a_value_read_before_a_store_is_read_again_after_it() -> None:
    a = buffer("a", (4,))
    body = seq(
        store(a, 0, a[1] + 1.0),
        store(a, 1, a[0] + a[1]),
        store(a, 2, a[0] + a[1]),
        loop("k", 3, lambda k: seq(store(a, 3, a[3] + a[2]), store(a, 2, a[3] + 0.0))),
    )
    x = np.array([5, 1, 0, 1], np.float32)
    kernel([a], body)(x)
    y = [2.0, 3.0, 5.0, 1.0]
    for _ in range(3):
        y[3] += y[2]
        y[2] = y[3]
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("types", ["float32", "float64", "int32", "int64", "float16", "int8"])
@pytest.mark.parametrize(("size", "around"), [(28, 14), (13, 7), (20, 10)])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_lanes_beyond_an_edge_are_off_in_parts_of_vectors(lanes, size, around, types):
    """Unrolled, the masks are known to LLVM but for the row: of some registers all lanes are off.

    LLVM 22 read those (without mask registers, as AVX2 is), or ended the process.
    """
    a = te.placeholder((size, size), types, "A")

    def padded(i, j):
        inside = [i >= around, i < around + size, j >= around, j < around + size]
        return te.if_then_else(te.all(*inside), a[i - around, j - around], te.const(0, types))

    b = te.compute((size + 2 * around, 64), padded, "B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[1], lanes)
    s[b].vectorize(inner)
    s[b].unroll(outer)
    run = tilewright.build(s, [a, b], "llvm -arch=avx2")
    given = (50 * np.random.default_rng(1).standard_normal((size, size))).astype(types)
    found = poisoned((size + 2 * around, 64), types)
    run(given, found)
    expected = np.zeros_like(found)
    expected[around : around + size, around : around + size] = given
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("int32", "int8"), ("int32", "uint8"), ("int64", "uint8"), ("int64", "int16"),
        ("int32", "uint16"), ("int64", "int32"), ("float32", "float16"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_narrowed_lanes_beyond_an_edge_are_not_stored(lanes: int, wide: str, narrow: str) -> None:
    """Unrolled, the masks are known to LLVM, and in some one lane is on.

    LLVM 22 stored that lane as wide as it was before, over what lies behind (with mask registers).
    """
    rows, columns = 3, 2 * lanes + 1
    a = te.placeholder((rows, columns), wide, "A")
    b = te.compute((rows, columns), lambda i, j: te.cast(narrow, a[i, j]), "B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[1], lanes)
    s[b].vectorize(inner)
    s[b].unroll(outer)
    s[b].unroll(b.op.axis[0])
    run = tilewright.build(s, [a, b], "llvm")
    given = np.random.default_rng(2).integers(-(2**15), 2**15, (rows, columns)).astype(wide)
    size = numpy_type(narrow).itemsize
    memory = np.full(rows * columns * size + 128, 0xA5, np.uint8)
    found = memory[64:-64].view(numpy_type(narrow)).reshape(rows, columns)
    run(given, found)
    np.testing.assert_array_equal(found, given.astype(numpy_type(narrow)))
    assert set(memory[:64]) | set(memory[-64:]) == {0xA5}


@pytest.mark.parametrize("factor", [2**31, 2**30 + 1, 3])
def test_lanes_of_an_index_made_of_data_wrap_around_one_by_one(factor: int) -> None:
    a = te.placeholder((12,), "int32", "A")
    p = te.var("p", "uint32")

    def there(i: Expr) -> Expr:
        return te.if_then_else(te.all(i * p >= 0, i * p < 12), a[i * p], te.const(-1, "int32"))

    b = te.compute((4,), there, "B")
    s = te.create_schedule(b.op)
    s[b].vectorize(b.op.axis[0])
    run = tilewright.build(s, [a, b, p], "llvm")
    x, found = np.arange(12, dtype=np.int32), poisoned(4, "int32")
    run(x, found, factor)
    at = (np.arange(4, dtype=np.int64) * factor).astype(np.int32)  # as int32 arithmetic wraps
    expected = [x[k] if 0 <= k < 12 else -1 for k in at]
    np.testing.assert_array_equal(found, expected)


def test_a_row_by_number_and_channel_is_read_as_it_lies() -> None:
    x = te.placeholder((4, 30, 3), "int8", name="x")
    y = te.compute(
        (4, 128),
        lambda h, k: te.if_then_else(
            te.all(k >= 9, k < 99), x[h, k // 3 - 3, k % 3], te.const(7, "int8")
        ),
        name="y",
    )
    s = te.create_schedule(y.op)
    s[y].vectorize(s[y].split(y.op.axis[1], factor=32)[1])
    built = tilewright.build(s, [x, y])
    given = np.arange(4 * 90).reshape(4, 30, 3).astype("int8")
    found = np.zeros((4, 128), "int8")
    built(given, found)
    wanted = np.full((4, 128), 7, "int8")
    wanted[:, 9:99] = given.reshape(4, 90)
    np.testing.assert_array_equal(found, wanted)
    assert "gather" not in built.source


def test_a_pixel_by_number_is_found_without_a_division() -> None:
    """Under a mask, too, and where another dimension lies between its row and its column."""
    a = te.placeholder((4, 1, 7, 12), name="A")
    b = te.compute(
        (28, 16), lambda p, c: te.if_then_else(c < 12, a[p // 7, 0, p % 7, c], 0.0), name="B"
    )
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].op.axis[1])
    built = tilewright.build(s, [a, b])
    x, found = np.random.default_rng(0).standard_normal((4, 1, 7, 12), "f4"), poisoned((28, 16))
    built(x, found)
    np.testing.assert_array_equal(found[:, :12], x.reshape(28, 12))
    assert not found[:, 12:].any()
    assert not any(word in built.source for word in ("div", "rem"))


def test_a_pixel_by_number_whose_row_differs_from_lane_to_lane() -> None:
    a = te.placeholder((8, 9), name="A")
    b = te.compute((54, 8), lambda p, c: a[p // 9 + c % 3, p % 9], name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].op.axis[1])
    x, found = np.arange(72, dtype="f4").reshape(8, 9), poisoned((54, 8))
    tilewright.build(s, [a, b])(x, found)
    p, c = np.arange(54)[:, None], np.arange(8)
    np.testing.assert_array_equal(found, x[p // 9 + c % 3, p % 9])


@pytest.mark.parametrize("types", ["float32", "int16", "uint8"])
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_vectors_between_one_another_are_stored_as_one(channels: int, types: str) -> None:
    a = te.placeholder((channels, 24), types, name="A")
    b = te.compute((24, channels), lambda p, c: a[c, p], name="B")
    s = te.create_schedule(b.op)
    pixel, c = s[b].op.axis
    outer, lane = s[b].split(pixel, factor=8)
    s[b].reorder(outer, c, lane)
    s[b].vectorize(lane)
    built = tilewright.build(s, [a, b])
    x = np.arange(channels * 24).reshape(channels, 24).astype(types)
    found = np.zeros((26, channels), x.dtype)  # with what lies behind it
    built(x, found[:24])
    np.testing.assert_array_equal(found[:24], x.T)
    assert not found[24:].any()
    one = f"<{8 * channels} x " in built.source
    assert one == (channels <= 4)


def test_one_number_for_all_lanes_is_stored_between_others() -> None:
    a, b = buffer("a", (2,), type="int64"), buffer("b", (8,), type="int64")

    def body(c: Var) -> Stmt:
        return store(b, (ramp(c, 4, 2),), E.Broadcast(E.Load(a, (c,), None), 4))

    run = kernel([a, b], loop("c", 2, body), "llvm")
    found = poisoned(8, "int64")
    run(np.array([3, 5]), found)
    np.testing.assert_array_equal(found, [3, 5] * 4)


def test_a_loop_that_reads_what_it_stores_goes_turn_by_turn() -> None:
    b = buffer("b", (8,), type="int32")

    def body(c: Var) -> Stmt:
        return store(b, (ramp(c, 4, 2),), E.Load(b, (ramp(0, 4, 2),), None) + one)

    one = ops.const(1, "int32x4")
    run = kernel([b], loop("c", 2, body), "llvm")
    found = np.zeros(8, "int32")
    run(found)
    np.testing.assert_array_equal(found, [1, 2] * 4)
