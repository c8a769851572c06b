"""Blocks of a cluster that share boxes: phases are right in whatever order their warps go on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.correctness.test_producers import plan_of
from tests.support.tiles import HOPPER

from tilewright.codegen.mbarriers import slots
from tilewright.ir.func import Func
from tilewright.ir.stmt import Queue, Sync
from tilewright.lower.analysis.clusters import cluster_of
from tilewright.lower.pipeline import lower
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES

#: What completes the phase of a group in a block.
_ALL = {"end", "own", "shared"}


class Cluster:
    """Warps of some blocks and their producers, with mbarriers as in the code written: of boxes,
    each block has one of its own in a group, and one that a block asks for in its turn, for all."""

    def __init__(self, plan: list[Queue | Sync], count: int, blocks: int, seed: int) -> None:
        self.plan, self.count, self.blocks = plan, count, range(blocks)
        self.own = [s for s in plan if (s.split if isinstance(s, Sync) else s.action != "wait")]
        self.random = random.Random(seed)
        self.warps = [(b, w) for b in self.blocks for w in ("producer", 0, 1)]
        self.at, self.freed, self.issued, self.awaited, self.told = (
            dict.fromkeys(self.warps, 0) for _ in range(5)
        )
        self.landed, self.emptied, self.arrived = (
            {(b, k): 0 for b in self.blocks for k in range(count)} for _ in range(3)
        )
        self.has: dict[tuple[int, int], set[str]] = {}
        self.under_way: list[tuple[int, int, str]] = []

    def steps(self, x: Any) -> list[Queue | Sync]:
        return self.own if x[1] == "producer" else self.plan

    def run(self) -> None:
        while left := [x for x in self.warps if self.at[x] < len(self.steps(x))]:
            able = [x for x in left if self.able(x)]
            if self.under_way and (not able or self.random.random() < 0.3):
                self.end(*self.under_way.pop(self.random.randrange(len(self.under_way))))
                continue
            assert able, "nothing lets a warp go on"
            self.step(self.random.choice(able))

    def able(self, x: Any) -> bool:
        match self.steps(x)[self.at[x]]:
            case Queue(_, "wait", pending) if self.issued[x] - self.awaited[x] > pending:
                phase, place = divmod(self.awaited[x], self.count)
                return self.landed[x[0], place] % 2 != phase % 2
            case Sync(split=True) if x[1] == "producer":
                phase, place = divmod(self.freed[x], self.count)
                return self.emptied[x[0], place] % 2 != phase % 2
            case Sync(split=False):
                return all(self.at[x[0], w] >= self.at[x] for w in (0, 1))
        return True

    def step(self, x: Any) -> None:
        match self.steps(x)[self.at[x]]:
            case Queue(_, "wait", pending) if self.issued[x] - self.awaited[x] > pending:
                self.awaited[x] += 1
                return
            case Sync(split=True):
                if x[1] != "producer" and not self.tell(x):
                    return
                self.freed[x] += 1
            case Queue(_, "commit"):
                if x[1] == "producer":
                    self.ask(x[0], self.issued[x])
                self.issued[x] += 1
        self.at[x] += 1

    def tell(self, x: Any) -> bool:
        """Arrive in one block after another, the own one last; whether that was it."""
        self.told[x] += 1
        phase, place = divmod(self.freed[x], self.count)
        key = (x[0] + self.told[x]) % len(self.blocks), place
        assert self.emptied[key] == phase  # the one before is over
        self.arrived[key] += 1
        if self.arrived[key] == 2 * len(self.blocks):
            self.arrived[key] = 0
            self.emptied[key] += 1
        if self.told[x] < len(self.blocks):
            return False
        self.told[x] = 0
        return True

    def ask(self, block: int, group: int) -> None:
        boxes = [(block, group, "own")]
        if group % len(self.blocks) == block:
            boxes += [(b, group, "shared") for b in self.blocks]
        phase, place = divmod(group, self.count)
        assert all(self.landed[b, place] == phase for b, _, _ in boxes)  # the one before is over
        self.under_way += boxes
        self.end(block, group, "end")

    def end(self, block: int, group: int, what: str) -> None:
        phase, place = divmod(group, self.count)
        assert self.landed[block, place] == phase
        has = self.has.setdefault((block, group), set())
        has.add(what)
        self.landed[block, place] += has == _ALL


def _shared(**tile: int) -> Func:
    p = Conv.parse((4, 200, 9, 7), (128, 200, 1, 1), 1, dtype="float16", layout="NHWC")
    made = BoxProductTile(64, 1, 1, 64, **tile)
    (func,) = lower(*TEMPLATES["gpu.box_products"].scheduled(p, made), HOPPER).funcs
    assert func.producer
    return func


@pytest.mark.parametrize("along", ["boxes_to", "filters_to"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_phases_are_right_of_boxes_that_blocks_share(along: str, stages: int) -> None:
    func = _shared(stages=stages, boxes=2, staged=64, **{along: 2})
    plan, count = plan_of(func), slots(func, "tma")
    assert cluster_of(func.body) == 2
    for seed in range(60):
        Cluster(plan, count, 2, seed).run()
    with pytest.raises(AssertionError):
        for seed in range(400):
            Cluster(plan, count // 2, 2, seed).run()
