"""Programs that are wrong are refuted, with where they go wrong and the mend."""

from __future__ import annotations

import pytest

import tilewright
from tilewright import te
from tilewright.ir import Buffer, Func, LaunchAxis, dtype
from tilewright.ir import expr as E
from tilewright.ir.errors import VerificationError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import (
    const,
    if_then_else,
    logical_and,
    logical_or,
    maximum,
    minimum,
    select,
    truncdiv,
)
from tilewright.ir.stmt import Allocate, Evaluate, For, ForKind, If, Let, Stmt, Store, Sync, seq
from tilewright.lower.async_.insert_barriers import insert_barriers
from tilewright.target import Target
from tilewright.verify import Finding, check, verify

tx, ty, bx = Var.make("threadIdx_x"), Var.make("threadIdx_y"), Var.make("blockIdx_x")
i, j, k = Var.make("i"), Var.make("j"), Var.make("k")


def buffer(name: str, *shape: int | Expr, scope: str = "global", type: str = "float32") -> Buffer:
    sizes = tuple(const(n) if isinstance(n, int) else n for n in shape)
    return Buffer(name, sizes, dtype(type), scope)


def loop(var: Var, extent: int | Expr, *body: Stmt, kind: ForKind = ForKind.SERIAL) -> For:
    size = const(extent) if isinstance(extent, int) else extent
    return For(var, const(0), size, kind, seq(*body))


def kernel(
    body: Stmt, params: list[Buffer], own: list[Buffer] | None = None, **launch: tuple[Var, int]
) -> Func:
    for b in reversed(own or []):
        body = Allocate(b, body)
    axes = tuple(
        LaunchAxis(name.replace("_", "."), var, const(extent))
        for name, (var, extent) in launch.items()
    )
    target = Target.parse("sim" if launch else "llvm")
    return Func("main", tuple(params), body, axes, target)


def refuted(func: Func, kind: str) -> Finding:
    """The one finding of this kind."""
    findings = check(func)
    assert [f.kind for f in findings] == [kind], findings
    return findings[0]


