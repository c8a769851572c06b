"""What is copied in the background has arrived where its data is used.

No access to what a copy fills comes before a wait for the group of the copy, and none of another
thread, where each waits for its own, before a barrier behind that. Which group a wait is for is
known by counting them (:mod:`~tilewright.lower.analysis.groups`): between a copy and what uses its
data, more groups are committed than may be under way then. Where a pipeline fills the slots of a
ring in turn, that follows from numbers alone: two accesses of one slot are a multiple of the number
of slots apart. All else is asked as other proofs are.

A producer waits for no box: what it fills again, all others have waited for, and arrived since then
on a barrier that frees copies.

What TMA stores in global memory has no such end: the wait for it is one until it was read. So
nothing else in its block touches that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product

from tilewright.arith.affine import Affine
from tilewright.arith.conditions import conjuncts
from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, Undecided, constant, minus, plus, times
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import EQ, NE, Expr, IntImm, Var
from tilewright.ir.ops import is_const
from tilewright.ir.stmt import For, If
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.domain import begin, can_run, enter, values
from tilewright.lower.analysis.groups import (
    ANY,
    Distance,
    Groups,
    Level,
    congruent,
    instruction_of,
)
from tilewright.lower.analysis.runners import Runners, differ, follow, fresh
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement

#: In place of the first index of what touches any element, or the only one.
_ANYWHERE = Var.make("anywhere")
#: What does not end.
_NEVER = Level(ANY, ANY, ANY, ANY)
#: Memory of one thread, of which :mod:`.background` tells.
_OWN = ("local", "fragment")


def unarrived(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each copy, and statement that may come before its end."""
    touched: dict[Buffer, list[Access]] = {}
    for access in kernel.accesses:
        touched.setdefault(access.buffer, []).append(access)
    queues: dict[str, list[Access]] = {}
    for access in kernel.accesses:
        if access.queue and _lasts(access, touched[access.buffer]):
            queues.setdefault(access.queue, []).append(access)
    for queue, copies in queues.items():
        yield from _Queue(kernel, queue, touched).findings(copies)


def _lasts(access: Access, touched: Iterable[Access]) -> bool:
    """Whether an access of an instruction is looked at here: what it writes in memory that threads
    share, and what a copy by boxes reads where the kernel writes."""
    if access.buffer.scope in _OWN:
        return False
    if access.write:
        return True
    return access.collective and any(x.write for x in touched)


@dataclass(frozen=True)
class _Same:
    """Accesses of one buffer at one place in the order of groups, and of one slot; ``produced`` if
    a producer does them."""

    region: Node
    index: Expr  # the first one
    produced: bool
    accesses: list[Access]


