"""What goes on in the background, and barriers that free copies of pipelines for it, keep apart no
more than the generated code does: found by reading it against the proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.changed import without

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Reducer
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import (
    Access,
    AllReduce,
    FillAhead,
    For,
    If,
    Instr,
    Let,
    Queue,
    Stmt,
    Sync,
)
from tilewright.ir.visit import statements
from tilewright.lower import pipeline
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.split_kernels import split_kernels
from tilewright.target.instructions import copy_async, tma_load
from tilewright.topi import Conv
from tilewright.topi.pieces.band_tiles import StagedTile
from tilewright.topi.templates import TEMPLATES
from tilewright.verify import check

SM_80, SM_90A = "cuda -arch=sm_80", "cuda -arch=sm_90a"
b, t, i, j, k = axes("b t i j k")


def kernel(body: Stmt, target: str, threads: int, blocks: int = 8) -> Func:
    """Loops over threads and blocks around a body, through the passes of kernels."""
    whole = loop(b, blocks, loop(t, threads, body, tag="threadIdx.x"), tag="blockIdx.x")
    (made,) = split_kernels(func(whole, target=target)).funcs
    for step in pipeline.KERNEL:
        made = step(made)
    return made


def copied(to: Buffer, source: Buffer) -> Instr:
    """Each thread's element, by cp.async."""
    operands = (Access(to, (t + i,)), Access(source, (b, t + i)))
    return Instr(copy_async(1), (i,), operands, loop(i, 1, store(to[t + i], source[b, t + i])))


@pytest.mark.parametrize(
    ("filter", "padding", "tile"),
    [
        ((31, 31), 15, StagedTile(2, 32, 4, 3, 4, 3, 1, 32)),  # three turns a block, of four
        ((1, 31), (0, 15), StagedTile(1, 32, 4, 8, 2, 4, 1, 32)),  # of which some see padding alone
    ],
)
def test_first_fillings_wait_for_products_of_the_turn_before(filter, padding, tile) -> None:
    """Pipelines run empty in each turn. Behind the last barrier that frees copies, products go on
    that read what the next turn fills first."""
    p = Conv.parse((64, 4, 32, 32), (4, 1, *filter), padding=padding, dtype="float16")
    template = TEMPLATES["gpu.toeplitz_staged"]
    (made,) = pipeline.lower(*template.scheduled(p, tile), SM_90A).funcs
    assert check(made) == []
    order = list(statements(made.body))
    first = next(
        n for n, s in enumerate(order) if isinstance(s, Instr) and s.instruction.queue == "tma"
    )
    turn = max(n for n, s in enumerate(order[:first]) if isinstance(s, For) and _has_products(s))
    (sync,) = (s for s in order[turn:first] if isinstance(s, Sync))
    found = check(without(made, sync))
    assert {finding.kind for finding in found} >= {"race"}


def _has_products(s: Stmt) -> bool:
    return any(isinstance(x, Instr) and x.instruction.queue == "wgmma" for x in statements(s))


def test_a_barrier_is_not_split_where_threads_read_what_others_wrote_to_global_memory() -> None:
    u, v = axes("u v")
    X, G, Y = (buffer(name, 8, 8, 64, 32) for name in "XGY")
    T = replace(buffer("T", 64, 32, scope="shared"), align=128)
    read = Access(X, (b, k, i, j))
    load = Instr(
        tma_load((64, 32), "float32", 0), (i, j), (Access(T, (i, j)), read),
        loop(i, 64, loop(j, 32, store(T[i, j], X[b, k, i, j]))),
    )  # fmt: skip
    fill = FillAhead(T, 2, None, load)
    one = loop(u, 32, store(G[b, k, t, u], T[t, u] * 2.0))
    for source, split in ((G, False), (X, True)):
        two = loop(v, 32, store(Y[b, k, t, v], source[b, k, 63 - t, v]))
        made = kernel(loop(k, 8, allocate(T, fill, one, two)), SM_90A, 64)
        assert check(made) == []
        marks = [s for s in statements(made.body) if isinstance(s, Sync) and s.split]
        assert bool(marks) == split


def test_the_value_of_a_name_is_waited_for() -> None:
    x, y = axes("x y", "float32")
    A, B, S = buffer("A", 8, 256), buffer("B", 8), buffer("S", 256, scope="shared")
    total = AllReduce(
        Reducer("sum", (x,), (y,), (x + y,), (const(0.0),)), (B,), (b,), (S[t],), const(True),
        (t,), False,
    )  # fmt: skip
    made = kernel(allocate(S, copied(S, A), total), SM_80, 256)
    order = list(statements(made.body))
    waits = [n for n, s in enumerate(order) if isinstance(s, Queue) and s.action == "wait"]
    named = [n for n, s in enumerate(order) if isinstance(s, Let)]
    assert min(waits) < min(named)


def test_memory_that_only_some_blocks_have_awaited_is_awaited_by_the_others() -> None:
    """S2 takes over the memory of S1, into which copies may still be under way."""
    A, B, C, D = (buffer(name, 8, 256) for name in "ABCD")
    S1, S2, S3 = (buffer(f"S{n}", 256, scope="shared") for n in (1, 2, 3))
    used = allocate(S3, store(S3[t], S1[t]), store(C[b, t], S3[255 - t]))
    body = allocate(
        S1, copied(S1, A), when(b < 4, used),
        allocate(S2, store(S2[t], B[b, t]), store(D[b, t], S2[255 - t])),
    )  # fmt: skip
    made = kernel(body, SM_80, 256)
    (branch,) = (s for s in statements(made.body) if isinstance(s, If))
    assert branch.orelse is not None
    assert [type(s) for s in statements(branch.orelse)] == [Queue]
