"""Loops that a pragma allows to unroll are marked for it.

Stands last among the passes on loops, when their extents are final. The pragma
``auto_unroll_max_step`` on a loop unrolls, from the inside out, every serial loop in it (itself
included) that takes no more than that number of steps in all, a step being a store or an
instruction:

>>> from tilewright.lower.ir_builder import *
>>> i, k = axes("i k")
>>> A, B = buffer("A", 9, 4), buffer("B", 9)
>>> body = loop(k, 4, store(B[i], B[i] + A[i, k]))
>>> print(unroll(func(loop(i, 9, body, annotations=((Pragma.AUTO_UNROLL_MAX_STEP, 16),)))).body)
for i in range(9):
    for k in T.unrolled(4):
        B[i] = B[i] + A[i, k]

Loops stay loops until code generation, which writes them out or asks the compiler to.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import IntImm
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    Evaluate,
    For,
    ForKind,
    If,
    Instr,
    Let,
    Pragma,
    Remark,
    Seq,
    Stmt,
    Store,
    with_body,
)
from tilewright.ir.visit import Steps, run


def unroll(func: Func) -> Func:
    """Mark the loops that a pragma allows to unroll; see the module's docstring."""
    body, _ = run(_visit(func.body, 0))
    return func if body is func.body else replace(func, body=body)


def _visit(s: Stmt, limit: int) -> Steps:
    """``s`` with loops marked, and how many steps it takes."""
    match s:
        case For(_, _, extent, kind, body):
            limit = int(s.pragma(Pragma.AUTO_UNROLL_MAX_STEP, limit))
            body, steps = yield _visit(body, limit)
            if kind in (ForKind.SERIAL, ForKind.UNROLLED):
                steps *= extent.value if isinstance(extent, IntImm) else float("inf")
            if kind is ForKind.SERIAL and 0 < steps <= limit:
                kind = ForKind.UNROLLED
            same = body is s.body and kind is s.kind
            return s if same else replace(s, kind=kind, body=body), steps
        case Seq(stmts):
            found = []
            for x in stmts:
                found.append((yield _visit(x, limit)))
            steps = sum(n for _, n in found)
            if all(new is old for (new, _), old in zip(found, stmts, strict=True)):
                return s, steps
            return Seq(tuple(x for x, _ in found)), steps
        case If(_, then, orelse):
            then, steps = yield _visit(then, limit)
            other, more = (None, 0.0) if orelse is None else (yield _visit(orelse, limit))
            same = then is s.then and other is s.orelse
            return s if same else replace(s, then=then, orelse=other), steps + more
        case Allocate(_, body) | Let(_, _, body) | Remark(body=body):
            body, steps = yield _visit(body, limit)
            return s if body is s.body else with_body(s, body), steps
        case Store() | Evaluate() | Instr():
            return s, 1
    return s, float("inf")  # a barrier: what stands around it stays a loop
