"""Loops that a pragma allows to unroll are marked for it.

Stands last among the passes on loops, when their extents are final. The pragma
``auto_unroll_max_step`` on a loop unrolls, from the inside out, every serial loop in it (itself
included) that takes no more than so many steps in all, a step being a store or an instruction:

>>> from tilewright.lower.sketch import *
>>> i, k = axes("i k")
>>> A, B = buffer("A", 9, 4), buffer("B", 9)
>>> body = loop(k, 4, store(B[i], B[i] + A[i, k]))
>>> print(unroll(func(loop(i, 9, body, annotations=(("auto_unroll_max_step", 16),)))).body)
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
    Attr,
    Evaluate,
    For,
    ForKind,
    If,
    Instr,
    Let,
    Seq,
    Stmt,
    Store,
)

PRAGMA = "auto_unroll_max_step"


def unroll(func: Func) -> Func:
    """Mark the loops that a pragma allows to unroll; see the module's docstring."""
    config = func.attrs.get("config") or {}
    body, _ = _visit(func.body, int(config.get(PRAGMA, 0)))
    return func if body is func.body else replace(func, body=body)


def _visit(s: Stmt, limit: int) -> tuple[Stmt, float]:
    """``s`` with loops marked, and how many steps it takes."""
    match s:
        case For(_, _, extent, kind, body, _, annotations):
            limit = int(dict(annotations).get(PRAGMA, limit))
            body, steps = _visit(body, limit)
            if kind in (ForKind.SERIAL, ForKind.UNROLLED):
                steps *= extent.value if isinstance(extent, IntImm) else float("inf")
            if kind is ForKind.SERIAL and 0 < steps <= limit:
                kind = ForKind.UNROLLED
            same = body is s.body and kind is s.kind
            return s if same else replace(s, kind=kind, body=body), steps
        case Seq(stmts):
            found = [_visit(x, limit) for x in stmts]
            steps = sum(n for _, n in found)
            if all(new is old for (new, _), old in zip(found, stmts, strict=True)):
                return s, steps
            return Seq(tuple(x for x, _ in found)), steps
        case If(_, then, orelse):
            then, steps = _visit(then, limit)
            other, more = (None, 0.0) if orelse is None else _visit(orelse, limit)
            same = then is s.then and other is s.orelse
            return s if same else replace(s, then=then, orelse=other), steps + more
        case Attr(key, value, body):
            limit = int(value) if key in (PRAGMA, f"pragma_{PRAGMA}") else limit
            body, steps = _visit(body, limit)
            return s if body is s.body else Attr(key, value, body), steps
        case Allocate(_, body) | Let(_, _, body):
            body, steps = _visit(body, limit)
            return s if body is s.body else replace(s, body=body), steps
        case Store() | Evaluate() | Instr():
            return s, 1
    return s, float("inf")  # a barrier: what stands around it stays a loop
