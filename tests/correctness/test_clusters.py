"""Blocks of a cluster share the boxes that they have in common: on sim, in the proof, on Hopper."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.correctness.test_mbarriers import steps
from tests.support.changed import changed_in
from tests.support.depthwise import TOLERANCE
from tests.support.tiles import error_of, lowered

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.codegen.mbarriers import slots
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LanguageError, ScheduleError
from tilewright.ir.expr import Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import If, Instr, Queue, Sync
from tilewright.ir.visit import Rewriter, statements, substitute
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.runtime.sim.program import simulate
from tilewright.target.instructions import instruction_named, tma_load
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.verify import check

HOPPER = "cuda -arch=sm_90a"
TARGETS = ["sim", pytest.param(HOPPER, marks=pytest.mark.needs_cuda)]
_PRODUCT = BoxProductTile(64, 1, 1, 64, 3)


def _conv(pass_: str = "forward", batch: int = 3, channels: int = 24, stride: int = 1) -> Conv:
    return Conv.parse((batch, channels, 5, 7), (256, channels, 3, 3), 1, stride=stride, padding=1,
                      pass_=pass_, dtype="float16", layout="NHWC")  # fmt: skip


def _square(pass_: str = "forward", channels: int = 72) -> Conv:
    """One whose pixels are results that follow one another."""
    return Conv.parse((4, channels, 9, 7), (256, channels, 1, 1), 1, pass_=pass_, dtype="float16",
                      layout="NHWC")  # fmt: skip


#: Problems, and tiles that share boxes of the image, filters, dy or x, also one after the other.
SHARED: list[tuple[str, Conv, Any]] = [
    ("gpu.box_products", _conv(), BoxProductTile(1, 8, 8, 64, 3, boxes_to=4)),
    ("gpu.box_products", _conv(batch=4), BoxProductTile(1, 8, 8, 128, 4, filters_to=2)),
    ("gpu.window_products", _conv(), replace(_PRODUCT, boxes_to=2)),
    ("gpu.box_products", _square(), replace(_PRODUCT, boxes_to=2, boxes=2)),
    ("gpu.box_products", _square(), replace(_PRODUCT, filters_to=2, boxes=3, stages=4)),
    # Results of the tile before are ordered in the loop that frees copies, which has one step.
    ("gpu.box_products", _square(channels=64), replace(_PRODUCT, filters_to=2, boxes=2, stages=4)),
    ("gpu.box_products", _square("dgrad"), replace(_PRODUCT, filters_to=2, stages=2)),
    ("gpu.box_products", _square(), BoxProductTile(96, 1, 1, 128, 4, turned=1, boxes_to=2)),
    ("gpu.box_products", _conv("dgrad", channels=128, stride=2),
     BoxProductTile(1, 8, 8, 64, 3, boxes_to=2)),
    ("gpu.box_gradient", _square("wgrad"), BoxGradientTile(64, 64, 3, 2, x_to=2)),
    ("gpu.box_gradient", _conv("wgrad"), BoxGradientTile(128, 64, 3, 2, x_to=2)),
    ("gpu.box_gradient", _conv("wgrad", channels=128), BoxGradientTile(64, 64, 4, 1, dy_to=2)),
]  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), SHARED, ids=lambda x: str(x)[:60])
def test_they_are_right(name: str, p: Conv, tile: Any, target: str) -> None:
    assert error_of(name, p, tile, target) < TOLERANCE[p.dtype]


def _lowered(name: str, p: Conv, tile: Any) -> Func:
    return lowered(name, p, tile, HOPPER)


@pytest.mark.parametrize(("name", "p", "tile"), SHARED, ids=lambda x: str(x)[:60])
def test_one_block_asks_for_what_all_have_and_it_is_proved(name: str, p: Conv, tile: Any) -> None:
    func = _lowered(name, p, tile)
    assert check(func) == []
    count = max(x for field, x in vars(tile).items() if field.endswith("_to"))
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    assert f"__cluster_dims__({count}, 1, 1)" in text
    loads = re.findall(r"tma\.(load\w*)\(", text.partition('extern "C"')[2])
    assert {load.endswith("_to_all") for load in loads} == {True, False}


@pytest.fixture(scope="module")
def shared() -> Func:
    return _lowered("gpu.box_products", _square(), replace(_PRODUCT, boxes_to=2, boxes=2))


def _loads(func: Func) -> list[Instr]:
    """Those to all blocks of a cluster."""
    found = [s for s in statements(func.body) if isinstance(s, Instr) and s.instruction.cluster > 1]
    assert found
    return found


def _wrong(func: Func) -> str:
    """What the proof finds, and that sim finds something too."""
    arrays = [
        np.zeros([int(n) for n in b.shape], np.float16)
        for b in func.params
        if isinstance(b, Buffer)
    ]
    report = simulate(tilewright.ir.Module("m", func.params, (func,)), arrays)
    assert "race between blocks" in {finding.kind for finding in report.findings}
    return "\n".join(map(str, check(func)))


def test_a_barrier_of_one_block_frees_no_copy_of_another_one(shared: Func) -> None:
    split = [s for s in statements(shared.body) if isinstance(s, Sync) and s.split]
    found = _wrong(changed_in(shared, {s: replace(s, split=False) for s in split}))
    assert "on which all blocks of the cluster arrive" in found
    assert "pipeline the stage" in found


def test_blocks_of_a_cluster_copy_the_same_box(shared: Func) -> None:
    (axis,) = (a for a in shared.launch if a.tag == "blockIdx.x")

    class Other(Rewriter):
        def expr(self, e: Any) -> Any:
            return substitute(e, {axis.var: axis.var + 1})

    found = _wrong(changed_in(shared, {s: Other().stmt(s) for s in _loads(shared)}))
    assert "is not the same for block" in found
    assert "which are of one cluster" in found


def test_all_blocks_of_a_cluster_come_to_a_copy(shared: Func) -> None:
    (axis,) = (a for a in shared.launch if a.tag == "blockIdx.x")
    halves = {s: If(axis.var % 2 == 0, s) for s in _loads(shared)}
    assert "stands under" in _wrong(changed_in(shared, halves))


def test_a_grid_is_whole_clusters(shared: Func) -> None:
    launch = tuple(
        replace(a, extent=const(int(a.extent) - 1)) if a.tag == "blockIdx.x" else a
        for a in shared.launch
    )
    assert "are no clusters of 2: split an axis that they divide" in _wrong(
        replace(shared, launch=launch)
    )
    n = Var.make("n")
    for extent, whole in ((n * 2, True), (n, False), ((n + 1) // 2, False), (n * 2 + 1, False)):
        launch = tuple(
            replace(a, extent=extent) if a.tag == "blockIdx.x" else a for a in shared.launch
        )
        func = replace(shared, launch=launch, params=(*shared.params, n))
        assert whole is not any("no clusters of 2" in str(x) for x in check(func))
    with pytest.raises(ScheduleError, match="4 blocks are no clusters of 8"):
        _lowered("gpu.box_products", _square(), replace(_PRODUCT, boxes_to=8))


def test_there_are_clusters_of_up_to_eight_blocks() -> None:
    with pytest.raises(LanguageError, match="a cluster of 9 blocks: there are clusters of 1 to 8"):
        tma_load((64, 64), cluster=9)
    for made in (tma_load((64, 64), cluster=4), tma_load((8, 64), "float16", 128, True, 2)):
        assert instruction_named(made.name) is made


@pytest.mark.needs_nvrtc
def test_arrivals_wait_for_no_fence_of_the_gpu(shared: Func) -> None:
    """One takes a microsecond, as often as copies are freed."""
    text = generate(tilewright.ir.Module("m", shared.params, (shared,)), "sm_90a").text
    code = disassemble(compile_cubin(text, "sm_90a").data)
    assert "UTMALDG.2D.MULTICAST" in code
    assert "MEMBAR.ALL.GPU" not in code


class Cluster:
    """Warps of a cluster on their way through what a thread does about the queue and barriers, and
    mbarriers in use as in the code written: those that boxes land on and those that warps arrive on
    when they have done with copies, in the other blocks first."""

    def __init__(self, plan: list[Queue | Sync], barriers: int, blocks: int, seed: int) -> None:
        self.plan, self.barriers, self.blocks = plan, barriers, blocks
        self.random = random.Random(seed)
        self.warps = [(b, w) for b in range(blocks) for w in range(2)]  # 0 asks for boxes
        self.at = dict.fromkeys(self.warps, 0)
        self.told = dict.fromkeys(self.warps, 0)  # blocks in which it has arrived for this barrier
        self.issued, self.awaited, self.freed = (dict.fromkeys(self.warps, 0) for _ in range(3))
        self.landed = [[0] * barriers for _ in range(blocks)]  # phases that are over
        self.emptied = [[0] * barriers for _ in range(blocks)]
        self.arrived = [[0] * barriers for _ in range(blocks)]
        self.missing = dict[tuple[int, int], int]()  # by block and group
        self.under_way = list[tuple[list[int], int]]()  # blocks and groups of boxes

    def run(self) -> None:
        while any(at < len(self.plan) for at in self.at.values()):
            able = [x for x in self.warps if self.at[x] < len(self.plan) and self.able(x)]
            if self.under_way and (not able or self.random.random() < 0.3):
                to, group = self.under_way.pop(self.random.randrange(len(self.under_way)))
                for block in to:
                    self.complete(block, group)
                continue
            assert able, "nothing lets a warp go on"
            self.step(self.random.choice(able))

    def complete(self, block: int, group: int) -> None:
        """One of three: the box of all, that of the block, and the arrival of who asks for it."""
        place = group % self.barriers
        assert self.landed[block][place] == group // self.barriers
        left = self.missing[block, group] = self.missing.get((block, group), 3) - 1
        self.landed[block][place] += left == 0

    def able(self, x: tuple[int, int]) -> bool:
        block, warp = x
        match self.plan[self.at[x]]:
            case Queue(_, "wait", pending) if self.issued[x] - self.awaited[x] > pending:
                group = self.awaited[x]
                return self.landed[block][group % self.barriers] % 2 != group // self.barriers % 2
            case Sync(split=False):
                return all(self.at[block, w] >= self.at[x] for w in range(2))
            case Sync() if self.told[x] == self.blocks and warp == 0:
                turn = self.freed[x]
                return self.emptied[block][turn % self.barriers] % 2 != turn // self.barriers % 2
        return True

    def step(self, x: tuple[int, int]) -> None:
        block, warp = x
        match self.plan[self.at[x]]:
            case Queue(_, "wait", pending) if self.issued[x] - self.awaited[x] > pending:
                self.awaited[x] += 1
                return
            case Sync(split=True) if self.told[x] < self.blocks:
                self.told[x] += 1
                there, place = (block + self.told[x]) % self.blocks, self.freed[x] % self.barriers
                # Nobody arrives for a phase before the one before it is over.
                assert self.emptied[there][place] == self.freed[x] // self.barriers
                self.arrived[there][place] += 1
                if self.arrived[there][place] == len(self.warps):
                    self.arrived[there][place] = 0
                    self.emptied[there][place] += 1
                return
            case Sync(split=True):
                self.told[x] = 0
                self.freed[x] += 1
            case Queue(_, "commit"):
                group = self.issued[x]
                if warp == 0:
                    self.under_way.append(([block], group))
                    if group % self.blocks == block:
                        self.under_way.append((list(range(self.blocks)), group))
                    self.complete(block, group)
                self.issued[x] += 1
        self.at[x] += 1


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_parities_are_right_in_whatever_order_warps_of_a_cluster_go_on(
    stages: int, blocks: int
) -> None:
    p = _square()
    func = _lowered("gpu.box_products", p, BoxProductTile(64, 1, 1, 64, stages, 1, 2, 0, blocks))
    plan, found = steps(func.body), slots(func, "tma")
    assert any(isinstance(s, Sync) and s.split for s in plan)
    for seed in range(40):
        Cluster(plan, found, blocks, seed).run()
    with pytest.raises(AssertionError):
        for seed in range(400):
            Cluster(plan, found // 2, blocks, seed).run()
