"""Fences before units that go to shared memory by another way: none may lack, nor be too early."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.support.changed import changed, lacking
from tests.support.tensor_programs import staged
from tests.support.tile_programs import windows
from tests.support.tiles import module_of

from tilewright import te
from tilewright.ir.func import Module
from tilewright.ir.stmt import Queue, Seq, Stmt, Sync, seq
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.sim import simulate
from tilewright.target.instructions import tma_load
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.verify import check

HOPPER = "cuda -arch=sm_90a"
#: By name: products whose operands threads copy for tensor cores, in the background, and images
#: that threads read of tiles that are filled again.
PROGRAMS: dict[str, Any] = {
    "staged": partial(staged, "k", "k", m=64, n=64, k=128),
    "staged-turned": partial(staged, "i", "j", m=64, n=64, k=128),
    "staged-at-once": partial(staged, "k", "k", m=64, n=64, k=64, stages=0),
    "tiles": partial(windows, height=2),
    "tiles-of-three": partial(windows, height=2, stages=3),
}
#: A product of which threads load one factor into registers, step by step.
REGISTERS = (
    "gpu.copied_gradient",
    Conv.parse((40, 64, 2, 1), (64, 64, 1, 1), 1, layout="NHWC", dtype="float32", precision="tf32",
               pass_="wgrad"),
    BoxGradientTile(64, 64, 3, producer=1),
)  # fmt: skip


def lowered(name: str) -> tuple[Module, list[np.ndarray]]:
    schedule, args = PROGRAMS[name]()
    rng = np.random.default_rng(0)
    made = [rng.integers(-3, 4, [int(n) for n in t.shape]).astype(str(t.dtype)) for t in args[:-1]]
    result = np.zeros([int(n) for n in args[-1].shape], str(args[-1].dtype))
    return lower(schedule, list(args), HOPPER), [*made, result]


def proved(module: Module) -> set[str]:
    return {finding.kind for func in module.funcs for finding in check(func)}


def found(module: Module, arrays: list[np.ndarray]) -> set[str]:
    return {finding.kind for finding in simulate(module, arrays).findings}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sim_and_the_proof_miss_every_fence(name: str) -> None:
    module, arrays = lowered(name)
    assert proved(module) == found(module, arrays) == set()
    fences = [
        s
        for f in module.funcs
        for s in statements(f.body)
        if isinstance(s, Queue) and s.action == "proxy"
    ]
    assert fences
    for s in fences:
        without = lacking(module, s)
        assert proved(without) == {"unfenced"}
        assert found(without, arrays) == {"unfenced access"}


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.startswith("staged")])
def test_a_fence_before_what_it_fences_off_was_waited_for_is_none(name: str) -> None:
    module, arrays = lowered(name)
    early: dict[Stmt, Stmt] = {}
    for s in [s for f in module.funcs for s in statements(f.body) if isinstance(s, Seq)]:
        for wait, fence in zip(s.stmts, s.stmts[1:], strict=False):
            match wait, fence:
                case Queue("cp.async", "wait", _), Queue(_, "proxy", _):
                    early |= {wait: seq(fence, replace(wait)), fence: Seq(())}
    assert early
    assert proved(changed(module, early)) == {"unfenced"}
    assert found(changed(module, early), arrays) == {"unfenced access"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fence_behind_the_barrier_is_none(name: str) -> None:
    """Who fills a tile may pass it before others have fenced off what they read."""
    module, arrays = lowered(name)
    for s in [s for f in module.funcs for s in statements(f.body) if isinstance(s, Seq)]:
        for fence, barrier in zip(s.stmts, s.stmts[1:], strict=False):
            if isinstance(fence, Queue) and fence.action == "proxy":
                late = {fence: Seq(()), barrier: seq(barrier, replace(fence))}
                assert proved(changed(module, late)) == {"unfenced"}
                assert found(changed(module, late), arrays) == {"unfenced access"}


def test_a_thread_that_fills_what_it_read_itself_needs_a_fence_and_no_barrier() -> None:
    a = te.placeholder((16, 128), "float16", name="A")
    tile = te.compute((16, 128), lambda i, j: a[i, j], name="tile")
    b = te.compute((16, 128), lambda i, j: tile[i, j] + te.const(1, "float16"), name="B")
    s = te.create_schedule(b.op)
    io, jo, _, _ = s[b].tile(*s[b].op.axis, 8, 8)
    s[b].bind(io, te.thread_axis("blockIdx.x"))
    s[tile].set_scope("shared")
    s[tile].compute_at(s[b], jo)
    s[tile].tensorize(s[tile].op.axis[0], tma_load((8, 8), "float16"))
    module = lower(s, [a, b], HOPPER)
    x = np.arange(16 * 128).reshape(16, 128).astype("float16") % 100
    arrays = [x, np.zeros_like(x)]
    kinds = [s for f in module.funcs for s in statements(f.body) if isinstance(s, (Queue, Sync))]
    (fence,) = [s for s in kinds if isinstance(s, Queue) and s.action == "proxy"]
    assert not [s for s in kinds if isinstance(s, Sync)]
    assert proved(module) == found(module, arrays) == set()
    assert (arrays[1] == x + 1).all()
    without = lacking(module, fence)
    assert proved(without) == {"unfenced"}
    assert found(without, arrays) == {"unfenced access"}


def test_registers_that_threads_used_are_fenced_before_tensor_cores_use_them() -> None:
    """Of sums and of what a thread multiplies; a fence before its last load is none."""
    name, p, tile = REGISTERS
    module = module_of(name, p, tile)
    assert proved(module) == set()
    (fence,) = [
        s
        for f in module.funcs
        for s in statements(f.body)
        if isinstance(s, Queue) and s.action == "fence"
    ]
    findings = [str(x) for f in lacking(module, fence).funcs for x in check(f)]
    assert ["registers of Sums" in x for x in findings] == [True, False]
    assert "registers of Rows.shared.fragment" in findings[1]
    wait = next(
        s
        for f in module.funcs
        for s in statements(f.body)
        if isinstance(s, Queue) and (s.queue, s.action) == ("wgmma", "wait")
    )
    early: dict[Stmt, Stmt] = {fence: Seq(()), wait: seq(replace(wait), fence)}
    (finding,) = [x for f in changed(module, early).funcs for x in check(f)]
    assert "registers of Rows.shared.fragment" in str(finding)
