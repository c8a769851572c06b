"""Buffers on chip that are never alive at the same time share their memory.

>>> from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
>>> i, j, k, l = axes("i j k l")
>>> A, B, C = buffer("A", 4), buffer("B", 4), buffer("C", 4)
>>> S, T = buffer("S", 4, scope="local"), buffer("T", 4, scope="local")
>>> first = allocate(S, loop(i, 4, store(S[i], A[i])), loop(j, 4, store(B[j], S[3 - j])))
>>> second = allocate(T, loop(k, 4, store(T[k], B[k])), loop(l, 4, store(C[l], T[3 - l])))
>>> print(plan_storage(func(first, second)).body)
S = T.allocate([4], 'float32', 'local')
for i in range(4):
    S[i] = A[i]
for j in range(4):
    B[j] = S[3 - j]
for k in range(4):
    S[k] = B[k]
for l in range(4):
    C[l] = S[3 - l]

Registers are shared between arrays of one shape only, so that what a compiler keeps in registers
stays there. In a kernel, :class:`Begins` around a statement, which programs are shown without, says
that an array begins in them there, undefined, for sim and for the proof that it was written: it
lasts until another one begins. Shared memory is laid out for the block: its
buffers move to the top of the kernel, and those of one type share memory also where their shapes
differ, as offsets into one array. Buffers of symbolic size, and those of warps, keep their own. A
buffer that nobody reads goes, with the stores to it.

It stands before barrier insertion, which must know that a write to one buffer can overtake a read
of another.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const, mul
from tilewright.ir.stmt import (
    Access,
    Allocate,
    AllReduce,
    Begins,
    For,
    ForKind,
    If,
    Instr,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
    seq,
)
from tilewright.ir.visit import Rewriter, Steps, allocated, exprs, free_vars, stores
from tilewright.lower.analysis.liveness import Life, Liveness

#: Shared buffers below this many bytes, as those of reductions across threads, keep their own
#: memory: sharing it could cost a barrier and would save next to nothing.
_WORTH_SHARING = 256


def plan_storage(func: Func) -> Func:
    """``func`` with less memory: dead buffers gone, disjoint ones merged, shared ones hoisted."""
    if not allocated(func.body):
        return func
    body = _without_unread(func)
    lives = list(_lives(func, body).values())
    plan = _Plan(bool(func.launch))
    for group in _groups([x for x in lives if not _is_shared(func, x.buffer)], _same_array):
        plan.merge(group, _common([life.path for life in group]))
    for group in _groups([x for x in lives if _is_shared(func, x.buffer)], _same_type):
        plan.merge(group, None)
    inner = plan.stmt(body)
    if func.launch:
        inner = _hoisted(func, inner, plan)
    return func if inner is func.body else replace(func, body=inner)


def _is_shared(func: Func, b: Buffer) -> bool:
    return bool(func.launch) and b.scope == "shared"


def _lives(func: Func, body: Stmt) -> dict[Buffer, Life]:
    threads = {axis.var for axis in func.launch if axis.tag.startswith("thread")}
    return Liveness(body, threads).lives


# What nobody reads.


def _without_unread(func: Func) -> Stmt:
    """The body without buffers that are only written, and what was computed for them alone."""
    body = func.body
    while True:
        lives = _lives(func, body)
        used = {b for b, life in lives.items() if life.read}
        times = Counter(allocated(body))
        needed = {s.buffer for s in stores(body) if _acts(s.value)}
        dead = {b for b, n in times.items() if n == 1 and b not in used | needed}
        if not dead:
            return body
        body = _Removal(dead).stmt(body)


class _Removal(Rewriter):
    def __init__(self, dead: set[Buffer]) -> None:
        self.dead = dead

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Store(buffer, _, _) if buffer in self.dead:
                return Seq(())
            case Allocate(buffer, body) if buffer in self.dead:
                return (yield self.steps(body))
            case Seq(stmts):
                made = []
                for x in stmts:
                    made.append((yield self.steps(x)))
                if all(a is b for a, b in zip(made, stmts, strict=True)):
                    return s
                return seq(*(x for x in made if not _is_empty(x)))
        made_stmt = yield from super().steps(s)
        match made_stmt:
            case For(_, _, _, _, body) | Remark(body=body) if _is_empty(body):
                return Seq(())
            case Let(_, value, body) if _is_empty(body) and not _acts(value):
                return Seq(())
            case If(_, then, None) if _is_empty(then):
                return Seq(())
            case Allocate(_, body) if _is_empty(body):
                return Seq(())
        return made_stmt


def _is_empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts


def _acts(value: Expr) -> bool:
    """Whether computing ``value`` does something besides."""
    return any(
        isinstance(e, E.Call) and (e.name.startswith("extern:") or "shuffle" in e.name)
        for e in exprs(value)
    )


# Who shares with whom.


class _Group:
    """Lives of which no two overlap, in one block of memory."""

    def __init__(self, first: Life) -> None:
        self.lives = [first]
        self.ordered = [first]  # by when they begin, and so by when they end
        self.parallel = first.parallel

    def fits(self, life: Life) -> bool:
        """Whether none of them overlaps another."""
        place = bisect_left(self.ordered, life.first, key=attrgetter("first"))
        return not any(x.overlaps(life) for x in self.ordered[max(0, place - 1) : place + 1])

    def add(self, life: Life) -> None:
        """Let one more share the memory."""
        self.lives.append(life)
        insort(self.ordered, life, key=attrgetter("first"))
        self.parallel = self.parallel or life.parallel


def _groups(lives: list[Life], compatible: Callable[[Life, Life], bool]) -> list[list[Life]]:
    """Lives that can use one block of memory, the largest first; each is in one group."""
    groups: list[_Group] = []
    for life in sorted(lives, key=_elements, reverse=True):
        for group in groups:
            if compatible(group.lives[0], life) and group.fits(life):
                alone = not (group.parallel or life.parallel)
                if alone or not _crosses_parallel([*(x.path for x in group.lives), life.path]):
                    group.add(life)
                    break
        else:
            groups.append(_Group(life))
    return [group.lives for group in groups if len(group.lives) > 1]


def _elements(life: Life) -> int:
    size = life.buffer.size
    return size.value if isinstance(size, IntImm) else 0


def _same_array(a: Life, b: Life) -> bool:
    x, y = a.buffer, b.buffer
    return (
        x.scope != "warp"
        and (x.scope, x.dtype, x.constant_shape) == (y.scope, y.dtype, y.constant_shape)
        and x.constant_shape is not None
        and x.layout == y.layout
        and x.distribution == y.distribution
    )


def _same_type(a: Life, b: Life) -> bool:
    x, y = a.buffer, b.buffer
    if x.constant_shape is None or y.constant_shape is None or x.dtype != y.dtype:
        return False
    if any(z.layout is not None and z.layout.swizzle is not None for z in (x, y)):
        return False
    return min(_elements(a), _elements(b)) * x.dtype.bytes >= _WORTH_SHARING


def _common(paths: list[tuple[Stmt, ...]]) -> Stmt:
    """The innermost statement around all of the allocations."""
    found = paths[0][0]
    for level in zip(*paths, strict=False):
        if any(s is not level[0] for s in level):
            break
        found = level[0]
    return found


def _crosses_parallel(paths: list[tuple[Stmt, ...]]) -> bool:
    """Whether memory that is common to the allocations would be common to threads of a CPU."""
    outer = _common(paths)
    for path in paths:
        inside = path[path.index(outer) + 1 :]
        if any(isinstance(s, For) and s.kind is ForKind.PARALLEL for s in inside):
            return True
    return False


@dataclass(frozen=True)
class _Place:
    """Where a buffer's elements are kept: in ``buffer``, flattened where the shapes differ."""

    buffer: Buffer
    flat: bool


