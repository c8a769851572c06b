"""Lowered programs with some statements replaced, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.ir.func import Module
from tilewright.ir.stmt import Seq, Stmt
from tilewright.ir.visit import Rewriter, Steps


class Changed(Rewriter):
    """Puts another statement in place of each of some."""

    def __init__(self, made: Mapping[Stmt, Stmt]) -> None:
        self.made = made

    def steps(self, s: Stmt) -> Steps:
        return self.made[s] if s in self.made else (yield super().steps(s))


def changed(module: Module, made: Mapping[Stmt, Stmt]) -> Module:
    """``module`` with other statements in place of some."""
    funcs = tuple(replace(f, body=Changed(made).stmt(f.body)) for f in module.funcs)
    return replace(module, funcs=funcs)


def lacking(module: Module, dropped: Stmt) -> Module:
    """``module`` without one statement."""
    return changed(module, {dropped: Seq(())})
