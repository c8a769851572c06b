"""Vector stores as loops over their lanes, for a language whose compiler makes vectors itself.

>>> from tilewright.lower.ir_builder import *
>>> (i,) = axes("i")
>>> A, B = buffer("A", 8), buffer("B", 8)
>>> from tilewright.ir.expr import Ramp
>>> from tilewright.ir.ops import const
>>> lanes = Ramp(const(0), const(1), 8)
>>> print(unpack_lanes(func(store(B[lanes], A[lanes] * 2.0))).body)
for lane in range(8):
    B[lane] = A[lane] * T.float32(2)

With a ``width`` of registers, in bytes, only vectors that are wider and whose lanes are no power of
two: where LLVM 22 stores parts of such a vector, it may store other lanes.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir import stmt as S
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func
from tilewright.ir.visit import Rewriter, Steps, distinct, loads, stores, substitute


def unpack_lanes(func: Func, width: int = 0) -> Func:
    """``func`` with a loop of scalar stores in place of each vector store.

    A store whose lanes depend on one another (it reads what another of its lanes writes) stays.
    """
    return replace(func, body=_Unpack(width).stmt(func.body))


class _Unpack(Rewriter):
    def __init__(self, width: int) -> None:
        self.width = width

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: S.Stmt) -> Steps:
        match s:
            case S.Store():
                return _store(s) if _unpacked(s.value, self.width) else s
            case S.Let(var, value, body) if var.dtype.lanes > 1 and _unpacked(value, self.width):
                changed = {x.buffer for x in stores(body)}
                if not any(x.buffer in changed for x in loads(value)) or isinstance(body, S.Store):
                    return (yield self.steps(substitute(body, {var: value})))
            case S.Instr():
                return s
        return (yield from super().steps(s))


def _unpacked(value: Expr, width: int) -> bool:
    """Whether a value is computed lane by lane, where it is a vector."""
    if not width:
        return True
    lanes = value.dtype.lanes
    types = [x.dtype for x in distinct(value) if isinstance(x, Expr) and not isinstance(x, E.Ramp)]
    wide = max(t.bytes for t in (value.dtype, *types) if t.lanes == lanes)
    return lanes & (lanes - 1) != 0 and lanes * wide > width


def _store(s: S.Store) -> S.Stmt:
    parts = [*s.indices, s.value] + ([] if s.predicate is None else [s.predicate])
    lanes = max(x.dtype.lanes for x in parts)
    if lanes == 1:
        return s
    if any(x.buffer is s.buffer and x.indices != s.indices for part in parts for x in loads(part)):
        return s
    var = Var.make("lane")
    try:
        indices = tuple(lane_of(i, var) for i in s.indices)
        value = lane_of(s.value, var)
        made: S.Stmt = S.Store(s.buffer, indices, value)
        if s.predicate is not None:
            made = S.If(lane_of(s.predicate, var), made)
    except NotALane:
        return s
    return S.For(var, ops.const(0), ops.const(lanes), S.ForKind.SERIAL, made)


class NotALane(Exception):
    """The lanes of a vector have no common form."""


def lane_of(e: Expr, k: Expr) -> Expr:
    """Lane ``k`` of a vector; a scalar as it is, but for vectors inside of it."""
    match e:
        case E.Ramp(base, stride, _):
            return ops.add(lane_of(base, k), ops.mul(ops.cast(base.dtype, k), stride))
        case E.Broadcast(value, _):
            return lane_of(value, k)
        case E.Lane(vector, index):
            return lane_of(vector, ops.const(index))
        case E.Concat(values):
            if isinstance(k, E.IntImm):
                return values[k.value]
            raise NotALane
        case E.Cast(to, value):
            return E.Cast(to.element, lane_of(value, k))
        case E.Call(to, name, args):
            return E.Call(to.element, name, tuple(lane_of(a, k) for a in args))
        case E.Load(buffer, indices, predicate):
            on = None if predicate is None else lane_of(predicate, k)
            return E.Load(buffer, tuple(lane_of(i, k) for i in indices), on)
        case E.LetExpr(var, value, body) if var.dtype.lanes > 1:
            one = var.like(var.dtype.element)
            return E.LetExpr(one, lane_of(value, k), lane_of(substitute(body, {var: one}), k))
        case E.LetExpr(var, value, body):
            return E.LetExpr(var, lane_of(value, k), lane_of(body, k))
        case Var() | E.IntImm() | E.FloatImm() | E.StringImm():
            if e.dtype.lanes > 1:
                raise NotALane
            return e
        case E.Not(a):
            return E.Not(lane_of(a, k))
        case E.Select(c, t, f):
            return type(e)(lane_of(c, k), lane_of(t, k), lane_of(f, k))
        case E.Binary(a, b) | E.Compare(a, b):
            return type(e)(lane_of(a, k), lane_of(b, k))
    raise NotALane
