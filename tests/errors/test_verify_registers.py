"""No thread reads registers of another, or memory of another warp: proved on every target."""

from __future__ import annotations

import threading

import pytest
from tests.errors.test_verify import buffer, bx, i, j, k, kernel, loop, refuted, tx, ty

import tilewright
from tilewright import te
from tilewright.arith import isl
from tilewright.ir import Buffer, Func
from tilewright.ir.distribution import Distribution
from tilewright.ir.errors import VerificationError
from tilewright.ir.ops import const, floordiv, floormod, if_then_else
from tilewright.ir.stmt import Allocate, If, Store, Sync, seq
from tilewright.lower.loops.plan_storage import plan_storage
from tilewright.lower.pipeline import lower
from tilewright.verify import check

EVERY_GPU = pytest.mark.parametrize("target", ["sim", "opencl", "cuda -arch=sm_90a"])
A, B = buffer("A", 64), buffer("B", 64)


def local(*shape: int) -> Buffer:
    return buffer("L", *shape, scope="local")


@EVERY_GPU
@pytest.mark.parametrize("scope", ["local", ""])
def test_a_stage_that_binds_its_readers_axis_again(scope: str, target: str) -> None:
    a = te.placeholder((4,), name="A")
    made = te.compute((4,), lambda i: a[i] * 2.0, name="S")
    b = te.compute((8,), lambda i: made[0] + 1.0, name="B")
    s = te.create_schedule(b.op)
    thread = te.thread_axis("threadIdx.x")
    s[b].bind(b.op.axis[0], thread)
    s[made].compute_at(s[b], b.op.axis[0])
    s[made].bind(made.op.axis[0], thread)
    if scope:
        s[made].set_scope(scope)
    with pytest.raises(VerificationError, match="which its thread does not write before") as error:
        tilewright.build(s, [a, b], target)
    assert "S[0]" in str(error.value)
    assert "thread (1, 0, 0)" in str(error.value)
    assert "set_scope('shared')" in str(error.value)