class _Plan(Rewriter):
    """Puts every merged buffer into the memory of its group."""

    def __init__(self, kernel: bool) -> None:
        self.kernel = kernel
        self.places: dict[Buffer, _Place] = {}
        self.around: dict[int, list[Buffer]] = {}  # allocations to make around a statement, by id
        self.begins: dict[int, list[Buffer]] = {}  # what begins at a statement, by id
        self.hoisted: list[Buffer] = []
        self.kept: list[Stmt] = []  # so that no id is given twice

    def merge(self, group: list[Life], outer: Stmt | None) -> None:
        """Give one memory to ``group``, allocated around ``outer``, or at the top of the kernel."""
        buffers = [life.buffer for life in group]
        align = max(b.align for b in buffers)
        first = buffers[0]
        flat = any(not _alike(first, b) for b in buffers)
        if flat:
            size = const(max(map(_elements, group)))
            memory = Buffer(f"{first.name}_memory", (size,), first.dtype, first.scope, None, align)
        else:
            memory = first if first.align == align else replace(first, align=align)
        for b in buffers:
            self.places[b] = _Place(memory, flat)
        if self.kernel and memory.scope != "shared":
            for life in group:
                self.kept.append(life.begin())
                self.begins.setdefault(id(life.begin()), []).append(memory)
        if outer is None:
            self.hoisted.append(memory)
        else:
            self.kept.append(outer)
            self.around.setdefault(id(outer), []).append(memory)

    def steps(self, s: Stmt) -> Steps:
        begins = self.begins.pop(id(s), ())  # one statement object may stand at several places
        made = yield self.inner(s)
        for memory in begins:
            made = Begins(memory, made)
        for memory in self.around.get(id(s), ()):
            made = Allocate(memory, made)
        return made

    def inner(self, s: Stmt) -> Steps:
        match s:
            case Allocate(buffer, body) if buffer in self.places:
                return (yield self.steps(body))
            case Store(buffer, indices, value, predicate) if buffer in self.places:
                mask = None if predicate is None else self.expr(predicate)
                memory, at = self.place(buffer, indices)
                return Store(memory, at, self.expr(value), mask)
            case AllReduce():
                assert not any(self.places[b].flat for b in s.buffers if b in self.places)
            case Instr(instruction, axes, operands, body):
                placed = tuple(self.operand(o) for o in operands)
                return Instr(instruction, axes, placed, (yield self.steps(body)))
        return (yield from super().steps(s))

    def operand(self, o: Access) -> Access:
        buffer, indices = self.place(o.buffer, o.indices)
        return replace(o, buffer=buffer, indices=indices)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Load(buffer, indices, predicate) if buffer in self.places:
                mask = None if predicate is None else self.expr(predicate)
                return Load(*self.place(buffer, indices), mask)
        return super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        place = self.places.get(b)
        return b if place is None else place.buffer

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        inner = tuple(map(self.expr, indices))
        place = self.places.get(b)
        if place is None or not place.flat:
            return self.buffer(b), inner
        return place.buffer, (_offset(b, inner),)


