"""Barriers in loops and branches that all threads take alike, between branches that they do not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.support.gpu_programs import buffer, kernel, loop, store

from tilewright.ir.expr import Var
from tilewright.ir.func import Module
from tilewright.ir.ops import as_index
from tilewright.ir.stmt import If, Stmt, Sync, seq
from tilewright.ir.visit import statements
from tilewright.runtime.build import backend
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import outputs
from tilewright.target import Target

THREADS = 4
#: PoCL takes long for the ways between many.
BARRIERS = 4


class Nest:
    """A kernel in which each thread counts in an element of its own what it comes by."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = buffer("Count", (THREADS,), "int32")
        self.size = buffer("Size", (Var.make("n"),), "int32")
        self.thread = Var.make("threadIdx_x")
        self.steps = 0

    def update(self) -> Stmt:
        self.steps += 1
        mine = self.count[self.thread]
        return store(self.count, self.thread, mine * 3 + self.steps)

    def body(self, depth: int, loops: tuple[Var, ...] = ()) -> Stmt:
        parts = [self.part(depth, loops) for _ in range(self.rng.randint(1, 3))]
        return seq(*parts)

    def part(self, depth: int, loops: tuple[Var, ...]) -> Stmt:
        pick = self.rng.randrange(6 if depth else 3)
        bound = self.rng.randint(1, 3)
        if pick == 0:
            return Sync("shared")
        if pick == 1:
            return self.update()
        if pick == 2:
            return If(self.thread < bound, self.update())
        if pick < 5:
            var = Var.make(f"k{depth}")
            return loop(var, self.rng.randint(2, 4), self.body(depth - 1, (*loops, var)))
        choices = [*loops, self.size.shape[0]]
        return If(self.rng.choice(choices) < as_index(bound), self.body(depth - 1, loops))

    def module(self) -> Module:
        begin, end = store(self.count, self.thread, 0), If(self.thread < 3, self.update())
        body = seq(begin, self.body(3), end)
        return kernel("nest", (self.count, self.size), body, threadIdx_x=(self.thread, THREADS))


def drawn(seed: int) -> Module:
    """A nest with barriers, and not with many."""
    for k in range(1000):
        module = Nest(seed * 1000 + k).module()
        found = sum(isinstance(s, Sync) for s in statements(module.funcs[0].body))
        if 1 <= found <= BARRIERS:
            return module
    raise AssertionError


def counts(module: Module, target: str) -> list[int]:
    machine = Target.parse(target)
    made = Kernel(backend(machine).compile_module(module, machine), outputs(module))
    count = np.zeros(THREADS, np.int32)
    made(count, np.zeros(2, np.int32))
    return count.tolist()


@pytest.mark.needs_opencl
@pytest.mark.parametrize("seed", range(24))
def test_every_thread_goes_its_own_way_between_barriers(seed: int) -> None:
    module = drawn(seed)
    assert counts(module, "opencl") == counts(module, "sim"), module
