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

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Expr, IntImm, LetExpr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Allocate, AllReduce, For, Instr, Let, Stmt, Store
from tilewright.ir.visit import Rewriter, Steps, distinct, exprs, statements

#: Memories of a thread, or of a group of threads.
_OWN = ("local", "fragment")


def drop_thread_dims(func: Func) -> Func:
    """Drop dimensions of local buffers in which one slot is used; see the module's docstring."""
    if not any(isinstance(s, Allocate) and s.buffer.scope in _OWN for s in statements(func.body)):
        return func
    body = _Slots().stmt(func.body)
    return func if body is func.body else replace(func, body=body)


class _Slots(Rewriter):
    def __init__(self) -> None:
        self.kept: dict[Buffer, tuple[Buffer, frozenset[int]]] = {}

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Allocate) and s.buffer.scope in _OWN:
            fixed = _fixed(s)
            if fixed:
                self.kept[s.buffer] = _narrowed(s.buffer, fixed), fixed
        made = yield super().steps(s)
        if isinstance(made, Instr) and isinstance(s, Instr):
            places = [
                Access(new.buffer, self._indices(old.buffer, new.indices))
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


def _fixed(s: Allocate) -> frozenset[int]:
    """The dimensions of the buffer in which it is used at one index."""
    buffer = s.buffer
    if buffer.layout is not None:
        return frozenset()
    bound: set[Expr] = set()
    places: set[tuple[Expr, ...]] = set()
    for node in distinct(s.body):
        match node:
            case AllReduce():  # which names buffers as a whole
                return frozenset()
            case Instr(_, _, operands):
                places |= {o.indices for o in operands if o.buffer is buffer}
            case Call(_, name) if name == "address_of":
                return frozenset()
            case For(var) | Let(var) | LetExpr(var):
                bound.add(var)
            case Load(b, indices) | Store(b, indices) if b is buffer:
                places.add(indices)
    fixed = set()
    for k, extent in enumerate(buffer.shape):
        if buffer.distribution is not None and buffer.distribution.bits[k]:
            continue
        used = {indices[k] for indices in places}
        if len(used) != 1 or (isinstance(extent, IntImm) and extent.value == 1):
            continue
        (index,) = used
        steady = all(
            not isinstance(x, Load | Call) and not (isinstance(x, Var) and x in bound)
            for x in exprs(index)
        )
        if steady and index.dtype.lanes == 1:
            fixed.add(k)
    return frozenset(fixed)
