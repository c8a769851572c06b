"""What a kernel reads and writes: every access with the loops and guards around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func, LaunchAxis
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Evaluate,
    For,
    ForKind,
    If,
    Instr,
    Iteration,
    Let,
    Queue,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
)
from tilewright.ir.visit import Steps, children, run, statements, uses
from tilewright.lower.analysis.clusters import AXIS as CLUSTERED
from tilewright.target.queues import QUEUES


class Node:
    """A statement in its place: one statement object may stand at several.

    ``number`` says which child of its parent it is: the position in a Seq, 1 for ``orelse``,
    else 0. ``ancestors`` lists its ancestors, the outermost first.
    """

    __slots__ = ("children", "number", "parent", "stmt", "ancestors")

    def __init__(self, stmt: Stmt, parent: Node | None = None, number: int = 0) -> None:
        self.stmt, self.parent, self.number = stmt, parent, number
        self.children: list[Node] = []
        self.ancestors: tuple[Node, ...] = ()
        if parent is not None:
            self.ancestors = (*parent.ancestors, parent)
            parent.children.append(self)

    @property
    def line(self) -> tuple[Node, ...]:
        """Its ancestors and itself."""
        return (*self.ancestors, self)

    def walk(self) -> Iterator[Node]:
        """Itself and all below it, in the order of the text."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


#: What holds where an expression is evaluated: a condition and its outcome, or a variable's value.
Guard = tuple[Expr, bool] | tuple[Var, Expr]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read or a write of ``buffer[indices]`` by the statement at ``node``.

    ``guards`` are those inside the statement's expressions; its loops and ifs are above ``node``.
    What is read is ``used`` only where those of eager choices hold, and masks of what is stored.
    Vector indices and predicates count lane by lane. An ``opaque`` access is a buffer passed to a
    function of the user's, which may read and write any element of it. ``queue`` is that of the
    instruction that makes it in the background, ``refills`` whether it fills a copy that a barrier
    in the same iteration of a pipeline frees, ``cluster`` of how many blocks that instruction fills
    the memory.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None
    write: bool
    node: Node
    guards: tuple[Guard, ...] = ()
    opaque: bool = False
    queue: str = ""
    refills: bool = False
    used: tuple[Guard, ...] = ()
    cluster: int = 1

    @property
    def collective(self) -> bool:
        """Whether one thread has it made, and all wait for it."""
        return bool(self.queue) and QUEUES[self.queue].collective

    @property
    def lanes(self) -> int:
        """How many elements it touches at once."""
        widths = [i.dtype.lanes for i in self.indices]
        widths += [g[0].dtype.lanes for g in self.guards]
        if self.predicate is not None:
            widths.append(self.predicate.dtype.lanes)
        return max(widths, default=1)


@dataclass(slots=True, eq=False)
class Barrier:
    """A point that threads have to reach together; ``scope`` is "cluster" (of blocks), "shared"
    (a block) or "warp".

    Where it ``frees`` copies of a pipeline, it may become one that only who has them filled waits
    at (:mod:`~tilewright.lower.async_.split_barriers`), and instructions that read those of this
    iteration may go on: then the copies of the iteration before are filled.
    """

    scope: str
    node: Node
    guards: tuple[Guard, ...] = ()
    frees: tuple[Buffer, ...] = ()


@dataclass(slots=True, eq=False)
class Kernel:
    """A function with its accesses, barriers and thread indices collected.

    ``homes`` says by buffer where it is allocated; parameters are not in it. ``aliases`` are
    variables of THREAD loops inside the body, with the launch axis that each stands for. ``freed``
    are the copies that barriers free.
    """

    func: Func
    root: Node
    launch: tuple[LaunchAxis, ...]
    accesses: list[Access] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    freed: set[Buffer] = field(default_factory=set)
    homes: dict[Buffer, Node] = field(default_factory=dict)
    aliases: dict[Var, LaunchAxis] = field(default_factory=dict)
    written: dict[Node, set[Buffer]] = field(default_factory=dict)

    def changed(self, node: Node) -> set[Buffer]:
        """The buffers that are written below ``node``."""
        if not self.written:
            for access in self.accesses:
                for above in access.node.line if access.write else ():
                    self.written.setdefault(above, set()).add(access.buffer)
        return self.written.get(node, set())

    @property
    def threads(self) -> tuple[LaunchAxis, ...]:
        """The axes of a block, x first."""
        return tuple(
            axis for axis in sorted(self.launch, key=lambda a: a.tag) if is_thread(axis.tag)
        )

    @property
    def blocks(self) -> tuple[LaunchAxis, ...]:
        """The axes of the grid, x first."""
        return tuple(
            axis for axis in sorted(self.launch, key=lambda a: a.tag) if not is_thread(axis.tag)
        )

    @property
    def warp_size(self) -> int:
        """Threads of a warp; 32 where no target says otherwise."""
        target = self.func.target
        return int(target.limits.warp_size) if target is not None else 32

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return max((access.cluster for access in self.accesses), default=1)

    @property
    def members(self) -> tuple[LaunchAxis, ...]:
        """The axes of a block, and where blocks of a cluster share memory that of these."""
        if not any(buffer.scope == "cluster" for buffer in self.homes):
            return self.threads
        return tuple(axis for axis in self.launch if axis.tag == CLUSTERED) + self.threads

    def cluster_vars(self) -> set[Var]:
        """The variables that differ between the blocks of a cluster."""
        return {axis.var for axis in self.blocks if axis.tag == CLUSTERED}

    def thread_vars(self) -> set[Var]:
        """The variables that differ between the threads of a block."""
        own = {axis.var for axis in self.threads}
        return own | {v for v, axis in self.aliases.items() if axis.var in own}


