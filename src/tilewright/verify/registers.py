"""Who reads a register, or the memory of a warp, finds there what its own thread, or warp, wrote.

Memory of scope "local" and "fragment" belongs to one thread: of an element at an index there are as
many as threads. So the proof asks of every thread on its own: whatever element it reads, a
statement before has written it in the same thread since the memory was allocated. For scope "warp"
a thread of the same warp may have; that the two are in order is a matter of races.

Most reads are behind a nest that fills all of the buffer, which their places in the program show.
The others are decided exactly, as sets of threads, iterations and elements. A product of variables,
or a quotient or remainder by one, is a number of its own there, which is the same in a read and in
a write of the same thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.arith.cover import Points, uncovered
from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, Undecided, constant, minus, plus, times
from tilewright.ir.buffer import WARP, Buffer
from tilewright.ir.expr import Call, Expr, IntImm, Load, Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import Allocate, Begins, For, Instr
from tilewright.ir.visit import exprs
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.domain import begin, enter
from tilewright.lower.build.distribute import LANES
from tilewright.verify.fills import Fill, conditions_left, covers, fill_of
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement

#: Memory that not all threads of a block share.
OWN = ("local", "fragment", "warp")
#: Beyond all indices.
_FAR = 1 << 62


def unwritten_registers(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each statement, and buffer, that reads what its thread has not written."""
    if not kernel.launch:
        return
    own = [access for access in kernel.accesses if access.buffer.scope in OWN]
    if all(access.write for access in own):
        return
    order = {node: i for i, node in enumerate(kernel.root.walk())}
    begins = _begins(order)
    found: dict[Node, _Registers] = {}
    for access in own:
        places = begins[access.buffer]
        home = places[bisect_right(places, order[access.node], key=order.__getitem__) - 1]
        made = found.setdefault(home, _Registers(kernel, home))
        (made.writes if access.write else made.reads).append(access)
    for registers in found.values():
        if registers.reads:
            yield from registers.findings(order)


def _begins(order: Mapping[Node, int]) -> dict[Buffer, list[Node]]:
    """By buffer, the statements at which it begins, undefined, in the order of the text: where it
    is allocated, and where other arrays begin in its registers."""
    found: dict[Buffer, list[Node]] = {}
    for node in order:
        match node.stmt:
            case Allocate(buffer):
                found.setdefault(buffer, []).append(node)
            case Begins(buffer):
                found.setdefault(buffer, []).append(node)
    return found


@dataclass(slots=True)
class _Moments:
    """When there is an access, to which element, and what variables are said to be then: of a write
    in an earlier iteration, a loop's is that of the read. ``unknown`` are expressions on which that
    depends, and of which no more than their bounds is known."""

    instance: Instance
    variables: dict[Var, Form]
    element: list[Form]
    unknown: tuple[Expr, ...]

    def settled(self, e: Expr) -> bool:
        """Whether an expression is one of numbers that have the values said."""
        values = self.instance.values
        read = [x for x in exprs(e) if isinstance(x, (Var, Load, Call))]
        return e.exact and all(
            isinstance(x, Var) and x in self.variables and values.get(x) == self.variables[x]
            for x in read
        )

    def exact(self, terms: Collection[Expr]) -> bool:
        """Whether all but the values of ``terms``, which are said, is known exactly."""
        settled = (e in terms and self.settled(e) for e in self.unknown)
        return not self.instance.vague and all(settled)

    def points(self, terms: Iterable[Expr]) -> Points:
        """The threads, iterations, elements and values of ``terms`` there are."""
        instance, system = self.instance, self.instance.system
        said = [instance.form(e) if self.settled(e) else _any(system) for e in terms]
        return Points(system, [*self.variables.values(), *self.element, *said])