class TestBounds:
    def test_an_index_beyond_the_end_comes_with_its_values(self) -> None:
        A, B = buffer("A", 16, 16), buffer("B", 16, 16)
        func = kernel(loop(i, 16, loop(j, 16, Store(B, (i, j), A[i, j + 1]))), [A, B])
        found = refuted(func, "bounds")
        assert found.witness["j"] == 15
        assert "reads A[" in found.message
        assert "16]" in found.message
        assert found.proved

    def test_a_negative_index_is_one_too(self) -> None:
        A, B = buffer("A", 16), buffer("B", 16)
        found = refuted(kernel(loop(i, 16, Store(B, (i,), A[i - 1])), [A, B]), "bounds")
        assert found.witness == {"i": 0}
        assert "A[-1]" in found.message

    def test_verify_raises_with_every_finding(self) -> None:
        A, B = buffer("A", 16), buffer("B", 16)
        func = kernel(loop(i, 16, Store(B, (i + 1,), A[i - 1])), [A, B])
        with pytest.raises(VerificationError, match=r"2 findings(.|\n)*A\[-1\](.|\n)*B\[16\]"):
            verify(func)

    @pytest.mark.parametrize(
        "condition",
        [
            logical_and(i >= 1, i < 17),
            logical_and(i >= 1, i <= 16),
            ~logical_or(i < 1, i > 16),
            logical_and(i != 0, i != 17),
        ],
    )
    def test_guards_hold(self, condition: Expr) -> None:
        A, B, C = buffer("A", 16), buffer("B", 18), buffer("C", 18, type="bool")
        padded = if_then_else(condition, A[i - 1], const(0.0))
        assert check(kernel(loop(i, 18, Store(B, (i,), padded)), [A, B])) == []
        store = If(condition, Store(B, (i,), A[i - 1]))
        assert check(kernel(loop(i, 18, store), [A, B])) == []
        left = logical_and(condition, A[i - 1] > 0.0)
        assert check(kernel(loop(i, 18, Store(C, (i,), left)), [A, C])) == []

    def test_a_select_evaluates_both_of_its_values(self) -> None:
        A, B = buffer("A", 16), buffer("B", 18)
        padded = select(logical_and(i >= 1, i < 17), A[i - 1], const(0.0))
        found = refuted(kernel(loop(i, 18, Store(B, (i,), padded)), [A, B]), "bounds")
        assert "if_then_else" in found.message

    def test_lanes_count_one_by_one(self) -> None:
        A, B = buffer("A", 30), buffer("B", 32)
        lanes = E.Ramp(i * 4, const(1), 4)
        inside = E.LT(lanes, E.Broadcast(const(30), 4))
        store = Store(B, (lanes,), E.Load(A, (lanes,), inside))
        assert check(kernel(loop(i, 8, store), [A, B])) == []
        found = refuted(
            kernel(loop(i, 8, Store(B, (lanes,), E.Load(A, (lanes,), None))), [A, B]), "bounds"
        )
        assert found.witness == {"i": 7}

    def test_divisions_and_clips_are_seen_through(self) -> None:
        A, B = buffer("A", 7, 9), buffer("B", 63)
        body = loop(i, 63, Store(B, (i,), A[i // 9, i % 9] + A[truncdiv(i, 9), 8 - i % 9]))
        assert check(kernel(body, [A, B])) == []
        clipped = maximum(minimum(i - 3, 6), 0)
        assert check(kernel(loop(i, 63, Store(B, (i,), A[clipped, 0])), [A, B])) == []
        found = refuted(
            kernel(loop(i, 64, Store(B, (i % 63,), A[i // 9, i % 9])), [A, B]), "bounds"
        )
        assert found.witness == {"i": 63}

    def test_trimmed_loops_bound_their_index(self) -> None:
        """A sum over a padded input that skips the padding: the bounds are min and max."""
        A, B = buffer("A", 16), buffer("B", 16)
        low, high = maximum(1 - i, 0), minimum(17 - i, 3)
        inner = For(j, low, high - low, ForKind.SERIAL, Store(B, (i,), B[i] + A[i + j - 1]))
        assert check(kernel(loop(i, 16, inner), [A, B])) == []
        high = minimum(18 - i, 3)
        inner = For(j, low, high - low, ForKind.SERIAL, Store(B, (i,), B[i] + A[i + j - 1]))
        found = refuted(kernel(loop(i, 16, inner), [A, B]), "bounds")
        assert found.witness == {"i": 15, "j": 2}

    def test_symbolic_extents_are_any_positive_number(self) -> None:
        n = Var.make("n")
        A, B = buffer("A", n), buffer("B", n)
        assert check(kernel(loop(i, n, Store(B, (i,), A[n - 1 - i])), [A, B])) == []
        found = refuted(kernel(loop(i, n, Store(B, (i,), A[n - i])), [A, B]), "bounds")
        assert "n = " in found.message
        assert found.witness == {"i": 0}

    def test_lets_stand_for_their_value(self) -> None:
        A, B = buffer("A", 16), buffer("B", 16)
        v = Var.make("v")
        body = loop(i, 4, Let(v, i * 4, loop(j, 4, Store(B, (v + j,), A[v + 3 - j]))))
        assert check(kernel(body, [A, B])) == []
        body = loop(i, 4, Let(v, i * 4, loop(j, 4, Store(B, (v + j,), A[v + 4 - j]))))
        assert refuted(kernel(body, [A, B]), "bounds").witness["i"] == 3

    def test_an_index_from_memory_must_be_clipped(self) -> None:
        A, B = buffer("A", 16), buffer("B", 16)
        X = buffer("X", 16, type="int32")
        found = refuted(kernel(loop(i, 16, Store(B, (i,), A[X[i]])), [A, B, X]), "bounds")
        assert not found.proved
        assert "could not prove" in found.message
        assert "clip" in found.message
        clipped = A[maximum(minimum(X[i], 15), 0)]
        assert check(kernel(loop(i, 16, Store(B, (i,), clipped)), [A, B, X])) == []


class TestRaces:
    def test_a_missing_barrier_names_both_threads(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        S = buffer("PaddedInput.shared", 33, scope="shared")
        body = seq(Store(S, (tx,), A[tx]), Store(B, (tx,), S[tx + 1]))
        found = refuted(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), "race")
        assert found.witness["threadIdx_x"] == found.other["threadIdx_x"] + 1
        assert "race on shared buffer PaddedInput.shared: thread (1, 0, 0) writes [1] in" in str(
            found
        )
        assert "while thread (0, 0, 0) reads it in" in str(found)
        assert "T.sync" in str(found)

    def test_a_barrier_only_before_the_use_leaves_the_next_iteration(self) -> None:
        A, B = buffer("A", 8, 32), buffer("B", 8, 32)
        S = buffer("S", 32, scope="shared")
        body = loop(k, 8, Store(S, (tx,), A[k, tx]), Sync("shared"), Store(B, (k, tx), S[31 - tx]))
        found = refuted(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), "race")
        assert found.other["k"] == found.witness["k"] + 1

    def test_a_barrier_under_a_condition_does_not_count_outside(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        S = buffer("S", 32, scope="shared")
        body = seq(Store(S, (tx,), A[tx]), If(bx < 1, Sync("shared")), Store(B, (tx,), S[31 - tx]))
        func = kernel(body, [A, B], [S], blockIdx_x=(bx, 2), threadIdx_x=(tx, 32))
        findings = check(func)
        assert {f.kind for f in findings} == {"race"}

    def test_two_blocks_may_not_write_one_element(self) -> None:
        A, B = buffer("A", 64), buffer("B", 64)
        func = kernel(
            Store(B, (bx * 16 + tx,), A[tx]), [A, B], blockIdx_x=(bx, 3), threadIdx_x=(tx, 32)
        )
        found = refuted(func, "race")
        assert found.witness["blockIdx_x"] != found.other["blockIdx_x"]
        assert "blocks do not wait" in str(found)

    def test_what_all_threads_write_alike_is_refused(self) -> None:
        A, B = buffer("A", 4), buffer("B", 4)
        func = kernel(Store(B, (bx,), A[bx]), [A, B], blockIdx_x=(bx, 4), threadIdx_x=(tx, 32))
        found = refuted(func, "race")
        assert "set_store_predicate" in str(found)
        one = If(tx.equal(0), Store(B, (bx,), A[bx]))
        assert check(kernel(one, [A, B], blockIdx_x=(bx, 4), threadIdx_x=(tx, 32))) == []

    def test_parallel_iterations_may_not_meet(self) -> None:
        A, B, W = buffer("A", 8, 8), buffer("B", 8), buffer("W", 8)
        total = loop(j, 8, Store(B, (const(0),), B[0] + A[i, j]))
        found = refuted(kernel(loop(i, 8, total, kind=ForKind.PARALLEL), [A, B]), "race")
        assert found.witness["i"] != found.other["i"]
        private = Allocate(W, seq(loop(j, 8, Store(W, (j,), A[i, j])), Store(B, (i,), W[7 - i])))
        assert check(kernel(loop(i, 8, private, kind=ForKind.PARALLEL), [A, B])) == []

    def test_a_write_to_where_memory_says_cannot_be_proved(self) -> None:
        A, B, X = buffer("A", 32), buffer("B", 32), buffer("X", 32, type="int32")
        place = maximum(minimum(X[tx], 31), 0)
        found = refuted(kernel(Store(B, (place,), A[tx]), [A, B, X], threadIdx_x=(tx, 32)), "race")
        assert not found.proved

    def test_a_warp_barrier_holds_within_a_warp_only(self) -> None:
        A, B = buffer("A", 64), buffer("B", 64)
        S = buffer("S", 64, scope="shared")

        def exchange(partner: Expr) -> Func:
            body = seq(Store(S, (tx,), A[tx]), Sync("warp"), Store(B, (tx,), S[partner]))
            return kernel(body, [A, B], [S], threadIdx_x=(tx, 64))

        assert check(exchange(tx // 32 * 32 + 31 - tx % 32)) == []
        found = refuted(exchange(63 - tx), "race")
        assert found.witness["threadIdx_x"] // 32 != found.other["threadIdx_x"] // 32


class TestDivergence:
    def barrier_under(self, condition: Expr, extent: int = 32) -> list[Finding]:
        A, B = buffer("A", 64), buffer("B", 64)
        body = seq(If(condition, Sync("shared")), Store(B, (bx * extent + tx,), A[tx]))
        return check(kernel(body, [A, B], blockIdx_x=(bx, 64 // extent), threadIdx_x=(tx, extent)))

    def test_a_condition_on_a_thread_index_is_refuted_with_two_threads(self) -> None:
        (found,) = self.barrier_under(tx < 16)
        assert found.kind == "divergence"
        assert found.witness["threadIdx_x"] < 16 <= found.other["threadIdx_x"]

    def test_a_condition_that_all_threads_share_is_fine(self) -> None:
        assert self.barrier_under(bx < 1) == []
        assert self.barrier_under(tx < 32) == []
        assert self.barrier_under((bx * 32 + tx) // 32 < 1) == []

    def test_a_condition_from_shared_or_global_memory_may_be_uniform(self) -> None:
        X = buffer("X", 64, type="int32")
        assert self.barrier_under(X[bx] > 0) == []
        (found,) = [f for f in self.barrier_under(X[tx] > 0) if f.kind == "divergence"]
        assert not found.proved

    def test_a_loop_of_thread_dependent_length_diverges(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        body = seq(loop(i, tx + 1, Sync("shared")), Store(B, (tx,), A[tx]))
        found = refuted(kernel(body, [A, B], threadIdx_x=(tx, 32)), "divergence")
        assert found.witness != found.other

    def test_a_shuffle_needs_the_whole_warp(self) -> None:
        A, B = buffer("A", 64), buffer("B", 64)
        shuffled = E.Call(dtype("float32"), "shuffle_xor", (A[tx], const(1)))

        def under(condition: Expr) -> Func:
            store = Store(B, (tx,), if_then_else(condition, shuffled, const(0.0)))
            return kernel(store, [A, B], threadIdx_x=(tx, 64))

        assert check(under(tx < 32)) == []
        found = refuted(under(tx < 16), "divergence")
        assert "takes part" in str(found) or "take part" in str(found)


class TestInitialised:
    def test_a_sum_that_starts_nowhere(self) -> None:
        A, B = buffer("A", 32, 8), buffer("B", 32)
        L = buffer("L", 1, scope="local")
        total = loop(k, 8, Store(L, (const(0),), L[0] + A[tx, k]))
        body = seq(total, Store(B, (tx,), L[0]))
        found = refuted(kernel(body, [A, B], [L], threadIdx_x=(tx, 32)), "uninitialised")
        assert "reads L[0]" in str(found)
        whole = seq(Store(L, (const(0),), const(0.0)), body)
        assert check(kernel(whole, [A, B], [L], threadIdx_x=(tx, 32))) == []

    def test_a_buffer_filled_elsewhere(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        W = buffer("W", 64)
        body = seq(loop(i, 32, Store(W, (i,), A[i])), loop(j, 32, Store(B, (j,), W[j + 32])))
        found = refuted(kernel(body, [A, B], [W]), "uninitialised")
        assert "W[32]" in str(found)

    def test_registers_that_another_thread_wrote(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        L = buffer("L", 32, scope="local")
        own = Store(L, (tx,), A[tx])
        body = seq(own, Store(B, (tx,), L[31 - tx]))
        found = refuted(kernel(body, [A, B], [L], threadIdx_x=(tx, 32)), "uninitialised")
        assert "which its thread does not write" in str(found)
        assert "shared memory" in str(found)
        same = seq(own, Store(B, (tx,), L[tx]))
        assert check(kernel(same, [A, B], [L], threadIdx_x=(tx, 32))) == []
        all_written = seq(loop(i, 32, Store(L, (i,), A[i])), own, Store(B, (tx,), L[31 - tx]))
        assert check(kernel(all_written, [A, B], [L], threadIdx_x=(tx, 32))) == []

    def test_a_tile_in_registers_of_which_each_thread_computes_its_part(self) -> None:
        A = te.placeholder((12,), name="A")
        B = te.compute((12,), lambda i: A[i] + 1, name="B")
        k = te.reduce_axis((0, 3), "k")
        C = te.compute((10,), lambda i: te.sum(B[i + k], axis=k), name="C")
        s = te.create_schedule(C.op)
        thread = te.thread_axis("threadIdx.x")
        s[C].bind(s[C].op.axis[0], thread)
        s[B].compute_at(s[C], s[C].op.axis[0])
        s[B].bind(s[B].op.axis[0], thread)
        with pytest.raises(VerificationError, match="its thread does not write"):
            tilewright.build(s, [A, C], "sim")


class TestFunctionsOfTheUser:
    def test_a_buffer_that_one_fills_counts_as_written(self) -> None:
        A, B, W = buffer("A", 8), buffer("B", 8), buffer("W", 8)
        fill = Evaluate(te.call_extern("int32", "fill", W, A, 8))
        body = seq(fill, loop(i, 8, Store(B, (i,), W[i])))
        assert check(kernel(body, [A, B], [W])) == []

    def test_barriers_stand_around_what_it_may_touch(self) -> None:
        B, S = buffer("B", 32), buffer("S", 32, scope="shared")
        call = Evaluate(te.call_extern("int32", "sort", S))
        body = seq(Store(S, (tx,), B[tx]), call, Store(B, (tx,), S[tx]))
        func = kernel(body, [B], [S], threadIdx_x=(tx, 32))
        assert {f.kind for f in check(func)} == {"race"}
        made = insert_barriers(func)
        assert repr(made).count("T.sync") == 2
        assert check(made) == []

    def test_a_prefetch_is_no_access(self) -> None:
        A, B = buffer("A", 8), buffer("B", 8)
        hint = Evaluate(E.Call(dtype("int32"), "prefetch", (A[i + 8],)))
        assert check(kernel(loop(i, 8, hint, Store(B, (i,), A[i])), [A, B])) == []


class TestLimits:
    def limit(self, **launch: tuple[Var, int]) -> str:
        A = buffer("A", 1)
        (found,) = [f for f in check(kernel(Evaluate(A[0]), [A], **launch)) if f.kind == "limit"]
        return str(found)

    def test_threads_of_a_block(self) -> None:
        message = self.limit(threadIdx_x=(tx, 64), threadIdx_y=(ty, 32))
        assert "2048 threads a block" in message
        assert "1024" in message

    def test_a_dimension_of_a_block_and_of_the_grid(self) -> None:
        assert "threadIdx.z" in self.limit(threadIdx_z=(tx, 65))
        assert "blockIdx.y" in self.limit(blockIdx_y=(bx, 65536))

    def test_shared_memory(self) -> None:
        A, B = buffer("A", 32), buffer("B", 32)
        S = buffer("S", 64, 1024, scope="shared")
        body = seq(Store(S, (const(0), tx), A[tx]), Store(B, (tx,), S[0, tx]))
        found = refuted(kernel(body, [A, B], [S], threadIdx_x=(tx, 32)), "limit")
        assert "262144 bytes" in str(found)
        assert "S 262144" in str(found)
