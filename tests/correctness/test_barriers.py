"""Barriers stand where threads exchange values, and nowhere else."""

from __future__ import annotations

import pytest
from tests.support.changed import without_barrier

from tilewright.ir import Buffer, Func, LaunchAxis, dtype
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.ops import const, logical_and
from tilewright.ir.stmt import Allocate, For, ForKind, If, Seq, Stmt, Store, Sync, seq
from tilewright.ir.visit import walk
from tilewright.lower.analysis.around_barriers import around_barriers
from tilewright.lower.async_.insert_barriers import insert_barriers
from tilewright.verify import check


def buffer(name: str, *shape: int, scope: str = "global") -> Buffer:
    return Buffer(name, tuple(map(const, shape)), dtype("float32"), scope)


def loop(var: Var, extent: int | Expr, *body: Stmt) -> For:
    size = const(extent) if isinstance(extent, int) else extent
    return For(var, const(0), size, ForKind.SERIAL, seq(*body))


def kernel(body: Stmt, params: list[Buffer], own: list[Buffer], **launch: tuple[Var, int]) -> Func:
    for b in reversed(own):
        body = Allocate(b, body)
    axes = tuple(
        LaunchAxis(name.replace("_", "."), var, const(extent))
        for name, (var, extent) in launch.items()
    )
    return Func("main", tuple(params), body, axes)


def barriers(func: Func) -> int:
    return sum(isinstance(s, Sync) for s in walk(func.body))


def assert_minimal(func: Func, count: int) -> Func:
    """``func`` gets ``count`` barriers, is proved with them, and refuted without any one."""
    made = insert_barriers(func)
    assert barriers(made) == count, made
    assert check(made) == [], made
    for i in range(count):
        without = without_barrier(made, i)
        assert barriers(without) == count - 1
        kinds = {finding.kind for finding in check(without)}
        assert "race" in kinds, f"barrier {i} is not needed in\n{made}"
    return made


tx, ty, bx = Var.make("threadIdx_x"), Var.make("threadIdx_y"), Var.make("blockIdx_x")
i, j, k = Var.make("i"), Var.make("j"), Var.make("k")


def test_a_tile_that_is_loaded_once_takes_one_barrier() -> None:
    A, B = buffer("A", 34), buffer("B", 32)
    S = buffer("S", 34, scope="shared")
    load = loop(i, 2, If(tx + i * 32 < 34, Store(S, (tx + i * 32,), A[tx + i * 32])))
    use = Store(B, (tx,), S[tx] + S[tx + 2])
    assert_minimal(kernel(seq(load, use), [A, B], [S], threadIdx_x=(tx, 32)), 1)


def test_what_a_thread_reads_back_itself_takes_none() -> None:
    A, B = buffer("A", 4, 32), buffer("B", 4, 32)
    S = buffer("S", 4, 32, scope="shared")
    body = seq(
        loop(i, 4, Store(S, (i, tx), A[i, tx])),
        loop(j, 4, Store(B, (j, tx), S[j, tx] + 1.0)),
    )
    assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 0)


def test_disjoint_halves_of_a_buffer_take_none() -> None:
    A, B = buffer("A", 32), buffer("B", 64)
    S = buffer("S", 64, scope="shared")
    body = seq(
        Store(S, (tx,), A[tx]),
        Store(S, (tx + 32,), A[tx]),
        Store(B, (tx,), S[tx]),
        Store(B, (tx + 32,), S[tx + 32]),
    )
    assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 0)


def test_a_tile_in_a_loop_takes_two_barriers() -> None:
    A, B = buffer("A", 8, 32), buffer("B", 8, 32)
    S = buffer("S", 32, scope="shared")
    body = loop(k, 8, Store(S, (tx,), A[k, tx]), Store(B, (k, tx), S[31 - tx]))
    made = assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 2)
    (found,) = (s for s in walk(made.body) if isinstance(s, For))
    assert isinstance(found.body, Seq)
    assert [type(s) for s in found.body.stmts] == [Sync, Store, Sync, Store]


@pytest.mark.parametrize("split", [False, True])
def test_a_barrier_that_frees_copies_orders_no_threads_that_use_their_memory(split: bool) -> None:
    A, B, C = buffer("A", 3, 32), buffer("B", 3, 32), buffer("C", 32)
    S = buffer("S", 2, 32, scope="shared")
    steps = loop(k, 3, Store(B, (k, tx), S[k % 2, 31 - tx]), Sync("shared", (S,), split))
    fill = seq(*(Store(S, (const(n), tx), A[n, tx]) for n in (0, 1)))
    again = seq(Store(S, (const(0), tx), A[2, tx]), Store(C, (tx,), S[0, 31 - tx]))
    made = insert_barriers(kernel(seq(fill, steps, again), [A, B, C], [S], threadIdx_x=(tx, 32)))
    assert check(made) == []
    # In front of the loop, in it, behind it where one thread is not to overtake another's last
    # step, and in front of what is read then.
    assert barriers(made) == 4
    assert isinstance(made.body, Allocate)
    assert isinstance(made.body.body, Seq)
    kinds = [type(s) for s in made.body.body.stmts]
    assert kinds == [Store, Store, Sync, For, Sync, Store, Sync, Store]
    overtaken = without_barrier(made, 2)
    assert {finding.kind for finding in check(overtaken)} == {"race"}


