"""Where in a program each of its buffers is alive.

Statements are numbered in the order of the text. A buffer is alive from its first access to its
last; a loop inside its allocation in which it is accessed counts as a whole, because its contents
may go from one iteration to the next. A loop around its allocation does not: there the contents
are undefined at the start of every iteration.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Expr, LetExpr, Load, Var
from tilewright.ir.stmt import Allocate, AllReduce, For, ForKind, If, Instr, Let, Stmt, Store
from tilewright.ir.visit import Steps, children, contents, distinct, exprs, roots, run, statements


@dataclass
class Life:
    """One buffer: where it is allocated, and from which statement to which it is alive."""

    buffer: Buffer
    path: tuple[Stmt, ...]  # the statements around its Allocate, that one last
    first: int
    last: int
    opens: tuple[Stmt, ...]  # the statements around its first access, that one last
    read: bool = False
    opaque: bool = False  # used by more than plain loads and stores
    parallel: bool = False  # allocated inside a loop that threads of a CPU share

    def begin(self) -> Stmt:
        """The statement with its first access; where that is in a loop inside of its allocation,
        the outermost such loop."""
        inside = self.opens[len(self.path) :]
        return next((x for x in inside if isinstance(x, (For, Instr))), self.opens[-1])

    def overlaps(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass
class _Region:
    """A statement that counts as a whole for the buffers used in it."""

    begin: int
    loop: bool
    divergent: bool
    depth: int  # how many statements stand around it
    touched: set[Buffer] = field(default_factory=set)


class Liveness:
    """The lives of the buffers that ``body`` allocates, once each; ``threads`` are the indices in
    which the threads of a block differ."""

    def __init__(self, body: Stmt, threads: set[Var]) -> None:
        times = Counter(s.buffer for s in statements(body) if isinstance(s, Allocate))
        self.single = {b for b, n in times.items() if n == 1}
        self.varying = set(threads)  # variables whose value differs between threads
        self.lives: dict[Buffer, Life] = {}
        self.allocated: dict[Buffer, tuple[tuple[Stmt, ...], bool]] = {}  # by what is around
        self.regions: list[_Region] = []
        self.path: list[Stmt] = []
        self.parallel = 0  # loops that threads of a CPU share, around the statement visited
        self.now = 0
        run(self.visit(body))

    def visit(self, s: Stmt) -> Steps:
        self.path.append(s)
        match s:
            case For(var, low, extent, _, inner):
                self.use(low)
                self.use(extent)
                self.now += 1
                self.parallel += s.kind is ForKind.PARALLEL
                if self.differs(low) or self.differs(extent):
                    self.varying.add(var)
                    yield self.region(inner, loop=True, divergent=True)
                else:
                    yield self.region(inner, loop=True)
                self.parallel -= s.kind is ForKind.PARALLEL
            case If(condition, then, orelse):
                self.use(condition)
                self.now += 1
                branches = (then,) if orelse is None else (then, orelse)
                if self.differs(condition):
                    yield self.region(*branches, divergent=True)
                else:
                    for branch in branches:
                        yield self.visit(branch)
            case Let(var, value, inner):
                self.use(value)
                self.now += 1
                if self.differs(value):
                    self.varying.add(var)
                yield self.visit(inner)
            case Allocate(buffer, inner):
                self.allocated[buffer] = tuple(self.path), self.parallel > 0
                yield self.visit(inner)
            case Store(buffer, _, _, _):
                for child in children(s):
                    self.use(child)
                self.access(buffer)
                self.now += 1
            case AllReduce(_, buffers, _, _, _, _, _):
                for child in children(s):
                    self.use(child)
                for buffer in buffers:
                    self.access(buffer, read=True, opaque=True)
                self.now += 1
            case Instr(_, _, operands, inner):
                # One action: what it reads and writes is in use at the same time.
                for operand in operands:
                    self.access(operand.buffer, read=True, opaque=True)
                yield self.region(inner, loop=True)
            case _:
                for child in children(s):
                    if isinstance(child, Stmt):
                        yield self.visit(child)
                    else:
                        self.use(child)
                self.now += 1
        self.path.pop()

    def region(self, *bodies: Stmt, loop: bool = False, divergent: bool = False) -> Steps:
        region = _Region(self.now, loop, divergent, len(self.path))
        self.regions.append(region)
        for body in bodies:
            yield self.visit(body)
        self.regions.pop()
        self.now += 1
        for buffer in region.touched:
            life = self.lives[buffer]
            life.first, life.last = min(life.first, region.begin), max(life.last, self.now)
        self.now += 1

    def use(self, node: Expr | Stmt) -> None:
        for root in roots(node):
            read = [b for b in contents(root)[1] if b in self.allocated]
            if len(read) > 1:  # in order
                read = [e.buffer for e in distinct(root) if isinstance(e, Load)]
            for buffer in read:
                self.access(buffer, read=True)

    def access(self, buffer: Buffer, *, read: bool = False, opaque: bool = False) -> None:
        found = self.allocated.get(buffer)
        if found is None or buffer not in self.single:
            return
        path, parallel = found
        life = self.lives.get(buffer)
        if life is None:
            here = tuple(self.path)
            life = Life(buffer, path, self.now, self.now, here, parallel=parallel)
            self.lives[buffer] = life
        life.last = self.now
        life.read = life.read or read
        life.opaque = life.opaque or opaque
        for region in self.regions:
            # Threads that went different ways meet again only after the region: until then what
            # one of them has in shared memory must not give way to another buffer.
            apart = region.divergent and buffer.scope == "shared"
            if apart or (region.loop and region.depth > len(path)):
                region.touched.add(buffer)

    def differs(self, e: Expr) -> bool:
        """Whether ``e`` may differ between the threads of a block."""
        return any(
            (isinstance(x, Var) and x in self.varying) or isinstance(x, (Load, Call, LetExpr))
            for x in exprs(e)
        )
