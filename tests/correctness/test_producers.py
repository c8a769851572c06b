"""A warp of its own copies boxes for the others: on sim, in the proof, on Hopper."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.correctness.test_mbarriers import steps
from tests.support.changed import changed_in, without
from tests.support.depthwise import TOLERANCE
from tests.support.tiles import error_of

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.codegen.mbarriers import slots
from tilewright.ir.func import Func
from tilewright.ir.stmt import Queue, Sync
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.pieces.thread_order import leaves_directly
from tilewright.topi.templates import TEMPLATES, candidates
from tilewright.verify import check

HOPPER = "cuda -arch=sm_90a"
TARGETS = ["sim", pytest.param(HOPPER, marks=pytest.mark.needs_cuda)]


def _conv(
    pass_: str = "forward", channels: int = 72, kernel: int = 1, dtype: str = "float16",
    stride: int = 1, precision: str = "exact",
) -> Conv:  # fmt: skip
    return Conv.parse((4, channels, 9, 7), (192, channels, kernel, kernel), 1, padding=kernel // 2,
                      stride=stride, pass_=pass_, dtype=dtype, layout="NHWC",
                      precision=precision)  # fmt: skip


_ADDED = Conv.parse((1, 8, 1, 1), (8, 8, 1, 1), 1, epilogue="batch_norm+residual+relu").epilogue

#: Problems, and tiles: several one after the other, of parts of channels or of pixels, of clusters;
#: of which results leave from registers; of phases; with boxes of what is added to results; and of
#: boxes that all taps read.
PRODUCED: list[tuple[str, Conv, Any]] = [
    ("gpu.box_products", _conv(), BoxProductTile(128, 1, 1, 192, 3, staged=64, boxes=2)),
    ("gpu.box_products", _conv(), BoxProductTile(128, 1, 1, 96, 4, staged=32)),
    ("gpu.box_products", _conv("dgrad"), BoxProductTile(64, 1, 1, 128, 2, staged=128)),
    ("gpu.box_products", _conv(), BoxProductTile(80, 1, 1, 128, 3, turned=1, staged=80)),
    ("gpu.box_products", _conv(), BoxProductTile(64, 1, 1, 64, 3, staged=64, filters_to=2)),
    ("gpu.window_products", _conv(kernel=3), BoxProductTile(128, 1, 1, 64, 3, staged=32, boxes=2)),
    ("gpu.box_products", _conv(kernel=3), BoxProductTile(2, 8, 8, 64, 3, staged=64)),
    ("gpu.box_products", _conv().replace(epilogue=_ADDED),
     BoxProductTile(64, 1, 1, 64, 3, staged=64, boxes=2)),
    ("gpu.box_splits", _conv(channels=256), BoxProductTile(64, 1, 1, 64, 3, 2, staged=64)),
    ("gpu.box_gradient", _conv("wgrad"), BoxGradientTile(64, 64, 3, 2, producer=1)),
    ("gpu.window_products", _conv(kernel=3, dtype="int8", channels=80),
     BoxProductTile(128, 1, 1, 64, 3, staged=64, boxes=2)),
    ("gpu.box_products", _conv(dtype="float32", precision="tf32", channels=76),
     BoxProductTile(128, 1, 1, 64, 3, staged=64, boxes=2)),
    ("gpu.box_products", _conv(dtype="float32", precision="tf32", channels=76),
     BoxProductTile(128, 1, 1, 64, 3, staged=32, boxes=2)),
    ("gpu.box_products", _conv("dgrad", dtype="float32", precision="tf32x3"),
     BoxProductTile(128, 1, 1, 64, 3, staged=64, boxes=2)),
    ("gpu.box_products", _conv("dgrad", kernel=3, stride=2),
     BoxProductTile(4, 4, 4, 64, 3, staged=64)),
    # Of each four results of a pixel three are zero, and stored with the fourth.
    ("gpu.window_products", _conv("dgrad", stride=2),
     BoxProductTile(32, 1, 1, 64, 3, turned=1, staged=16)),
    ("gpu.box_products", _conv(channels=200).replace(epilogue=_ADDED),
     BoxProductTile(128, 1, 1, 64, 3, staged=32, boxes=2, added=1)),
    ("gpu.box_products", _conv().replace(epilogue=_ADDED),
     BoxProductTile(64, 1, 1, 64, 3, staged=64, boxes=4, stores=1, added=1)),
    ("gpu.whole_boxes", _conv(kernel=3), BoxProductTile(2, 8, 8, 64, 3, staged=32, boxes=4)),
    ("gpu.whole_boxes", _conv().replace(epilogue=_ADDED),
     BoxProductTile(64, 1, 1, 64, 3, staged=64, boxes=4, added=1)),
]  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), PRODUCED, ids=lambda x: str(x)[:60])
def test_they_are_right(name: str, p: Conv, tile: Any, target: str) -> None:
    allowed = {"int8": 0.0, "float32": 2e-3 if p.precision == "tf32" else TOLERANCE["float32"]}
    assert error_of(name, p, tile, target) <= allowed.get(p.dtype, TOLERANCE["float16"])


def _lowered(name: str, p: Conv, tile: Any) -> Func:
    schedule, args = TEMPLATES[name].scheduled(p, tile)
    return next(f for f in lower(schedule, args, HOPPER).funcs if f.producer)


@pytest.mark.spread
@pytest.mark.parametrize(("name", "p", "tile"), PRODUCED, ids=lambda x: str(x)[:60])
def test_they_are_proved_and_warps_wait_for_boxes_alone(name: str, p: Conv, tile: Any) -> None:
    func = _lowered(name, p, tile)
    assert func.producer
    assert check(func) == []
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    kernel = text.partition('extern "C"')[2]
    assert f"__launch_bounds__({128 * tile.groups + 32})" in kernel
    consumer, producer = kernel.split("tma.consume();")[1].split("tma.produce();")
    assert "tma.load" not in consumer
    assert ("tma_late.load" in producer) == bool(getattr(tile, "added", 0))
    assert "tma_late.load" not in consumer
    assert "wgmma" not in producer
    assert "bar.sync" not in producer
    loop = consumer.partition("wgmma.mma_async")[2]
    stores = bool(getattr(tile, "stores", 0))  # of boxes to which warps of a group have stored
    assert ("bar.sync" in loop) == stores
    assert "__syncthreads" not in loop
    whole = name in ("gpu.box_splits", "gpu.box_gradient")
    directly = not whole and leaves_directly(TEMPLATES[name].declare(p, tile), tile)
    assert ("__syncwarp" in loop) != (whole or directly or stores)


@pytest.fixture(scope="module")
def produced() -> Func:
    return _lowered(*PRODUCED[0])


def test_a_barrier_of_the_block_frees_no_copy_for_a_producer(produced: Func) -> None:
    split = [s for s in statements(produced.body) if isinstance(s, Sync) and s.split]
    found = check(changed_in(produced, {s: replace(s, split=False) for s in split}))
    assert any("on which all threads arrive for the producer" in str(x) for x in found)


def test_warps_that_share_results_meet(produced: Func) -> None:
    """Each barrier of a warp is needed."""
    warp = [s for s in statements(produced.body) if isinstance(s, Sync) and s.scope == "warp"]
    assert warp
    for s in warp:
        assert any(x.kind == "race" for x in check(without(produced, s)))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("at", [0, 3])
def test_products_do_not_wait_for_one_another(at: int) -> None:
    func = _lowered(*PRODUCED[at])
    text = generate(tilewright.ir.Module("m", func.params, (func,)), "sm_90a").text
    code = disassemble(compile_cubin(text, "sm_90a").data)
    assert not re.search(r"\b(LDL|STL)\b", code)
    assert len(re.findall("HGMMA", code)) <= 8
    assert "WARPGROUP.DEPBAR.LE gsb0, 0x1" in code


class Block:
    """Warps of a block and its producer on their way, and mbarriers in use as in the code written,
    by queue those that boxes land on, and those that warps arrive on when they have done with
    copies, of which there are as many as of the first queue."""

    def __init__(self, plan: list[Queue | Sync], barriers: dict[str, int], seed: int) -> None:
        self.barriers, self.random = barriers, random.Random(seed)
        self.freeing = next(iter(barriers.values()))
        own = [s for s in plan if (s.split if isinstance(s, Sync) else s.action != "wait")]
        self.plans = {w: own if w == "producer" else plan for w in ("producer", 0, 1, 2)}
        self.at, self.freed = (dict.fromkeys(self.plans, 0) for _ in range(2))
        self.issued, self.awaited = (
            {(w, name): 0 for w in self.plans for name in barriers} for _ in range(2)
        )
        self.landed = {name: [0] * count for name, count in barriers.items()}
        self.emptied, self.arrived = ([0] * self.freeing for _ in range(2))
        self.under_way: list[tuple[str, int]] = []

    def run(self) -> None:
        while any(self.at[w] < len(plan) for w, plan in self.plans.items()):
            able = [w for w, plan in self.plans.items() if self.at[w] < len(plan) and self.able(w)]
            if self.under_way and (not able or self.random.random() < 0.3):
                name, group = self.under_way.pop(self.random.randrange(len(self.under_way)))
                count = self.barriers[name]
                # A box of a group lands in the phase of that group.
                assert self.landed[name][group % count] == group // count
                self.landed[name][group % count] += 1
                continue
            assert able, "nothing lets a warp go on"
            self.step(self.random.choice(able))

    def able(self, w: Any) -> bool:
        match self.plans[w][self.at[w]]:
            case Queue(q, "wait", pending) if self.issued[w, q] - self.awaited[w, q] > pending:
                group, count = self.awaited[w, q], self.barriers[q]
                return self.landed[q][group % count] % 2 != group // count % 2
            case Sync(split=True) if w == "producer":
                turn = self.freed[w]
                return self.emptied[turn % self.freeing] % 2 != turn // self.freeing % 2
            case Sync(split=False):
                return all(self.at[x] >= self.at[w] for x in self.plans if x != "producer")
        return True

    def step(self, w: Any) -> None:
        match self.plans[w][self.at[w]]:
            case Queue(q, "wait", pending) if self.issued[w, q] - self.awaited[w, q] > pending:
                self.awaited[w, q] += 1
                return
            case Sync(split=True):
                place = self.freed[w] % self.freeing
                if w != "producer":
                    # Nobody arrives for a phase before the one before it is over.
                    assert self.emptied[place] == self.freed[w] // self.freeing
                    self.arrived[place] += 1
                    if self.arrived[place] == len(self.plans) - 1:
                        self.arrived[place] = 0
                        self.emptied[place] += 1
                self.freed[w] += 1
            case Queue(q, "commit"):
                if w == "producer":
                    group, count = self.issued[w, q], self.barriers[q]
                    # Nobody asks for boxes of a phase before the one before it is over.
                    assert self.landed[q][group % count] == group // count
                    self.under_way.append((q, group))
                self.issued[w, q] += 1
        self.at[w] += 1


def plan_of(func: Func) -> list[Queue | Sync]:
    """What warps wait for, and what they tell each other, in the order of the program."""
    names = ("tma", "tma_late")
    return [s for s in steps(func.body)
            if (s.scope == "shared" if isinstance(s, Sync) else s.queue in names)]  # fmt: skip


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_parities_are_right_in_whatever_order_warps_go_on(stages: int) -> None:
    func = _lowered("gpu.box_products", _conv(channels=200),
                    BoxProductTile(64, 1, 1, 64, stages, staged=64, boxes=2))  # fmt: skip
    plan, found = plan_of(func), slots(func, "tma")
    assert any(isinstance(s, Sync) and s.split for s in plan)
    for seed in range(60):
        Block(plan, {"tma": found}, seed).run()
    if found > 1:
        with pytest.raises(AssertionError):
            for seed in range(400):
                Block(plan, {"tma": found // 2}, seed).run()


@pytest.mark.parametrize(("channels", "stages"), [(200, 3), (200, 2), (64, 3), (64, 6)])
def test_parities_are_right_of_boxes_of_what_is_added(channels: int, stages: int) -> None:
    tile = BoxProductTile(64, 1, 1, 64, stages, staged=32, boxes=4, added=1)
    func = _lowered("gpu.box_products", _conv(channels=channels).replace(epilogue=_ADDED), tile)
    found = {name: slots(func, name) for name in ("tma", "tma_late")}
    for seed in range(60):
        Block(plan_of(func), found, seed).run()


def _first(p: Any) -> Any:
    return next(iter(candidates(p, HOPPER)))[1]


def test_tiles_one_after_the_other_are_copied_by_a_producer() -> None:
    p = Conv.parse((64, 512, 28, 28), (256, 512, 1, 1), 1, dtype="float16", layout="NHWC")
    assert _first(p).staged
    assert _first(p).stages >= 4
    alone = [tile for _, tile in candidates(p.replace(batch=1), HOPPER)]
    assert not any(getattr(tile, "staged", 0) and tile.boxes > 1 for tile in alone)


def test_matrices_whose_rows_begin_within_sectors_are_shared_by_blocks() -> None:
    """Four rows of five sectors are as many as five of four."""
    tile = _first(Gemm(m=4696, n=4816, k=2696, dtype="bfloat16", transpose_b=True))
    assert (bool(tile.staged), tile.boxes_to) == (True, 2)


def test_tiles_have_as_many_channels_as_let_each_sm_have_one() -> None:
    p = Gemm(m=504, n=4688, k=1216, dtype="float16", transpose_b=True)
    tile = next(iter(candidates(p, Target.parse("cuda -arch=sm_90a"))))[1]
    assert (tile.images, tile.channels, tile.boxes) == (128, 144, 1)


@pytest.mark.parametrize(("m", "boxes"), [(792, 1), (1952, 3)])
def test_tiles_share_boxes_of_their_columns_where_rows_begin_within_lines(
    m: int, boxes: int
) -> None:
    n, k = (4832, 2584) if boxes == 1 else (5288, 5264)
    p = Gemm(m=m, n=n, k=k, dtype="float16", transpose_b=True)
    tile = next(iter(candidates(p, Target.parse("cuda -arch=sm_90a"))))[1]
    assert tile.turned
    assert (tile.boxes_to, tile.boxes) == (2, boxes)
    assert tile.staged


def test_tma_stores_no_results_of_phases() -> None:
    p = Conv.parse((32, 128, 57, 15), (272, 64, 1, 1), 2, stride=2, pass_="dgrad",
                   dtype="float16", layout="NHWC")  # fmt: skip
    tiles = TEMPLATES["gpu.window_products"].candidates(p, Target.parse(HOPPER))
    assert any(t.staged for t in tiles)
    assert not any(t.stores for t in tiles)
