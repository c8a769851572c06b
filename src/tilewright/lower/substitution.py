"""Putting values in place of variables, with constants folded, and copies of statements.

A statement that stands twice in a program needs loop variables and buffers of its own in each
place, so that a fact learned about one of them says nothing about the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Expr
from tilewright.ir.operand import OPERATORS
from tilewright.ir.stmt import Allocate, AllReduce, For, ForKind, Instr, Let, Stmt, Store
from tilewright.ir.visit import Rewriter, Steps, distinct

_FOLDED: dict[type[Expr], Callable[[Any, Any], Expr]] = {
    E.Add: ops.add, E.Sub: ops.sub, E.Mul: ops.mul, E.FloorDiv: ops.floordiv,
    E.FloorMod: ops.floormod, E.Min: ops.minimum, E.Max: ops.maximum,
    E.And: ops.logical_and, E.Or: ops.logical_or, E.EQ: OPERATORS["eq"],
    E.NE: OPERATORS["ne"], E.LT: OPERATORS["lt"], E.LE: OPERATORS["le"],
    E.GT: OPERATORS["gt"], E.GE: OPERATORS["ge"],
}  # fmt: skip


class _Put(Rewriter):
    def __init__(self, mapping: Mapping[Expr, Expr], buffers: Mapping[Buffer, Buffer]) -> None:
        self.mapping, self.buffers = mapping, buffers
        self.memo: dict[Expr, Expr] = {}

    def expr(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self.mapping.get(e)
            if found is None:
                found = super().expr(e)
                if found is not e:
                    found = fold(found)
            self.memo[e] = found
        return found

    def buffer(self, b: Buffer) -> Buffer:
        return self.buffers.get(b, b)


def fold(e: Expr) -> Expr:
    """``e`` with its outermost operation done where that is on integer constants.

    >>> from tilewright.ir.expr import Add
    >>> fold(Add(ops.const(2), ops.const(3)))
    5
    """
    compute = _FOLDED.get(type(e))
    if compute is None or not isinstance(e, (E.Binary, E.Compare)) or not _scalar_int(e):
        return e
    return compute(e.a, e.b)


def _scalar_int(e: Expr) -> bool:
    if isinstance(e, (E.FloorDiv, E.FloorMod)) and ops.is_const(e.b, 0):
        return False  # in code that does not run
    operand = e.a.dtype if isinstance(e, (E.Binary, E.Compare)) else e.dtype
    return operand.lanes == 1 and not operand.is_float


def put(
    node: Any, mapping: Mapping[Any, Expr], buffers: Mapping[Buffer, Buffer] | None = None
) -> Any:
    """``node`` with variables replaced by their values, and integer constants folded.

    >>> from tilewright.ir.expr import Var
    >>> i, j = Var.make("i"), Var.make("j")
    >>> put(i * 16 + j, {i: ops.const(2)})
    32 + j
    """
    if not mapping and not buffers:
        return node
    rewriter = _Put(mapping, buffers or {})
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


def renamed(buffer: Buffer, mapping: Mapping[Any, Expr] | None = None) -> Buffer:
    """Another buffer of the same description."""
    shape = tuple(put(n, mapping or {}) for n in buffer.shape)
    layout = buffer.layout
    if layout is not None and mapping:
        strides = tuple(put(n, mapping) for n in layout.strides)
        layout = Layout(strides, put(layout.base, mapping), layout.swizzle)
    return replace(buffer, shape=shape, layout=layout)


def copy(s: Stmt, mapping: Mapping[Any, Expr] | None = None) -> Any:
    """``s`` under ``mapping``, with variables and buffers of its own wherever it binds them.

    A loop over threads keeps its variable, which is the thread's index wherever it is bound: ``s``
    may stand inside of another loop over it, and speak of it outside of the one that it holds.
    """
    own: dict[Any, Expr] = dict(mapping or {})
    buffers: list[Buffer] = []
    for node in distinct(s):
        if isinstance(node, For) and node.kind is ForKind.THREAD:
            continue
        if isinstance(node, (For, Let, E.LetExpr)):
            own[node.var] = node.var.like()
        elif isinstance(node, Allocate):
            buffers.append(node.buffer)
    return put(s, own, {b: renamed(b, own) for b in buffers})


Indices = tuple[Expr, ...]


class _Widen(Rewriter):
    def __init__(self, wider: Mapping[Buffer, Buffer], place: Callable[[Indices], Indices]) -> None:
        self.wider, self.place = wider, place

    def buffer(self, b: Buffer) -> Buffer:
        return self.wider.get(b, b)

    def expr(self, e: Expr) -> Expr:
        found = super().expr(e)
        if isinstance(e, E.Load) and e.buffer in self.wider:
            assert isinstance(found, E.Load)
            return E.Load(found.buffer, self.place(found.indices), found.predicate)
        return found

    def steps(self, s: Stmt) -> Steps:
        found = yield from super().steps(s)
        match s, found:
            case Store(buffer), Store(_, indices) if buffer in self.wider:
                return replace(found, indices=self.place(indices))
            case AllReduce(_, buffers), AllReduce(_, _, indices) if self.wider.keys() & buffers:
                return replace(found, indices=self.place(indices))
            case Instr(_, _, operands), Instr(_, _, mapped):
                wide = tuple(
                    replace(new, indices=self.place(new.indices)) if o.buffer in self.wider else new
                    for o, new in zip(operands, mapped, strict=True)
                )
                return replace(found, operands=wide)
        return found


def widen(node: Any, wider: Mapping[Buffer, Buffer], place: Callable[[Indices], Indices]) -> Any:
    """``node`` with buffers replaced by wider ones, where ``place`` says which element is meant."""
    if not wider:
        return node
    rewriter = _Widen(wider, place)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)