def is_thread(tag: str) -> bool:
    """Whether a hardware axis runs over the threads of a block."""
    return tag.startswith("threadIdx")


def collect(func: Func) -> Kernel:
    """Every access and barrier of ``func``, in the order of the text."""
    collector = _Collector(func)
    run(collector.visit(collector.kernel.root))
    return collector.kernel


class _Collector:
    def __init__(self, func: Func) -> None:
        self.kernel = Kernel(func, Node(func.body), func.launch)
        self.axes = {axis.tag: axis for axis in func.launch}
        self.queue, self.cluster, self.refilled = "", 1, frozenset[Buffer]()

    def visit(self, node: Node) -> Steps:
        match node.stmt:
            case Seq(stmts):
                for i, child in enumerate(stmts):
                    yield self.visit(Node(child, node, i))
            case For(_, low, extent, kind, body, _, _) as loop:
                self.reads((low, extent), node)
                if kind is ForKind.THREAD:
                    self.thread_loop(loop)
                yield self.visit(Node(body, node))
            case If(condition, then, orelse):
                self.reads((condition,), node)
                yield self.visit(Node(then, node))
                if orelse is not None:
                    yield self.visit(Node(orelse, node, 1))
            case Store(buffer, indices, value, predicate):
                if predicate is None:
                    self.reads((*indices, value), node)
                else:
                    self.reads((*indices, value), node, used=((predicate, True),))
                    self.reads((predicate,), node)
                self.add(Access(buffer, indices, predicate, True, node))
            case Allocate(buffer, body):
                self.kernel.homes[buffer] = node
                yield self.visit(Node(body, node))
            case Let(var, value, body):
                self.reads((value,), node, used=_stored_under(var, body))
                yield self.visit(Node(body, node))
            case Iteration(body):
                around, self.refilled = self.refilled, frozenset(_freed(body))
                yield self.visit(Node(body, node))
                self.refilled = around
            case Remark(body=body):
                yield self.visit(Node(body, node))
            case Instr(instruction, _, _, body):
                self.queue, self.cluster = instruction.queue, instruction.cluster
                yield self.visit(Node(body, node))
                self.queue, self.cluster = "", 1
            case Evaluate(value):
                self.reads((value,), node)
            case Sync(scope, frees):
                self.kernel.barriers.append(Barrier(scope, node, frees=frees))
                self.kernel.freed.update(frees)
            case Queue(queue, "commit" | "wait") if QUEUES[queue].collective:
                self.kernel.barriers.append(Barrier("shared", node))
            case AllReduce() as reduction:
                self.all_reduce(reduction, node)

    def thread_loop(self, loop: For) -> None:
        axis = self.axes.get(loop.tag)
        if axis is None:
            axis = LaunchAxis(loop.tag, loop.var, loop.extent)
            self.axes[loop.tag] = axis
            self.kernel.launch = (*self.kernel.launch, axis)
        elif axis.var is not loop.var:
            self.kernel.aliases[loop.var] = axis

    def all_reduce(self, s: AllReduce, node: Node) -> None:
        self.kernel.barriers.append(Barrier("shared", node))
        self.reads((s.condition, *s.indices), node)
        self.reads(s.source, node, ((s.condition, True),))
        first: tuple[Guard, ...] = ()
        if not s.everywhere:
            first = tuple((E.EQ(v, E.IntImm(v.dtype, 0)), True) for v in s.axes)
        for buffer in s.buffers:
            self.add(Access(buffer, s.indices, None, True, node, first))

    def add(self, access: Access) -> None:
        if self.queue:
            access = replace(access, queue=self.queue, cluster=self.cluster)
            access = replace(access, refills=access.collective and access.buffer in self.refilled)
        self.kernel.accesses.append(access)

    def reads(
        self,
        roots: tuple[Expr, ...],
        node: Node,
        guards: tuple[Guard, ...] = (),
        used: tuple[Guard, ...] = (),
    ) -> None:
        """Every load below ``roots``, each once for the guards it stands under."""
        seen: _Seen = set()
        for root in roots:
            if type(root) in _LEAVES:
                continue
            for e, under, where in _evaluated(root, guards, used, seen):
                if isinstance(e, E.Load):
                    self.add(
                        Access(e.buffer, e.indices, e.predicate, False, node, under, used=where)
                    )
                elif isinstance(e, E.Call) and e.name.startswith("extern:"):
                    self.passed(e, node, under)
                elif isinstance(e, E.Call) and e.name.startswith("shuffle"):
                    self.kernel.barriers.append(Barrier("warp", node, under))

    def passed(self, call: E.Call, node: Node, under: tuple[Guard, ...]) -> None:
        for arg in call.args:
            match arg:
                case E.Call(_, "address_of", (E.Load(buffer, indices, _),)):
                    self.add(Access(buffer, indices, None, True, node, under, opaque=True))


