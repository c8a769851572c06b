"""Loops that nobody vectorised are, where that is plain, for code generators of CPUs.

Not a pass of every program: the generator for LLVM asks for it, in place of LLVM's own vectoriser
of loops. That one aborts the process on some loops (an assertion of two models of costs that have
to agree, which they do not always), and reorders or loses reductions on others; here, what is
changed is little, and known. A loop becomes one over vectors and one over what is left:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import maximum
>>> i, k = axes("i k")
>>> A, B = buffer("A", 37), buffer("B", 37)
>>> print(innermost_vectors(func(loop(i, 37, store(B[i], A[i] + 1.0))), 64).body)
for i in range(2):
    B[T.Ramp(i * 16, 1, 16)] = A[T.Ramp(i * 16, 1, 16)] + T.Broadcast(T.float32(1), 16)
for i in range(1):
    B[T.Ramp(32, 1, 4)] = A[T.Ramp(32, 1, 4)] + T.Broadcast(T.float32(1), 4)
for i in range(36, 37):
    B[i] = A[i] + T.float32(1)

A maximum or minimum, or a sum of integers, is taken lane by lane, and of the lanes in the end:

>>> C = buffer("C", 1)
>>> print(innermost_vectors(func(loop(k, 20, store(C[0], maximum(C[0], A[k])))), 16).body)
C_lanes = T.allocate([4], 'float32', 'local')
C_lanes[T.Ramp(0, 1, 4)] = T.Broadcast(C[0], 4)
for k in range(5):
    C_lanes[T.Ramp(0, 1, 4)] = T.max(C_lanes[T.Ramp(0, 1, 4)], A[T.Ramp(k * 4, 1, 4)])
C_lanes[T.Ramp(0, 1, 2)] = T.max(C_lanes[T.Ramp(0, 1, 2)], C_lanes[T.Ramp(2, 1, 2)])
C_lanes[0] = T.max(C_lanes[0], C_lanes[1])
C[0] = C_lanes[0]

Sums of floats keep their order. A loop stays as it is where a lane would have a branch of its own,
where its accesses are no neighbours (reads may skip up to three elements), and where it is shorter
than a register of 16 bytes or under the pragma to unroll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Broadcast, Expr, IntImm, Load, Ramp, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    Evaluate,
    For,
    ForKind,
    If,
    Instr,
    Pragma,
    Stmt,
    Store,
    seq,
)
from tilewright.ir.visit import Rewriter, Steps, distinct, exprs, statements, uses
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.loops.lanes import on_vectors
from tilewright.lower.substitution import copy, put

#: Bytes of the shortest vector that is worth a loop of its own.
_LEAST = 16
#: Lanes of a reduction's longest vector, several registers that do not wait for one another.
_MOST_LANES = 64
#: Elements from lane to lane that a read may step over.
_STEPS = (-1, 0, 1, 2, 3, 4)
_INT64 = dtype("int64")
_DIVISIONS = (E.FloorDiv, E.FloorMod)


def innermost_vectors(func: Func, width: int) -> Func:
    """``func`` with loops on vectors of ``width`` bytes; see the module's docstring."""
    return replace(func, body=_Innermost(analyzer_of(func), width).stmt(func.body))


