"""Conditions move out of the loops in which they do not change.

Stands behind trimming, which needs guards at what they guard, and before partitioning, which looks
for conditions at the loops that they depend on. Each part of a conjunction moves as far as it can:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.ops import logical_and
>>> i, j, k = axes("i j k")
>>> A, B = buffer("A", 30, 10, 5), buffer("B", 30, 10)
>>> guard = logical_and(i < 30, j < 10)
>>> body = when(guard, store(B[i, j], B[i, j] + A[i, j, k]))
>>> print(hoist_guards(func(loop(i, 32, loop(j, 16, loop(k, 5, body))))).body)
for i in range(32):
    if i < 30:
        for j in range(16):
            if j < 10:
                for k in range(5):
                    B[i, j] = B[i, j] + A[i, j, k]

A condition does not move across a barrier or a reduction across threads, which every thread has
to reach, nor out of the loops over blocks and threads.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith.conditions import conjuncts
from tilewright.ir import ops
from tilewright.ir.expr import Expr, Var
from tilewright.ir.func import Func
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
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import Rewriter, Steps, statements, uses
from tilewright.lower.context import pure


def hoist_guards(func: Func) -> Func:
    """Move conditions outwards to the loops they depend on; see the module's docstring."""
    return replace(func, body=_Hoist().stmt(func.body))


class _Hoist(Rewriter):
    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        match s:
            case If(condition, If(inner, then, None), None):
                return If(ops.logical_and(condition, inner), then)
            case Seq():
                return _shared_guards(s)
            case For(var, _, _, kind, If(condition, then, None)):
                if kind is ForKind.THREAD or _meets(then):
                    return s
                moved, rest = _split(condition, var)
                return _guard(moved, replace(s, body=_guard(rest, then)))
            case Let(var, value, If(condition, then, None)):
                moved, rest = _split(condition, var)
                return _guard(moved, Let(var, value, _guard(rest, then)))
            case Remark(body=If(condition, then, None)):
                moved, rest = _split(condition, None)
                return _guard(moved, with_body(s, _guard(rest, then)))
            case Allocate(buffer, If(condition, then, None)):
                moved, rest = _split(condition, None)
                return _guard(moved, Allocate(buffer, _guard(rest, then)))
        return s


def _split(condition: Expr, var: Var | None) -> tuple[list[Expr], list[Expr]]:
    """What can leave the scope of ``var``, and what cannot.

    A condition that reads or may fail stays, and whatever follows it, for it may guard that.
    """
    moved: list[Expr] = []
    rest: list[Expr] = []
    stuck = False
    for c in conjuncts(condition):
        stuck = stuck or not pure(c)
        stays = stuck or (var is not None and uses(c, {var}))
        (rest if stays else moved).append(c)
    return moved, rest


def _guard(conditions: list[Expr], s: Stmt) -> Stmt:
    return If(ops.logical_and(*conditions), s) if conditions else s


def _meets(s: Stmt) -> bool:
    return any(isinstance(x, (Sync, AllReduce)) for x in statements(s))


def _shared_guards(s: Seq) -> Stmt:
    """A sequence whose statements all have a condition in common, under that condition."""
    guards: list[list[Expr]] = []
    if not s.stmts:
        return s
    for x in s.stmts:
        if not isinstance(x, If) or x.orelse is not None:
            return s
        guards.append(conjuncts(x.condition))
    shared = [c for c in guards[0] if pure(c) and all(c in g for g in guards[1:])]
    if not shared:
        return s
    bodies: list[Stmt] = []
    for x, g in zip(s.stmts, guards, strict=True):
        assert isinstance(x, If)
        bodies.append(_guard([c for c in g if c not in shared], x.then))
    return _guard(shared, seq(*bodies))
