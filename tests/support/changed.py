"""Lowered programs with some statements replaced, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Seq, Stmt, Sync
from tilewright.ir.visit import Rewriter, Steps


class Changed(Rewriter):
    """Puts another statement in place of each of some."""

    def __init__(self, made: Mapping[Stmt, Stmt]) -> None:
        self.made = made

    def steps(self, s: Stmt) -> Steps:
        return self.made[s] if s in self.made else (yield super().steps(s))


class _WithoutBarrier(Rewriter):
    def __init__(self, index: int) -> None:
        self.index = index

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Sync):
            self.index -= 1
            return Seq(()) if self.index == -1 else s
        return (yield super().steps(s))


def changed_in(func: Func, made: Mapping[Stmt, Stmt]) -> Func:
    """``func`` with other statements in place of some."""
    return replace(func, body=Changed(made).stmt(func.body))


def without(func: Func, gone: Stmt) -> Func:
    """``func`` without one statement."""
    return changed_in(func, {gone: Seq(())})


def without_barrier(func: Func, index: int) -> Func:
    """``func`` without the barrier of this number, though others may be the same statement."""
    return replace(func, body=_WithoutBarrier(index).stmt(func.body))


def changed(module: Module, made: Mapping[Stmt, Stmt]) -> Module:
    """``module`` with other statements in place of some."""
    return replace(module, funcs=tuple(changed_in(f, made) for f in module.funcs))


def lacking(module: Module, dropped: Stmt) -> Module:
    """``module`` without one statement."""
    return changed(module, {dropped: Seq(())})