class _Innermost(InContext):
    def __init__(self, analyzer: Analyzer, width: int) -> None:
        super().__init__(analyzer)
        self.width = width

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Instr():
                return s
            case For() if s.pragma(Pragma.AUTO_UNROLL_MAX_STEP, 0) > 1:
                return s
        s = yield from super().steps(s)
        if isinstance(s, For) and s.kind in (ForKind.SERIAL, ForKind.PARALLEL):
            return self.vectors(s)
        return s

    def vectors(self, s: For) -> Stmt:
        """The loop on vectors where that can be."""
        if not _plain(s.body):
            return s
        scalar, s = s, self.flat(s)
        made = self.on_vectors(s)
        return scalar if made is None else made

    def on_vectors(self, s: For) -> Stmt | None:
        full = self.width // _widest(s.body)
        most = self.analyzer.bounds(s.extent).hi
        lanes = full
        while most is not None and lanes > max(most, 1):  # below 1, the loop has no iteration
            lanes //= 2
        if lanes < 2 or lanes * _widest(s.body) < _LEAST:
            return None
        if s.kind is ForKind.SERIAL and (most is None or most >= 2 * full):
            several = min(_MOST_LANES, 4 * full) if most is None or most >= 8 * full else full
            made = self.reduction(s, max(several, full))
            if made is not None:
                return made
        main = self.main(s, lanes, lambda at, _: put(s.body, {s.var: at}))
        return None if main is None else seq(main, self.rest(s, lanes))

    def flat(self, s: For) -> For:
        """The loop with the quotients and remainders of a fused axis put together again.

        ``A[i // 10, i % 10]`` is the element at offset ``i``, and so written ``A[0, i]``, where
        all accesses of ``A`` can be.
        """
        places: dict[Buffer, dict[tuple[Expr, ...], Expr]] = {}
        divided: set[Buffer] = set()
        for x in distinct(s.body):
            if isinstance(x, Load | Store) and x.buffer.layout is None and x.indices:
                places.setdefault(x.buffer, {})[x.indices] = x.buffer.offset(x.indices)
                if any(isinstance(e, _DIVISIONS) for e in _all(x.indices)):
                    divided.add(x.buffer)
        if not divided:
            return s
        kept: dict[Buffer, dict[tuple[Expr, ...], Expr]] = {}
        with self.analyzer.scope():
            self.analyzer.bind(s.var, s.min, s.extent)
            for buffer in divided:
                found = {k: self.analyzer.simplify(e) for k, e in places[buffer].items()}
                if not any(isinstance(e, (*_DIVISIONS, Load)) for e in _all(found.values())):
                    kept[buffer] = found
        return replace(s, body=_Flat(kept).stmt(s.body)) if kept else s

    def main(self, s: For, lanes: int, turn: Callable[[Expr, Var], Stmt]) -> For | None:
        """The loop over whole vectors, of which ``turn`` makes one lane: of the iteration that it
        stands for, and of its number."""
        wide = s.var.dtype == "int32" and any(_is_wide(e) for e in exprs(s.body))
        type = _INT64 if wide else s.var.dtype
        outer, lane = Var.make(s.var.name, type), Var.make(s.var.name, type)
        zero, size = (ops.const(n, type) for n in (0, lanes))
        at = ops.add(ops.cast(type, s.min), ops.add(ops.mul(outer, size), lane))
        body = turn(ops.cast(s.var.dtype, at), lane)
        short = For(lane, zero, size, ForKind.VECTORIZED, _Wide().stmt(body) if wide else body)
        count = ops.cast(type, self.count(s, lanes))
        with self.analyzer.scope():
            self.analyzer.bind(outer, zero, count)
            made = on_vectors(self.analyzer, short, whole=True)
        if made is None or not all(_neighbours(x) for x in distinct(made)):
            return None
        return For(outer, zero, count, s.kind, made)

    def count(self, s: For, lanes: int) -> Expr:
        """How many whole vectors there are."""
        extent = s.extent
        if not self.analyzer.prove(extent >= 0):
            extent = ops.maximum(extent, 0)
        return self.analyzer.simplify(ops.floordiv(extent, ops.const(lanes, extent.dtype)))

    def rest(self, s: For, lanes: int) -> Stmt:
        """What whole vectors leave, perhaps on shorter ones."""
        done = ops.mul(self.count(s, lanes), ops.const(lanes, s.extent.dtype))
        left = self.analyzer.simplify(ops.sub(s.extent, done))
        if ops.is_const(left, 0):
            return seq()
        low = self.analyzer.simplify(ops.add(s.min, done))
        tail: For = copy(replace(s, min=low, extent=left, kind=ForKind.SERIAL))
        return self.vectors(tail) if isinstance(left, IntImm) else tail

    def reduction(self, s: For, lanes: int) -> Stmt | None:
        """The loop as a reduction lane by lane, where it is one that may be reordered."""
        match s.body:
            case Store(buffer, indices, (E.Min() | E.Max() | E.Add()) as value, None):
                old = Load(buffer, indices, None)
            case _:
                return None
        if value.a is not old and value.b is not old:
            return None
        new = value.b if value.a is old else value.a
        sums = isinstance(value, E.Add)
        if (sums and not value.dtype.is_int) or any(uses(i, {s.var}) for i in indices):
            return None
        if any(isinstance(x, Load) and x.buffer is buffer for x in (*exprs(new), *_all(indices))):
            return None
        part = Buffer(f"{buffer.name}_lanes", (ops.const(lanes),), buffer.dtype, "local")

        def turn(at: Expr, lane: Var) -> Stmt:
            share = Load(part, (lane,), None)
            return Store(part, (lane,), type(value)(share, put(new, {s.var: at})))

        main = self.main(s, lanes, turn)
        if main is None:
            return None
        first = ops.const(0, value.dtype) if sums else old  # which its minimum may count twice
        made: list[Stmt] = [Store(part, _run(0, lanes), Broadcast(first, lanes)), main]
        half = lanes
        while half > 1:
            half //= 2
            low, high = (Load(part, _run(k, half), None) for k in (0, half))
            made.append(Store(part, low.indices, type(value)(low, high)))
        total: Expr = Load(part, _run(0, 1), None)
        made.append(Store(buffer, indices, type(value)(old, total) if sums else total))
        whole: Stmt = Allocate(part, seq(*made))
        if not self.analyzer.prove(s.extent >= lanes):
            whole = If(main.extent > 0, whole)
        return seq(whole, self.rest(s, lanes))


