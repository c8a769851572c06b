"""Where barriers stand, and which moments of two statements no barrier separates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import IntImm
from tilewright.ir.stmt import For, ForKind, If, Sync
from tilewright.lower.analysis.accesses import Kernel, Node
from tilewright.lower.analysis.domain import can_run


@dataclass(frozen=True, slots=True)
class Order:
    """A relation between a moment of one statement and a later one of another.

    ``same`` are the common loops in which both are in one iteration. ``carried``, where not None,
    is the common loop in which the second is in a later iteration: the one that is ``by`` later, or
    any one where that is 0. The first statement is in the last iteration of the loops ``last``, the
    second in the first iteration of those of ``first``. Iterations of all other loops are free.
    """

    same: frozenset[Node]
    carried: Node | None = None
    by: int = 0
    last: frozenset[Node] = frozenset()
    first: frozenset[Node] = frozenset()


class Barriers:
    """The barriers of a kernel that are not weaker than ``scopes``, and supposed ones.

    ``before`` holds nodes in front of which a barrier is supposed to stand in addition. Those
    that free copies in ``freed`` do not count, for accesses that they do not keep apart; of those
    of a ``cluster`` only the ones on which its blocks arrive for each other do. Where those
    that free copies are supposed to be ``split``, they count for accesses of that buffer alone.
    """

    def __init__(
        self,
        kernel: Kernel,
        scopes: tuple[str, ...] = ("cluster", "shared"),
        before: frozenset[Node] = frozenset(),
        freed: Buffer | None = None,
        cluster: bool = False,
        split: Buffer | None = None,
    ) -> None:
        self.kernel, self.scopes, self.before = kernel, scopes, before
        self._certain: dict[Node, bool] = {}
        self._any: set[Node] = set()
        self._met: set[Node] = set()
        for node in before:
            self._any.update(node.ancestors)
        for barrier in kernel.barriers:
            stmt = barrier.node.stmt
            counts = isinstance(stmt, Sync) and barrier.scope in scopes
            counts = counts and (not cluster or (isinstance(stmt, Sync) and stmt.split))
            if split is not None and barrier.frees:
                counts = counts and split in barrier.frees
            if counts and freed not in barrier.frees:
                self._any.update(barrier.node.line)
                self._met.add(barrier.node)

    def inside(self, node: Node) -> bool:
        """Whether there is a barrier below ``node``, run or not."""
        return node in self._any

    def certain(self, node: Node) -> bool:
        """Whether running ``node`` certainly meets a barrier below it."""
        if node not in self._any:
            return False
        found = self._certain.get(node)
        if found is None:
            found = self._meets(node)
            self._certain[node] = found
        return found

    def _meets(self, node: Node) -> bool:
        match node.stmt:
            case Sync():
                return node in self._met
            case If(_, _, orelse):
                return orelse is not None and all(map(self._reaches, node.children))
            case For(_, _, extent, _, _, _, _):
                return self._reaches(node.children[0]) and self._runs(node, extent)
        return any(map(self._reaches, node.children))

    def _runs(self, node: Node, extent: E.Expr) -> bool:
        if isinstance(extent, IntImm):
            return extent.value > 0
        none = E.LE(extent, IntImm(extent.dtype, 0))
        return not can_run(self.kernel, node, (none, True))

    def _reaches(self, node: Node) -> bool:
        return node in self.before or self.certain(node)

    def after(self, node: Node, top: Node) -> bool:
        """Whether a barrier follows ``node`` before the run of ``top``, an ancestor, ends.

        Within the same iteration of every loop in between.
        """
        while node is not top:
            parent = node.parent
            assert parent is not None
            if self.inside(parent) and len(parent.children) > 1 and not isinstance(parent.stmt, If):
                if any(map(self._reaches, parent.children[node.number + 1 :])):
                    return True
            node = parent
        return False

    def ahead(self, node: Node, top: Node) -> bool:
        """Whether a barrier precedes ``node`` since the run of ``top``, an ancestor, began."""
        while node is not top:
            if node in self.before:
                return True
            parent = node.parent
            assert parent is not None
            if self.inside(parent) and len(parent.children) > 1 and not isinstance(parent.stmt, If):
                if any(map(self._reaches, parent.children[: node.number])):
                    return True
            node = parent
        return False

    def orders(self, a: Node, b: Node) -> Iterator[tuple[Order, bool]]:
        """How moments of ``a`` and ``b`` may lie with no barrier between them.

        Each with whether ``a`` is the earlier one; orders that a barrier rules out are left out.
        """
        shared = [x for x, y in zip(a.line, b.line, strict=False) if x is y]
        common = [x for x in shared if _repeats(x) and self.inside(x)]
        if a is b and common and common[-1] is a:  # bounds of a loop, read before it
            common.pop()
        yield from self._within(a, b, shared[-1], frozenset(common))
        for depth, loop in enumerate(common):
            same = frozenset(common[:depth])
            for early, late, forward in ((a, b, True), (b, a, False)):
                if early is late and not forward:
                    continue
                if not (self.after(early, loop) or self.ahead(late, loop)):
                    yield self._carried(loop, same, early, late), forward

    def _carried(self, loop: Node, same: frozenset[Node], early: Node, late: Node) -> Order:
        certain = int(self._reaches(loop.children[0]))
        return Order(same, loop, certain, self._full(early, loop), self._full(late, loop))

    def _within(
        self, a: Node, b: Node, meet: Node, common: frozenset[Node]
    ) -> Iterator[tuple[Order, bool]]:
        if meet is a or meet is b:  # the bounds of a loop, or a condition, come first
            early, late = (a, b) if meet is a else (b, a)
            if a is b:
                yield Order(common), True
            elif not self.ahead(late, early):
                yield Order(common, first=self._full(late, early)), early is a
            return
        depth = len(meet.ancestors) + 1
        left, right = a.line[depth], b.line[depth]
        early, late = (a, b) if left.number < right.number else (b, a)
        left, right = early.line[depth], late.line[depth]
        if not isinstance(meet.stmt, If):
            between = meet.children[left.number + 1 : right.number]
            if (
                any(map(self._reaches, between))
                or right in self.before
                or self.after(early, left)
                or self.ahead(late, right)
            ):
                return
        order = Order(common, last=self._full(early, meet), first=self._full(late, meet))
        yield order, early is a

    def _full(self, node: Node, top: Node) -> frozenset[Node]:
        """The loops strictly between ``top`` and ``node`` with a barrier in every iteration."""
        return frozenset(
            x
            for x in node.ancestors[len(top.ancestors) :]
            if _repeats(x) and x is not top and self._reaches(x.children[0])
        )


def _repeats(node: Node) -> bool:
    """Whether a thread runs what is below ``node`` again and again; a loop over threads is none."""
    return isinstance(node.stmt, For) and node.stmt.kind is not ForKind.THREAD
