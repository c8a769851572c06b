"""The mbarriers of tile loads: how many there are, and that their parities are right."""

from __future__ import annotations

import random
import re

import pytest
from tests.support.tile_programs import boxed, windows
from tests.support.tiles import lowered

from tilewright.codegen.cuda import generate
from tilewright.codegen.mbarriers import slots
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Allocate, For, ForKind, Instr, Queue, Stmt, Sync, seq
from tilewright.ir.visit import children, statements
from tilewright.lower.async_.insert_async_waits import insert_async_waits
from tilewright.lower.async_.proxy_fences import proxy_fences
from tilewright.lower.ir_builder import axes, buffer, func, store
from tilewright.lower.ir_builder import loop as build_loop
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.target.instructions import tma_load
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES

HOPPER = "cuda -arch=sm_90a"


def commits(number: int) -> Stmt:
    return seq(*(Queue("tma", "commit") for _ in range(number)))


def awaited(pending: int) -> Stmt:
    return seq(Queue("tma", "wait", pending), Sync("shared"))


def loop(*body: Stmt) -> Stmt:
    return For(Var.make("k"), const(0), const(9), ForKind.SERIAL, seq(*body))


@pytest.mark.parametrize(
    ("body", "barriers"),
    [
        (seq(commits(1), awaited(0)), 1),
        (seq(commits(2), awaited(1), loop(commits(1), awaited(1))), 2),
        (seq(commits(3), awaited(2), loop(commits(1), awaited(2))), 4),
        # Without a barrier behind a wait, a thread may not have seen the end of a group.
        (seq(commits(1), Queue("tma", "wait", 0), commits(1), awaited(0)), 2),
        # What a loop leaves under way adds to what the next turn of one around begins with.
        (loop(commits(2), awaited(1), loop(commits(1), awaited(1))), 4),
    ],
)
def test_there_are_as_many_barriers_as_groups_may_be_under_way(body: Stmt, barriers: int) -> None:
    assert slots(Func("f", (), body), "tma") == barriers


def test_groups_that_nobody_waits_for_have_no_bound() -> None:
    with pytest.raises(TargetError, match="committed and not awaited: pipeline the stage"):
        slots(Func("f", (), loop(commits(1))), "tma")


PIPELINES = [
    (2, False, 4), (3, False, 8), (4, False, 8), (2, True, 2), (3, True, 4), (4, True, 4),
]  # fmt: skip


def steps(s: Stmt) -> list[Queue | Sync]:
    """What a thread does about the queue and barriers, in order; loops written out."""
    match s:
        case Queue() | Sync():
            return [s]
        case For(_, _, extent, _, body):
            return steps(body) * int(extent)
        case Instr():
            return []
    return [x for child in children(s) if isinstance(child, Stmt) for x in steps(child)]


class Block:
    """Threads on their way through :func:`steps`, and mbarriers in use as in the code written."""

    def __init__(self, plan: list[Queue | Sync], barriers: int, threads: int, seed: int) -> None:
        self.plan, self.barriers, self.random = plan, barriers, random.Random(seed)
        self.at, self.awaited, self.issued = [0] * threads, [0] * threads, [0] * threads
        self.phases = [0] * barriers  # that are over
        self.under_way: list[int] = []
        self.freed = [0] * threads  # arrivals of each

    def run(self) -> None:
        """In some order; a thread that nothing lets go on is a deadlock."""
        while any(at < len(self.plan) for at in self.at):
            able = [t for t in range(len(self.at)) if self.able(t)]
            if self.under_way and (not able or self.random.random() < 0.3):
                self.under_way.remove(group := self.random.choice(self.under_way))
                assert self.phases[group % self.barriers] == group // self.barriers
                self.phases[group % self.barriers] += 1
                continue
            assert able, "nothing lets a thread go on"
            self.step(self.random.choice(able))

    def able(self, t: int) -> bool:
        if self.at[t] == len(self.plan):
            return False
        match self.plan[self.at[t]]:
            case Queue(_, "wait", pending) if self.issued[t] - self.awaited[t] > pending:
                group = self.awaited[t]
                parity = group // self.barriers % 2
                return self.phases[group % self.barriers] % 2 != parity
            case Sync(split=False):
                return min(self.at) == self.at[t]
            case Sync() if t == 0:  # it waits for the arrivals of all others
                return min(self.freed[1:]) > self.freed[0]
        return True

    def step(self, t: int) -> None:
        match self.plan[self.at[t]]:
            case Queue(_, "wait", pending) if self.issued[t] - self.awaited[t] > pending:
                group = self.awaited[t]
                assert self.phases[group % self.barriers] > group // self.barriers
                self.awaited[t] += 1
                return
            case Sync(split=True):
                # Nobody arrives a second time on an mbarrier that others have not arrived on.
                assert self.freed[t] - min(self.freed) < self.barriers
                self.freed[t] += 1
            case Queue(_, "commit"):
                if t == 0:
                    group = self.issued[t]
                    assert self.phases[group % self.barriers] == group // self.barriers
                    assert all(g % self.barriers != group % self.barriers for g in self.under_way)
                    self.under_way.append(group)
                self.issued[t] += 1
            case Sync():
                assert all(at == self.at[t] for at in self.at)
                self.at = [at + 1 for at in self.at]
                return
        self.at[t] += 1


