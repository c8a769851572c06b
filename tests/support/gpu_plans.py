"""Schedules for GPUs drawn at random: threads, tiles in shared memory, sums across threads.

A careless one keeps what threads compute together in registers or in a warp's memory, which is
right only where each reads what it wrote, or what its warp did.
"""

from __future__ import annotations

from tests.support.drawing import Dice
from tests.support.graphs import Graph
from tests.support.plans import Leaf, Nest, Plan

THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


class GPUPlan(Plan):
    """A schedule for sim, cuda and opencl."""

    memories = ("local", "shared", "global")
    #: Threads of a block, at most.
    block = 64

    def __init__(self, graph: Graph, dice: Dice, careless: int = 0) -> None:
        super().__init__(graph, dice)
        self.careless = careless  # of a hundred stages that are private to a thread or a warp
        self.axes: dict[str, str] = {}  # thread axes in the text, by tag

    def place(self, nest: Nest) -> None:
        if nest.at is None:
            self.kernel(nest)
        else:
            self.inside(nest)
        self.storage(nest)

    # -- binding --------------------------------------------------------------------------

    def bind(self, nest: Nest, leaf: Leaf, tag: str) -> None:
        dice = self.dice
        thread = self.axes.get(tag, "")
        if any(other.thread == thread for other in nest.leaves):
            thread = ""
        if not thread or not dice.chance(30):
            extent = f"(0, {leaf.extent}), " if self.sized(nest, leaf) and dice.chance(10) else ""
            thread = self.text.fresh("t")
            self.text.do(f'{thread} = te.thread_axis({extent}"{tag}")')
            if not extent:
                self.axes[tag] = thread
        self.text.do(f"{nest.s}.bind({leaf.name}, {thread})")
        leaf.mark, leaf.thread = tag, thread

    def sized(self, nest: Nest, leaf: Leaf) -> bool:
        """Whether the extent of the loop is known."""
        return leaf.extent > 0 and (nest.at is None or leaf.exact)

    def kernel(self, nest: Nest) -> None:
        """The threads of a stage at the root."""
        dice = self.dice
        if nest.stage.scope in ("local", "shared") and not dice.chance(3):
            self.text.do(f'{nest.s}.set_scope("global")')
        if nest.reduces and dice.chance(25):
            across = self.across(nest)
        else:
            across = None
        data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        while len(data) < 3 and dice.chance(50):
            k = nest.leaves.index(dice.pick(data))
            self.split(nest, k, dice.pick((2, 4, 3, 8)))
            data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        chosen = dice.shuffled(data) if dice.chance(50) else list(data)
        chosen = chosen[: dice.number(1, min(5, len(chosen)))]
        used = across.extent if across else 1
        tags = [t for t in THREADS if across is None or t != across.mark]
        blocks, roles = list(BLOCKS), {}
        for leaf in reversed(chosen):
            small = leaf.extent > 0 and used * leaf.extent <= self.block
            if small and tags and dice.chance(60):
                roles[leaf.name] = tags.pop(0)
                used *= leaf.extent
            elif small and leaf.extent <= 4 and leaf.exact and dice.chance(20):
                roles[leaf.name] = "vthread"
            elif blocks:
                roles[leaf.name] = blocks.pop(0)
        if not any(r != "vthread" for r in roles.values()) and across is None:
            first = data[0]
            roles[first.name] = blocks[0]
        if dice.chance(80):
            rank = {"blockIdx": 0, "vthread": 1, "threadId": 2}
            named = [leaf for leaf in nest.leaves if leaf.name in roles]
            named.sort(key=lambda leaf: rank[roles[leaf.name][:8]])
            self.reorder(nest, named + [leaf for leaf in nest.leaves if leaf.name not in roles])
        for leaf in nest.leaves:
            if leaf.name in roles:
                self.bind(nest, leaf, roles[leaf.name])

    def across(self, nest: Nest) -> Leaf | None:
        """Bind a reduction to threads."""
        dice = self.dice
        reduced = [leaf for leaf in nest.leaves if leaf.kind == "reduce"]
        leaf = dice.pick(reduced)
        if leaf.extent > 32:
            return None
        if dice.chance(40):
            k = nest.leaves.index(leaf)
            self.split(nest, k, dice.pick((2, 4, 8)))
            leaf = nest.leaves[k + dice.number(0, 1)]
        data = [a for a in nest.leaves if a.kind == "data"]
        self.reorder(nest, data + [a for a in nest.leaves if a.kind == "reduce"])
        self.bind(nest, leaf, dice.pick(("threadIdx.x", "threadIdx.x", "threadIdx.y")))
        if dice.chance(25):
            self.text.do(f"{nest.s}.set_store_predicate({leaf.thread}.var.equal(0))")
        return leaf

    # -- stages inside a kernel -----------------------------------------------------------

    def threads(self, root: Nest) -> dict[str, int]:
        """The thread axes of the kernel and their extents, as far as they are bound yet."""
        found: dict[str, int] = {}
        pending = [root]
        while pending:
            nest = pending.pop()
            pending += [child for child, _ in nest.children]
            for leaf in nest.leaves:
                if leaf.mark in THREADS:
                    found[leaf.mark] = max(found.get(leaf.mark, 1), leaf.extent)
        return found

    def inside(self, nest: Nest) -> None:
        dice = self.dice
        threads = self.threads(nest.root)
        around = {leaf.mark for leaf in nest.around()}
        private = all(tag in around for tag in threads)
        kept = nest.stage.scope  # as cache_read and cache_write have it
        if kept == "global" or (not kept and dice.chance(60)):
            self.text.do(f'{nest.s}.set_scope("{dice.pick(("shared", "local"))}")')
        scope = nest.stage.scope
        if not scope:
            inner = any(tag in around for tag in THREADS) or "vthread" in around
            scope = "local" if inner else "shared"
        if scope != "shared" and dice.chance(self.careless):
            self.promised = False
            scope = dice.pick((scope, "warp"))
            self.text.do(f'{nest.s}.set_scope("{scope}")')
            nest.scope = scope
            self.cooperate(nest, threads)
            return
        nest.scope = scope
        if scope == "shared" and not (private and dice.chance(5)):
            self.cooperate(nest, threads)

    def cooperate(self, nest: Nest, threads: dict[str, int]) -> None:
        """Spread the stage over all threads of the kernel."""
        dice = self.dice
        threads = {tag: n for tag, n in threads.items() if n > 1}
        if not threads:
            return
        if nest.reduces and dice.chance(15):
            leaf = self.across(nest)
            if leaf is not None:
                threads.pop(leaf.mark, None)
        tags = dice.shuffled(list(threads))
        data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        if len(data) >= len(tags) and dice.chance(30):
            for leaf, tag in zip(dice.shuffled(data), tags):
                if dice.chance(80):
                    k = nest.leaves.index(leaf)
                    self.split(nest, k, threads[tag])
                    leaf = nest.leaves[k + 1]
                self.bind(nest, leaf, tag)
            return
        rest = [leaf for leaf in nest.leaves if leaf.kind == "reduce"]
        self.reorder(nest, data + rest)
        while (
            nest.leaves[0].kind == "data"
            and len(nest.leaves) > 1
            and (nest.leaves[1].kind == "data")
        ):
            self.fuse_at(nest, 0)
        for tag in tags:
            self.split(nest, 0, threads[tag])
        for k, tag in enumerate(reversed(tags)):
            self.bind(nest, nest.leaves[k + 1], tag)
        if dice.chance(8):
            self.split(nest, 0, dice.pick((2, 3)))
            self.bind(nest, nest.leaves[1], "vthread")

    # -- marks ----------------------------------------------------------------------------

    def marks(self, nest: Nest) -> None:
        dice = self.dice
        free = [leaf for leaf in nest.leaves if leaf.kind == "data" and not leaf.mark]
        fits = [leaf for leaf in free if leaf.extent in (1, 2, 3, 4, 8)]
        if fits and dice.chance(25):
            leaf = fits[-1]
            if not self.holds(nest, leaf) or dice.chance(10):
                self.mark(nest, leaf, "vectorize")
        self.unroll_and_pragma(nest)