class _Queue:
    def __init__(self, kernel: Kernel, queue: str, touched: dict[Buffer, list[Access]]) -> None:
        self.kernel, self.queue, self.touched = kernel, queue, touched
        self.groups = Groups(kernel, queue)
        self.found: dict[tuple[Node, Node], Finding] = {}

    def findings(self, copies: list[Access]) -> Iterator[Finding]:
        for buffer in dict.fromkeys(copy.buffer for copy in copies):
            late = self.together(self.touched[buffer])
            for one in self.together(x for x in copies if x.buffer is buffer):
                for other in late:
                    self.compare(one, other)
        yield from self.found.values()
        kept = (x for x in copies if not _is_store(x))
        for issued in dict.fromkeys(instruction_of(x.node) for x in kept):
            if self.lasts_on(issued):
                yield self.unfinished(issued)
            if self.groups.together and self.by_others(issued):
                yield self.misissued(issued)

    def together(self, accesses: Iterable[Access]) -> list[_Same]:
        found: dict[tuple[Node, Expr, bool], _Same] = {}
        for access in accesses:
            region = self.groups.region(instruction_of(access.node))
            index = access.indices[0] if access.indices and not access.opaque else _ANYWHERE
            key = region, index, access.collective and self.kernel.func.producer
            found.setdefault(key, _Same(*key, [])).accesses.append(access)
        return list(found.values())

    def compare(self, one: _Same, other: _Same) -> None:
        """Look for a moment of ``other`` at which ``one`` may be under way."""
        pairs = list(product(one.accesses, other.accesses))
        if one.region is not other.region:
            self.compare_at(one, other, one.region, other.region, pairs)
            return
        for early, late in pairs:
            places = instruction_of(early.node), instruction_of(late.node)
            self.compare_at(one, other, *places, [(early, late)])

    def compare_at(
        self, one: _Same, other: _Same, early: Node, late: Node, pairs: list[tuple[Access, Access]]
    ) -> None:
        ends = not _is_store(one.accesses[0])
        level = self.groups.level(other.region, other.produced) if ends else _NEVER
        for order, distance in self.groups.orders(early, late):
            if ends and self.arrives(one, other, distance, level):
                continue
            if ends and self.groups.awaited(early, late, order, other.produced):
                continue
            for a, b in pairs:
                self.ask(a, b, order, distance, level)

    def arrives(self, one: _Same, other: _Same, distance: Distance, level: Level) -> bool:
        """Whether the numbers of groups and of slots tell that ``one`` has ended."""
        if distance.least > level.block:
            return True
        shape = one.accesses[0].buffer.shape
        if (
            _ANYWHERE in (one.index, other.index)
            or not isinstance(shape[0], IntImm)
            or shape[0].value < 2
        ):
            return False
        copies = shape[0].value
        ahead, behind = congruent(one.index, copies), congruent(other.index, copies)
        if ahead is None or behind is None:
            return False
        left = distance.residue(ahead, behind, copies)
        if left is None:
            return False
        return distance.least + (left - distance.least) % copies > level.block

    # ------------------------------------------------------------------ the question

    def ask(
        self, early: Access, late: Access, order: Order, distance: Distance, level: Level
    ) -> None:
        issued, use = instruction_of(early.node), instruction_of(late.node)
        if (issued, use) in self.found or not (early.write or late.write):
            return
        tests: list[tuple[int, int, Runners]] = [(0, level.own, "any")]
        if not early.collective:
            tests.append((level.own + 1, level.warp, "threads"))
            tests.append((level.warp + 1, level.block, "warps"))
        for least, most, runners in tests:
            if least <= most and most >= distance.least:
                found = self.conflict(early, late, order, distance, (least, most), runners)
                if found is not None:
                    self.found[issued, use] = found
                    return

    def conflict(
        self, early: Access, late: Access, order: Order, distance: Distance,
        between: tuple[int, int], runners: Runners,
    ) -> Finding | None:  # fmt: skip
        kernel, system = self.kernel, System()
        one = Instance(system, early.lanes)
        begin(kernel, one, kernel.launch)
        enter(kernel, one, early.node, early.guards)
        two = Instance(system, late.lanes, one)
        begin(kernel, two, fresh(kernel, runners))
        enter(kernel, two, late.node, late.guards, order.same)
        for access, instance in ((early, one), (late, two)):
            if access.predicate is not None:
                instance.require(access.predicate)
        if not (early.opaque or late.opaque):
            for left, right in zip(early.indices, late.indices, strict=True):
                system.require(minus(two.form(right), one.form(left)), equal=True)
        follow(system, one, two, order, runners)
        differ(kernel, system, one, two, runners)
        if between[1] < ANY:
            groups = plus(_form(one, distance.early), _form(two, distance.late))
            system.require(minus(constant(between[1]), groups))
        try:
            solution = system.solve()
        except Undecided:
            return self.finding(early, late)
        if solution is None:
            return None
        moments = (
            values(instance, solution, _variables(kernel, access.node))
            for instance, access in ((one, early), (two, late))
        )
        return self.finding(early, late, *moments)

    def lasts_on(self, node: Node) -> bool:
        """Whether a copy may be under way when the kernel ends."""
        left = self.groups.to_end(node)
        own = self.groups.end.own
        if left.is_const and left.const > own:
            return False
        system = System()
        instance = Instance(system)
        begin(self.kernel, instance, self.kernel.launch)
        enter(self.kernel, instance, node)
        if own < ANY:
            system.require(minus(constant(own), _form(instance, left)))
        try:
            return system.solve() is not None
        except Undecided:
            return True

    def by_others(self, node: Node) -> bool:
        """Whether others than the first thread of a block may issue what runs at ``node``."""
        axes = (axis for axis in self.kernel.threads if not is_const(axis.extent, 1))
        conditions = set(_conditions(node))
        for axis in axes:
            zero = IntImm(axis.var.dtype, 0)
            if EQ(axis.var, zero) not in conditions:
                if can_run(self.kernel, node, (NE(axis.var, zero), True)):
                    return True
        return False

    # ------------------------------------------------------------------ what is said

    def finding(
        self, early: Access, late: Access, first: Mapping[Var, int] | None = None,
        second: Mapping[Var, int] | None = None,
    ) -> Finding:  # fmt: skip
        """What is said of moments at which a wait is not known to have been for the copy: that as
        many groups may be under way is known of all ways together."""
        issued, use = instruction_of(early.node), instruction_of(late.node)
        did, does = ("writes" if access.write else "reads" for access in (early, late))
        text = f"{statement(issued)} {did} {early.buffer.name} in the background"
        at = f" at {place(self.kernel, second)}" if second else ""
        if _is_store(early):
            mend = "let the kernel touch nothing of what TMA stores in global memory"
        elif late.collective and self.kernel.func.producer:
            mend = "let all wait for the first, and arrive on a barrier that frees it, before that"
        else:
            mend = f"put a wait for the queue {self.queue!r} before that"
            if not QUEUES[self.queue].collective:
                mend += ", and a barrier between"
        return Finding(
            "unawaited",
            f"unawaited: {text}, and {statement(use)} {does} the same{at}, where it is not known "
            f"that the first has ended; {mend}",
            by_name(first),
            by_name(second),
            proved=False,
            stages=stages_of(issued, use),
        )

    def misissued(self, issued: Node) -> Finding:
        return Finding(
            "unawaited",
            f"unawaited: {statement(issued)} is not known to be issued by the first thread of a "
            "block, which alone ends its group; let that thread issue it",
            proved=False,
            stages=stages_of(issued),
        )

    def unfinished(self, issued: Node) -> Finding:
        return Finding(
            "unawaited",
            f"unawaited: {statement(issued)} may go on when the kernel ends, and with it its "
            f"memory; wait for the queue {self.queue!r}",
            stages=stages_of(issued),
        )


def _is_store(copy: Access) -> bool:
    """Whether an instruction stores in global memory."""
    return copy.write and copy.buffer.scope == "global"


def _conditions(node: Node) -> Iterator[Expr]:
    """What holds together where ``node`` runs."""
    for above, below in pairwise(node.line):
        if isinstance(above.stmt, If) and below.number == 0:
            yield from conjuncts(above.stmt.condition)


def _form(instance: Instance, form: Affine) -> Form:
    total: Form = constant(form.const)
    for atom, k in form.terms.items():
        total = plus(total, times(instance.form(atom), k))
    return total


def _variables(kernel: Kernel, node: Node) -> list[Var]:
    loops = [x.stmt.var for x in node.ancestors if isinstance(x.stmt, For)]
    axes = [axis.var for axis in (*kernel.blocks, *kernel.threads)]
    return [*axes, *(v for v in loops if v not in axes and v not in kernel.aliases)]
