"""What is wrong with a kernel, though lanes in lockstep compute the right thing, is reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.support.kernels import Launch, barrier, buffer, loop, module, store

from tilewright.ir import Module, dtype
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Call, Reducer, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const, floordiv, floormod
from tilewright.ir.stmt import seq
from tilewright.ir.visit import Rewriter, Steps, walk
from tilewright.runtime.array import view
from tilewright.runtime.sim import Finding, SimReport, SimulationError, compile_module, simulate
from tilewright.target import Target


def zeros(*shape: int, type: str = "float32") -> np.ndarray:
    return np.zeros(shape, type)


def only(report: SimReport, kind: str) -> Finding:
    """The one finding of a report, which is of this kind."""
    assert [f.kind for f in report.findings] == [kind], str(report)
    return report.findings[0]


# Data races


def flip(synced: bool) -> Module:
    b, tile = buffer("B", (64,)), buffer("tile", (64,), "shared")
    at = Launch(threadIdx_x=64)
    t = at.threadx
    write = store(tile, t, t.astype("float32"))
    body = seq(write, barrier() if synced else None, store(b, t, tile[63 - t]))
    return module(at.func("flip", [b], S.Allocate(tile, body)))


def test_a_missing_barrier_is_a_race_that_names_both_threads_and_statements() -> None:
    assert simulate(flip(synced=True), [zeros(64)]).ok
    finding = only(simulate(flip(synced=False), [zeros(64)]), "race")
    assert (finding.kernel, finding.buffer, finding.count) == ("flip", "tile", 64)
    assert finding.index == (63,)
    assert finding.place is not None
    assert finding.other is not None
    assert finding.place.thread == (0, 0, 0)
    assert finding.place.statement == "B[threadIdx_x] = tile[63 - threadIdx_x]"
    assert finding.other.thread == (63, 0, 0)
    assert finding.other.statement == "tile[threadIdx_x] = T.Cast('float32', threadIdx_x)"


def test_launching_raises_with_the_findings_and_writes_nothing() -> None:
    program = compile_module(flip(synced=False), Target.parse("sim"))
    result = np.full(64, 7, "float32")
    with pytest.raises(
        SimulationError, match=r"race in kernel 'flip': thread \(0, 0, 0\)"
    ) as error:
        program.launch([view(result)], {})
    assert len(error.value.findings) == 1
    assert (result == 7).all()


def test_equal_values_written_by_two_threads_are_a_race() -> None:
    b, s = buffer("B", (32,)), buffer("S", (1,), "shared")
    at = Launch(threadIdx_x=32)
    body = seq(store(s, 0, 3.0), barrier(), store(b, at.threadx, s[0]))
    report = simulate(module(at.func("same", [b], S.Allocate(s, body))), [zeros(32)])
    finding = only(report, "race")
    assert "writes S[0], which another thread wrote" in str(finding)


def test_a_write_after_many_threads_read_is_a_race_whoever_writes() -> None:
    for writer in (0, 17, 63):
        b, s = buffer("B", (64,)), buffer("S", (1,), "shared")
        at = Launch(threadIdx_x=64)
        t = at.threadx
        body = seq(
            S.If(t.equal(5), store(s, 0, 1.0)),
            barrier(),
            store(b, t, s[0]),
            S.If(t.equal(writer), store(s, 0, 2.0)),
        )
        report = simulate(module(at.func("late", [b], S.Allocate(s, body))), [zeros(64)])
        finding = only(report, "race")
        assert finding.place is not None
        assert finding.other is not None
        assert finding.place.thread == (writer, 0, 0)
        assert finding.other.thread != (writer, 0, 0)


def test_a_thread_may_read_back_what_it_alone_wrote() -> None:
    b, s = buffer("B", (64,)), buffer("S", (64,), "shared")
    at = Launch(threadIdx_x=64)
    t = at.threadx
    body = seq(store(s, t, 1.0), store(s, t, s[t] + 1.0), store(b, t, s[t]))
    assert simulate(module(at.func("own", [b], S.Allocate(s, body))), [zeros(64)]).ok


def warp_exchange(distance: int) -> Module:
    """Threads read what the thread ``distance`` away wrote, behind a barrier of the warp."""
    b, s = buffer("B", (64,)), buffer("S", (64,), "shared")
    at = Launch(threadIdx_x=64)
    t = at.threadx
    body = seq(store(s, t, 1.0), barrier("warp"), store(b, t, s[E.BitXor(t, const(distance))]))
    return module(at.func("warps", [b], S.Allocate(s, body)))


def test_a_warp_barrier_orders_a_warp_and_no_more() -> None:
    assert simulate(warp_exchange(16), [zeros(64)]).ok
    finding = only(simulate(warp_exchange(32), [zeros(64)]), "race")
    assert finding.other is not None
    assert finding.other.thread == (32, 0, 0)


def test_a_warp_barrier_does_not_hide_a_reader_of_another_warp() -> None:
    b, s = buffer("B", (64,)), buffer("S", (1,), "shared")
    at = Launch(threadIdx_x=64)
    t = at.threadx
    body = seq(
        S.If(t.equal(0), store(s, 0, 1.0)),
        barrier(),
        store(b, 63 - t, s[0]),
        barrier("warp"),
        S.If(t < 32, store(b, t + 32, s[0])),  # a race of its own, on B
        barrier("warp"),
        S.If(t.equal(3), store(s, 0, 2.0)),
    )
    report = simulate(module(at.func("warps", [b], S.Allocate(s, body))), [zeros(64)])
    found = next(f for f in report.findings if f.buffer == "S")
    assert found.other is not None
    assert found.other.thread[0] >= 32


def test_a_loop_that_reuses_a_tile_needs_a_barrier_at_its_end() -> None:
    def looped(synced: bool) -> Module:
        b, s = buffer("B", (4, 32)), buffer("S", (32,), "shared")
        at = Launch(threadIdx_x=32)
        t = at.threadx

        def body(i: Var) -> S.Stmt:
            read = store(b, (i, t), s[31 - t])
            return seq(store(s, t, 1.0), barrier(), read, barrier() if synced else None)

        return module(at.func("looped", [b], S.Allocate(s, loop("i", 4, body))))

    assert simulate(looped(True), [zeros(4, 32)]).ok
    finding = only(simulate(looped(False), [zeros(4, 32)]), "race")
    assert "writes S[0], which another thread read" in str(finding)


# Races between blocks


def test_two_blocks_that_write_one_element_race() -> None:
    b = buffer("B", (32,))
    at = Launch(blockIdx_x=2, threadIdx_x=32)
    report = simulate(module(at.func("twice", [b], store(b, at.threadx, 1.0))), [zeros(32)])
    finding = only(report, "race between blocks")
    assert finding.place is not None
    assert finding.other is not None
    assert finding.place.block != finding.other.block


def test_a_barrier_of_the_block_does_not_order_blocks() -> None:
    a, b = buffer("A", (1000, 32)), buffer("B", (1000, 32))
    at = Launch(blockIdx_x=1000, threadIdx_x=32)
    i, t = at.blockx, at.threadx
    body = seq(store(a, (i, t), 1.0), barrier(), store(b, (i, t), a[floormod(i + 1, 1000), t]))
    report = simulate(module(at.func("next", [a, b], body)), [zeros(1000, 32), zeros(1000, 32)])
    kinds = {f.kind for f in report.findings}
    assert "race between blocks" in kinds
    body = seq(store(a, (i, t), 1.0), barrier(), store(b, (i, t), a[i, 31 - t]))
    assert simulate(module(at.func("own", [a, b], body)), [zeros(1000, 32), zeros(1000, 32)]).ok


# Bounds


def test_an_index_out_of_its_dimension_is_found_though_it_is_inside_the_memory() -> None:
    a, b = buffer("A", (4, 8)), buffer("B", (32,))
    at = Launch(threadIdx_x=32)
    t = at.threadx
    value = a[floordiv(t, 8), floormod(t, 8) + 1]
    report = simulate(module(at.func("edge", [a, b], store(b, t, value))), [zeros(4, 8), zeros(32)])
    finding = only(report, "out of bounds")
    assert finding.place is not None
    assert (finding.index, finding.place.thread, finding.count) == ((0, 8), (7, 0, 0), 4)
    assert "index 8 of dimension 1 is not in 0..7" in str(finding)


def test_a_write_out_of_bounds_is_found_and_dropped() -> None:
    b = buffer("B", (4, 30))
    at = Launch(blockIdx_x=4, threadIdx_x=32)
    result = zeros(4, 30)
    m = module(at.func("tail", [b], store(b, (at.blockx, at.threadx), 1.0)))
    finding = only(simulate(m, [result]), "out of bounds")
    assert finding.place is not None
    assert (finding.place.thread, finding.place.block) == ((30, 0, 0), (0, 0, 0))
    assert finding.count == 8
    assert (result == 1).all()


def test_a_select_that_reads_out_of_bounds_is_found() -> None:
    a, b = buffer("A", (8,)), buffer("B", (8,))
    at = Launch(threadIdx_x=8)
    t = at.threadx
    value = E.Select(t > const(0), a[t - 1], const(0.0))
    report = simulate(module(at.func("s", [a, b], store(b, t, value))), [zeros(8), zeros(8)])
    assert only(report, "out of bounds").index == (-1,)


def test_a_vector_that_reaches_over_the_end_is_found_at_its_lane() -> None:
    a, b = buffer("A", (30,)), buffer("B", (32,))
    at = Launch(threadIdx_x=8)
    ramp = E.Ramp(at.threadx * 4, const(1), 4)
    m = module(at.func("v", [a, b], S.Store(b, (ramp,), E.Load(a, (ramp,), None))))
    finding = only(simulate(m, [zeros(30), zeros(32)]), "out of bounds")
    assert finding.place is not None
    assert (finding.place.thread, finding.index, finding.count) == ((7, 0, 0), (30,), 2)


# Memory that nobody wrote


@pytest.mark.parametrize("scope", ["local", "shared", "global"])
def test_reading_what_nobody_wrote_is_found(scope: str) -> None:
    b, s = buffer("B", (32,)), buffer("S", (32,), scope)
    at = Launch(threadIdx_x=32)
    t = at.threadx
    body = seq(S.If(t < 31, store(s, t, 1.0)), store(b, t, s[t]))
    finding = only(simulate(module(at.func("k", [b], S.Allocate(s, body))), [zeros(32)]),
                   "uninitialised read")  # fmt: skip
    assert finding.place is not None
    assert (finding.place.thread, finding.index, finding.count) == ((31, 0, 0), (31,), 1)


def test_an_allocation_begins_anew_in_every_iteration() -> None:
    b, s = buffer("B", (32,)), buffer("S", (1,), "local")
    at = Launch(threadIdx_x=32)
    t = at.threadx
    first = S.If(E.EQ(i := Var.make("i"), const(0)), store(s, 0, 1.0))
    body = S.For(
        i, const(0), const(2), S.ForKind.SERIAL, S.Allocate(s, seq(first, store(b, t, s[0])))
    )
    report = simulate(module(at.func("k", [b], body)), [zeros(32)])
    assert only(report, "uninitialised read").count == 32


def test_an_output_that_stays_unwritten_is_found() -> None:
    b = buffer("B", (8, 8))
    at = Launch(threadIdx_x=8, threadIdx_y=7)
    report = simulate(
        module(at.func("most", [b], store(b, (at.thready, at.threadx), 1.0))), [zeros(8, 8)]
    )
    finding = only(report, "unwritten output")
    assert finding.index == (7, 0)
    assert "7 others of 64" in str(finding)


# Divergence


@pytest.mark.parametrize("scope", ["shared", "warp"])
def test_a_barrier_that_some_threads_skip_is_found(scope: str) -> None:
    b = buffer("B", (2, 64))
    at = Launch(blockIdx_x=2, threadIdx_x=64)
    t = at.threadx
    some = E.And(E.EQ(at.blockx, const(1)), t < const(40))
    body = seq(S.If(some, barrier(scope)), store(b, (at.blockx, t), 1.0))
    finding = only(simulate(module(at.func("k", [b], body)), [zeros(2, 64)]), "divergent barrier")
    assert finding.place is not None
    assert finding.other is not None
    assert finding.place.thread == ((0, 0, 0) if scope == "shared" else (32, 0, 0))
    assert (finding.other.thread, finding.other.block) == ((40, 0, 0), (1, 0, 0))


def test_a_barrier_that_whole_blocks_skip_is_fine() -> None:
    b = buffer("B", (2, 64))
    at = Launch(blockIdx_x=2, threadIdx_x=64)
    body = seq(S.If(at.blockx.equal(1), barrier()), store(b, (at.blockx, at.threadx), 1.0))
    assert simulate(module(at.func("k", [b], body)), [zeros(2, 64)]).ok


def test_a_barrier_in_a_loop_that_threads_leave_at_different_times_is_found() -> None:
    b = buffer("B", (32,))
    at = Launch(threadIdx_x=32)
    body = seq(loop("i", at.threadx, lambda i: barrier()), store(b, at.threadx, 1.0))
    finding = only(simulate(module(at.func("k", [b], body)), [zeros(32)]), "divergent barrier")
    assert finding.other is not None
    assert finding.other.thread == (0, 0, 0)


def test_a_shuffle_without_the_whole_warp_is_found() -> None:
    b = buffer("B", (32,))
    at = Launch(threadIdx_x=32)
    t = at.threadx
    value = Call(dtype("float32"), "shuffle_xor", (t.astype("float32"), const(1)))
    body = S.If(t < 20, store(b, t, value), store(b, t, 0.0))
    finding = only(simulate(module(at.func("k", [b], body)), [zeros(32)]), "divergent shuffle")
    assert finding.other is not None
    assert finding.other.thread == (20, 0, 0)


def test_a_reduction_without_the_whole_block_is_found() -> None:
    b, out = buffer("B", (64,)), buffer("out", (1,), "local")
    at = Launch(threadIdx_x=64)
    t = at.threadx
    x, y = Var.make("x", "float32"), Var.make("y", "float32")
    adder = Reducer("sum", (x,), (y,), (x + y,), (const(0.0),))
    one = (const(1.0),)
    reduce = S.AllReduce(adder, (out,), (const(0),), one, const(True), (t,))
    body = seq(store(out, 0, 0.0), S.If(t < 63, reduce), store(b, t, out[0]))
    m = module(at.func("k", [b], S.Allocate(out, body)))
    finding = only(simulate(m, [zeros(64)]), "divergent reduction")
    assert finding.other is not None
    assert finding.other.thread == (63, 0, 0)


# The rest


def test_a_call_that_only_c_can_make_is_refused_with_the_mend() -> None:
    b = buffer("B", (8,))
    at = Launch(threadIdx_x=8)
    call = Call(dtype("float32"), "extern:my_gemm", (const(1.0),))
    with pytest.raises(LoweringError, match="run it on target 'llvm'"):
        compile_module(module(at.func("k", [b], store(b, at.threadx, call))), Target.parse("sim"))


# Deleting what makes a kernel right


def tiled_matmul(n: int = 32, tile: int = 8) -> Module:
    """C = A B with tiles of both in shared memory, double barriers in the loop over k."""
    a, b, c = (buffer(name, (n, n)) for name in "ABC")
    sa, sb = (buffer(name, (tile, tile), "shared") for name in ("As", "Bs"))
    acc = buffer("acc", (1,), "local")
    at = Launch(blockIdx_x=n // tile, blockIdx_y=n // tile, threadIdx_x=tile, threadIdx_y=tile)
    x, y = at.threadx, at.thready
    row, col = at.blocky * tile + y, at.blockx * tile + x

    def step(k: Var) -> S.Stmt:
        return seq(
            store(sa, (y, x), a[row, k * tile + x]),
            store(sb, (y, x), b[k * tile + y, col]),
            barrier(),
            loop("i", tile, lambda i: store(acc, 0, acc[0] + sa[y, i] * sb[i, x])),
            barrier(),
        )

    body = seq(store(acc, 0, 0.0), loop("k", n // tile, step), store(c, (row, col), acc[0]))
    for scratch in (acc, sb, sa):
        body = S.Allocate(scratch, body)
    return module(at.func("matmul", [a, b, c], body))


class Without(Rewriter):
    """Deletes one statement."""

    def __init__(self, stmt: S.Stmt) -> None:
        self.deleted = stmt

    def steps(self, s: S.Stmt) -> Steps:
        return S.Seq(()) if s is self.deleted else (yield super().steps(s))


def mutants(m: Module, chosen: Callable[[object], bool]) -> list[Module]:
    (func,) = m.funcs
    found = []
    for node in walk(func.body):
        if chosen(node):
            assert isinstance(node, S.Stmt)
            body = Without(node).stmt(func.body)
            mutant = Func(func.name, func.params, body, func.launch)
            found.append(Module(m.name, m.params, (mutant,)))
    return found


def test_deleting_any_barrier_or_store_of_a_tiled_kernel_is_found() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, (32, 32)).astype("float32") for _ in range(2))
    result = zeros(32, 32)
    assert simulate(tiled_matmul(), [x, y, result]).ok
    assert (result == x @ y).all()
    unsynced = mutants(tiled_matmul(), lambda s: isinstance(s, S.Sync))
    assert len(unsynced) == 2
    for mutant in unsynced:
        report = simulate(mutant, [x, y, zeros(32, 32)])
        assert report.findings
        assert {f.kind for f in report.findings} == {"race"}
    for mutant in mutants(tiled_matmul(), lambda s: isinstance(s, S.Store)):
        result = zeros(32, 32)
        report = simulate(mutant, [x, y, result])
        assert report.findings or not (result == x @ y).all()
