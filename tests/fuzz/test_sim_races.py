"""The simulator finds a race exactly where a comparison of all pairs of accesses finds one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kernels import Launch, barrier, buffer, module, store

from tilewright.ir import Module
from tilewright.ir import stmt as S
from tilewright.ir.ops import const
from tilewright.ir.stmt import seq
from tilewright.runtime.sim import simulate

THREADS, PLACES = 64, 3


@dataclass(frozen=True)
class Step:
    """``kind`` "read" or "write" of ``place`` by chosen threads of a block, or a barrier."""

    kind: str
    place: int = 0
    who: tuple[tuple[int, int], ...] = ()  # (block, thread)


def steps(blocks: int) -> st.SearchStrategy[list[Step]]:
    # few threads, in two warps, so that they meet
    actor = st.tuples(st.integers(0, blocks - 1), st.sampled_from([0, 1, 2, 32, 33]))
    who = st.lists(actor, min_size=1, max_size=3, unique=True).map(lambda w: tuple(sorted(w)))
    access = st.builds(Step, st.sampled_from(["read", "write"]), st.integers(0, PLACES - 1), who)
    fence = st.sampled_from([Step("shared"), Step("warp")])
    return st.lists(st.one_of(access, access, access, fence), min_size=2, max_size=12)


def program(found: list[Step], scope: str, blocks: int) -> Module:
    out, table = buffer("out", (PLACES,), scope), buffer("table", (len(found), blocks, THREADS),
                                                          type="int32")  # fmt: skip
    sink = buffer("sink", (blocks, THREADS))
    at = Launch(blockIdx_x=blocks, threadIdx_x=THREADS)
    body: list[S.Stmt] = [store(sink, (at.blockx, at.threadx), 0.0)]
    for k, step in enumerate(found):
        if step.kind in ("shared", "warp"):
            body.append(barrier(step.kind))
            continue
        chosen = table[k, at.blockx, at.threadx].equal(1)
        if step.kind == "write":
            body.append(S.If(chosen, store(out, step.place, float(k))))
        else:
            mine = (at.blockx, at.threadx)
            body.append(S.If(chosen, store(sink, mine, out[const(step.place)] + float(k))))
    whole = seq(*body)
    params = [table, sink, out] if scope == "global" else [table, sink]
    return module(at.func("k", params, whole if scope == "global" else S.Allocate(out, whole)))


def first_race(found: list[Step], scope: str) -> int | None:
    """The first step that is unordered with an earlier one, by comparing all pairs."""
    block_time, warp_time = 0, 0
    past: list[tuple[int, str, int, int, int, int]] = []
    for k, step in enumerate(found):
        if step.kind == "shared":
            block_time += 1
        elif step.kind == "warp":
            warp_time += 1
        for block, thread in step.who:
            for place, kind, b, t, at_block, at_warp in past:
                if place != step.place or (kind, step.kind) == ("read", "read"):
                    continue
                if b != block:
                    if scope == "global":
                        return k
                elif t != thread and at_block == block_time:
                    if t // 32 != thread // 32 or at_warp == warp_time:
                        return k
            past.append((step.place, step.kind, block, thread, block_time, warp_time))
    return None


@given(st.data(), st.sampled_from(["shared", "global"]), st.integers(1, 2))
def test_races_are_those_of_all_pairs(data: st.DataObject, scope: str, blocks: int) -> None:
    found = data.draw(steps(blocks))
    table = np.zeros((len(found), blocks, THREADS), "int32")
    for k, step in enumerate(found):
        for block, thread in step.who:
            table[k, block, thread] = 1
    arrays = [table, np.zeros((blocks, THREADS), "float32")]
    if scope == "global":
        arrays.append(np.zeros(PLACES, "float32"))
    report = simulate(program(found, scope, blocks), arrays)
    races = [f for f in report.findings if f.kind.startswith("race")]
    expected = first_race(found, scope)
    assert bool(races) == (expected is not None), str(report)
    if expected is not None:
        step = found[expected]
        place = races[0].place
        assert place is not None
        assert f"{float(expected):g}" in place.statement
        assert (place.block[0], place.thread[0]) in step.who