def _freed(s: Stmt) -> Iterator[Buffer]:
    """The copies that barriers free in an iteration of a pipeline, not in those of others in it."""
    waiting = [s]
    while waiting:
        match waiting.pop():
            case Sync(_, frees):
                yield from frees
            case Iteration():
                continue
            case other:
                inside = [x for x in children(other) if isinstance(x, Stmt)]
                waiting += reversed(inside)


_LEAVES = (E.Var, E.IntImm, E.FloatImm, E.StringImm)


_Seen: TypeAlias = "set[tuple[Expr, tuple[Guard, ...], tuple[Guard, ...]]]"


def _evaluated(
    e: Expr, guards: tuple[Guard, ...], used: tuple[Guard, ...], seen: _Seen
) -> Iterator[tuple[Expr, tuple[Guard, ...], tuple[Guard, ...]]]:
    """The loads and calls that evaluating ``e`` evaluates, with what holds where it does, and where
    their values are used."""
    if type(e) in _LEAVES or (e, guards, used) in seen:
        return
    seen.add((e, guards, used))
    match e:
        case E.And(a, b) | E.Or(a, b):
            yield from _evaluated(a, guards, used, seen)
            yield from _evaluated(b, (*guards, (a, isinstance(e, E.And))), used, seen)
        case E.IfThenElse(condition, on_true, on_false):
            yield from _evaluated(condition, guards, used, seen)
            yield from _evaluated(on_true, (*guards, (condition, True)), used, seen)
            yield from _evaluated(on_false, (*guards, (condition, False)), used, seen)
        case E.LetExpr(var, value, body):
            yield from _evaluated(value, guards, used, seen)
            yield from _evaluated(body, (*guards, (var, value)), used, seen)
        case E.Load(_, indices, predicate):
            for index in indices:
                yield from _evaluated(index, guards, used, seen)
            if predicate is not None:
                yield from _evaluated(predicate, guards, used, seen)
            yield e, guards, used
        case E.Call(_, "address_of" | "prefetch", (E.Load(_, indices, _),)):  # no access
            for index in indices:
                yield from _evaluated(index, guards, used, seen)
        case E.Call(_, _, args):
            for arg in args:
                yield from _evaluated(arg, guards, used, seen)
            yield e, guards, used
        case E.Binary(a, b) | E.Compare(a, b):
            yield from _evaluated(a, guards, used, seen)
            yield from _evaluated(b, guards, used, seen)
        case E.Cast(_, value) | E.Broadcast(value, _) | E.Not(value) | E.Lane(value, _):
            yield from _evaluated(value, guards, used, seen)
        case E.Select(condition, on_true, on_false):
            yield from _evaluated(condition, guards, used, seen)
            yield from _evaluated(on_true, guards, (*used, (condition, True)), seen)
            yield from _evaluated(on_false, guards, (*used, (condition, False)), seen)
        case E.Ramp(base, stride, _):
            yield from _evaluated(base, guards, used, seen)
            yield from _evaluated(stride, guards, used, seen)
        case E.Concat(values):
            for value in values:
                yield from _evaluated(value, guards, used, seen)


def _stored_under(var: Var, body: Stmt) -> tuple[Guard, ...]:
    """The mask of all stores that a vector is used in, where there is one and no other use: what
    they leave out of it may be undefined."""
    if var.dtype.lanes == 1:
        return ()
    masks: set[Expr | None] = set()
    for s in statements(body):
        match s:
            case Store(_, indices, value, predicate) if uses(value, {var}):
                elsewhere = (*indices, *(() if predicate is None else (predicate,)))
                masks.add(None if any(uses(e, {var}) for e in elsewhere) else predicate)
            case _ if any(isinstance(e, Expr) and uses(e, {var}) for e in children(s)):
                return ()
    mask = masks.pop() if len(masks) == 1 else None
    return () if mask is None else ((mask, True),)