class _Flat(Rewriter):
    """Puts the offset of an access in place of its last index, and zero for the others."""

    def __init__(self, offsets: dict[Buffer, dict[tuple[Expr, ...], Expr]]) -> None:
        self.offsets = offsets

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        offset = self.offsets[buffer][indices]
        return (*(ops.const(0, offset.dtype) for _ in indices[1:]), offset)

    def expr(self, e: Expr) -> Expr:
        found = super().expr(e)
        if isinstance(e, Load) and isinstance(found, Load) and e.buffer in self.offsets:
            return Load(e.buffer, self.place(e.buffer, e.indices), found.predicate)
        return found

    def steps(self, s: Stmt) -> Steps:
        found = yield from super().steps(s)
        if isinstance(s, Store) and isinstance(found, Store) and s.buffer in self.offsets:
            return replace(found, indices=self.place(s.buffer, s.indices))
        return found


class _Wide(Rewriter):
    """Writes indices as sums of 64-bit parts: no part of an index overflows.

    ``int64(i * 16 + j)`` hides from who looks for neighbours that its values are some.
    """

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        if not isinstance(e, Load):
            return e
        return Load(e.buffer, tuple(map(_wide, e.indices)), e.predicate)

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        return replace(s, indices=tuple(map(_wide, s.indices))) if isinstance(s, Store) else s


def _is_wide(e: Expr) -> bool:
    return isinstance(e, E.Cast) and e.dtype == "int64" and e.value.dtype == "int32"


def _wide(e: Expr) -> Expr:
    """An index in 64 bits, as are its parts."""
    match e:
        case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) if e.dtype in ("int32", "int64"):
            return type(e)(_wide(a), _wide(b))
        case E.Cast(_, E.Expr() as value) if value.dtype in ("int32", "int64"):
            if e.dtype in ("int32", "int64"):
                return _wide(value)
    return ops.cast(_INT64, e)


def _run(first: int, lanes: int) -> tuple[Expr, ...]:
    """The index of ``lanes`` neighbours."""
    start = ops.const(first)
    return (start if lanes == 1 else Ramp(start, ops.const(1), lanes),)


def _all(indices: Iterable[Expr]) -> Iterator[Expr]:
    for index in indices:
        yield from exprs(index)


def _plain(body: Stmt) -> bool:
    """Whether there is nothing in it but stores of scalars, in loops and conditions."""
    found = list(statements(body))
    if any(isinstance(x, (Allocate, AllReduce, Evaluate, Instr)) for x in found):
        return False
    return all(e.dtype.lanes == 1 for e in exprs(body))


def _widest(body: Stmt) -> int:
    """Bytes of the widest value that a lane holds, indices apart."""
    sizes = [1]
    for x in distinct(body):
        match x:
            case Load(buffer) | Store(buffer):
                sizes.append(buffer.dtype.bytes)
            case Expr() if x.dtype.is_float:
                sizes.append(x.dtype.bytes)
    return max(sizes)


def _neighbours(x: Expr | Stmt) -> bool:
    """Whether an access of several lanes is of neighbours, for reads also of some close by."""
    match x:
        case Load(buffer, indices, predicate):
            allowed: tuple[int, ...] = _STEPS
        case Store(buffer, indices, _, predicate):
            allowed = (1, -1)
        case _:
            return True
    if all(i.dtype.lanes == 1 for i in indices):
        return isinstance(x, Load) and predicate is None
    step = 0
    for index, stride in zip(indices, buffer.strides, strict=True):
        match index, stride:
            case Ramp(_, IntImm(_, by), _), IntImm(_, scale):
                step += by * scale
            case _ if index.dtype.lanes > 1:
                return False
    return predicate is None and step in allowed