def test_two_tiles_share_their_barriers() -> None:
    A, B, C = buffer("A", 16, 64), buffer("B", 64, 16), buffer("C", 16, 16)
    SA, SB = buffer("SA", 16, 16, scope="shared"), buffer("SB", 16, 16, scope="shared")
    L = buffer("L", 1, scope="local")
    zero = const(0)
    body = seq(
        Store(L, (zero,), const(0.0)),
        loop(
            k,
            4,
            Store(SA, (ty, tx), A[ty, k * 16 + tx]),
            Store(SB, (ty, tx), B[k * 16 + ty, tx]),
            loop(j, 16, Store(L, (zero,), L[0] + SA[ty, j] * SB[j, tx])),
        ),
        Store(C, (ty, tx), L[0]),
    )
    func = kernel(body, [A, B, C], [SA, SB, L], threadIdx_x=(tx, 16), threadIdx_y=(ty, 16))
    made = assert_minimal(func, 2)
    inner = next(s for s in walk(made.body) if isinstance(s, For) and s.var is j)
    assert not any(isinstance(s, Sync) for s in walk(inner))


def test_a_double_buffer_takes_one_barrier_an_iteration() -> None:
    A, B = buffer("A", 9, 32), buffer("B", 8, 32)
    S = buffer("S", 2, 32, scope="shared")
    body = seq(
        Store(S, (const(0), tx), A[0, tx]),
        loop(
            k,
            8,
            Store(S, ((k + 1) % 2, tx), A[k + 1, tx]),
            Store(B, (k, tx), S[k % 2, 31 - tx]),
        ),
    )
    made = assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 1)
    assert any(
        isinstance(s, Sync) for s in walk(next(s for s in walk(made.body) if isinstance(s, For)))
    )


def test_a_barrier_stands_outside_of_loops_that_do_not_need_it() -> None:
    A, B = buffer("A", 8, 32), buffer("B", 8, 32)
    S = buffer("S", 8, 32, scope="shared")
    body = seq(
        loop(i, 8, Store(S, (i, tx), A[i, tx])),
        loop(j, 8, Store(B, (j, tx), S[j, 31 - tx])),
    )
    made = assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 1)
    for s in walk(made.body):
        if isinstance(s, For):
            assert not any(isinstance(x, Sync) for x in walk(s))


def test_nested_chunks_are_separated_from_each_other() -> None:
    """The tile of the next chunk waits for the last use of this one, across the outer loop."""
    A, B = buffer("A", 4, 4, 32), buffer("B", 4, 32)
    S = buffer("S", 32, scope="shared")
    L = buffer("L", 1, scope="local")
    zero = const(0)
    body = loop(
        i,
        4,
        Store(L, (zero,), const(0.0)),
        loop(
            k,
            4,
            Store(S, (tx,), A[i, k, tx]),
            loop(j, 32, Store(L, (zero,), L[0] + S[j])),
        ),
        Store(B, (i, tx), L[0]),
    )
    assert_minimal(kernel(body, [A, B], [S, L], threadIdx_x=(tx, 32)), 2)


def test_storage_that_two_tiles_share_is_separated() -> None:
    A, B = buffer("A", 2, 32), buffer("B", 2, 32)
    S = buffer("S", 32, scope="shared")
    body = seq(
        Store(S, (tx,), A[0, tx]),
        Store(B, (const(0), tx), S[31 - tx]),
        Store(S, (tx,), A[1, tx]),
        Store(B, (const(1), tx), S[31 - tx]),
    )
    assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 3)


def test_barriers_stand_outside_of_what_only_some_threads_do() -> None:
    A, B = buffer("A", 16), buffer("B", 32)
    S = buffer("S", 16, scope="shared")
    body = seq(
        If(tx < 16, seq(Store(S, (tx,), A[tx]))),
        If(logical_and(tx >= 8, tx < 24), Store(B, (tx,), S[tx - 8])),
        If(logical_and(tx < 8), Store(B, (tx,), const(0.0))),
        If(tx >= 24, Store(B, (tx,), const(0.0))),
    )
    assert_minimal(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), 1)


def test_a_cooperative_load_by_a_fused_index_is_seen_through() -> None:
    """17 x 18 elements by 64 threads, in rounds: each element has one writer."""
    A, B = buffer("A", 17, 18), buffer("B", 64)
    S = buffer("S", 17, 18, scope="shared")
    fused = i * 64 + ty * 16 + tx
    load = loop(
        i, 5, If(fused < 306, Store(S, (fused // 18, fused % 18), A[fused // 18, fused % 18]))
    )
    use = Store(B, (ty * 16 + tx,), S[ty, tx] + S[ty + 13, tx + 2])
    func = kernel(seq(load, use), [A, B], [S], threadIdx_x=(tx, 16), threadIdx_y=(ty, 4))
    assert_minimal(func, 1)


@pytest.mark.parametrize("extent", [1, 2])
def test_global_memory_between_threads_of_a_block_counts_too(extent: int) -> None:
    A, B, W = buffer("A", extent, 32), buffer("B", extent, 32), buffer("W", extent, 32)
    body = seq(Store(W, (bx, tx), A[bx, tx]), Store(B, (bx, tx), W[bx, 31 - tx]))
    func = kernel(body, [A, B, W], [], blockIdx_x=(bx, extent), threadIdx_x=(tx, 32))
    assert_minimal(func, 1)


def test_a_loop_of_unknown_length_does_not_stand_for_a_barrier() -> None:
    """What is before a loop that may not run at all needs a barrier of its own after it."""
    n = Var.make("n")
    A, B = buffer("A", 32), buffer("B", 32)
    S = buffer("S", 32, scope="shared")
    C = Buffer("C", (n, const(32)), dtype("float32"))
    body = seq(
        Store(S, (tx,), A[tx]),
        loop(k, n - 1, Store(C, (k, tx), S[31 - tx]), Sync("shared")),
        Store(B, (tx,), S[31 - tx]),
    )
    func = kernel(body, [A, B, C], [S], threadIdx_x=(tx, 32))
    made = insert_barriers(func)
    assert barriers(made) == 2
    assert check(made) == []


def test_a_condition_on_threads_moves_inside_of_a_barrier() -> None:
    A, B = buffer("A", 4, 24), buffer("B", 4, 24)
    S = buffer("S", 24, scope="shared")
    exchange = loop(k, 4, Store(S, (tx,), A[k, tx]), Store(B, (k, tx), S[23 - tx]))
    func = kernel(If(tx < 24, exchange), [A, B], [S], threadIdx_x=(tx, 32))
    made = assert_minimal(func, 2)
    assert sum(isinstance(s, If) for s in walk(made.body)) == 2


def test_a_race_within_one_statement_is_left_to_the_proof() -> None:
    S, B = buffer("S", 33, scope="shared"), buffer("B", 32)
    body = seq(Store(S, (tx,), const(0.0)), Store(S, (tx,), S[tx + 1]), Store(B, (tx,), S[tx]))
    made = insert_barriers(kernel(body, [B], [S], threadIdx_x=(tx, 32)))
    (found,) = check(made)
    assert found.kind == "race"
    assert "let every thread touch elements of its own in this statement" in found.message


def test_nested_conditions_on_threads_move_inside_too() -> None:
    A, B = buffer("A", 4, 24), buffer("B", 4, 24)
    S = buffer("S", 24, scope="shared")
    use = If(ty < 1, Store(B, (k, tx), S[23 - tx]), Store(B, (k, tx + 12), S[tx]))
    exchange = loop(k, 4, If(ty < 1, Store(S, (tx,), A[k, tx])), If(tx < 12, use))
    func = kernel(
        If(ty < 2, If(tx < 24, exchange)), [A, B], [S], threadIdx_x=(tx, 32), threadIdx_y=(ty, 3)
    )
    assert_minimal(func, 2)


def test_what_a_loop_begins_with_is_read_behind_the_barrier_in_front_of_it() -> None:
    i = Var.make("i")
    S = Buffer("S", (const(4),), dtype("int32"), "shared")
    first, inner = Sync("shared"), Sync("shared")
    begins = Load(S, (const(0),), None)
    body = For(i, begins, const(8), ForKind.SERIAL, seq(inner, Store(buffer("A", 16), (i,), i)))
    before, behind = around_barriers(seq(first, body))
    assert behind[first] == {(S, False)}
    assert before[inner] == {(S, False)}


def test_threads_whose_guards_keep_their_quotients_apart_may_still_meet():
    """Thread 18 reads what thread 0 wrote: no column of a system may lose their distance."""
    A, B, S = buffer("A", 15), buffer("B", 15), buffer("S", 5, 3, scope="shared")
    t = Var.make("t")
    at = t // 3, t % 3
    write = If(t < 15, Store(S, at, A[t]))
    read = If(const(18) <= t, Store(B, (t - 18,), S[at[0] - 6, at[1]]))
    func = kernel(seq(write, read), [A, B], [S], threadIdx_x=(t, 33))
    assert barriers(insert_barriers(func)) == 1
    assert [finding.kind for finding in check(func)] == ["race"]
