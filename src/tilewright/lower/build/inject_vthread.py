"""Virtual threads become statements side by side in one thread.

Stands before vectorising, so that copies are vectorised alike, and before kernels are split, so
that barriers are placed once for all copies. Loops whose extents are the same in every virtual
thread are shared, and what one of them reads can stay in a register for the next:

>>> from tilewright.lower.ir_builder import *
>>> i, k, v = axes("i k v")
>>> A, B = buffer("A", 8, 4), buffer("B", 8)
>>> body = loop(i, 4, loop(k, 4, store(B[v * 4 + i], B[v * 4 + i] + A[v * 4 + i, k])))
>>> print(inject_vthread(func(loop(v, 2, body, kind="vthread"))).body)
for i in range(4):
    for k in range(4):
        B[i] = B[i] + A[i, k]
        B[4 + i] = B[4 + i] + A[4 + i, k]

A buffer allocated inside gets a dimension for the virtual thread where its contents depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Call, Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    For,
    ForKind,
    If,
    Let,
    Remark,
    Seq,
    Stmt,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import Rewriter, Steps, distinct, exprs, statements
from tilewright.lower.analysis.varying import dependent, mentions
from tilewright.lower.context import pure
from tilewright.lower.substitution import copy, put, widen

#: More virtual threads than this stay loops around each statement.
_WRITTEN_OUT = 16


def inject_vthread(func: Func) -> Func:
    """Write the virtual threads of ``func`` side by side; see the module's docstring."""
    if not any(isinstance(s, For) and s.kind is ForKind.VTHREAD for s in statements(func.body)):
        return func
    return replace(func, body=_Inject().stmt(func.body))


class _Inject(Rewriter):
    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        if not (isinstance(s, For) and s.kind is ForKind.VTHREAD):
            return s
        if not isinstance(s.extent, IntImm):
            return replace(s, kind=ForKind.SERIAL, tag="")
        if s.extent.value <= _WRITTEN_OUT:
            numbers: list[Expr] = [ops.const(k, s.var.dtype) for k in range(s.extent.value)]
            copies = [_Copy(n, {s.var: ops.add(s.min, n)}) for n in numbers]
            return _Interleave(s.var, s.extent, copies, None, s.body).run(s.body)
        inner = Var.make(s.var.name, s.var.dtype)
        one = _Copy(inner, {s.var: ops.add(s.min, inner)})
        return _Interleave(s.var, s.extent, [one], inner, s.body).run(s.body)


@dataclass(frozen=True)
class _Copy:
    """One virtual thread: its number, what variables are in it, and when it runs."""

    number: Expr
    mapping: dict[Expr, Expr]
    condition: Expr | None = None


