"""A local buffer keeps of a dimension only the slot that its thread uses.

Stands within one kernel, before storage is planned. A partial sum for each of the threads that
share a reduction has a dimension of threads; where each thread holds its own in registers, that
dimension is indexed by the thread everywhere:

>>> from tilewright.lower.ir_builder import *
>>> t, d, e = axes("t d e")
>>> A, C, acc = buffer("A", 8, 4), buffer("C", 8, 4), buffer("acc", 8, 4, scope="local")
>>> make = loop(d, 4, store(acc[t, d], A[t, d] * 2.0))
>>> use = loop(e, 4, store(C[t, e], acc[t, e]))
>>> print(drop_thread_dims(func(loop(t, 8, allocate(acc, make, use)))).body)
for t in range(8):
    acc = T.allocate([1, 4], 'float32', 'local')
    for d in range(4):
        acc[0, d] = A[t, d] * T.float32(2)
    for e in range(4):
        C[t, e] = acc[0, e]

The index has to be the same in all accesses, and to vary with nothing that is bound while the
buffer lives. A register array that is indexed by anything else lies in a thread's memory. So it is
with fragments of which each group of threads has its own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Expr, IntImm, LetExpr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, AllReduce, For, Instr, Let, Stmt, Store
from tilewright.ir.visit import Rewriter, Steps, children, distinct, exprs, run, statements

#: Memories of a thread, or of a group of threads.
_OWN = ("local", "fragment")


def drop_thread_dims(func: Func) -> Func:
    """Drop dimensions of local buffers in which one slot is used; see the module's docstring."""
    if not any(isinstance(s, Allocate) and s.buffer.scope in _OWN for s in statements(func.body)):
        return func
    body = _Slots(_Uses(func.body)).stmt(func.body)
    return func if body is func.body else replace(func, body=body)


class _Slots(Rewriter):
    def __init__(self, uses: _Uses) -> None:
        self.uses = uses
        self.kept: dict[Buffer, tuple[Buffer, frozenset[int]]] = {}

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Allocate) and s.buffer.scope in _OWN:
            fixed = self.uses.fixed(s)
            if fixed:
                self.kept[s.buffer] = _narrowed(s.buffer, fixed), fixed
        made = yield from super().steps(s)
        if isinstance(made, Instr) and isinstance(s, Instr):
            places = [
                replace(new, indices=self._indices(old.buffer, new.indices))
                if old.buffer in self.kept
                else new
                for old, new in zip(s.operands, made.operands, strict=True)
            ]
            return replace(made, operands=tuple(places))
        if isinstance(made, Store) and isinstance(s, Store) and s.buffer in self.kept:
            return replace(made, indices=self._indices(s.buffer, made.indices))
        return made

    def expr(self, e: Expr) -> Expr:
        made = super().expr(e)
        if isinstance(made, Load) and isinstance(e, Load) and e.buffer in self.kept:
            return Load(made.buffer, self._indices(e.buffer, made.indices), made.predicate)
        return made

    def buffer(self, b: Buffer) -> Buffer:
        return self.kept[b][0] if b in self.kept else b

    def _indices(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        fixed = self.kept[b][1]
        return tuple(const(0) if k in fixed else e for k, e in enumerate(indices))


def _narrowed(b: Buffer, fixed: frozenset[int]) -> Buffer:
    shape = tuple(const(1) if k in fixed else e for k, e in enumerate(b.shape))
    held = b.distribution
    if held is not None:
        held = replace(held, shape=tuple(1 if k in fixed else n for k, n in enumerate(held.shape)))
    return replace(b, shape=shape, distribution=held)


class _Uses:
    """How the buffers of threads are used in a program, found in one walk through it: at which
    indices; and where in the text variables are bound, and buffers named as a whole."""

    def __init__(self, body: Stmt) -> None:
        self.places: dict[Buffer, set[tuple[Expr, ...]]] = {}
        self.spans: dict[Allocate, tuple[int, int]] = {}
        self.bound: dict[Expr, list[int]] = {}
        self.wholes: list[int] = []
        self.count = 0
        run(self._walk(body))

    def _walk(self, s: Stmt) -> Steps:
        first = self.count = self.count + 1
        match s:
            case AllReduce():  # which names buffers as a whole
                self.wholes.append(first)
            case Instr(_, _, operands):
                for operand in operands:
                    self._place(operand.buffer, operand.indices)
            case Store(buffer, indices):
                self._place(buffer, indices)
            case For(var) | Let(var):
                self.bound.setdefault(var, []).append(first)
        for child in children(s):
            if isinstance(child, Stmt):
                yield self._walk(child)
                continue
            for e in distinct(child):
                match e:
                    case Call(_, name) if name == "address_of":
                        self.wholes.append(first)
                    case LetExpr(var):
                        self.bound.setdefault(var, []).append(first)
                    case Load(buffer, indices):
                        self._place(buffer, indices)
        if isinstance(s, Allocate):
            self.spans[s] = first, self.count

    def _place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer.scope in _OWN:
            self.places.setdefault(buffer, set()).add(indices)

    def fixed(self, s: Allocate) -> frozenset[int]:
        """The dimensions of a buffer in which it is used at one index."""
        buffer, (first, last) = s.buffer, self.spans[s]

        def within(places: list[int]) -> bool:
            at = bisect_right(places, first)
            return at < len(places) and places[at] <= last

        if buffer.layout is not None or within(self.wholes):
            return frozenset()
        fixed = set()
        for k, extent in enumerate(buffer.shape):
            if buffer.distribution is not None and buffer.distribution.bits[k]:
                continue
            used = {indices[k] for indices in self.places.get(buffer, ())}
            if len(used) != 1 or (isinstance(extent, IntImm) and extent.value == 1):
                continue
            (index,) = used
            steady = all(
                not isinstance(x, Load | Call)
                and not (isinstance(x, Var) and within(self.bound.get(x, [])))
                for x in exprs(index)
            )
            if steady and index.dtype.lanes == 1:
                fixed.add(k)
        return frozenset(fixed)
