"""The nodes that are not integer arithmetic: choices, conversions, reads, floats, vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.arith.conditions import FALSE, TRUE, negated, negation
from tilewright.ir import expr as E
from tilewright.ir.dtype import int_range, wrapped
from tilewright.ir.expr import BOOL, Expr, FloatImm, IntImm
from tilewright.ir.ops import add, cast, mul, sub
from tilewright.ir.visit import WRAPPING, Rewriter

if TYPE_CHECKING:
    from tilewright.arith.analyzer import Analyzer
    from tilewright.ir.dtype import DType


#: Arithmetic on data of which simplified parts may leave one operand, or a constant.
_FOLDED: dict[type[Expr], Callable[[Expr, Expr], Expr]] = {E.Add: add, E.Sub: sub, E.Mul: mul}


class _Children(Rewriter):
    """Rebuilds one node from its simplified parts."""

    def __init__(self, az: Analyzer) -> None:
        self.simplify = az.simplify

    def node(self, e: Expr) -> Expr:
        return super().expr(e)

    def expr(self, e: Expr) -> Expr:
        return self.simplify(e)


def rebuild(az: Analyzer, e: Expr) -> Expr:
    """A node from its simplified parts, with the rules for its kind."""
    match e:
        case E.Var() | IntImm() | FloatImm() | E.StringImm():
            return e
        case E.Load(buffer, indices, predicate):
            with az.unconditional():
                made = tuple([az.simplify(i) for i in indices])
                on = None if predicate is None else az.simplify(predicate)
            same = on is predicate and all(x is y for x, y in zip(made, indices, strict=True))
            return e if same else E.Load(buffer, made, on)
        case E.Select(c, t, f):
            return _choice(az, e, c, t, f)
        case E.Cast(t, E.Cast(other, value)) if value.dtype is t and value.exact and other.is_int:
            # What marks an index as data: not needed where its type holds it.
            inner = az.simplify(value)
            if other.bits >= t.bits and _fits(az, inner, t):
                return inner
            return e if inner is value else cast(t, cast(other, inner))
        case E.Cast(t, value):
            inner = az.simplify(value)
            return e if inner is value else cast(t, inner)
        case E.LetExpr(var, value, body):
            return _let(az, e, var, value, body)
        case E.Reduce():
            return _reduce(az, e)
        case E.Binary(a, b) | E.Compare(a, b):
            x, y = az.simplify(a), az.simplify(b)
            cls = type(e)
            fold = _FOLDED.get(cls) if e.dtype.is_int and e.dtype.lanes == 1 else None
            if fold is not None and (x is not a or y is not b):
                return _as_before(az, e, fold(x, y))
            if e.dtype.is_float and _is_one(y) and (cls is E.Mul or cls is E.Div):
                return x
            if e.dtype.is_float and _is_one(x) and cls is E.Mul:
                return y
            if x is y and (cls is E.Min or cls is E.Max):
                return x
            return e if x is a and y is b else _as_before(az, e, cls(x, y))
    return _Children(az).node(e)


def _as_before(az: Analyzer, old: Expr, new: Expr) -> Expr:
    """``new``, unless it is arithmetic on indices where ``old`` is on data, which wraps around
    where the other does not."""
    if not new.exact or old.exact or not isinstance(old, WRAPPING):
        return new
    t = old.dtype
    if isinstance(new, IntImm):
        return IntImm(t, wrapped(new.value, t))
    return new if _fits(az, new, t) else old


def _fits(az: Analyzer, e: Expr, t: DType) -> bool:
    """Whether an integer type holds all values of an index."""
    if t.lanes > 1:
        return False
    found = az.bounds(e)
    low, high = int_range(t)
    return found.lo is not None and found.hi is not None and low <= found.lo <= found.hi <= high


def _is_one(e: Expr) -> bool:
    if isinstance(e, E.Broadcast):
        e = e.value
    return isinstance(e, FloatImm) and e.value == 1.0


def _choice(az: Analyzer, e: E.Select, c: Expr, t: Expr, f: Expr) -> Expr:
    """A choice: each branch is simplified where the condition holds, or where it fails.

    Both values of a ``Select`` are evaluated, whatever the condition: what may fail in them, as a
    read does whose index is out of bounds, keeps a form that does not without it.
    """
    condition = az.simplify(c)
    if isinstance(condition, IntImm):
        return az.simplify(t if condition.value else f)
    if condition.dtype.lanes > 1:
        if isinstance(condition, E.Broadcast) and isinstance(condition.value, IntImm):
            return az.simplify(t if condition.value.value else f)
        return _Children(az).node(e)
    eager = not isinstance(e, E.IfThenElse)

    outside = az.context
    try:
        az.enter(condition, eager)
        on_true = az.simplify(t)
        az.context = outside
        on_false: Expr = f
        if isinstance(f, (FloatImm, IntImm)):
            pass
        else:
            az.enter(negated(az, condition), eager)
            on_false = az.simplify(f)
    finally:
        az.context = outside
    if on_true is on_false:
        return on_true
    if on_true.dtype is BOOL and isinstance(on_true, IntImm) and isinstance(on_false, IntImm):
        return condition if on_true is TRUE else negation(az, condition)
    if on_false is FALSE:
        return az.simplify(E.And(condition, on_true))
    same = condition is c and on_true is t and on_false is f
    return e if same else type(e)(condition, on_true, on_false)


def _let(az: Analyzer, e: Expr, var: E.Var, value: Expr, body: Expr) -> Expr:
    made = az.simplify(value)
    with az.scope():
        if isinstance(made, (IntImm, FloatImm, E.Var)):
            from tilewright.ir.visit import substitute

            return az.simplify(substitute(body, {var: made}))
        az.define(var, made)
        inner = az.simplify(body)
    same = made is value and inner is body
    return e if same else E.LetExpr(var, made, inner)


def _reduce(az: Analyzer, e: E.Reduce) -> Expr:
    with az.scope():
        for axis in e.axes:
            if axis.dom is not None:
                az.bind(axis.var, axis.dom.min, axis.dom.extent)
        condition = az.simplify(e.condition)
        source = tuple(map(az.simplify, e.source))
    init = tuple(map(az.simplify, e.init))
    return E.Reduce(e.reducer, source, e.axes, condition, e.index, init)
