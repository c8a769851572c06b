"""Buffers become one-dimensional, and indices offsets.

Stands right before text is written: every analysis before it reads indices dimension by
dimension. Layouts are applied here, and of a fragment each thread gets its own slots.

>>> from tilewright.lower.ir_builder import *
>>> i, j = axes("i j")
>>> A, B = buffer("A", 8, 4), buffer("B", 4, 8)
>>> print(flatten(func(loop(i, 8, loop(j, 4, store(B[j, i], A[i, j]))))).body)
for i in range(8):
    for j in range(4):
        B[j * 8 + i] = A[i * 4 + j]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.distribution import Distribution
from tilewright.ir.expr import Broadcast, Expr, Load, Ramp, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Allocate, AllReduce, Instr, Stmt, Store
from tilewright.ir.visit import Steps, distinct, uses
from tilewright.lower.backend.unpack_lanes import NotALane, lane_of
from tilewright.lower.context import InContext, analyzer_of
from tilewright.lower.substitution import put


def flatten(func: Func, separators: Mapping[Buffer, Sequence[int]] | None = None) -> Func:
    """``func`` over one-dimensional buffers, indices being offsets in elements.

    A dense buffer among ``separators`` is left with as many dimensions as are apart there: those of
    its own between two positions become one.

    An element of a cluster's memory is at an offset in that of a block, and the block's number.

    An index that is a ramp of stride 1 in the last dimension of a dense buffer stays one:
    ``Ramp(offset, 1, lanes)``. Other vectors become arithmetic on vectors.
    """
    flat = _Flatten(analyzer_of(func), separators or {})
    params = tuple(p if isinstance(p, Var) else flat.buffer(p) for p in func.params)
    return replace(func, params=params, body=flat.stmt(func.body))


class _Flatten(InContext):
    def __init__(self, analyzer: Analyzer, separators: Mapping[Buffer, Sequence[int]]) -> None:
        super().__init__(analyzer)
        self.separators = separators
        self.flat: dict[Buffer, Buffer] = {}

    def parts(self, b: Buffer) -> list[tuple[int, Buffer]]:
        """The dimensions of ``b`` that become one each: where they begin, and their array."""
        ends = [0, *self.separators.get(b, ()), len(b.shape)]
        return [(i, replace(b, shape=b.shape[i:j])) for i, j in pairwise(ends)]

    def buffer(self, b: Buffer) -> Buffer:
        """The one-dimensional buffer in place of ``b``."""
        found = self.flat.get(b)
        if found is None and b in self.separators:
            shape = tuple(self.analyzer.simplify(part.size) for _, part in self.parts(b))
            found = self.flat[b] = replace(b, shape=shape)
        if found is None:
            size, scope = self.analyzer.simplify(b.share), b.scope
            if b.distribution is not None:
                size, scope = const(b.distribution.slots), "local"
            found = Buffer(b.name, (size,), b.dtype, scope, None, b.align)
            self.flat[b] = found
        return found

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The offset of an element, or a vector of offsets."""
        own = tuple(map(self.expr, indices))
        if b in self.separators:
            return tuple(
                self.analyzer.simplify(part.offset(own[i : i + len(part.shape)]))
                for i, part in self.parts(b)
            )
        if b.distribution is not None:
            return (self.slot(b.distribution, own),)
        if b.scope == "cluster":
            part = replace(b, shape=b.shape[1:], layout=b.layout and Layout(b.layout.strides[1:]))
            offset = self.analyzer.simplify(part.offset(own[1:]))
            return offset if offset.dtype.lanes == 1 else self._ramp(offset), own[0]
        offset = self.analyzer.simplify(b.offset(own))
        return (offset if offset.dtype.lanes == 1 else self._ramp(offset),)

    def slot(self, held: Distribution, indices: tuple[Expr, ...]) -> Expr:
        """The place in a thread's registers, which threads agree on: what only the guards around
        say of threads is put in, for a register cannot be chosen by a thread's number."""
        offset = self.analyzer.simplify(held.slot(indices))
        if offset.dtype.lanes > 1:
            offset = self._ramp(offset)
        parts = [e for e in distinct(offset) if isinstance(e, Expr)]
        if not any(e in self.analyzer.context.facts for e in parts):
            return offset
        known: dict[Expr, Expr] = {}
        for e in parts:
            if e.dtype.lanes == 1 and e.dtype.is_int:
                bounds = self.analyzer.bounds(e)
                if bounds.lo is not None and bounds.lo == bounds.hi:
                    known[e] = const(bounds.lo, e.dtype)
        return self.analyzer.simplify(put(offset, known)) if known else offset

    def _ramp(self, offset: Expr) -> Expr:
        """Offsets whose quotients and remainders, dimension by dimension, add up to a ramp again:
        a tile that is filled by one running index."""
        if isinstance(offset, (Ramp, Broadcast)):
            return offset
        az, t, lanes = self.analyzer, offset.dtype.element, offset.dtype.lanes
        lane = Var.make("lane", t)
        with az.scope():
            az.bind(lane, 0, lanes)
            try:
                form = az.affine(az.simplify(lane_of(offset, lane)))
            except NotALane:
                return offset
            stride = form.terms.get(lane, 0)
            base = az.simplify(az.to_expr(form.without(lane), t))
        if uses(base, {lane}):
            return offset
        return Ramp(base, const(stride, t), lanes)

    def expr(self, e: Expr) -> Expr:
        if not isinstance(e, Load):
            return super().expr(e)
        predicate = None if e.predicate is None else self.expr(e.predicate)
        return Load(self.buffer(e.buffer), self.place(e.buffer, e.indices), predicate)

    def operand(self, o: Access) -> Access:
        if o.box is None:
            at: tuple[Expr, ...] = self.place(o.buffer, o.indices)
        else:
            at = tuple(self.analyzer.simplify(self.expr(i)) for i in o.indices)
        return replace(o, buffer=self.buffer(o.buffer), indices=at)

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Store(buffer, indices, value, predicate):
                on = None if predicate is None else self.expr(predicate)
                return Store(self.buffer(buffer), self.place(buffer, indices), self.expr(value), on)
            case Allocate(buffer, body):
                return Allocate(self.buffer(buffer), (yield self.steps(body)))
            case AllReduce(_, (first, *_), indices):
                # Its buffers have one shape, and so one offset.
                made = yield from super().steps(s)
                return replace(made, indices=self.place(first, indices))
            case Instr(instruction, axes, operands, body):
                placed = tuple(map(self.operand, operands))
                return Instr(instruction, axes, placed, (yield self.steps(body)))
        return (yield from super().steps(s))