def _alike(a: Buffer, b: Buffer) -> bool:
    """Whether ``b`` can be the first part of ``a`` with the same indices."""
    x, y = a.constant_shape, b.constant_shape
    assert x is not None
    assert y is not None
    return len(x) == len(y) and x[1:] == y[1:] and x[:1] >= y[:1] and a.layout == b.layout


def _offset(b: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The offset; where one index is a ramp, a ramp, which vector accesses are known by."""
    vectors = [i for i in indices if i.dtype.lanes > 1]
    if len(vectors) != 1 or not isinstance(vectors[0], E.Ramp):
        return b.offset(indices)
    ramp = vectors[0]
    dim = indices.index(ramp)
    base = b.offset((*indices[:dim], ramp.base, *indices[dim + 1 :]))
    return E.Ramp(base, mul(ramp.stride, b.strides[dim]), ramp.lanes)


# The top of the kernel.


def _hoisted(func: Func, body: Stmt, plan: _Plan) -> Stmt:
    """``body`` with every shared buffer of known size allocated at the top."""
    mover = _Mover({p for p in func.params if isinstance(p, Var)})
    made = mover.stmt(body)
    for buffer in dict.fromkeys([*reversed(mover.found), *plan.hoisted]):
        made = Allocate(buffer, made)
    return made


class _Mover(Rewriter):
    def __init__(self, known: set[Var]) -> None:
        self.known = known
        self.found: list[Buffer] = []

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Allocate(buffer, body) if buffer.scope == "shared" and self.known.issuperset(
                v for extent in buffer.shape for v in free_vars(extent)
            ):
                self.found.append(buffer)
                return (yield self.steps(body))
        return (yield from super().steps(s))