class _Interleave:
    """Rewrites the body of one loop over virtual threads.

    ``loop`` is the variable of the loop that is put around each statement where the copies are
    not written out (then ``copies`` holds the one that speaks of that variable).
    """

    def __init__(
        self, var: Var, extent: Expr, copies: list[_Copy], loop: Var | None, body: Stmt
    ) -> None:
        self.extent, self.copies, self.loop = extent, copies, loop
        self.vars, self.buffers = dependent(var, body)
        self.own: dict[Buffer, Buffer] = {}

    def run(self, s: Stmt) -> Stmt:
        return self.visit(s, self.copies)

    def visit(self, s: Stmt, copies: list[_Copy]) -> Stmt:
        """``s`` for all ``copies``, sharing what can be shared."""
        if any(c.condition is not None for c in copies) and not _total(s):
            return self.replicate(s, copies)
        match s:
            case Seq(stmts):
                return seq(*(self.visit(x, copies) for x in stmts))
            case Remark(body=body):
                return with_body(s, self.visit(body, copies))
            case Allocate(buffer, body):
                if any(map(self.depends, (*buffer.shape, *buffer.strides))):
                    return self.replicate(s, copies)
                if buffer in self.buffers:
                    self.own[buffer] = buffer = _widened(buffer, self.extent)
                return Allocate(buffer, self.visit(body, copies))
            case For(var, low, extent, kind, body) if not self.depends(extent):
                if not self.depends(low):
                    return replace(s, body=self.visit(body, copies))
                if kind is not ForKind.THREAD:
                    shared = Var.make(var.name, var.dtype)
                    self.vars.add(var)
                    shifted = [
                        self.bind(c, var, ops.add(self.in_copy(low, c), shared)) for c in copies
                    ]
                    zero = ops.const(0, var.dtype)
                    return replace(s, var=shared, min=zero, body=self.visit(body, shifted))
            case Let(var, value, body):
                if not self.depends(value):
                    return Let(var, value, self.visit(body, copies))
                if self.loop is None:
                    own = [var.like() for _ in copies]
                    bound = [self.bind(c, var, v) for c, v in zip(copies, own, strict=True)]
                    inner = self.visit(body, bound)
                    for c, v in zip(reversed(copies), reversed(own), strict=True):
                        inner = Let(v, self.in_copy(value, c), inner)
                    return inner
            case If(condition, then, orelse):
                if not self.depends(condition):
                    other = None if orelse is None else self.visit(orelse, copies)
                    return If(condition, self.visit(then, copies), other)
                if not any(isinstance(e, (Load, Call)) for e in exprs(condition)):
                    # The condition moves in to the statements, so that loops stay shared.
                    first = self.visit(then, [self.guard(c, condition) for c in copies])
                    if orelse is None:
                        return first
                    negated = ops.logical_not(condition)
                    other_copies = [self.guard(c, negated) for c in copies]
                    return seq(first, self.visit(orelse, other_copies))
            case Sync():
                return s
        guarded = any(c.condition is not None for c in copies)
        if not guarded and not self.depends(s) and not _acts(s):
            return s
        return self.replicate(s, copies)

    def depends(self, node: Expr | Stmt) -> bool:
        """Whether ``node`` differs from one virtual thread to another."""
        return mentions(node, self.vars, self.buffers)

    def bind(self, c: _Copy, var: Var, value: Expr) -> _Copy:
        return replace(c, mapping={**c.mapping, var: value})

    def guard(self, c: _Copy, condition: Expr) -> _Copy:
        mine = self.in_copy(condition, c)
        return replace(
            c, condition=ops.logical_and(*(x for x in (c.condition, mine) if x is not None))
        )

    def replicate(self, s: Stmt, copies: list[_Copy]) -> Stmt:
        """``s`` once for each virtual thread."""
        made: list[Stmt] = []
        for c in copies:
            mine: Stmt = self.in_copy(s, c)
            if c.condition is not None:
                if ops.is_const(c.condition, 0):
                    continue
                if not ops.is_const(c.condition):
                    mine = If(c.condition, mine)
            if self.loop is not None:
                fresh = Var.make(self.loop.name, self.loop.dtype)
                mine = put(mine, {self.loop: fresh})
                zero = ops.const(0, fresh.dtype)
                mine = For(fresh, zero, self.extent, ForKind.UNROLLED, mine)
            made.append(mine)
        return seq(*made)

    def in_copy(self, node: Any, c: _Copy) -> Any:
        """A statement or an expression as virtual thread ``c`` has it."""
        made = copy(node, c.mapping) if isinstance(node, Stmt) else put(node, c.mapping)
        return widen(made, self.own, lambda indices: (c.number, *indices))


def _widened(buffer: Buffer, extent: Expr) -> Buffer:
    """``buffer`` once for each virtual thread, one after the other."""
    layout = buffer.layout
    if layout is not None:
        stride = buffer.size
        layout = Layout((stride, *layout.strides), layout.base, layout.swizzle)
    shape = (extent, *buffer.shape)
    held = buffer.distribution
    if held is not None and isinstance(extent, IntImm):
        held = held.copies(extent.value)
    return replace(buffer, shape=shape, layout=layout, distribution=held)


def _total(s: Stmt) -> bool:
    """Whether what ``s`` evaluates ahead of its body can be evaluated where a guard fails."""
    match s:
        case For(_, low, extent):
            return pure(low) and pure(extent)
        case If(value) | Let(_, value):
            return pure(value)
    return True


def _acts(s: Stmt) -> bool:
    """Whether ``s`` does something that counts how often it is done."""
    return any(isinstance(e, Call) and e.name.startswith("extern:") for e in distinct(s))
