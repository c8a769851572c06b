"""Tile loads on the queue for late ones are committed at once, and awaited before their first use.

What such a load brings is wanted behind loops with barriers, each of which would wait for it: what
is read behind a barrier is waited for in front of it
(:mod:`~tilewright.lower.async_.insert_async_waits`). All threads wait for it, so no barrier is
needed between.

>>> from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
>>> from tilewright.target.instruction import Argument, Axis, decl_instruction
>>> from tilewright.ir.stmt import Access
>>> tile = decl_instruction("doc_late", (Axis("i", 4),), (Argument("S", ("i",), "float32"),
...     Argument("A", ("i",), "float32")), lambda s, a: a, queue="tma_late")
>>> i, j, k = axes("i j k")
>>> A, B, C = buffer("A", 4), buffer("B", 4), buffer("C", 4)
>>> S = buffer("S", 4, scope="shared")
>>> load = Instr(tile, (i,), (Access(S, (i,)), Access(A, (i,))), store(S[i], A[i]))
>>> other, use = loop(k, 4, store(B[k], 0.0)), loop(j, 4, store(C[j], S[j]))
>>> print(await_late_loads(func(allocate(S, load, other, use), target="sim")).body)
S = T.allocate([4], 'float32', 'shared')
with T.attr('committed', 'tma_late'):
    with T.instruction('doc_late', S[i], A[i]):
        S[i] = A[i]
T.queue('tma_late', 'commit')
for k in range(4):
    B[k] = T.float32(0)
T.queue('tma_late', 'wait', 0)
for j in range(4):
    C[j] = S[j]

It stands before barriers are inserted. A load that nothing reads behind it in the same body is left
as it is.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    Committed,
    For,
    If,
    Instr,
    Queue,
    Remark,
    Seq,
    Stmt,
    seq,
    with_body,
)
from tilewright.ir.visit import Rewriter, Steps, loads, statements
from tilewright.target.queues import LATE_TILES


def await_late_loads(func: Func) -> Func:
    """``func`` with commits of late loads and waits for them."""
    issued = (s for s in statements(func.body) if isinstance(s, Instr))
    if not any(s.instruction.queue == LATE_TILES for s in issued):
        return func
    return replace(func, body=_Awaiting().stmt(func.body))


class _Awaiting(Rewriter):
    def steps(self, s: Stmt) -> Steps:
        made = yield from super().steps(s)
        if not isinstance(made, Seq):
            return made
        done: list[Stmt] = []
        for x in reversed(made.stmts):
            filled = _filled(x)
            rest = _before_use(seq(*done), filled) if filled else None
            if rest is None:
                done.insert(0, x)
            else:
                done = [Committed(LATE_TILES, x), Queue(LATE_TILES, "commit"), rest]
        return seq(*done)


def _filled(s: Stmt) -> set[Buffer]:
    """What a statement fills that does nothing but late loads; nothing of any other."""
    match s:
        case Instr(instruction, _, operands, _):
            return {operands[0].buffer} if instruction.queue == LATE_TILES else set()
        case For(_, _, _, _, body) | If(_, body, None):
            return _filled(body)
        case Remark(body=body) if not isinstance(s, Committed):
            return _filled(body)
        case Seq(stmts):
            found = [_filled(x) for x in stmts]
            return set().union(*found) if all(found) else set()
    return set()


def _before_use(s: Stmt, buffers: set[Buffer]) -> Stmt | None:
    """``s`` with a wait in front of the first statement in it that reads ``buffers``; None where
    nothing does."""
    if not any(load.buffer in buffers for load in loads(s)):
        return None
    match s:
        case Allocate(_, body) | Remark(body=body):
            inner = _before_use(body, buffers)
            assert inner is not None
            return with_body(s, inner)
        case Seq(stmts):
            for k, x in enumerate(stmts):
                found = _before_use(x, buffers)
                if found is not None:
                    return seq(*stmts[:k], found, *stmts[k + 1 :])
    return seq(Queue(LATE_TILES, "wait", 0), s)
