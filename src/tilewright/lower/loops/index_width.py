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
from typing import Any

from tilewright.arith import Analyzer
from tilewright.arith.interval import Span, product
from tilewright.arith.spans import LIMIT, Spans, type_span
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype, wrapped
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import add, cast
from tilewright.ir.stmt import Access, AllReduce, For, If, Instr, Let, Stmt, Store
from tilewright.ir.visit import Rewriter, Steps, symbolic_extents

_INT64 = dtype("int64")
_GROWING = (E.Add, E.Sub, E.Mul, E.Shl, E.FloorDiv, E.TruncDiv)


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


class _Widths(Rewriter, Spans):
    """Rewrites values; :meth:`index` rewrites what addresses and loop bounds are made of."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.wider: dict[Var, Var] = {}
        self.offsets: dict[Buffer, bool] = {}

    # Indices.

    def index(self, e: Expr) -> Expr:
        """``e`` in a type in which no part of it overflows: its own, or int64."""
        if not e.exact:
            return self.expr(e)
        match e:
            case Var():
                return self.wider.get(e, e)
            case IntImm(t, value):
                return e if self.fits(e) else IntImm(_INT64.with_lanes(t.lanes), value)
            case E.And() | E.Or() | E.Not() | E.Compare():
                return self.condition(e)
            case E.Binary(a, b) if e.dtype.is_int:
                left, right = self.index(a), self.index(b)
                if isinstance(e, _GROWING) and not self.fits(e):
                    self.within64(e)
                    left, right = _to64(left), _to64(right)
                return _both(type(e), left, right, e)
            case E.Select(c, a, b) if e.dtype.is_int:
                chosen, left, right = self.condition(c), self.index(a), self.index(b)
                if left.dtype != right.dtype:
                    left, right = _to64(left), _to64(right)
                same = chosen is c and left is a and right is b
                return e if same else type(e)(chosen, left, right)
            case E.Cast(t, a) if t.is_int and a.dtype.is_int:
                inner = self.index(a)
                return e if inner is a else cast(t, inner)
            case E.Ramp(base, stride, lanes):
                first, step = self.index(base), self.index(stride)
                if not self.fits(e) or first.dtype != step.dtype:
                    first, step = _to64(first), _to64(step)
                same = first is base and step is stride
                return e if same else E.Ramp(first, step, lanes)
            case E.Broadcast(value, lanes):
                inner = self.index(value)
                return e if inner is value else E.Broadcast(inner, lanes)
        return self.parts(e)

    def condition(self, e: Expr) -> Expr:
        """A condition whose comparisons of indices cannot overflow."""
        match e:
            case E.And(a, b) | E.Or(a, b):
                left, right = self.condition(a), self.condition(b)
                return e if left is a and right is b else type(e)(left, right)
            case E.Not(a):
                inner = self.condition(a)
                return e if inner is a else E.Not(inner)
            case E.Compare(a, b) if a.exact or b.exact:  # with data, in a type that holds both
                return _both(type(e), self.index(a), self.index(b), e)
            case E.Broadcast(a, lanes):
                inner = self.condition(a)
                return e if inner is a else E.Broadcast(inner, lanes)
        return self.expr(e)

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices of an access, in the width that its offset needs."""
        found = []
        wide = self.offset_is_wide(buffer)
        for index in indices:
            made = self.index(index)
            if wide:
                made = _to64(made)
            elif made is not index and made.dtype.bits > index.dtype.bits:
                made = _narrow(made, index.dtype)  # it is in bounds, and those are small
            found.append(made)
        return indices if all(a is b for a, b in zip(found, indices, strict=True)) else tuple(found)

    def offset_is_wide(self, buffer: Buffer) -> bool:
        """Whether some element of ``buffer`` lies 2^31 elements or more from its first."""
        known = self.offsets.get(buffer)
        if known is None:
            reach: float = abs(self.span(buffer.layout.base)[1]) if buffer.layout else 0
            step: Span = (1, 1)
            given = buffer.layout.strides if buffer.layout else None
            for dim in reversed(range(len(buffer.shape))):
                extent = self.span(buffer.shape[dim])
                stride = self.span(given[dim]) if given else step
                # A dimension of extent 1 adds nothing, whatever its stride.
                reach += max(0, extent[1] - 1) * max(map(abs, stride))
                step = product(step, extent)
            known = self.offsets[buffer] = reach >= LIMIT
        return known

    # Values and statements.

    def within64(self, e: Expr) -> None:
        """Refuse what 64 bits do not hold."""
        low, high = self.span(e)
        if not (low >= -(2**63) and high < 2**63):
            raise LoweringError(
                f"kernel {self.name}: {e} is between {low} and {high}, and indices are computed in "
                "64 bits: make extents or factors smaller, or say by te.var(..., most=) how large "
                "symbolic ones may be"
            )

    def expr(self, e: Expr) -> Expr:
        if e.exact and e.dtype.is_int:  # an index becomes a value of its type
            if isinstance(e, IntImm):
                return e if self.fits(e) else IntImm(e.dtype, wrapped(e.value, e.dtype))
            made = self.index(e)
            return made if made.dtype == e.dtype else E.Cast(e.dtype, made)
        match e:
            case Load(buffer, indices, predicate):
                at = self.place(buffer, indices)
                mask = None if predicate is None else self.condition(predicate)
                return e if at is indices and mask is predicate else Load(buffer, at, mask)
            case E.And() | E.Or() | E.Not():
                return self.condition(e)
            case E.Compare(a, b) if (a.exact or b.exact) and a.dtype.is_int:
                return self.condition(e)
        return self.parts(e)

    def parts(self, e: Expr) -> Expr:
        """``e`` of parts that are values."""
        match e:
            case E.LetExpr(var, value, body):
                self.define(var, value)
                made, inner = self.bound_value(var, value), self.expr(body)
                var = self.wider.get(var, var)
                same = made is value and inner is body
                return e if same else E.LetExpr(var, made, inner)
        return super().expr(e)

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
                self.define(var, value)
                made = self.bound_value(var, value)
                inner = yield self.steps(body)
                var = self.wider.get(var, var)
                return s if made is value and inner is body else Let(var, made, inner)
            case AllReduce():
                made_stmt = yield super().steps(s)
                assert isinstance(made_stmt, AllReduce)
                at = self.place(s.buffers[0], s.indices)
                return made_stmt if at is s.indices else replace(made_stmt, indices=at)
            case Instr(instruction, axes, operands, body):
                inner = yield self.steps(body)
                placed = tuple(Access(o.buffer, self.place(o.buffer, o.indices)) for o in operands)
                own = tuple(self.wider.get(a, a) for a in axes)
                return Instr(instruction, own, placed, inner)
        return (yield super().steps(s))

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
            var = self.wider[s.var] = Var.make(s.var.name, _INT64)
            t = _INT64
        low, extent = _to(low, t), _to(extent, t)
        body = yield self.steps(s.body)
        same = var is s.var and low is s.min and extent is s.extent and body is s.body
        return s if same else replace(s, var=var, min=low, extent=extent, body=body)

    def define(self, var: Var, value: Expr) -> None:
        if var.dtype.is_int and value.exact:
            self.learn(var, self.span(value))
            if var.dtype.bits < 64 and self.index(value).dtype.bits == 64:
                self.wider[var] = var.like(_INT64.with_lanes(var.dtype.lanes))
        elif var.dtype.is_int:
            self.learn(var, type_span(var.dtype))

    def bound_value(self, var: Var, value: Expr) -> Expr:
        return self.index(value) if var in self.wider else self.expr(value)


def _both(node: Any, a: Expr, b: Expr, old: Any) -> Expr:
    """The operation on both, in the wider of their types."""
    if a.dtype != b.dtype:
        a, b = _to64(a), _to64(b)
    made: Expr = old if a is old.a and b is old.b else node(a, b)
    return made


def _to64(e: Expr) -> Expr:
    if e.dtype.bits == 64:
        return e
    match e:
        case E.Ramp(base, stride, lanes):  # stays visible as a vector of neighbours
            return E.Ramp(_to64(base), _to64(stride), lanes)
        case E.Broadcast(value, lanes):
            return E.Broadcast(_to64(value), lanes)
    return cast(_INT64, e)


def _narrow(e: Expr, t: DType) -> Expr:
    match e:
        case E.Ramp(base, stride, lanes):
            return E.Ramp(_narrow(base, t.element), _narrow(stride, t.element), lanes)
    return _to(e, t.with_lanes(e.dtype.lanes))


def _to(e: Expr, t: DType) -> Expr:
    """An index in a type that holds it."""
    if e.dtype == t:
        return e
    if t.bits < e.dtype.bits and not isinstance(e, IntImm):
        return E.Fitted(t, e)
    return cast(t, e)
