"""Programs with one thing wrong: a barrier or a condition missing, a bound off by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import Buffer, Func, Module, ops
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import For, ForKind, If, Instr, Seq, Stmt, Store, Sync
from tilewright.ir.text import expr_text
from tilewright.ir.visit import Steps, allocated, replace_buffers
from tilewright.lower.analysis.accesses import collect
from tilewright.lower.analysis.domain import can_run
from tilewright.lower.context import InContext, analyzer_of


@dataclass(frozen=True)
class Mutant:
    """A module that lacks what ``lacks`` names, or has it wrong."""

    lacks: str
    module: Module


def mutants(module: Module) -> Iterator[Mutant]:
    """Every module that lacks one barrier, condition or predicate, or has a bound off by one.

    Bounds are those of loops and of the launch, which move either way, and the extents of buffers,
    which shrink: a larger buffer is no other program.
    """
    for i, func in enumerate(module.funcs):
        for lacks, changed in chain(_mutated(func), _launched(func), _shrunk(func)):
            funcs = (*module.funcs[:i], changed, *module.funcs[i + 1 :])
            yield Mutant(lacks, replace(module, funcs=funcs))
    for k, old in enumerate(module.workspaces):
        for lacks, new in _smaller(old):
            swap = {old: new}
            funcs = tuple(_with_buffers(func, swap) for func in module.funcs)
            spaces = (*module.workspaces[:k], new, *module.workspaces[k + 1 :])
            yield Mutant(lacks, replace(module, funcs=funcs, workspaces=spaces))


def _launched(func: Func) -> Iterator[tuple[str, Func]]:
    """A thread more and a thread fewer, unless guards keep that thread from doing anything."""
    for k, axis in enumerate(func.launch):
        for step in (-1, 1):
            extent = ops.add(axis.extent, step)
            if ops.is_const(extent, 0):
                continue  # a launch of nothing: no program
            launch = (*func.launch[:k], replace(axis, extent=extent), *func.launch[k + 1 :])
            changed = replace(func, launch=launch)
            larger, index = (func, extent) if step < 0 else (changed, axis.extent)
            if _writes(larger, E.EQ(axis.var, index)):
                yield f"{axis.tag} of {axis.extent}", changed


def _writes(func: Func, condition: Expr) -> bool:
    """Whether ``func`` writes anything where a condition on its threads holds."""
    kernel = collect(func)
    writes = (access for access in kernel.accesses if access.write)
    return any(can_run(kernel, access.node, (condition, True)) for access in writes)


def _shrunk(func: Func) -> Iterator[tuple[str, Func]]:
    for old in allocated(func.body):
        for lacks, new in _smaller(old):
            yield lacks, _with_buffers(func, {old: new})


def _smaller(old: Buffer) -> Iterator[tuple[str, Buffer]]:
    for d, extent in enumerate(old.shape):
        if not ops.is_const(extent, 1):
            shape = (*old.shape[:d], ops.sub(extent, 1), *old.shape[d + 1 :])
            yield f"last element of {old.name}, dimension {d}", replace(old, shape=shape)


def _with_buffers(func: Func, swap: dict[Buffer, Buffer]) -> Func:
    params = tuple(swap.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, params=params, body=replace_buffers(func.body, swap))


def _mutated(func: Func) -> Iterator[tuple[str, Func]]:
    """Each place is visited once: the rewriter counts places and changes the ``target``-th."""
    target = 0
    while True:
        change = _Change(analyzer_of(func), target)
        body = change.stmt(func.body)
        if change.lacks is None:
            return
        target += 1
        changed = replace(func, body=body)
        if change.implied:
            continue
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
        if access.write and any(node.stmt is loop for node in access.node.ancestors)
    )


class _Change(InContext):
    def __init__(self, analyzer: Analyzer, target: int) -> None:
        super().__init__(analyzer)
        self.left = target
        self.lacks: str | None = None
        self.loop: For | None = None  # the one that now runs once more,
        self.added: Expr | None = None  # and the iteration that it did not have
        self.implied = False  # whether the condition taken out follows from what remains
        self.declared = False  # within the loops of an instruction, which are what it is

    def hit(self, lacks: Callable[[], str]) -> bool:
        """Whether this place is the one to change."""
        self.left -= 1
        if self.left == -1:
            self.lacks = lacks()
        return self.left == -1

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Sync(scope):
                return Seq(()) if self.hit(lambda: f"barrier ({scope})") else s
            case If(condition, then, orelse):
                weaker = self.weaker(condition)
                then = yield self.under(condition, then)
                if orelse is not None:
                    orelse = yield self.under(ops.logical_not(condition), orelse)
                return then if E.IntImm(E.BOOL, 1) is weaker else If(weaker, then, orelse)
            case Instr():
                self.declared = True
                made = yield super().steps(s)
                self.declared = False
                return made
            case For(_, _, _, kind) if kind is not ForKind.THREAD and not self.declared:
                made = yield super().steps(s)
                assert isinstance(made, For)
                return self.bound(made)
            case Store(buffer, indices, value, predicate):
                if predicate is not None and self.hit(lambda: f"predicate of {buffer.name}"):
                    predicate = None
                return Store(buffer, indices, self.expr(value), predicate)
        return (yield super().steps(s))

    def bound(self, s: For) -> For:
        """The loop with one of its ends moved, where that is the change."""
        name, low, end = s.var.name, s.min, ops.add(s.min, s.extent)
        if self.hit(lambda: f"last iteration of {name}"):
            return replace(s, extent=ops.sub(s.extent, 1))
        if self.hit(lambda: f"first iteration of {name}"):
            return replace(s, min=ops.add(low, 1), extent=ops.sub(s.extent, 1))
        longer = ops.add(s.extent, 1)
        if self.hit(lambda: f"upper bound of {name}"):
            self.loop, self.added = replace(s, extent=longer), end
            return self.loop
        if self.hit(lambda: f"lower bound of {name}"):
            before = ops.sub(low, 1)
            self.loop, self.added = replace(s, min=before, extent=longer), before
            return self.loop
        return s

    def expr(self, e: Expr) -> Expr:
        match e:
            case E.IfThenElse(condition, on_true, on_false):
                weaker = self.weaker(condition)
                on_true = self.expr_under(condition, on_true)
                on_false = self.expr_under(ops.logical_not(condition), on_false)
                if E.IntImm(E.BOOL, 1) is weaker:
                    return on_true
                return E.IfThenElse(weaker, on_true, on_false)
            case E.Load(buffer, indices, predicate) if predicate is not None:
                if self.hit(lambda: f"predicate of {buffer.name}"):
                    return E.Load(buffer, indices, None)
                return e
        return super().expr(e)

    def weaker(self, condition: Expr) -> Expr:
        """The condition without one of its conjuncts, where the one to change is among them.

        A conjunct that the others imply says nothing, and to take it out changes nothing.
        """
        parts = list(_conjuncts(condition))
        kept = [p for p in parts if not self.hit(lambda p=p: f"condition {expr_text(p)}")]
        if len(kept) == len(parts):
            return condition
        rest = ops.logical_and(*kept)
        (removed,) = (p for p in parts if all(p is not k for k in kept))
        with self.analyzer.assume(rest):
            self.implied = removed.dtype.lanes == 1 and self.analyzer.prove(removed)
        return rest


def _conjuncts(condition: Expr) -> Iterator[Any]:
    if isinstance(condition, E.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition
