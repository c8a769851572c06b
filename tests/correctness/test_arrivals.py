"""What is copied in the background is used behind a wait for its group: in the proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.drawn_pipelines import THREADS
from tests.support.gpu_programs import kernel
from tests.support.wait_mutants import NAMED, named, unproved_errors

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import as_index, const
from tilewright.ir.stmt import Access, Allocate, Evaluate, Instr, Queue, Stmt, Sync, seq
from tilewright.lower.ir_builder import buffer, loop, store, when
from tilewright.target.instructions import copy_async, tma_load, tma_store
from tilewright.verify import check

t, c, k, i, j = map(Var.make, "tckij")
A, B, S = (
    buffer("A", 64, THREADS),
    buffer("B", 64, THREADS),
    buffer("S", 4, THREADS, scope="shared"),
)
COMMIT, SYNC = Queue("cp.async", "commit"), Sync("shared")


def copied(row: Expr | int, slot: Expr | int) -> Stmt:
    """Each thread's element of a row, by cp.async."""
    row, slot = as_index(row), as_index(slot)
    operands = (Access(S, (slot, t + i)), Access(A, (row, t + i)))
    body = loop(i, 1, store(S[slot, t + i], A[row, t + i]))
    return Instr(copy_async(1), (i,), operands, body)


def boxed(row: Expr | int, slot: Expr | int, thread: int = 0) -> Stmt:
    """A row by TMA, which one thread asks for."""
    row, slot = as_index(row), as_index(slot)
    operands = (Access(S, (slot + i, j)), Access(A, (row + i, j)))
    body = loop(i, 1, loop(j, THREADS, store(S[slot + i, j], A[row + i, j])))
    box = Instr(tma_load((1, THREADS), "float32"), (i, j), operands, body)
    return when(E.EQ(t, const(thread)), box)


def wait(pending: int, queue: str = "cp.async") -> Queue:
    return Queue(queue, "wait", pending)


def used(row: Expr | int, slot: Expr | int, shift: int = 1) -> Stmt:
    """What each thread does with its neighbour's element."""
    return store(B[as_index(row), t], S[as_index(slot), (t + shift) % THREADS])


def func(*body: Stmt) -> Func:
    return kernel("k", (A, B), Allocate(S, seq(*body)), threadIdx_x=(t, THREADS)).funcs[0]


def kinds(*body: Stmt) -> set[str]:
    return {finding.kind for finding in check(func(*body))}


def ring(pending: int, ahead: int = 3, extent: Expr | int = 40, behind: bool = True) -> Func:
    """A pipeline of four copies, of which ``ahead`` are filled in front."""
    warm = [s for n in range(ahead) for s in (copied(n, n), COMMIT)]
    use, fill = used(k, k % 4), when(k + ahead < extent, copied(k + ahead, (k + ahead) % 4))
    parts = [use, SYNC, fill] if behind else [fill, use]
    main = loop(k, extent, seq(wait(pending), SYNC, *parts, COMMIT))
    return func(*warm, main, wait(0))


def test_a_wait_leaves_as_many_groups_under_way_as_come_behind_the_one_that_is_used() -> None:
    assert check(ring(2)) == []
    assert {x.kind for x in check(ring(3))} == {"unawaited"}


def test_a_copy_is_not_filled_again_while_it_is_filled() -> None:
    assert check(ring(3, ahead=4)) == []
    assert "unawaited" in {x.kind for x in check(ring(4, ahead=4))}


def test_its_work_does_not_grow_with_the_number_of_iterations() -> None:
    assert check(ring(2, extent=9)) == check(ring(2, extent=60)) == []


@pytest.mark.parametrize("shift", [0, 1])
def test_others_learn_of_the_end_by_a_barrier_behind_the_wait(shift: int) -> None:
    filled, use = (copied(0, 0), COMMIT), used(0, 0, shift)
    assert kinds(*filled, wait(0), SYNC, use) == set()
    assert kinds(*filled, SYNC, wait(0), use) == ({"unawaited"} if shift else set())


def test_a_group_that_a_branch_alone_commits_is_not_counted_on() -> None:
    first = (copied(0, 0), COMMIT)
    other = seq(copied(1, 1), COMMIT)
    use = (wait(1), SYNC, used(0, 0), wait(0))
    assert kinds(*first, other, *use) == set()
    assert kinds(*first, when(t < 16, other), *use) == {"unawaited"}


def test_a_wait_that_a_branch_alone_has_is_none() -> None:
    filled, use = (copied(0, 0), COMMIT), (SYNC, used(0, 0), wait(0))
    assert kinds(*filled, wait(0), *use) == set()
    assert kinds(*filled, when(t < 16, wait(0)), *use) == {"unawaited"}


def test_what_a_kernel_copies_has_arrived_when_it_ends() -> None:
    assert kinds(copied(0, 0), COMMIT, wait(0)) == set()
    assert kinds(copied(0, 0), COMMIT) == {"unawaited"}
    assert kinds(copied(0, 0), wait(0)) == {"unawaited"}


def test_a_pipeline_that_begins_anew_has_ended_before() -> None:
    """Of loops whose length depends on one around, the groups are as many as their iterations."""
    fill = seq(copied(k, k % 4), COMMIT)
    use = loop(k, c + 1, seq(fill, wait(0), SYNC, used(k, k % 4), SYNC))
    assert kinds(loop(c, 8, use)) == set()
    late = loop(k, c + 1, seq(fill, wait(1), SYNC, used(k, k % 4), SYNC))
    assert kinds(loop(c, 8, seq(late, wait(0)))) == {"unawaited"}


def test_boxes_are_awaited_by_all_threads_together() -> None:
    ask, end = boxed(0, 0), Queue("tma", "commit")
    assert kinds(ask, end, wait(0, "tma"), SYNC, used(0, 0)) == set()
    assert kinds(ask, end, SYNC, used(0, 0), wait(0, "tma")) == {"unawaited"}
    assert kinds(ask, end, wait(1, "tma"), SYNC, used(0, 0), wait(0, "tma")) == {"unawaited"}
    assert kinds(ask, end, wait(0), SYNC, used(0, 0), wait(0, "tma")) == {"unawaited"}


def test_boxes_are_asked_for_by_the_thread_that_ends_their_groups() -> None:
    rest = Queue("tma", "commit"), wait(0, "tma"), SYNC, used(0, 0)
    assert kinds(boxed(0, 0, thread=1), *rest) == {"unawaited"}


def test_a_producer_fills_again_what_all_have_waited_for_and_freed() -> None:
    """It waits for no box itself, nor at a barrier that frees nothing."""
    fill, again = (boxed(0, 0), Queue("tma", "commit")), (boxed(1, 0), Queue("tma", "commit"))
    end, free = wait(0, "tma"), Sync("shared", (S,), split=True)
    use = (end, SYNC, used(0, 0))

    def produced(*between: Stmt) -> set[str]:
        body = func(*fill, *between, *again, *use)
        return {finding.kind for finding in check(replace(body, producer=True))}

    assert produced(end, free) == set()
    assert produced(end) == {"unawaited"}
    assert produced(free, end) == {"unawaited"}
    assert produced(end, SYNC) == {"unawaited"}
    assert kinds(*fill, end, *again, *use) == set()  # the thread that fills it waits


def test_a_producer_goes_around_a_ring_behind_barriers_that_free() -> None:
    """Of boxes that nobody reads, too: nothing but their waits keeps them apart."""
    free, end = Sync("shared", (S,), split=True), Queue("tma", "commit")
    fill = seq(boxed(k, k % 4), end)

    def ring_of(*parts: Stmt) -> set[str]:
        body = func(loop(k, 40, seq(*parts)), wait(0, "tma"))
        return {finding.kind for finding in check(replace(body, producer=True))}

    assert ring_of(wait(3, "tma"), free, fill) == set()
    assert ring_of(free, wait(3, "tma"), fill) == {"unawaited"}
    assert ring_of(free, fill, wait(3, "tma")) == set()
    assert ring_of(wait(4, "tma"), free, fill) == {"unawaited"}


def test_what_tma_stores_in_global_memory_is_not_touched_again() -> None:
    operands = (Access(B, (i, j)), Access(S, (i, j)))
    body = loop(i, 4, loop(j, THREADS, store(B[i, j], S[i, j])))
    box = when(E.EQ(t, const(0)), Instr(tma_store((4, THREADS), "float32"), (i, j), operands, body))
    before = [loop(k, 4, store(S[k, t], 1.0)), Queue("tma_store", "proxy"), SYNC]
    stored = [*before, box, Queue("tma_store", "commit"), wait(0, "tma_store"), SYNC]
    assert kinds(*stored) == set()
    assert kinds(*stored, Evaluate(B[5, t])) == set()
    assert kinds(*stored, Evaluate(B[3, t])) == {"unawaited"}
    assert kinds(*stored, store(B[3, t], 0.0)) == {"unawaited"}
    assert kinds(loop(c, 2, seq(*stored))) == {"unawaited"}


#: Of the kernels of :data:`NAMED`, one of each way to wait.
SOME = (0, 4, 13, 19, 20, 40, 46, 49, 51, 53, 56, 58)


@pytest.mark.parametrize("number", SOME, ids=lambda n: f"{n} {NAMED[n][0]}")
def test_of_kernels_with_a_wait_wrong_none_is_proved_that_is_wrong(number: int) -> None:
    made, refused, wrong = unproved_errors(named(*NAMED[number]), every=4)
    assert wrong == []
    assert 0 < refused <= made
