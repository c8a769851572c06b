"""Index arithmetic in a type in which no part of it overflows: its own, or int64.

What may leave the range of its type is decided by :class:`~tilewright.arith.spans.Spans`: nothing
but ranges of variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith.interval import Span, product
from tilewright.arith.spans import LIMIT, Spans, type_span
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype, wrapped
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.ops import cast
from tilewright.ir.visit import Rewriter

INT64 = dtype("int64")
_GROWING = (E.Add, E.Sub, E.Mul, E.Shl, E.FloorDiv, E.TruncDiv)


class Widths(Rewriter, Spans):
    """Rewrites values; :meth:`index` rewrites what addresses and loop bounds are made of."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.wider: dict[Var, Var] = {}
        #: What expressions became under the ranges that are known, by the rule that they go by:
        #: what several others read is rewritten once.
        self.memo: dict[tuple[str, Expr], Expr] = {}
        self.offsets: dict[Buffer, bool] = {}

    def learn(self, var: Var, span: Span) -> None:
        if self.known.get(var, span) != span:
            self.memo.clear()
        super().learn(var, span)

    def _once(self, rule: str, e: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
        found = self.memo.get((rule, e))
        if found is None:
            found = rewrite(e)
            self.memo[rule, e] = found
        return found

    # Indices.

    def index(self, e: Expr) -> Expr:
        """``e`` in a type in which no part of it overflows: its own, or int64."""
        return self._once("index", e, self._index)

    def _index(self, e: Expr) -> Expr:
        if not e.exact:
            return self.expr(e)
        match e:
            case Var():
                return self.wider.get(e, e)
            case IntImm(t, value):
                if self.fits(e):
                    return e
                self.within64(e)
                return IntImm(INT64.with_lanes(t.lanes), value)
            case E.And() | E.Or() | E.Not() | E.Compare():
                return self.condition(e)
            case E.Binary(a, b) if e.dtype.is_int:
                left, right = self.index(a), self.index(b)
                if isinstance(e, _GROWING) and not self.fits(e):
                    self.within64(e)
                    left, right = to64(left), to64(right)
                return _both(type(e), left, right, e)
            case E.Select(c, a, b) if e.dtype.is_int:
                chosen, left, right = self.condition(c), self.index(a), self.index(b)
                if left.dtype != right.dtype:
                    left, right = to64(left), to64(right)
                same = chosen is c and left is a and right is b
                return e if same else type(e)(chosen, left, right)
            case E.Cast(t, a) if t.is_int and a.dtype.is_int:
                inner = self.index(a)
                return e if inner is a else cast(t, inner)
            case E.Ramp(base, stride, lanes):
                first, step = self.index(base), self.index(stride)
                if not self.fits(e) or first.dtype != step.dtype:
                    first, step = to64(first), to64(step)
                same = first is base and step is stride
                return e if same else E.Ramp(first, step, lanes)
            case E.Broadcast(value, lanes):
                inner = self.index(value)
                return e if inner is value else E.Broadcast(inner, lanes)
        return self.parts(e)

    def condition(self, e: Expr) -> Expr:
        """A condition whose comparisons of indices cannot overflow."""
        return self._once("condition", e, self._condition)

    def _condition(self, e: Expr) -> Expr:
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
                made = to64(made)
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
        return self._once("value", e, self._value)

    def _value(self, e: Expr) -> Expr:
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
                made, inner = self.bound(var, value), self.expr(body)
                var = self.wider.get(var, var)
                same = made is value and inner is body
                return e if same else E.LetExpr(var, made, inner)
        return super().expr(e)

    def bound(self, var: Var, value: Expr) -> Expr:
        """What ``var`` stands for from here on; it becomes an int64 where ``value`` needs one.

        ``value`` is rewritten once: values that bind others nest as deep as expressions do.
        """
        if not (var.dtype.is_int and value.exact):
            if var.dtype.is_int:
                self.learn(var, type_span(var.dtype))
            return self.expr(value)
        self.learn(var, self.span(value))
        made = self.index(value)
        if var.dtype.bits < 64 and made.dtype.bits == 64:
            self.wider[var] = var.like(INT64.with_lanes(var.dtype.lanes))
            return made
        return made if made.dtype == value.dtype else E.Cast(value.dtype, made)


def _both(node: Any, a: Expr, b: Expr, old: Any) -> Expr:
    """The operation on both, in the wider of their types."""
    if a.dtype != b.dtype:
        a, b = to64(a), to64(b)
    made: Expr = old if a is old.a and b is old.b else node(a, b)
    return made


def to64(e: Expr) -> Expr:
    if e.dtype.bits == 64:
        return e
    match e:
        case E.Ramp(base, stride, lanes):  # stays visible as a vector of neighbours
            return E.Ramp(to64(base), to64(stride), lanes)
        case E.Broadcast(value, lanes):
            return E.Broadcast(to64(value), lanes)
    return cast(INT64, e)


def _narrow(e: Expr, t: DType) -> Expr:
    match e:
        case E.Ramp(base, stride, lanes):
            return E.Ramp(_narrow(base, t.element), _narrow(stride, t.element), lanes)
    return fitted(e, t.with_lanes(e.dtype.lanes))


def fitted(e: Expr, t: DType) -> Expr:
    """An index in a type that holds it."""
    if e.dtype == t:
        return e
    if t.bits < e.dtype.bits and not isinstance(e, IntImm):
        return E.Fitted(t, e)
    return cast(t, e)
