"""Instructions on the simulator: by their loops, or by a hook that sees the threads of a warp."""

from __future__ import annotations

import numpy as np
from tests.support.kernels import Launch, buffer, loop, module, store

from tilewright.ir import Module
from tilewright.ir import stmt as S
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access
from tilewright.runtime.sim import simulate
from tilewright.runtime.sim.instruction import InstructionView


class Plain:
    """An instruction that says no more than its loops."""

    name = "double4"
    cluster = 1
    simulate = None
    queue = ""


class Simulated:
    """One that doubles without its loops, in every thread at once."""

    name = "double4"
    cluster = 1
    group = 1
    queue = ""

    def __init__(self, reach: int = 4) -> None:
        self.reach = reach
        self.threads: list[int] = []

    def simulate(self, view: InstructionView) -> None:
        self.threads = view.threads.tolist()
        for i in range(self.reach):
            view.at(i)
            view.write(0, view.read(1) * np.float32(2))


def doubling(instruction: object) -> Module:
    a, b = buffer("A", (32, 4)), buffer("B", (32, 4))
    at = Launch(threadIdx_x=32)
    i = Var.make("i")
    place = (at.threadx, i)
    loops = S.For(i, const(0), const(4), S.ForKind.SERIAL, store(b, place, a[place] * 2.0))
    instr = S.Instr(instruction, (i,), (Access(b, place), Access(a, place)), loops)
    half = S.If(at.threadx < 16, instr, loop("j", 4, lambda j: store(b, (at.threadx, j), 0.0)))
    return module(at.func("k", [a, b], half))


def test_an_instruction_without_a_hook_is_its_body() -> None:
    x, y = np.ones((32, 4), "float32"), np.zeros((32, 4), "float32")
    assert simulate(doubling(Plain()), [x, y]).ok
    assert (y[:16] == 2).all()
    assert not y[16:].any()


def test_a_hook_takes_the_place_of_the_body_in_the_active_threads() -> None:
    x, y = np.ones((32, 4), "float32"), np.zeros((32, 4), "float32")
    instruction = Simulated()
    assert simulate(doubling(instruction), [x, y]).ok
    assert instruction.threads == list(range(16))
    assert (y[:16] == 2).all()
    assert not y[16:].any()


def test_what_a_hook_does_is_checked_like_any_access() -> None:
    x, y = np.ones((32, 4), "float32"), np.zeros((32, 4), "float32")
    report = simulate(doubling(Simulated(reach=5)), [x, y])
    assert [f.kind for f in report.findings] == ["out of bounds"] * 2
    assert {f.index for f in report.findings} == {(0, 4)}
    assert "instruction('double4'" in str(report.findings[0])
