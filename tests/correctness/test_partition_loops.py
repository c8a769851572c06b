"""Boundary conditions are taken out of the interior of loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.support.interpreter import interpret

from tilewright.ir.expr import IfThenElse, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import if_then_else, logical_and
from tilewright.ir.stmt import FillAhead, For, ForKind, If, Pragma, Stmt
from tilewright.ir.visit import allocated, stores, walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.partition_loops import partition_loops
from tilewright.lower.loops.trim_loops import trim_loops

i, j, v, d = axes("i j v d")


def window(n: int, kind: str = "serial", target: str = "llvm") -> Func:
    """A sum over three neighbours, in vectors of four."""
    A, C = buffer("A", n), buffer("C", -(-n // 4) * 4)
    x = i * 4 + v + d - 1
    update = store(C[i * 4 + v], C[i * 4 + v] + if_then_else(logical_and(x >= 0, x < n), A[x], 0.0))
    lanes = loop(v, 4, update, kind="vectorized")
    return func(loop(i, -(-n // 4), loop(d, 3, lanes), kind=kind), target=target)


def agrees(f: Func, made: Func, n: int) -> bool:
    data = {"A": np.arange(float(n)), "C": np.zeros(-(-n // 4) * 4)}
    return np.array_equal(interpret(made, data)["C"], interpret(f, data)["C"])


def outer_loops(f: Func) -> list[For]:
    return [s for s in walk(f.body) if isinstance(s, For) and s.var.name == "i"]


def test_the_interior_has_no_condition() -> None:
    f = window(30)
    made = partition_loops(f)
    (interior,) = outer_loops(made)
    assert (int(interior.min), int(interior.extent)) == (1, 6)
    assert not any(isinstance(e, IfThenElse) for e in walk(interior))
    assert agrees(f, made, 30)


def test_a_loop_that_is_mostly_boundary_stays() -> None:
    f = window(12)
    assert len(outer_loops(partition_loops(f))) == 1
    assert repr(partition_loops(f)) == repr(f)


def test_a_guard_of_little_work_divides_the_loop_that_asks_for_it() -> None:
    A, C, S = buffer("A", 40), buffer("C", 30), buffer("S", 4)
    sums = loop(d, 90, loop(v, 4, store(S[v], S[v] + A[i * 4 + v])))
    out = loop(v, 4, when(i * 4 + v < 30, store(C[i * 4 + v], S[v])))
    for asked, guarded in (((), True), (((Pragma.PARTITION, True),), False)):
        nest = replace(loop(i, 8, allocate(S, sums, out)), annotations=asked)
        made = partition_loops(func(nest))
        assert any(isinstance(s, If) for s in walk(made.body)) == guarded


def test_a_loop_with_a_pipeline_stays_whole() -> None:
    A, B, S = buffer("A", 4), buffer("B", 32), buffer("S", 4, scope="shared")
    fill = loop(d, 4, store(S[d], A[d]))
    use = when(i * 4 + v < 30, store(B[i * 4 + v], S[v]))
    for filled, parts in ((fill, 2), (FillAhead(S, 2, None, fill), 1)):
        f = func(loop(i, 8, allocate(S, filled, loop(v, 4, use))), target="cuda -arch=sm_90a")
        assert len(list(allocated(partition_loops(f).body))) == parts


def test_copies_have_a_limit() -> None:
    f = window(30)
    assert repr(partition_loops(f, limit=2)) == repr(f)


def test_a_parallel_loop_stays_one_loop_with_the_interior_as_a_branch() -> None:
    f = window(62, "parallel")
    made = partition_loops(f)
    (only,) = outer_loops(made)
    assert only.kind is ForKind.PARALLEL
    assert isinstance(only.body, If)
    assert not any(isinstance(e, IfThenElse) for e in walk(only.body.then))
    assert agrees(f, made, 62)


def test_a_gpu_leaves_the_choices_of_a_loop_alone() -> None:
    f = window(62, target="cuda")
    assert repr(partition_loops(f)) == repr(f)


def test_on_a_gpu_the_rounds_in_which_all_threads_take_a_branch_lose_it() -> None:
    C = buffer("C", 70)
    place = i * 32 + j
    rounds = loop(i, 3, when(place < 70, store(C[place], 1.0)), kind="unrolled")
    f = func(loop(j, 32, rounds, tag="threadIdx.x"), target="cuda")
    assert (
        repr(partition_loops(f).body)
        == """\
j = T.launch_thread('threadIdx.x', 32)
for i in T.unrolled(2):
    C[i * 32 + j] = T.float32(1)
if j < 6:
    C[j + 64] = T.float32(1)"""
    )


def test_the_guard_of_a_split_that_does_not_divide_is_left_to_the_last_part() -> None:
    C = buffer("C", 30)
    f = func(loop(i, 4, loop(j, 8, when(i * 8 + j < 30, store(C[i * 8 + j], 1.0)))))
    assert (
        repr(partition_loops(f).body)
        == """\
for i in range(3):
    for j in range(8):
        C[i * 8 + j] = T.float32(1)
