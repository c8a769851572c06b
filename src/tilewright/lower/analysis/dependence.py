"""Which threads touch the same element with no barrier between: the conflicts of a kernel.

Threads of a block meet at barriers and nowhere else, blocks of a grid do not meet, and the
iterations of a PARALLEL loop run in any order. Two accesses conflict where one writes, both touch
one element, and two such runners may do so unordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tilewright.arith.encode import Instance
from tilewright.arith.system import System, Undecided, minus
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import For, ForKind, Sync
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Barriers, Order
from tilewright.lower.analysis.domain import (
    Surroundings,
    begin,
    enter,
    surround,
    surroundings,
    value,
    values,
)
from tilewright.lower.analysis.iterations import Iterations
from tilewright.lower.analysis.runners import Runners, differ, follow, fresh, rows_are_warps

#: The elements that an access may touch: its indices, what their variables may be, its lanes.
_Place = tuple[tuple[Expr, ...], Surroundings, int]


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """Two moments, by different runners, at which ``early`` and ``late`` touch one element.

    ``early_values`` and ``late_values`` give the variables at those moments. ``exact`` is False
    where a value read from memory is involved, so that the moments are only possible as far as is
    known, and ``decided`` is False where the search was given up (then there are no values).
    """

    early: Access
    late: Access
    runners: Runners
    order: Order
    element: tuple[int, ...] = ()
    early_values: Mapping[Var, int] | None = None
    late_values: Mapping[Var, int] | None = None
    exact: bool = True
    decided: bool = True


class Dependences:
    """The conflicts of a kernel; what was once decided is kept."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._known: dict[tuple[Access, Access, Order, str], Conflict | None] = {}
        self._iterations = Iterations(kernel)
        self._places: dict[Access, _Place] = {}
        self._often: Counter[frozenset[_Place]] = Counter()
        self._disjoint: dict[tuple[_Place, _Place, str], bool] = {}
        self.pairs = list(self._pairs())

    def _pairs(self) -> Iterator[tuple[Access, Access]]:
        """Accesses of one buffer of which at least one writes.

        What functions of the user's do to each other's buffers is the user's business.
        """
        by_buffer: dict[Buffer, list[Access]] = {}
        for access in self.kernel.accesses:
            by_buffer.setdefault(access.buffer, []).append(access)
        for accesses in by_buffer.values():
            for i, a in enumerate(accesses):
                for b in accesses[i:]:
                    if (a.write or b.write) and not (a.opaque and b.opaque):
                        yield a, b

    # ------------------------------------------------------------------ who may conflict

    def between_threads(
        self, before: frozenset[Node] = frozenset(), split: bool = False,
        meeting: frozenset[Node] = frozenset(),
    ) -> Iterator[Conflict]:  # fmt: skip
        """Conflicts within a block, or in a cluster on memory of that, that no barrier prevents,
        nor a supposed one before a node: of the block, or of the cluster before ``meeting``.

        Barriers that free copies prevent no other ones if they are supposed to be ``split``.
        """
        kernel = self.kernel
        if not kernel.members:
            return
        scopes = {b.scope for b in kernel.barriers if isinstance(b.node.stmt, Sync)}
        warps: tuple[Runners, ...] = ("warps", "warp")
        tests = warps if "warp" in scopes else ("threads",)
        known: dict[tuple[Runners, Buffer | None, Buffer | None], Barriers] = {}
        for a, b in self.pairs:
            scope = a.buffer.scope
            if scope in ("local", "fragment") or (scope == "global" and a.buffer in kernel.homes):
                continue
            freed = freed_between(kernel, a, b)
            other = a.buffer if split else None
            special: dict[str, tuple[Runners, ...]] = {"warp": ("row",), "cluster": ("members",)}
            for runners in special.get(scope, tests):
                barriers = known.get((runners, freed, other))
                if barriers is None:
                    within = runners == "warp" or (runners == "row" and rows_are_warps(kernel))
                    kinds = ["cluster", *([] if runners == "members" else ["shared"])]
                    kinds += ["warp"] if within else []
                    supposed = meeting if runners == "members" else before | meeting
                    barriers = Barriers(kernel, tuple(kinds), supposed, freed, split=other)
                    known[runners, freed, other] = barriers
                for order, forward in barriers.orders(a.node, b.node):
                    early, late = (a, b) if forward else (b, a)
                    found = self.conflict(early, late, order, runners)
                    if found is not None:
                        yield found

    def between_clusters(self) -> Iterator[Conflict]:
        """Conflicts of what one block of a cluster fills in another one with what that did there
        before, unless both blocks arrived in between on a barrier that frees the memory.

        What a block does there later waits for the same copy, as blocks copy alike. So do two
        blocks that fill it in the same moment of the program: one of them does.
        """
        kernel = self.kernel
        for a, b in self.pairs if kernel.cluster > 1 else ():
            if a.buffer.scope != "shared":
                continue
            barriers = Barriers(kernel, freed=freed_between(kernel, a, b), cluster=True)
            for order, forward in barriers.orders(a.node, b.node):
                early, late = (a, b) if forward else (b, a)
                alike = early is late and order.carried is None
                if late.write and late.cluster > 1 and not alike:
                    found = self.conflict(early, late, order, "cluster")
                    if found is not None:
                        yield found

    def with_producer(self) -> Iterator[Conflict]:
        """Conflicts of what a producer fills with what any thread did there before, unless all
        arrived in between on a barrier that frees the memory: it comes to no other one.

        What threads do there later waits for the copy, as without a producer. That copies of the
        producer's come one after the other is asked with their arrival
        (:mod:`~tilewright.verify.arrivals`).
        """
        kernel = self.kernel
        for a, b in self.pairs if kernel.func.producer else ():
            if a.buffer.scope != "shared" or a.collective == b.collective:
                continue
            barriers = Barriers(kernel, freed=freed_between(kernel, a, b), cluster=True)
            for order, forward in barriers.orders(a.node, b.node):
                early, late = (a, b) if forward else (b, a)
                found = self.conflict(early, late, order, "producer") if late.collective else None
                if found is not None:
                    yield found

    def between_blocks(self) -> Iterator[Conflict]:
        """Conflicts between blocks of the grid."""
        if not self.kernel.blocks:
            return
        for a, b in self.pairs:
            if a.opaque or b.opaque:
                continue
            if a.buffer.scope == "global" and a.buffer not in self.kernel.homes:
                found = self.conflict(a, b, Order(frozenset()), "blocks")
                if found is not None:
                    yield found

    def between_iterations(self) -> Iterator[Conflict]:
        """Conflicts between iterations of a PARALLEL loop."""
        for a, b in self.pairs:
            if a.opaque or b.opaque:
                continue
            home = self.kernel.homes.get(a.buffer)
            outside: list[Node] = []
            for x, y in zip(a.node.ancestors, b.node.ancestors, strict=False):
                if x is not y:
                    break
                if isinstance(x.stmt, For) and x.stmt.kind is ForKind.PARALLEL:
                    if home is None or home in x.ancestors:
                        around = frozenset(outside)
                        if self._iterations.apart(x, around, a, b):
                            continue
                        order = Order(around, x)
                        found = self.conflict(a, b, order, "iterations")
                        if found is not None:
                            yield found
                if isinstance(x.stmt, For):
                    outside.append(x)

    # ------------------------------------------------------------------ the question

    def conflict(
        self, early: Access, late: Access, order: Order, runners: Runners
    ) -> Conflict | None:
        """A conflict of ``runners`` in the given order, or None where there provably is none."""
        key = (early, late, order, runners)
        if key not in self._known:
            apart = self._never_meet(early, late, runners)
            self._known[key] = None if apart else self._decide(early, late, order, runners)
        return self._known[key]

    def _never_meet(self, a: Access, b: Access, runners: Runners) -> bool:
        """Whether the indices alone keep two runners apart, at whatever moments.

        Neither conditions nor the order are looked at, so one answer serves all statements with
        these indices; what it leaves open is asked with all that is known. It is not asked for
        indices that occur once.
        """
        if a.opaque or b.opaque or runners == "iterations":
            return False
        one, two = self._place(a), self._place(b)
        if not self._often:
            self._often.update(frozenset(map(self._place, pair)) for pair in self.pairs)
        if self._often[frozenset((one, two))] < 2:
            return False
        found = self._disjoint.get((one, two, runners))
        if found is None:
            found = self._are_disjoint(one, two, runners)
            self._disjoint[one, two, runners] = self._disjoint[two, one, runners] = found
        return found

    def _place(self, access: Access) -> _Place:
        found = self._places.get(access)
        if found is None:
            around = surroundings(access.node, access.guards, access.indices)
            found = self._places[access] = (access.indices, around, access.lanes)
        return found

    def _are_disjoint(self, a: _Place, b: _Place, runners: Runners) -> bool:
        kernel, system = self.kernel, System()
        one = Instance(system, a[2])
        begin(kernel, one, kernel.launch)
        surround(kernel, one, a[1])
        two = Instance(system, b[2], one)
        begin(kernel, two, fresh(kernel, runners))
        surround(kernel, two, b[1])
        for left, right in zip(a[0], b[0], strict=True):
            system.require(minus(two.form(right), one.form(left)), equal=True)
        differ(kernel, system, one, two, runners)
        return system.refuted()

    def _decide(
        self, early: Access, late: Access, order: Order, runners: Runners
    ) -> Conflict | None:
        kernel = self.kernel
        system = System()
        one = Instance(system, early.lanes)
        begin(kernel, one, kernel.launch)
        enter(kernel, one, early.node, early.guards)
        two = Instance(system, late.lanes, one)
        begin(kernel, two, fresh(kernel, runners))
        same = order.same
        enter(kernel, two, late.node, late.guards, same)
        for access, instance in ((early, one), (late, two)):
            if access.predicate is not None:
                instance.require(access.predicate)
        element = [one.form(i) for i in early.indices]
        opaque = early.opaque or late.opaque
        for left, index in zip(element, () if opaque else late.indices, strict=not opaque):
            system.require(minus(two.form(index), left), equal=True)
        follow(system, one, two, order, runners)
        symmetric = early is late and order.carried is None and order.last == order.first
        differ(kernel, system, one, two, runners, symmetric)
        result = partial(Conflict, early, late, runners, order)
        try:
            solution = system.solve()
        except Undecided:
            return result(exact=False, decided=False)
        if solution is None:
            return None
        return result(
            tuple(value(form, solution) for form in element),
            values(one, solution, _variables(kernel, early.node)),
            values(two, solution, _variables(kernel, late.node)),
            system.exact,
        )


def freed_between(kernel: Kernel, a: Access, b: Access) -> Buffer | None:
    """The buffer of two accesses, where barriers that free it do not keep them apart.

    They keep threads from what is filled behind them, no threads from one another; and what reads a
    copy in the background from what fills it again, but not from what fills it otherwise.
    """
    if a.buffer not in kernel.freed:
        return None
    if not (a.collective or b.collective):
        return a.buffer
    for one, other in ((a, b), (b, a)):
        if one.queue and not one.collective and other.collective and not other.refills:
            return a.buffer
    return None


def _variables(kernel: Kernel, node: Node) -> list[Var]:
    """What a witness names: hardware indices, then loops."""
    loops = [x.stmt.var for x in node.ancestors if isinstance(x.stmt, For)]
    axes = [axis.var for axis in (*kernel.blocks, *kernel.threads)]
    return [*axes, *(v for v in loops if v not in axes and v not in kernel.aliases)]