@EVERY_GPU
def test_a_stage_bound_to_an_axis_that_its_readers_lack(target: str) -> None:
    a = te.placeholder((8, 4), name="A")
    made = te.compute((8, 4), lambda i, j: a[i, j] * 2.0, name="S")
    b = te.compute((8, 4), lambda i, j: made[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    axis = b.op.axis[0]
    s[b].bind(axis, te.thread_axis("threadIdx.x"))
    s[made].compute_at(s[b], axis)
    s[made].set_scope("local")
    s[made].bind(made.op.axis[1], te.thread_axis("threadIdx.y"))
    with pytest.raises(VerificationError, match="does not write before"):
        tilewright.build(s, [a, b], target)


class TestElements:
    def check(self, body: object, registers: Buffer, threads: int = 8) -> Func:
        return kernel(body, [A, B], [registers], threadIdx_x=(tx, threads))  # type: ignore[arg-type]

    def test_two_parts_together_are_all(self) -> None:
        L = local(8)
        first = loop(i, 5, Store(L, (i,), A[i]))
        rest = loop(j, 3, Store(L, (j + 5,), A[j]))
        use = Store(B, (tx,), L[tx])
        assert check(self.check(seq(first, rest, use), L)) == []
        fewer = loop(j, 2, Store(L, (j + 5,), A[j]))
        found = refuted(self.check(seq(first, fewer, use), L), "uninitialised")
        assert found.witness == {"threadIdx_x": 7}
        assert "reads L[7]" in str(found)
        assert found.proved

    def test_conditions_of_threads_are_those_of_the_write(self) -> None:
        L = local(1)
        made = If(tx < 5, Store(L, (const(0),), A[tx]))
        use = Store(B, (tx,), L[0])
        found = refuted(self.check(seq(made, use), L), "uninitialised")
        assert found.witness == {"threadIdx_x": 5}
        assert check(self.check(seq(made, If(tx < 5, use)), L)) == []
        assert check(self.check(seq(made, If(tx < 4, use)), L)) == []
        assert check(self.check(seq(made, If(tx >= 5, Store(L, (const(0),), A[0])), use), L)) == []

    def test_a_value_of_an_earlier_iteration(self) -> None:
        L = local(2)
        body = seq(Store(B, (k,), L[floormod(k, 2)]), Store(L, (floormod(k + 1, 2),), A[k]))
        found = refuted(self.check(loop(k, 6, body), L, 1), "uninitialised")
        assert found.witness["k"] == 0
        first = Store(L, (const(0),), A[0])
        assert check(self.check(seq(first, loop(k, 6, body)), L, 1)) == []

    def test_the_first_iteration_writes_for_all(self) -> None:
        L = local(1)
        body = seq(If(k < 1, Store(L, (const(0),), A[tx])), Store(B, (tx + k * 8,), L[0]))
        assert check(self.check(loop(k, 6, body), L)) == []
        late = seq(If(k.equal(1), Store(L, (const(0),), A[tx])), Store(B, (tx + k * 8,), L[0]))
        found = refuted(self.check(loop(k, 6, late), L), "uninitialised")
        assert found.witness["k"] == 0

    def test_each_iteration_has_registers_of_its_own(self) -> None:
        L = local(1)
        body = seq(If(k < 1, Store(L, (const(0),), A[tx])), Store(B, (tx + k * 8,), L[0]))
        found = refuted(self.check(loop(k, 6, Allocate(L, body)), local(1)), "uninitialised")
        assert found.witness["k"] >= 1

    def test_a_condition_that_is_read_from_memory(self) -> None:
        L = local(1)
        made = If(A[tx] > 0.0, Store(L, (const(0),), A[tx]))
        found = refuted(self.check(seq(made, Store(B, (tx,), L[0])), L), "uninitialised")
        assert "reads L[0]" in str(found)

    def test_an_index_that_is_read_from_memory(self) -> None:
        L, at = local(8), buffer("at", 8, type="int32")
        fill = loop(i, 7, Store(L, (i,), A[i]))
        use = Store(B, (tx,), if_then_else((at[tx] >= 0) & (at[tx] < 7), L[at[tx]], 0.0))
        found = check(kernel(seq(fill, use), [A, B, at], [L], threadIdx_x=(tx, 8)))
        assert {f.kind for f in found} <= {"bounds", "uninitialised"}
        assert all("could not prove" in str(f) for f in found)

    def test_registers_that_arrays_share_begin_undefined(self) -> None:
        L, M = local(4), buffer("M", 4, scope="local")
        first = Allocate(L, seq(loop(i, 4, Store(L, (i,), A[i])), loop(j, 4, Store(B, (j,), L[j]))))
        made = If(tx < 1, loop(i, 4, Store(M, (i,), A[i])))
        second = Allocate(M, seq(made, Store(B, (tx + 4,), M[3])))
        planned = plan_storage(kernel(seq(first, second), [A, B], threadIdx_x=(tx, 8)))
        assert repr(planned).count("allocate") == 1
        found = [f for f in check(planned) if f.kind == "uninitialised"]
        assert [f.witness for f in found] == [{"threadIdx_x": 1}]

    def test_elements_of_fragments_are_written_by_who_holds_them(self) -> None:
        bits = (("lane 2", "lane 3", "lane 4", "slot"), ("slot", "lane 0", "lane 1"))
        held = Distribution.parse((16, 8), bits)
        F = Buffer("F", (const(16), const(8)), A.dtype, "fragment", None, 0, held)
        G = buffer("G", 16, 8)
        row, column = i * 8 + floordiv(tx, 4), floormod(tx, 4) * 2 + j
        use = loop(i, 2, loop(j, 2, Store(G, (row, column), F[row, column])))
        for count, expected in ((2, 0), (1, 1)):
            fill = loop(i, count, loop(j, 2, Store(F, (row, column), A[tx])))
            found = check(kernel(seq(fill, use), [A, G], [F], threadIdx_x=(tx, 32)))
            assert [f.kind for f in found] == ["uninitialised"] * expected


class TestWarps:
    def of(self, partner: object, threads: int = 64, rows: int = 1) -> Func:
        """Every thread stores at its index along x and reads at ``partner``."""
        W, C = buffer("W", threads, scope="warp"), buffer("C", rows, threads)
        body = seq(Store(W, (tx,), A[tx]), Sync("shared"), Store(C, (ty, tx), W[partner]))
        axes = {"threadIdx_x": (tx, threads), "threadIdx_y": (ty, rows)}
        return kernel(body, [A, C], [W], **axes)

    def test_a_thread_of_the_same_warp_wrote_it(self) -> None:
        assert check(self.of(floordiv(tx, 32) * 32 + floormod(tx + 5, 32))) == []
        assert check(self.of(15 - tx, 16, rows=2)) == []

    def test_another_warp_wrote_it(self) -> None:
        found = refuted(self.of(63 - tx), "uninitialised")
        assert "which its warp does not write before" in str(found)

    def test_other_rows_have_memory_of_their_own(self) -> None:
        W, C = buffer("W", 32, scope="warp"), buffer("C", 2, 16)
        body = seq(
            Store(W, (ty * 16 + tx,), A[tx]),
            Sync("shared"),
            Store(C, (ty, tx), W[tx + 16 - ty * 16]),
        )
        func = kernel(body, [A, C], [W], threadIdx_x=(tx, 16), threadIdx_y=(ty, 2))
        refuted(func, "uninitialised")

    @pytest.mark.parametrize(
        ("threads", "rows", "enough"), [(32, 4, True), (8, 4, True), (24, 2, False)]
    )
    def test_a_barrier_of_a_warp_is_enough_where_a_row_is_in_one(
        self, threads: int, rows: int, enough: bool
    ) -> None:
        W, C = buffer("W", threads, scope="warp"), buffer("C", rows, threads)
        body = seq(Store(W, (tx,), A[tx]), Sync("warp"), Store(C, (ty, tx), W[threads - 1 - tx]))
        axes = {"threadIdx_x": (tx, threads), "threadIdx_y": (ty, rows)}
        found = check(kernel(body, [A, C], [W], **axes))
        assert [f.kind for f in found] == ([] if enough else ["race"])


def test_memory_of_warps_is_part_of_that_of_a_block() -> None:
    W = buffer("W", 2048, scope="warp")
    body = seq(loop(i, 2048, Store(W, (i,), A[0])), Store(B, (tx,), W[0]))
    axes = {"threadIdx_x": (tx, 64), "threadIdx_y": (ty, 16)}
    found = [f for f in check(kernel(body, [A, B], [W], **axes)) if f.kind == "limit"]
    assert "262144 bytes of shared memory a block (W 262144)" in str(found[0])


def test_registers_are_a_thread_s_in_kernels_with_blocks_only() -> None:
    L = local(1)
    made = If(bx < 1, Store(L, (const(0),), A[bx]))
    func = kernel(seq(made, Store(B, (bx,), L[0])), [A, B], [L], blockIdx_x=(bx, 8))
    assert refuted(func, "uninitialised").witness == {"blockIdx_x": 1}


def test_a_clean_tile_in_registers_is_proved() -> None:
    a = te.placeholder((64, 20), name="A")
    b = te.compute((64, 20), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((64, 18), lambda i, j: te.sum(b[i, j + r], axis=r), name="C")
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "local")
    outer, inner = s[c].split(c.op.axis[0], 8)
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    s[total].compute_at(s[c], inner)
    s[b].compute_at(s[c], inner)
    (func,) = lower(s, [a, c], "sim").funcs
    assert check(func) == []


def test_reads_behind_many_quotients_are_decided_with_little_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fuzzing, sim 16002325: the axes of T1 are fused and split again, its reads of what other
    threads keep have a dozen columns, and eliminating them took minutes. A point is named, so it
    was decided."""
    a = te.placeholder((5, 9, 4), "int16", name="A")
    t0 = te.compute((5, 9, 5), lambda i, j, k: te.max(a[i, j, k // 2], 1), name="T0")
    t1 = te.compute((5, 6, 5), lambda i, j, k: t0[i, (j + 7) % 9, k], name="T1")
    r = te.reduce_axis((0, 5), "r")
    t2 = te.compute((5, 6, 5), lambda i, j, k: te.sum(t1[i, j, r] + 0 * k, axis=r), name="T2")
    s = te.create_schedule(t2.op)
    x, y, z = (te.thread_axis(f"threadIdx.{d}") for d in "xyz")
    i, j, k = s[t2].op.axis
    (inner,) = s[t2].op.reduce_axis
    outer, *_ = s[t2].tile(j, k, 4, 2)
    for axis, thread in ((inner, te.thread_axis("threadIdx.x")), (i, z), (outer, y)):
        s[t2].bind(axis, thread)
    i, j, k = s[t1].op.axis
    parts = [*s[t1].split(i, nparts=3), *s[t1].split(j, factor=2)]
    parts[-1:] = s[t1].tile(parts[-1], k, 4, 3)
    s[t1].compute_at(s[t2], inner)
    s[t1].set_scope("shared")
    fused = s[t1].fuse(*parts)
    fused, last = s[t1].split(fused, factor=5)
    fused, middle = s[t1].split(fused, factor=2)
    _, first = s[t1].split(fused, factor=5)
    for axis, thread in ((first, te.thread_axis("threadIdx.x")), (middle, y), (last, z)):
        s[t1].bind(axis, thread)
    i, j, k = s[t0].op.axis
    s[t0].reorder(i, k, j)
    first, last, rows, _ = s[t0].tile(k, j, 4, 2)
    s[t0].compute_at(s[t2], outer)
    s[t0].set_scope("local")
    _, middle = s[t0].split(rows, factor=2)
    _, last = s[t0].split(last, factor=5)
    for axis, thread in ((first, x), (middle, y), (last, z)):
        s[t0].bind(axis, thread)
    module = lower(s, [a, t2], "sim")
    monkeypatch.setattr(isl, "MAX_OPERATIONS", 200_000)
    monkeypatch.setattr(isl, "_own", threading.local())
    found = [finding for func in module.funcs for finding in check(func)]
    assert any("at thread (" in str(finding) for finding in found), found
