"""What every pass keeps: operands agree in type and lanes, variables are in scope, and buffers have
one size for all of a call.

Code generators rely on it; :func:`check` says where a program breaks it. The rules are those of the
node classes in :mod:`tilewright.ir.expr` and :mod:`tilewright.ir.stmt`.
"""

from __future__ import annotations

from tilewright.ir import Buffer, Func, Module
from tilewright.ir import expr as E
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Allocate, Evaluate, For, If, Let, Remark, Seq, Stmt, Store
from tilewright.ir.visit import children, statements

#: Functions whose arguments and results are not lane by lane.
_APART = ("address_of", "prefetch", "shuffle", "extern:")


class Malformed(AssertionError):
    """A program that no pass may make."""


def check(step: str, program: Func | Module) -> None:
    """Raise :class:`Malformed` where ``program``, as ``step`` left it, breaks a rule."""
    for func in program.funcs if isinstance(program, Module) else (program,):
        known = {p for p in func.params if isinstance(p, Var)}
        for p in func.params:
            if isinstance(p, Buffer):
                known |= {v for extent in p.shape for v in _variables(extent)}
        fixed = frozenset(known)
        known |= {axis.var for axis in func.launch}
        try:
            for s in statements(func.body):
                if isinstance(s, Allocate):
                    for extent in s.buffer.shape:
                        _expr(extent, fixed, set())
            _stmt(func.body, frozenset(known), set())
        except Malformed as error:
            raise Malformed(f"after {step}: {error}\n{func}") from None


def _variables(e: Expr) -> set[Var]:
    found = {e} if isinstance(e, Var) else set()
    return found.union(*(_variables(c) for c in children(e) if isinstance(c, Expr)))


def _require(holds: bool, node: object, rule: str) -> None:
    if not holds:
        raise Malformed(f"{rule}: {node}")


def _stmt(s: Stmt, known: frozenset[Var], seen: set[Expr]) -> None:
    """Check ``s`` where the variables ``known`` have values; ``seen`` expressions are right."""

    def scalar(e: Expr) -> None:
        _expr(e, known, seen)
        _require(e.dtype.lanes == 1, e, "a scalar is needed")

    match s:
        case For(var, low, extent, _, body):
            for end in (low, extent):
                scalar(end)
                _require(end.dtype.is_int, end, "the ends of a loop are integers")
            _stmt(body, known | {var}, set())
        case Let(var, value, body):
            _expr(value, known, seen)
            _require(var.dtype is value.dtype, s.value, f"{var.name} is of {var.dtype}")
            _stmt(body, known | {var}, set())
        case If(condition, then, orelse):
            scalar(condition)
            _require(condition.dtype.is_bool, condition, "a condition is bool")
            for branch in (then, orelse):
                if branch is not None:
                    _stmt(branch, known, seen)
        case Store(buffer, indices, value, predicate):
            place = _element(buffer, indices, known, seen)
            _expr(value, known, seen)
            _require(value.dtype is place, s, f"{value.dtype} is stored to {place}")
            _mask(predicate, place.lanes, known, seen)
        case Allocate(buffer, body):
            for extent in buffer.shape:
                scalar(extent)
            _stmt(body, known, seen)
        case Remark(body=body):
            _stmt(body, known, seen)
        case Seq(stmts):
            for x in stmts:
                _stmt(x, known, seen)
        case Evaluate(value):
            _expr(value, known, seen)


def _mask(predicate: Expr | None, lanes: int, known: frozenset[Var], seen: set[Expr]) -> None:
    if predicate is not None:
        _expr(predicate, known, seen)
        _require(predicate.dtype.is_bool, predicate, "a predicate is bool")
        _require(predicate.dtype.lanes == lanes, predicate, f"it masks {lanes} lanes")


def _element(
    buffer: Buffer, indices: tuple[Expr, ...], known: frozenset[Var], seen: set[Expr]
) -> DType:
    """The type of what is at ``indices``."""
    _require(buffer.dtype.lanes == 1, buffer, "an element is a scalar")
    _require(len(indices) in (len(buffer.shape), 1), buffer, f"{len(indices)} indices")
    lanes = max((i.dtype.lanes for i in indices), default=1)
    for index in indices:
        _expr(index, known, seen)
        _require(index.dtype.is_int, index, "an index is an integer")
        _require(index.dtype.lanes in (1, lanes), index, f"beside an index of {lanes} lanes")
    return buffer.dtype.with_lanes(lanes)


def _expr(e: Expr, known: frozenset[Var], seen: set[Expr]) -> None:
    if e in seen:
        return
    if isinstance(e, Var):
        _require(e in known, e, f"the variable {e.name!r} has no value here")
        return
    if isinstance(e, E.LetExpr):
        _expr(e.value, known, seen)
        _require(e.var.dtype is e.value.dtype, e, f"{e.var.name} is of {e.var.dtype}")
        _expr(e.body, known | {e.var}, set())
        return
    if isinstance(e, E.Load):
        place = _element(e.buffer, e.indices, known, seen)
        _mask(e.predicate, place.lanes, known, seen)
        return
    for child in children(e):
        if isinstance(child, Expr):
            _expr(child, known, seen)
    _node(e)
    seen.add(e)


def _node(e: Expr) -> None:
    """Whether the operands of one node agree."""
    match e:
        case E.And(a, b) | E.Or(a, b):
            _require(a.dtype.is_bool and a.dtype is b.dtype, e, f"of {a.dtype} and {b.dtype}")
        case E.Not(a):
            _require(a.dtype.is_bool, e, f"of {a.dtype}")
        case E.Binary(a, b) | E.Compare(a, b):
            _require(a.dtype is b.dtype, e, f"of {a.dtype} and {b.dtype}")
        case E.Cast(t, value):
            _require(t.lanes == value.dtype.lanes, e, f"{value.dtype} to {t}")
        case E.Select(condition, on_true, on_false):
            _require(on_true.dtype is on_false.dtype, e, f"{on_true.dtype} or {on_false.dtype}")
            _require(condition.dtype.is_bool, e, f"chosen by {condition.dtype}")
            _require(condition.dtype.lanes in (1, e.dtype.lanes), e, f"by {condition.dtype}")
        case E.Ramp(base, stride, lanes):
            _require(base.dtype is stride.dtype, e, f"of {base.dtype} by {stride.dtype}")
            _require(base.dtype.lanes == 1 and lanes > 1, e, f"{lanes} of {base.dtype}")
        case E.Broadcast(value, lanes):
            _require(value.dtype.lanes == 1 and lanes > 1, e, f"{lanes} of {value.dtype}")
        case E.Lane(vector, index):
            _require(0 <= index < vector.dtype.lanes, e, f"of {vector.dtype}")
        case E.Concat(values):
            types = {v.dtype for v in values}
            _require(len(types) == 1 and values[0].dtype.lanes == 1, e, f"of {types}")
        case E.Call(t, name, args) if not name.startswith(_APART):
            _require(all(a.dtype.lanes == t.lanes for a in args), e, f"{t} of {args}")