for j in range(6):
    C[j + 24] = T.float32(1)"""
    )


def test_ends_of_trimmed_loops_become_constant_in_the_interior() -> None:
    from tilewright.ir.ops import maximum, minimum

    A, C = buffer("A", 32), buffer("C", 32)
    low = maximum(1 - i, 0)
    update: Stmt = store(C[i], C[i] + A[i + d - 1])
    f = func(loop(i, 32, loop(d, minimum(33 - i, 3) - low, update, min=low)))
    assert (
        repr(partition_loops(f).body)
        == """\
for d in range(1, 3):
    C[0] = C[0] + A[d - 1]
for i in range(1, 31):
    for d in range(3):
        C[i] = C[i] + A[i + d - 1]
for d in range(2):
    C[31] = C[31] + A[d + 30]"""
    )


def test_a_symbolic_extent_is_partitioned_with_ends_that_cannot_cross() -> None:
    n = Var.make("n")
    C = buffer("C", n)
    f = func(loop(i, (n + 7) // 8, loop(v, 8, when(i * 8 + v < n, store(C[i * 8 + v], 1.0)))))
    made = partition_loops(f)
    assert len(list(stores(made.body))) == 2
    for size in (0, 1, 7, 8, 9, 16, 23):
        data = {"C": np.zeros(size)}
        assert interpret(made, data, {"n": size})["C"].sum() == size


def test_a_reduction_loop_is_divided_for_a_branch_and_not_for_a_mask() -> None:
    A, C = buffer("A", 64), buffer("C", 4)
    o, r = axes("o r")
    tap = o * 3 + r
    branch = when(tap < 7, loop(v, 4, store(C[v], C[v] + A[tap + v]), kind="vectorized"))
    f = func(loop(o, 3, loop(r, 3, branch)))
    assert (
        repr(partition_loops(f).body)
        == """\
for o in range(2):
    for r in range(3):
        for v in T.vectorized(4):
            C[v] = C[v] + A[o * 3 + r + v]
for v in T.vectorized(4):
    C[v] = C[v] + A[v + 6]"""
    )
    mask = store(C[v], C[v] + if_then_else(d + v < 9, A[d + v], 0.0))
    f = func(loop(d, 7, loop(v, 4, mask, kind="vectorized")))
    assert len([s for s in walk(partition_loops(f).body) if isinstance(s, For)]) == 2


def test_a_long_reduction_is_divided_for_a_branch_though_its_parts_are_not_known() -> None:
    """The sums of a tile of four rows, over those taps that meet the image."""

    def reduction(taps: int) -> Func:
        A, C = buffer("A", 32, 4), buffer("C", 32, 4)
        half, p = taps // 2, axes("p")[0]
        n, m = i * 4 + p + d - half, i * 4 + p
        lanes = loop(v, 4, store(C[m, v], C[m, v] + A[n, v]), kind="vectorized")
        tile = loop(p, 4, when(logical_and(n >= 0, n < 32), lanes), kind="unrolled")
        return trim_loops(func(loop(i, 8, loop(d, taps, tile))))

    f = reduction(15)
    made = partition_loops(f)
    taps = [s for s in walk(made.body) if isinstance(s, For) and s.var.name == "d"]
    free = [s for s in taps if not any(isinstance(x, If) for x in walk(s))]
    assert any("i * 4" in repr((s.min, s.extent)) for s in free)
    rng = np.random.default_rng(0)
    data = {"A": rng.integers(-5, 5, (32, 4)).astype("float32"), "C": np.zeros((32, 4))}
    np.testing.assert_array_equal(interpret(made, data)["C"], interpret(f, data)["C"])


def test_a_condition_on_little_of_the_work_is_not_worth_copies() -> None:
    """A long sum, and a mask on the store of it."""
    A, C, acc = buffer("A", 64), buffer("C", 30), buffer("acc", 4, scope="local")
    total = loop(d, 31, loop(v, 4, store(acc[v], acc[v] + A[i + d]), kind="vectorized"))
    out = loop(v, 4, when(i * 4 + v < 30, store(C[i * 4 + v], acc[v])), kind="vectorized")
    f = func(loop(i, 8, allocate(acc, total, out)))
    assert len(outer_loops(partition_loops(f))) == 1


def test_what_lies_around_a_long_interior_is_one_copy_where_its_ends_are_not_known() -> None:
    t, u = axes("t u")
    A, C = buffer("A", 4096), buffer("C", 4096)
    n = t * 512 + i * 64 + u
    guard = logical_and(n >= 1, n < 4001)
    body = when(guard, store(C[n], A[n - 1]))
    nest = loop(i, 8, loop(u, 64, body, kind="unrolled"))
    f = func(loop(t, 8, nest, kind="parallel"), target="llvm")
    # the loop in tasks without conditions, and in the others
    loops = outer_loops(partition_loops(f))
    assert len(loops) == 2
    assert any(isinstance(s.body, If) and s.body.orelse is not None for s in loops)
    data = {"A": np.arange(4096.0), "C": np.zeros(4096)}
    assert np.array_equal(interpret(partition_loops(f), data)["C"], interpret(f, data)["C"])