@pytest.mark.parametrize(("stages", "over", "barriers"), PIPELINES)
def test_parities_are_right_in_whatever_order_threads_and_loads_go_on(
    stages: int, over: bool, barriers: int
) -> None:
    schedule, args = windows(rows=3, stages=stages, over=over)
    (func,) = lower(schedule, list(args), HOPPER).funcs
    assert slots(func, "tma") == barriers
    for seed in range(20):
        Block(steps(func.body), barriers, 3, seed).run()


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("over", [False, True])
def test_all_other_copies_are_under_way_while_threads_read_one(stages: int, over: bool) -> None:
    """A copy is filled again when its threads have read it; not so one that products still read."""
    by_threads = windows(rows=3, stages=stages, over=over)
    by_products = boxed(stages=stages, k=264)
    for (schedule, args), ahead in ((by_threads, stages - 1), (by_products, stages - 2)):
        (func,) = lower(schedule, list(args), HOPPER).funcs
        found = [s for s in steps(func.body) if isinstance(s, Queue) and s.queue == "tma"]
        assert {s.pending for s in found if s.action == "wait"} == {ahead}


def test_what_is_filled_ahead_as_a_whole_is_waited_for_alone() -> None:
    """Of fewer iterations than copies none is filled again: none is freed, and no group empty."""
    schedule, args = boxed(stages=4)
    (func,) = lower(schedule, list(args), HOPPER).funcs
    found = [s for s in steps(func.body) if isinstance(s, Queue) and s.queue == "tma"]
    assert [s.action for s in found] == ["commit"] * 3 + ["wait"] * 3
    assert [s.pending for s in found[3:]] == [2, 1, 0]
    assert not any(isinstance(s, Sync) and s.frees for s in steps(func.body))


def test_with_fewer_barriers_a_group_would_be_lost() -> None:
    schedule, args = windows(rows=3, stages=4)
    (func,) = lower(schedule, list(args), HOPPER).funcs
    with pytest.raises(AssertionError):
        for seed in range(20):
            Block(steps(func.body), slots(func, "tma") // 4, 3, seed).run()


TILE = buffer("S", 8, 8, type="float16", scope="shared")


def refilled(first: Stmt, read: bool = True, last: bool = False) -> list[str]:
    """What threads do about "tma" where a box takes the place of what ``first`` put there, and of
    what they ``read``; or where they read what it puts there, ``last`` of all."""
    i, j, t = axes("i j t")
    source, there, back = buffer("A", 8, 8, type="float16"), TILE, buffer("B", 64, type="float16")
    copy = tma_load((8, 8), "float16")
    box = Instr(
        copy, (i, j), (Access(there, (i, j)), Access(source, (i, j))),
        build_loop(i, 8, build_loop(j, 8, store(there[i, j], source[i, j]))),
    )  # fmt: skip
    use = seq(store(back[t], there[t // 8, t % 8]), Sync("shared"))
    body = seq(first, Sync("shared"), *([use] if read else []), box, Sync("shared"))
    body = seq(body, *([use] if last else []))
    made = insert_async_waits(proxy_fences(func(Allocate(there, body))))
    return [s.action for s in steps(made.body) if isinstance(s, Queue)]


def test_what_threads_stored_is_fenced_off_from_boxes_that_replace_it() -> None:
    i, j = axes("i j")
    by_threads = build_loop(i, 8, build_loop(j, 8, store(TILE[i, j], const(1.0, TILE.dtype))))
    assert refilled(by_threads, read=False)[0] == "proxy"
    assert "proxy" not in refilled(seq(), read=False)


def test_what_threads_read_is_fenced_off_from_boxes_that_replace_it_and_from_no_others() -> None:
    assert refilled(seq())[0] == "proxy"
    assert "proxy" not in refilled(seq(), read=False, last=True)


def test_a_fence_stands_at_arrivals_that_free_a_copy_of_a_pipeline() -> None:
    schedule, args = windows(rows=3, stages=3)
    (func,) = lower(schedule, list(args), HOPPER).funcs
    found = steps(func.body)
    freeing = [k for k, s in enumerate(found) if isinstance(s, Sync) and s.split]
    assert freeing
    for k in freeing:
        before = found[k - 1]
        assert isinstance(before, Queue)
        assert before.action == "proxy"


@pytest.mark.needs_nvrtc
def test_no_load_of_a_tile_is_under_way_where_it_may_be_filled_again() -> None:
    """A load waits for nothing at a barrier: it may end behind it, unless a fence stands there."""
    p = Conv(
        batch=64, channels=64, height=28, width=28, kernel_h=3, kernel_w=3, padding=1, stride=2,
        dtype="float16", layout="NHWC",
    )  # fmt: skip
    template = TEMPLATES["gpu.channel_pairs"]
    config = template.config(1, 2, 4, 2, 1, 1, 8, 12, 2)
    module = lower(*template.scheduled(p, config), HOPPER)
    code = disassemble(compile_cubin(generate(module, "sm_90a").text, "sm_90a").data)
    loop = code[code.index("HMMA") :]  # up to the instruction that fills a copy again
    between = re.findall(r"\b(LDS|FENCE|BAR)\b", loop.partition("UTMALDG")[0])
    assert between[-2:] == ["FENCE", "BAR"]
    assert "LDS" in between


def test_a_filter_is_awaited_with_the_first_box_alone() -> None:
    """Groups end in order: it was asked for before the box for which the pipeline waits."""
    p = Conv.parse((64, 64, 16, 16), (64, 64, 3, 3), 1, padding=1, layout="NHWC", dtype="float16")
    for staged in (0, 32):
        tile = BoxProductTile.of((1, 16, 8), 64, 3, boxes=4, staged=staged)
        waits = [
            s.pending
            for s in statements(lowered("gpu.whole_boxes", p, tile, HOPPER).body)
            if isinstance(s, Queue) and s.queue == "tma" and s.action == "wait"
        ]
        assert waits
        assert min(waits) > 0
