"""Indices are 32 bits wide where that is enough, and 64 where an offset can reach 2^31.

An index expression is computed in 64 bits where some part of it may leave the range of its type;
an access to a buffer of 2^31 elements or more has 64-bit indices, so that its offset is computed
in 64 bits. Everything else stays as it is: 32-bit integers take half of the registers, and a GPU
multiplies and divides them several times faster.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> i, j = axes("i j")
>>> A, B = buffer("A", 2**16, 2**16), buffer("B", 2**8, 2**16)
>>> nest = loop(i, 2**16, loop(j, 2**16, store(A[i, j], B[i % 256, j])))
>>> print(index_width(func(nest)).body)
for i in range(65536):
    for j in range(65536):
        A[T.Cast('int64', i), T.Cast('int64', j)] = B[i % 256, j]

What is known of symbolic extents: each is below 2^31, or at most what ``te.var(name, most=...)``
says, and so is every index of a dimension. A buffer with two symbolic extents, or one and a
constant, may then have more elements than 32 bits count, and is accessed with 64. It stands last,
when the sizes of all buffers are final; values of tensors are not indices and keep the arithmetic
that they were declared with.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.spans import LIMIT, type_span
from tilewright.arith.widths import INT64, Widths, fitted
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import add, maximum
from tilewright.ir.stmt import AllReduce, For, If, Instr, Let, Stmt, Store
from tilewright.ir.visit import Steps, symbolic_extents


def index_width(func: Func) -> Func:
    """``func`` with index arithmetic as wide as it has to be."""
    widths = _Widths(func.name)
    extents = {v for p in func.params if isinstance(p, Buffer) for v in symbolic_extents(p)}
    for param in func.params:
        if isinstance(param, Var) and param not in extents and param.dtype.is_int:  # any number
            low, high = type_span(param.dtype)
            widths.learn(param, (low, high if param.most is None else param.most))
    limits = func.target.limits
    for axis in func.launch:
        level = limits.block if axis.tag.startswith("thread") else limits.grid
        most = level["xyz".index(axis.tag[-1])] if axis.tag[-1] in "xyz" else LIMIT
        widths.learn(axis.var, (0, max(0, min(widths.span(axis.extent)[1], most) - 1)))
    return replace(func, body=widths.stmt(func.body))


class _Widths(Widths):
    """Rewrites statements, too."""

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For(_, low, extent):
                return (yield self.loop(s, self.index(low), self.index(extent)))
            case Store(buffer, indices, value, predicate):
                at = self.place(buffer, indices)
                mask = None if predicate is None else self.condition(predicate)
                made = self.expr(value)
                same = at is indices and mask is predicate and made is value
                return s if same else Store(buffer, at, made, mask)
            case If(condition, then, orelse):
                test = self.condition(condition)
                first = yield self.steps(then)
                other = None if orelse is None else (yield self.steps(orelse))
                same = test is condition and first is then and other is orelse
                return s if same else If(test, first, other)
            case Let(var, value, body):
                made = self.bound(var, value)
                inner = yield self.steps(body)
                var = self.wider.get(var, var)
                return s if made is value and inner is body else Let(var, made, inner)
            case AllReduce():
                made_stmt = yield from super().steps(s)
                assert isinstance(made_stmt, AllReduce)
                at = self.place(s.buffers[0], s.indices)
                return made_stmt if at is s.indices else replace(made_stmt, indices=at)
            case Instr(instruction, axes, operands, body):
                inner = yield self.steps(body)
                placed = tuple(
                    replace(o, indices=self.place(o.buffer, o.indices)) for o in operands
                )
                own = tuple(self.wider.get(a, a) for a in axes)
                return Instr(instruction, own, placed, inner)
        return (yield from super().steps(s))

    def loop(self, s: For, low: Expr, extent: Expr) -> Steps:
        """The loop, its variable as wide as its range."""
        first, most = self.span(s.min)
        end = most + self.span(s.extent)[1]
        var, t = s.var, s.var.dtype
        least, greatest = type_span(t)
        if end > greatest:  # perhaps only because the minimum occurs in the extent too
            end = self.span(Analyzer().simplify(add(s.min, s.extent)))[1]
        self.learn(var, (first, max(first, end - 1)))
        # The bound that the loop is compared with is one past the last value.
        if t.bits < 64 and (first < least or end > greatest):
            var = self.wider[s.var] = Var.make(s.var.name, INT64)
            t = INT64
        if extent.dtype.bits > t.bits and self.span(s.extent)[0] < type_span(t)[0]:
            extent = maximum(extent, 0)  # no iterations, however far below: that may not wrap
        low, extent = fitted(low, t), fitted(extent, t)
        body = yield self.steps(s.body)
        same = var is s.var and low is s.min and extent is s.extent and body is s.body
        return s if same else replace(s, var=var, min=low, extent=extent, body=body)
