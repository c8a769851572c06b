"""Kernels on the simulator compute what NumPy computes, and nothing is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.kernels import Launch, barrier, buffer, loop, module, store

from tilewright.ir import Module, dtype
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.errors import ArgumentError
from tilewright.ir.expr import Call, Load, Ramp, Reducer, Var
from tilewright.ir.ops import (
    ceildiv,
    const,
    floordiv,
    floormod,
    if_then_else,
    logical_and,
    maximum,
    minimum,
    select,
)
from tilewright.ir.stmt import seq
from tilewright.runtime import build
from tilewright.runtime.array import view
from tilewright.runtime.sim import SimulationError, compile_module, simulate
from tilewright.target import Target

rng = np.random.default_rng(0)


def run(m: Module, *arrays: object, **scalars: int) -> None:
    """Launch it, which raises where anything is wrong."""
    program = compile_module(m, Target.parse("sim"))
    program.launch([view(a) for a in arrays], scalars)


def integers(*shape: int, type: str = "float32") -> np.ndarray:
    return rng.integers(-8, 9, shape).astype(type)


def test_copy_with_a_guarded_tail() -> None:
    n = 1000
    a, b = buffer("A", (n,)), buffer("B", (n,))
    at = Launch(blockIdx_x=8, threadIdx_x=128)
    i = at.blockx * 128 + at.threadx
    m = module(at.func("copy", [a, b], S.If(i < n, store(b, i, a[i]))))
    x, y = integers(n), np.zeros(n, "float32")
    run(m, x, y)
    assert (x == y).all()


def test_one_kernel_serves_every_symbolic_extent() -> None:
    n = Var.make("n")
    a, b = buffer("A", (n, 3)), buffer("B", (n, 3))
    at = Launch(blockIdx_x=ceildiv(n, 64), threadIdx_x=64)
    i = at.blockx * 64 + at.threadx
    body = S.If(i < n, loop("j", 3, lambda j: store(b, (i, j), a[i, j] * 2.0)))
    m = module(at.func("double", [a, b, n], body), params=[a, b])
    for size in (1, 64, 100):
        x, y = integers(size, 3), np.zeros((size, 3), "float32")
        assert simulate(m, [x, y]).ok
        assert (y == 2 * x).all()


def depthwise(channels: int, size: int, taps: int) -> Module:
    a = buffer("A", (channels, size, size))
    f = buffer("F", (channels, taps, taps))
    o = buffer("O", (channels, size, size))
    at = Launch(blockIdx_x=channels, threadIdx_x=size, threadIdx_y=8)
    c, w = at.blockx, at.threadx
    acc = buffer("acc", (1,), "local")
    pad = taps // 2

    def row(i: Var) -> S.Stmt:
        h = i * 8 + at.thready

        def tap(kh: Var, kw: Var) -> S.Stmt:
            y, x = h + kh - pad, w + kw - pad
            inside = logical_and(y >= 0, y < size, x >= 0, x < size)
            value = if_then_else(inside, a[c, y, x], 0.0)
            return store(acc, 0, acc[0] + value * f[c, kh, kw])

        sum_ = loop("kh", taps, lambda kh: loop("kw", taps, lambda kw: tap(kh, kw)))
        return seq(store(acc, 0, 0.0), sum_, store(o, (c, h, w), acc[0]))

    return module(at.func("depthwise", [a, f, o], S.Allocate(acc, loop("i", size // 8, row))))


def test_depthwise_convolution_with_padding_agrees_bit_for_bit() -> None:
    x, f = integers(3, 16, 16), integers(3, 5, 5)
    y = np.zeros_like(x)
    run(depthwise(3, 16, 5), x, f, y)
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2)))
    expected = sum(
        padded[:, i : i + 16, j : j + 16] * f[:, i, j][:, None, None]
        for i in range(5)
        for j in range(5)
    )
    assert (y == expected).all()


def transpose(n: int, synced: bool = True) -> Module:
    a, b = buffer("A", (n, n)), buffer("B", (n, n))
    tile = buffer("tile", (16, 16), "shared")
    at = Launch(blockIdx_x=n // 16, blockIdx_y=n // 16, threadIdx_x=16, threadIdx_y=16)
    bx, by, x, y = at.blockx, at.blocky, at.threadx, at.thready
    body = seq(
        store(tile, (y, x), a[by * 16 + y, bx * 16 + x]),
        barrier() if synced else None,
        store(b, (bx * 16 + y, by * 16 + x), tile[x, y]),
    )
    return module(at.func("transpose", [a, b], S.Allocate(tile, body)))


def test_a_tile_in_shared_memory_transposes() -> None:
    x, y = integers(64, 64), np.zeros((64, 64), "float32")
    run(transpose(64), x, y)
    assert (y == x.T).all()


def test_threads_run_loops_of_their_own_length() -> None:
    n = 40
    a, b = buffer("A", (n,)), buffer("B", (n,))
    at = Launch(threadIdx_x=n)
    t = at.threadx
    acc = buffer("acc", (1,), "local")
    low = maximum(t - 3, 0)
    window = loop("k", minimum(t + 1, n) - low, lambda k: store(acc, 0, acc[0] + a[k]), low)
    body = S.Allocate(acc, seq(store(acc, 0, 0.0), window, store(b, t, acc[0])))
    x, y = integers(n), np.zeros(n, "float32")
    run(module(at.func("window", [a, b], body)), x, y)
    assert (y == [x[max(i - 3, 0) : i + 1].sum() for i in range(n)]).all()


def test_only_the_chosen_side_is_evaluated() -> None:
    a, b = buffer("A", (8,)), buffer("B", (32,))
    at = Launch(threadIdx_x=32)
    t = at.threadx
    guarded = E.And(t < const(8), a[t] > const(0.0))
    body = S.If(guarded, store(b, t, a[t]), store(b, t, if_then_else(t < 8, a[t], -1.0)))
    x, y = integers(8), np.zeros(32, "float32")
    run(module(at.func("guard", [a, b], body)), x, y)
    assert (y == np.concatenate([x, np.full(24, -1, "float32")])).all()


def test_vectors_load_compute_and_store_under_masks() -> None:
    n = 100
    a, b = buffer("A", (n,)), buffer("B", (n,))
    at = Launch(threadIdx_x=32)
    index = Ramp(at.threadx * 4, const(1), 4)
    inside = E.LT(index, E.Broadcast(const(n), 4))
    value = Load(a, (index,), inside) * E.Broadcast(const(2.0), 4)
    m = module(at.func("vector", [a, b], S.Store(b, (index,), value, inside)))
    x, y = integers(n), np.zeros(n, "float32")
    run(m, x, y)
    assert (y == 2 * x).all()


def test_a_choice_among_vector_lanes_reads_only_the_chosen_ones() -> None:
    a, b = buffer("A", (10,)), buffer("B", (4, 4))
    at = Launch(threadIdx_x=4)
    index = Ramp(at.threadx * 4, const(1), 4)
    value = E.IfThenElse(
        E.LT(index, E.Broadcast(const(10), 4)),
        Load(a, (index,), None),
        E.Broadcast(const(-1.0), 4),
    )
    at_row = (at.threadx, Ramp(const(0), const(1), 4))
    x, y = integers(10), np.zeros((4, 4), "float32")
    run(module(at.func("choice", [a, b], S.Store(b, at_row, value))), x, y)
    assert (y.ravel() == np.concatenate([x, np.full(6, -1, "float32")])).all()


def test_what_a_select_does_not_choose_may_be_undefined() -> None:
    b, shared = buffer("B", (8,)), buffer("S", (8,), scope="shared")
    at = Launch(threadIdx_x=8)
    t = at.threadx
    filled = S.If(t < const(4), store(shared, t, 1.0))

    def found(least: int) -> np.ndarray:
        value = E.Select(t < const(least), shared[t], const(2.0))
        body = S.Allocate(shared, seq(filled, store(b, t, value)))
        y = np.zeros(8, "float32")
        run(module(at.func("choice", [b], body)), y)
        return y

    assert (found(4) == [1, 1, 1, 1, 2, 2, 2, 2]).all()
    with pytest.raises(SimulationError, match="S\\[4\\].*which nobody wrote"):
        found(5)


def test_lanes_are_taken_apart_and_put_together() -> None:
    a, b = buffer("A", (8, 2)), buffer("B", (8, 2))
    at = Launch(threadIdx_x=8)
    place = (at.threadx, Ramp(const(0), const(1), 2))
    pair = Load(a, place, None)
    swapped = E.Concat((E.Lane(pair, 1), E.Lane(pair, 0)))
    x, y = integers(8, 2), np.zeros((8, 2), "float32")
    run(module(at.func("swap", [a, b], S.Store(b, place, swapped))), x, y)
    assert (y == x[:, ::-1]).all()


def warp_sum(value: E.Expr, into: S.Buffer, t: Var, name: str = "shuffle_down") -> list[S.Stmt]:
    steps: list[S.Stmt] = [store(into, 0, value)]
    for delta in (16, 8, 4, 2, 1):
        other = Call(dtype("float32"), name, (into[0], const(delta)))
        steps.append(store(into, 0, into[0] + other))
    return steps


@pytest.mark.parametrize("name", ["shuffle_down", "shuffle_xor"])
def test_a_sum_by_shuffles_and_shared_memory(name: str) -> None:
    blocks, threads = 3, 128
    a, b = buffer("A", (blocks, threads)), buffer("B", (blocks,))
    at = Launch(blockIdx_x=blocks, threadIdx_x=threads)
    t = at.threadx
    mine = buffer("mine", (1,), "local")
    parts = buffer("parts", (4,), "shared")
    total = parts[0] + parts[1] + parts[2] + parts[3]
    body = seq(
        *warp_sum(a[at.blockx, t], mine, t, name),
        S.If(floormod(t, 32).equal(0), store(parts, floordiv(t, 32), mine[0])),
        barrier(),
        S.If(t.equal(0), store(b, at.blockx, total)),
    )
    m = module(at.func("sum", [a, b], S.Allocate(mine, S.Allocate(parts, body))))
    x, y = integers(blocks, threads), np.zeros(blocks, "float32")
    run(m, x, y)
    assert (y == x.sum(1)).all()


def adder(type: str = "float32") -> Reducer:
    a, b = Var.make("a", type), Var.make("b", type)
    return Reducer("sum", (a,), (b,), (a + b,), (const(0, type),))


@pytest.mark.parametrize("everywhere", [True, False])
def test_allreduce_sums_along_one_axis_of_the_block(everywhere: bool) -> None:
    a, b = buffer("A", (4, 24)), buffer("B", (4,))
    at = Launch(threadIdx_x=24, threadIdx_y=4)
    out = buffer("out", (1,), "local")
    reduce = S.AllReduce(
        adder(),
        (out,),
        (const(0),),
        (a[at.thready, at.threadx],),
        at.threadx < 20,
        (at.threadx,),
        everywhere,
    )
    write = S.If(at.threadx.equal(0), store(b, at.thready, out[0]))
    m = module(at.func("rows", [a, b], S.Allocate(out, seq(reduce, write))))
    x, y = integers(4, 24), np.zeros(4, "float32")
    run(m, x, y)
    assert (y == x[:, :20].sum(1)).all()


def test_allreduce_carries_tuples_for_argmax() -> None:
    a, b = buffer("A", (5, 33)), buffer("B", (5,), type="int32")
    at = Launch(blockIdx_x=5, threadIdx_x=33)
    i, v = Var.make("i"), Var.make("v", "float32")
    j, w = Var.make("j"), Var.make("w", "float32")
    argmax = Reducer(
        "argmax",
        (i, v),
        (j, w),
        (select(v >= w, i, j), maximum(v, w)),
        (const(-1), const(-1e30)),
    )
    outs = buffer("where", (1,), "local", "int32"), buffer("best", (1,), "local")
    source = (at.threadx, a[at.blockx, at.threadx])
    reduce = S.AllReduce(argmax, outs, (const(0),), source, const(True), (at.threadx,))
    body = seq(reduce, S.If(at.threadx.equal(0), store(b, at.blockx, outs[0][0])))
    m = module(at.func("argmax", [a, b], S.Allocate(outs[0], S.Allocate(outs[1], body))))
    x = rng.permuted(np.tile(np.arange(33, dtype="float32"), (5, 1)), axis=1)
    y = np.zeros(5, "int32")
    run(m, x, y)
    assert (y == x.argmax(1)).all()


def test_a_workspace_carries_values_between_kernels() -> None:
    a, b, w = buffer("A", (64,)), buffer("B", (64,)), buffer("W", (64,))
    first, second = Launch(blockIdx_x=2, threadIdx_x=32), Launch(threadIdx_x=64)
    i, j = first.blockx * 32 + first.threadx, second.threadx
    m = module(
        first.func("one", [a, w], store(w, i, a[i] + 1.0)),
        second.func("two", [w, b], store(b, j, w[63 - j])),
        params=[a, b],
        workspaces=(w,),
    )
    x, y = integers(64), np.zeros(64, "float32")
    run(m, x, y)
    assert (y == (x + 1)[::-1]).all()


def test_code_without_a_launch_runs_as_one_thread() -> None:
    a, b = buffer("A", (10,)), buffer("B", (10,))
    before = S.If(
        E.GT(i := Var.make("i"), const(0)), store(b, i, a[i] + b[i - 1]), store(b, i, a[i])
    )
    m = module(
        Launch().func("scan", [a, b], S.For(i, const(0), const(10), S.ForKind.SERIAL, before))
    )
    x, y = integers(10), np.zeros(10, "float32")
    run(m, x, y)
    assert (y == x.cumsum()).all()


def test_arrays_may_be_strided_and_are_written_in_place() -> None:
    a, b = buffer("A", (6, 4)), buffer("B", (6, 4))
    at = Launch(threadIdx_x=4, threadIdx_y=6)
    m = module(
        at.func("copy", [a, b], store(b, (at.thready, at.threadx), a[at.thready, at.threadx]))
    )
    x, big = integers(4, 6).T, np.zeros((12, 4), "float32")
    run(m, x, big[::2])
    assert (big[::2] == x).all()
    assert not big[1::2].any()


def test_blocks_beyond_one_batch_see_their_own_shared_memory() -> None:
    blocks = 700
    b = buffer("B", (blocks, 32), type="int32")
    tile = buffer("tile", (32,), "shared", "int32")
    at = Launch(blockIdx_x=blocks, threadIdx_x=32)
    t = at.threadx
    body = seq(
        store(tile, t, at.blockx * 32 + t), barrier(), store(b, (at.blockx, t), tile[31 - t])
    )
    y = np.zeros((blocks, 32), "int32")
    run(module(at.func("flip", [b], S.Allocate(tile, body))), y)
    assert (y == np.arange(blocks * 32).reshape(blocks, 32)[:, ::-1]).all()


def test_a_built_kernel_runs_checks_its_arguments_and_simulates() -> None:
    kernel = build(transpose(32), Target.parse("sim"))
    x, y = integers(32, 32), np.zeros((32, 32), "float32")
    kernel(x, y)
    assert (y == x.T).all()
    assert kernel.source == kernel.ir
    assert kernel.resources["transpose"].shared_memory == 16 * 16 * 4
    report = kernel.simulate(x, y)
    assert report.ok
    assert [a.degree for a in report.conflicts()] == [8.0]
    with pytest.raises(ArgumentError, match="float32"):
        kernel(x.astype("float64"), y)
    racing = build(transpose(32, synced=False), Target.parse("sim"))
    y[:] = 0
    with pytest.raises(SimulationError, match="tile"):
        racing(x, y)
    assert not y.any()


def test_bfloat16_arrays_are_read_and_written_as_bits() -> None:
    a, b = buffer("A", (4,), type="bfloat16"), buffer("B", (4,), type="bfloat16")
    at = Launch(threadIdx_x=4)
    m = module(at.func("k", [a, b], store(b, at.threadx, a[at.threadx] * 2.0)))
    x, y = np.array([0x3F80, 0x4000, 0xBF80, 0], "uint16"), np.zeros(4, "uint16")
    assert simulate(m, [x, y]).ok
    assert y.tolist() == [0x4000, 0x4080, 0xC000, 0]