class _Registers:
    """The accesses to one buffer while it is alive."""

    def __init__(self, kernel: Kernel, home: Node) -> None:
        self.kernel, self.home = kernel, home
        self.reads: list[Access] = []
        self.writes: list[Access] = []
        self.known: dict[tuple[Access, Node | None, tuple[Node, ...]], _Moments] = {}

    def findings(self, order: dict[Node, int]) -> Iterator[Finding]:
        fills = [fill_of(self.kernel, w, order[w.node]) for w in self.writes]
        seen: set[Node] = set()
        for read in self.reads:
            number = order[read.node]
            earlier = [f for f in fills if f.number < number]
            if read.node in seen or any(covers(f, read) for f in earlier):
                continue
            if any(self.holds(read, conditions_left(f, read)) for f in earlier):
                continue
            finding = self.finding(read, number, fills)
            if finding is not None:
                seen.add(read.node)
                yield finding

    def holds(self, read: Access, conditions: Sequence[Expr] | None) -> bool:
        """Whether all of the conditions, if there are any to be shown, hold at a read."""
        for condition in conditions or ():
            system = System()
            instance = Instance(system, read.lanes)
            begin(self.kernel, instance, self.kernel.launch)
            enter(self.kernel, instance, read.node, read.guards)
            instance.require(condition, False)
            if not system.refuted():
                return False
        return conditions is not None

    # ------------------------------------------------------------------ exactly

    def finding(self, read: Access, number: int, fills: Sequence[Fill]) -> Finding | None:
        """What the read finds that its thread has not written, None where there is nothing."""
        ancestors_of_writes = [set(w.node.ancestors) for w in self.writes]
        loops = tuple(
            x
            for x in read.node.ancestors
            if isinstance(x.stmt, For) and any(x in ancestors for ancestors in ancestors_of_writes)
        )
        wanted = self.moments(read, loops)
        terms = [e for e in wanted.unknown if wanted.settled(e)]
        while True:
            left_out: list[_Moments] = []
            try:
                covers = self.before(read, number, fills, loops, terms, left_out)
                solution = uncovered(wanted.points(terms), covers)
            except Undecided:
                return self.described(read, loops, None)
            if solution is None:
                return None
            others = (e for m in left_out for e in m.unknown if e not in terms)
            more = dict.fromkeys(e for e in others if wanted.settled(e))
            if not more:
                break
            terms += more
        certain = wanted.instance.system.exact and not any(m.unknown for m in left_out)
        return self.described(read, loops, solution if certain else None)

    def before(
        self,
        read: Access,
        number: int,
        fills: Sequence[Fill],
        loops: tuple[Node, ...],
        terms: Collection[Expr],
        left_out: list[_Moments],
    ) -> Iterator[Points]:
        """What each write has written by then: in the same iteration of the loops around both, and
        in earlier ones of each of those in which the memory stays. What is not known exactly is
        ``left_out``."""
        around = set(self.home.ancestors)
        for fill in fills:
            write = fill.write
            if any(map(_apart, write.indices, read.indices)):
                continue
            levels: list[Node | None] = [None] if fill.number < number else []
            levels += [x for x in reversed(loops) if x not in around and x in write.node.ancestors]
            for level in levels:
                key = (write, level, loops)
                if key not in self.known:
                    self.known[key] = self.moments(write, loops, level)
                if self.known[key].exact(terms):
                    yield self.known[key].points(terms)
                else:
                    left_out.append(self.known[key])

    def moments(
        self, access: Access, loops: tuple[Node, ...], level: Node | None = None
    ) -> _Moments:
        """The threads, iterations of ``loops`` and elements of which there is such an access.

        Of a write with a ``level``, those of later iterations of that loop.
        """
        kernel, system = self.kernel, System()
        conditions: list[tuple[Expr, bool]] = []
        if access.predicate is not None:
            conditions.append((access.predicate, True))
        for subject, holds in access.used:
            assert isinstance(holds, bool)
            conditions.append((subject, holds))
        lanes = max(access.lanes, *(c.dtype.lanes for c, _ in conditions), 1)
        instance = Instance(system, lanes)
        begin(kernel, instance, kernel.launch)
        enter(kernel, instance, access.node, access.guards)
        for condition, holds in conditions:
            instance.require(condition, holds)
        if access.opaque:
            element = [_any(system) for _ in access.indices]
        else:
            element = [instance.form(index) for index in access.indices]
        forms = [instance.form(v) for v in _symbols(kernel)]
        forms += [self.thread(access, instance, axis) for axis in kernel.launch]
        for loop in loops:
            assert isinstance(loop.stmt, For)
            here = instance.values.get(loop.stmt.var) if loop in access.node.ancestors else None
            if here is None or not (level is None or loop is level or loop in level.ancestors):
                forms.append(_any(system))
            elif loop is level:
                later = _any(system)
                system.require(plus(minus(later, here), constant(-1)))
                forms.append(later)
            else:
                forms.append(here)
        variables = [*_symbols(kernel), *(axis.var for axis in kernel.launch), *_variables(loops)]
        said = dict(zip(variables, forms, strict=True))
        return _Moments(instance, said, element, tuple(sorted(instance.bounded, key=str)))

    def thread(self, access: Access, instance: Instance, axis: LaunchAxis) -> Form:
        """The index along ``axis`` of the threads that own what is accessed."""
        own = instance.values[axis.var]
        if axis.tag != LANES:
            return own
        held, system = access.buffer.distribution, instance.system
        together = any(isinstance(x.stmt, Instr) for x in access.node.ancestors)
        if held is not None and not access.opaque and (access.write or together):
            lane = instance.form(held.lane(access.indices))
            for b in held.shared:  # which all threads that differ in it do alike
                lane = plus(lane, times(system.column("shared", 0, 1), 1 << b))
            system.require(minus(lane, own), equal=True)
        if access.buffer.scope == "warp" and access.write:
            own, writer = _any(system), own
            least, greatest = system.bounds(writer)
            warp = system.column("warp", least // WARP, greatest // WARP)
            for thread in (own, writer):
                place = minus(thread, times(warp, WARP))
                system.require(place)
                system.require(minus(constant(WARP - 1), place))
        return own

    def described(
        self, read: Access, loops: tuple[Node, ...], solution: list[int] | None
    ) -> Finding:
        kernel, buffer = self.kernel, read.buffer
        who = "warp" if buffer.scope == "warp" else "thread"
        mend = (
            f"keep {buffer.name} in shared memory, with set_scope('shared'), or let every {who} "
            "compute all that it reads: leave axes of that stage unbound, or bind them alike"
        )
        if solution is None:
            return Finding(
                "uninitialised",
                f"could not prove that {statement(read.node)} reads of {buffer.name} only what its "
                f"{who} wrote before: {buffer.scope} memory belongs to a {who}, and an index or a "
                f"condition depends on what is not known here; {mend}",
                proved=False,
                stages=stages_of(read.node),
            )
        names = [*_symbols(kernel), *(axis.var for axis in kernel.launch), *_variables(loops)]
        at = dict(zip(names, solution, strict=False))
        touched = ", ".join(map(str, solution[len(names) :][: len(buffer.shape)]))
        return Finding(
            "uninitialised",
            f"uninitialised: {statement(read.node)} reads {buffer.name}[{touched}], which its "
            f"{who} does not write before, at {place(kernel, at)}; {mend}",
            by_name(at),
            stages=stages_of(read.node),
        )


def _any(system: System) -> Form:
    return system.column("any", -_FAR, _FAR)


def _variables(loops: Sequence[Node]) -> list[Var]:
    return [x.stmt.var for x in loops if isinstance(x.stmt, For)]


def _symbols(kernel: Kernel) -> list[Var]:
    """What a call says beside arrays: scalars, and extents."""
    found: dict[Var, None] = {}
    for param in kernel.func.params:
        for e in (param,) if isinstance(param, Var) else param.shape:
            found.update((x, None) for x in exprs(e) if isinstance(x, Var))
    return list(found)


def _apart(one: Expr, other: Expr) -> bool:
    """Whether two indices are different numbers."""
    return isinstance(one, IntImm) and isinstance(other, IntImm) and one.value != other.value
