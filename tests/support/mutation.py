"""Programs with one thing missing: a barrier, a condition, a predicate, a bound of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import Func, Module, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import For, ForKind, If, Seq, Stmt, Store, Sync
from tilewright.ir.text import expr_text
from tilewright.ir.visit import Rewriter
from tilewright.lower.accesses import collect
from tilewright.lower.domain import can_run


@dataclass(frozen=True)
class Mutant:
    """A module that lacks what ``lacks`` names."""

    lacks: str
    module: Module


def mutants(module: Module) -> Iterator[Mutant]:
    """Every module that lacks one barrier, one part of a condition, or one bound of a loop."""
    for i, func in enumerate(module.funcs):
        for lacks, changed in _mutated(func):
            funcs = (*module.funcs[:i], changed, *module.funcs[i + 1 :])
            yield Mutant(lacks, replace(module, funcs=funcs))


def _mutated(func: Func) -> Iterator[tuple[str, Func]]:
    """Each place is visited once: the rewriter counts places and changes the ``target``-th."""
    target = 0
    while True:
        change = _Change(target)
        body = change.stmt(func.body)
        if change.lacks is None:
            return
        target += 1
        changed = replace(func, body=body)
        if change.loop is None or _does_something(changed, change.loop, change.added):
            yield change.lacks, changed


def _does_something(func: Func, loop: For, added: Expr | None) -> bool:
    """Whether an iteration writes anything: a bound that a condition in the body repeats is none.

    It is not asked of a copy of the body, but of the loop itself at that iteration.
    """
    assert added is not None
    kernel = collect(func)
    return any(
        can_run(kernel, access.node, (E.EQ(loop.var, added), True))
        for access in kernel.accesses
        if access.write and any(node.stmt is loop for node in access.node.way)
    )


class _Change(Rewriter):
    def __init__(self, target: int) -> None:
        self.left = target
        self.lacks: str | None = None
        self.loop: For | None = None  # the one that now runs once more,
        self.added: Expr | None = None  # and the iteration that it did not have

    def hit(self, lacks: Callable[[], str]) -> bool:
        """Whether this place is the one to change."""
        self.left -= 1
        if self.left == -1:
            self.lacks = lacks()
        return self.left == -1

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Sync(scope):
                return Seq(()) if self.hit(lambda: f"barrier ({scope})") else s
            case If(condition, then, orelse):
                s = If(
                    self.weaker(condition), self.stmt(then), self.stmt(orelse) if orelse else None
                )
                return s.then if E.IntImm(E.BOOL, 1) is s.condition else s
            case For(var, low, extent, kind, body, _, _) if kind is not ForKind.THREAD:
                if self.hit(lambda: f"upper bound of {var.name}"):
                    extent, self.added = ops.add(extent, 1), ops.add(low, extent)
                if self.hit(lambda: f"lower bound of {var.name}"):
                    low, extent, self.added = ops.sub(low, 1), ops.add(extent, 1), ops.sub(low, 1)
                made = replace(s, min=low, extent=extent, body=self.stmt(body))
                if made.extent is not s.extent:
                    self.loop = made
                return made
            case Store(buffer, indices, value, predicate):
                if predicate is not None and self.hit(lambda: f"predicate of {buffer.name}"):
                    predicate = None
                return Store(buffer, indices, self.expr(value), predicate)
        return super().stmt(s)

    def expr(self, e: Expr) -> Expr:
        match e:
            case E.IfThenElse(condition, on_true, on_false):
                changed = self.weaker(condition)
                if E.IntImm(E.BOOL, 1) is changed:
                    return self.expr(on_true)
                return E.IfThenElse(changed, self.expr(on_true), self.expr(on_false))
            case E.Load(buffer, indices, predicate) if predicate is not None:
                if self.hit(lambda: f"predicate of {buffer.name}"):
                    return E.Load(buffer, indices, None)
                return e
        return super().expr(e)

    def weaker(self, condition: Expr) -> Expr:
        """The condition without one of its conjuncts, where the one to change is among them."""
        parts = list(_conjuncts(condition))
        kept = [p for p in parts if not self.hit(lambda p=p: f"condition {expr_text(p)}")]  # type: ignore[misc]
        return condition if len(kept) == len(parts) else ops.logical_and(*kept)


def _conjuncts(condition: Expr) -> Iterator[Any]:
    if isinstance(condition, E.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition
