"""Which threads touch the same element with no barrier between: the conflicts of a kernel.

Threads of a block meet at barriers and nowhere else, blocks of a grid do not meet, and the
iterations of a PARALLEL loop run in any order. Two accesses conflict where one writes, both touch
one element, and two such runners may do so unordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from tilewright.arith.encode import Instance
from tilewright.arith.system import (
    Constraint,
    Form,
    System,
    Undecided,
    constant,
    minus,
    number,
    plus,
    times,
)
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, LetExpr, Load, Ramp, Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For, ForKind, Let, Sync
from tilewright.ir.visit import exprs
from tilewright.lower.accesses import Access, Kernel, Node
from tilewright.lower.barriers import Barriers, Order
from tilewright.lower.domain import (
    Surroundings,
    begin,
    ends,
    enter,
    surround,
    surroundings,
    value,
    values,
)

#: Who runs two conflicting accesses: threads of a block, of a warp, or of different warps; blocks
#: of a grid; iterations of a PARALLEL loop.
Runners: TypeAlias = Literal["threads", "warp", "warps", "blocks", "iterations"]

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
        self._apart: dict[tuple[Node, tuple[Expr, ...]], bool] = {}
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

    def between_threads(self, before: frozenset[Node] = frozenset()) -> Iterator[Conflict]:
        """Conflicts within a block that no barrier prevents, nor a supposed one before a node."""
        kernel = self.kernel
        if not kernel.threads:
            return
        scopes = {b.scope for b in kernel.barriers if isinstance(b.node.stmt, Sync)}
        warps: tuple[Runners, ...] = ("warps", "warp")
        tests = warps if "warp" in scopes else ("threads",)
        known: dict[tuple[Runners, Buffer | None], Barriers] = {}
        for a, b in self.pairs:
            scope = a.buffer.scope
            if scope in ("local", "fragment") or (scope == "global" and a.buffer in kernel.homes):
                continue
            freed = freed_between(kernel, a, b)
            for runners in ("warp",) if scope == "warp" else tests:
                barriers = known.get((runners, freed))
                if barriers is None:
                    kinds = ("shared", "warp") if runners == "warp" else ("shared",)
                    barriers = known[runners, freed] = Barriers(kernel, kinds, before, freed)
                for order, forward in barriers.orders(a.node, b.node):
                    early, late = (a, b) if forward else (b, a)
                    found = self.conflict(early, late, order, runners)
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
            for x, y in zip(a.node.way, b.node.way, strict=False):
                if x is not y or x is home:
                    break
                if isinstance(x.stmt, For) and x.stmt.kind is ForKind.PARALLEL:
                    if home is None or home in x.way:
                        if self._told_apart(x, frozenset(outside), a, b):
                            continue
                        order = Order(frozenset(outside), x)
                        found = self.conflict(a, b, order, "iterations")
                        if found is not None:
                            yield found
                if isinstance(x.stmt, For):
                    outside.append(x)

    def _told_apart(self, loop: Node, outside: frozenset[Node], a: Access, b: Access) -> bool:
        """Whether indices that ``a`` and ``b`` have in common tell the loop's iterations apart.

        One answer serves all copies of a statement that partitioning made.
        """
        inner = {
            x.stmt.var for x in a.node.way[len(loop.way) + 1 :] if isinstance(x.stmt, For | Let)
        }
        common = tuple(
            i for i, j in zip(a.indices, b.indices, strict=True) if i is j and _plain(i, inner)
        )
        if not common:
            return False
        key = (loop, common)
        if key not in self._apart:
            system = System()
            one = Instance(system)
            begin(self.kernel, one, ())
            enter(self.kernel, one, loop.children[0])
            two = Instance(system, 1, one)
            enter(self.kernel, two, loop.children[0], (), outside)
            for index in common:
                system.require(minus(two.form(index), one.form(index)), equal=True)
            _follow(system, one, two, Order(outside, loop), "iterations")
            try:
                self._apart[key] = system.solve() is None
            except Undecided:
                self._apart[key] = False
        return self._apart[key]

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
        begin(kernel, two, _fresh(kernel, runners))
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
        begin(kernel, two, _fresh(kernel, runners))
        same = order.same
        enter(kernel, two, late.node, late.guards, same)
        for access, instance in ((early, one), (late, two)):
            if access.predicate is not None:
                instance.require(access.predicate)
        element = [one.form(i) for i in early.indices]
        opaque = early.opaque or late.opaque
        for left, index in zip(element, () if opaque else late.indices, strict=not opaque):
            system.require(minus(two.form(index), left), equal=True)
        _follow(system, one, two, order, runners)
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


def _plain(index: Expr, excluded: set[Var]) -> bool:
    """Whether an index is one number that depends neither on memory nor on ``excluded``."""
    return index.dtype.lanes == 1 and not any(
        isinstance(x, (Load, Ramp, LetExpr)) or x in excluded for x in exprs(index)
    )


def _variables(kernel: Kernel, node: Node) -> list[Var]:
    """What a witness names: hardware indices, then loops."""
    loops = [x.stmt.var for x in node.way if isinstance(x.stmt, For)]
    axes = [axis.var for axis in (*kernel.blocks, *kernel.threads)]
    return [*axes, *(v for v in loops if v not in axes and v not in kernel.aliases)]


def _fresh(kernel: Kernel, runners: Runners) -> tuple[LaunchAxis, ...]:
    """The axes along which two runners may differ."""
    if runners == "iterations":
        return ()
    return kernel.launch if runners == "blocks" else kernel.threads


def _follow(system: System, one: Instance, two: Instance, order: Order, runners: Runners) -> None:
    """Let the moments ``one`` and ``two`` lie in ``order``."""
    for node, instance, which in (
        *((n, one, -1) for n in order.last),
        *((n, two, 0) for n in order.first),
    ):
        loop = node.stmt
        assert isinstance(loop, For)
        end = ends(instance, loop.min, loop.extent)[which]
        system.require(minus(instance.values[loop.var], end), equal=True)
    if order.carried is not None and runners != "iterations":
        loop = order.carried.stmt
        assert isinstance(loop, For)
        ahead = plus(minus(two.values[loop.var], one.values[loop.var]), constant(-1))
        system.require(ahead, equal=order.next)
    elif order.carried is not None:
        loop = order.carried.stmt
        assert isinstance(loop, For)
        apart = minus(two.values[loop.var], one.values[loop.var])
        system.choose([[_above(apart)], [_above(times(apart, -1))]])


def _above(form: Form) -> Constraint:
    """``form >= 1``"""
    return plus(form, constant(-1)), False


def differ(
    kernel: Kernel,
    system: System,
    one: Instance,
    two: Instance,
    runners: Runners,
    symmetric: bool = False,
) -> None:
    """Let the runners be two and not one; if ``symmetric``, the second is the later in number."""
    if runners == "iterations":
        return
    axes = kernel.blocks if runners == "blocks" else kernel.threads
    apart = [(minus(two.values[x.var], one.values[x.var]), x.extent) for x in axes]
    linear = _linear(one, apart)
    alternatives: list[list[Constraint]] = []
    if linear is not None:
        alternatives = [[_above(linear)], [_above(times(linear, -1))]]
    else:  # extents are symbolic: the first axis that differs decides
        equal: list[Constraint] = []
        for form, _ in apart:
            alternatives += [[*equal, _above(form)], [*equal, _above(times(form, -1))]]
            equal.append((form, True))
    if symmetric:
        alternatives = alternatives[::2]
    if runners == "warps":
        alternatives = _warps_differ(kernel, system, one, linear)
    elif runners == "warp" and linear is not None:
        place = _warp(kernel, system, one)
        last = constant(kernel.warp_size - 1)
        other = plus(place, linear)
        system.require(other)
        system.require(minus(last, other))
    system.choose(alternatives)


def _linear(one: Instance, apart: Sequence[tuple[Form, Expr]]) -> Form | None:
    """The difference of the linear indices, None where extents are symbolic."""
    total: Form = {}
    stride = 1
    for form, extent in apart:
        total = plus(total, form, stride)
        size = number(one.form(extent))
        if size is None:
            return total if form is apart[-1][0] else None
        stride *= size
    return total


def _warp(kernel: Kernel, system: System, one: Instance) -> Form:
    """The place of ``one`` within its warp."""
    index = _linear(one, [(one.values[x.var], x.extent) for x in kernel.threads]) or {}
    size = kernel.warp_size
    least, greatest = system.bounds(index)
    warp = system.column("warp", least // size, greatest // size)
    place = minus(index, times(warp, size))
    system.require(place)
    system.require(minus(constant(size - 1), place))
    return place


def _warps_differ(
    kernel: Kernel, system: System, one: Instance, linear: Form | None
) -> list[list[Constraint]]:
    if linear is None:
        return [[]]
    place = _warp(kernel, system, one)
    other = plus(place, linear)
    beyond = plus(other, constant(-kernel.warp_size))
    return [[(beyond, False)], [(minus(constant(-1), other), False)]]
