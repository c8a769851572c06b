"""A condition on a thread, put around only what that thread must not do.

Barriers and reductions across threads need every thread of the block, so a guard is not put
around them but around their neighbours; a reduction takes it as a condition on what it sums:

>>> from tilewright.ir import Buffer, dtype
>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import const
>>> from tilewright.ir.stmt import Store, Sync, seq
>>> t, f32 = Var.make("t"), dtype("float32")
>>> S = Buffer("S", (const(8),), f32, "shared")
>>> B = Buffer("B", (const(8),), f32)
>>> guarded(t < 8, seq(Store(S, (t,), const(1.0)), Sync("shared"), Store(B, (t,), S[7 - t])))
if t < 8:
    S[t] = T.float32(1)
T.sync('shared')
if t < 8:
    B[t] = S[7 - t]
"""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load
from tilewright.ir.ops import const, logical_and
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    For,
    ForKind,
    If,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import exprs, statements, stores


def guarded(condition: Expr, body: Stmt) -> Stmt:
    """``body`` done only where ``condition`` holds, with barriers reached by every thread.

    ``condition`` is pure. It descends through what all threads can go through together: sequences,
    allocations, loops and definitions that read no memory.
    """
    if not _needs_every_thread(body):
        return If(condition, body)
    match body:
        case Seq(stmts):
            return seq(*(guarded(condition, s) for s in stmts))
        case Allocate(buffer, inner):
            return Allocate(buffer, guarded(condition, inner))
        case Remark(body=inner):
            return with_body(body, guarded(condition, inner))
        case For(var, low, extent, ForKind.SERIAL | ForKind.UNROLLED as kind, inner, tag, notes):
            if not (_reads(low) or _reads(extent)):
                return For(var, low, extent, kind, guarded(condition, inner), tag, notes)
        case Let(var, value, inner):
            if not _reads(value):
                return Let(var, value, guarded(condition, inner))
        case If(inner_condition, then, None) if not _reads(inner_condition):
            return guarded(logical_and(condition, inner_condition), then)
        case Sync():
            return body
        case AllReduce():
            return _guarded_reduction(condition, body)
    return If(condition, body)


def _guarded_reduction(condition: Expr, r: AllReduce) -> Stmt:
    """The reduction into registers by every thread, its result kept where ``condition`` holds."""
    here = tuple(Buffer(f"{b.name}_reduced", (const(1),), b.dtype, "local") for b in r.buffers)
    both = logical_and(condition, r.condition)
    whole = AllReduce(r.reducer, here, (const(0),), r.source, both, r.axes, r.everywhere)
    leader = condition
    if not r.everywhere:
        leader = logical_and(condition, *(axis.equal(0) for axis in r.axes))
    keep = (Store(b, r.indices, h[0]) for b, h in zip(r.buffers, here, strict=True))
    made: Stmt = seq(whole, If(leader, seq(*keep)))
    for buffer in here:
        made = Allocate(buffer, made)
    return made


def _needs_every_thread(s: Stmt) -> bool:
    """Whether ``s`` holds a barrier, or will: one statement of a sequence fills shared memory."""
    for node in statements(s):
        match node:
            case Sync() | AllReduce():
                return True
            case Seq(stmts) if any(x.buffer.scope == "shared" for y in stmts for x in stores(y)):
                return True
    return False


def _reads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in exprs(e))
