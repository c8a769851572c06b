"""Schedules for GPUs drawn at random, with memory that belongs to some threads only.

Stages in registers and in the memory of warps bind axes to threads as they like: to those that
compute their readers, to others, or to none. What most readers then find, another thread wrote.
"""

from __future__ import annotations

from tests.support.gpu_plans import THREADS, GPUPlan
from tests.support.plans import Nest


class RegisterPlan(GPUPlan):
    """A schedule in which few stages stay at the root, and private ones are bound to threads."""

    memories = ("local", "warp", "shared")
    attached = 90

    def inside(self, nest: Nest) -> None:
        dice = self.dice
        threads = self.threads(nest.root)
        around = {leaf.mark for leaf in nest.around()}
        scope = nest.stage.scope
        if scope == "global" or (not scope and dice.chance(70)):
            scope = dice.pick(("local", "warp", "local", "shared"))
            self.text.do(f'{nest.s}.set_scope("{scope}")')
        if not scope:
            inner = any(tag in around for tag in THREADS) or "vthread" in around
            scope = "local" if inner else "shared"
        nest.scope = scope
        if scope == "shared":
            if not dice.chance(10):
                self.cooperate(nest, threads)
        elif scope == "warp" and dice.chance(60):
            self.cooperate(nest, {tag: n for tag, n in threads.items() if tag == "threadIdx.x"})
        elif dice.chance(55):
            self.some_threads(nest, threads)

    def some_threads(self, nest: Nest, threads: dict[str, int]) -> None:
        """Bind axes, as they are or a part of them, to threads of the kernel."""
        dice = self.dice
        for tag in dice.shuffled(list(threads))[: dice.number(1, 2)]:
            free = [leaf for leaf in nest.leaves if leaf.kind == "data" and not leaf.mark]
            if not free:
                return
            leaf = dice.pick(free)
            if dice.chance(60):
                k = nest.leaves.index(leaf)
                self.split(nest, k, dice.pick((threads[tag] or 1, 2, 4)))
                leaf = nest.leaves[k + dice.number(0, 1)]
            self.bind(nest, leaf, tag)
