"""What all threads of a block would store alike, one of them stores.

A stage in shared memory that binds no axis to the threads of its block is computed by each of
them, as is one that binds ``threadIdx.x`` only in a block that also has ``threadIdx.y``. In TVM all
of them store the same values; here the first one along every axis that the place of the store does
not depend on does, so that no two threads write one element:

>>> from tilewright.ir import Buffer, LaunchAxis, dtype
>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import const
>>> from tilewright.ir.stmt import For, ForKind, Store, seq
>>> A, B = (Buffer(n, (const(8),), dtype("float32")) for n in "AB")
>>> S = Buffer("S", (const(8),), dtype("float32"), "shared")
>>> tx, i = Var.make("threadIdx_x"), Var.make("i")
>>> fill = For(i, const(0), const(8), ForKind.SERIAL, Store(S, (i,), A[i]))
>>> body = seq(fill, Store(B, (tx,), S[7 - tx]))
>>> func = Func("main", (A, B), body, (LaunchAxis("threadIdx.x", tx, const(8)),))
>>> print(predicate_redundant_stores(func).body)
if threadIdx_x == 0:
    for i in range(8):
        S[i] = A[i]
B[threadIdx_x] = S[7 - threadIdx_x]

An element of a stage is the same whoever computes it, so which thread stores it does not matter.
Under a condition on an axis it is the first thread only where that one meets the condition if any
does, as with ``threadIdx.x < 4``; under ``threadIdx.x == 3`` somebody chose another.

Of an instruction by which one thread copies a box for all of them, the guard stands at the
instruction itself: what is around it, as its place in a pipeline, is for all.

It stands first of what is done to a kernel, when all of its threads are known, and before
barriers, which the readers of such a store need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const, is_const, logical_and
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    For,
    If,
    Instr,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
    Sync,
    with_body,
)
from tilewright.ir.visit import Steps, exprs, free_vars, run, stores, substitute
from tilewright.lower.context import analyzer_of, pure
from tilewright.lower.loops.guard import guarded

#: The launch axes whose threads share a memory. That of warps is left out: the first thread of a
#: block is that of one of its warps only.
_SHARING = {
    "global": ("blockIdx", "threadIdx"), "cluster": ("threadIdx",), "shared": ("threadIdx",),
}  # fmt: skip

_Axes = frozenset[Var]
_NONE: _Axes = frozenset()


def predicate_redundant_stores(func: Func) -> Func:
    """``func`` with a guard around stores that do not depend on the thread."""
    if not func.launch:
        return func
    several = {axis.var: axis.tag for axis in func.launch if not is_const(axis.extent, 1)}
    found = _OneWriter(several, analyzer_of(func))
    body = found.guard(*run(found.visit(func.body)))
    return func if body is func.body else replace(func, body=body)


class _OneWriter:
    def __init__(self, axes: dict[Var, str], analyzer: Analyzer) -> None:
        self.axes, self.analyzer = axes, analyzer
        self.depends: dict[Var, _Axes] = {v: frozenset([v]) for v in axes}
        self.under = _NONE  # what the extents of the loops around depend on
        self.conditions: tuple[Expr, ...] = ()

    def visit(self, s: Stmt) -> Steps:
        """The axes by which all of ``s`` is to be guarded, and ``s``.

        None where its parts differ in that: then they have their guards.
        """
        under, conditions = self.under, self.conditions
        try:
            with self.analyzer.scope():
                return (yield self.inside(s))
        finally:
            self.under, self.conditions = under, conditions

    def inside(self, s: Stmt) -> Steps:
        match s:
            case Store():
                return self.unused([s]), s
            case Instr(instruction, axes, _, body):
                self.depends.update(dict.fromkeys(axes, _NONE))
                alike = self.unused(stores(body))
                if getattr(instruction, "tensor_map", False):
                    return None, self.by_first(s, alike)
                return alike, s
            case For(var, low, extent, _, body):
                self.depends[var] = self.of((low, extent))
                self.under |= self.of((extent,))
                self.analyzer.bind(var, low, extent)
                return (yield self.around(s, body))
            case Let(var, value, body):
                self.depends[var] = self.of((value,))
                return (yield self.around(s, body))
            case If(condition, then, None):
                self.conditions += (condition,)
                found, made = yield self.visit(then)
                return found, s if made is then else If(condition, made)
            case If(condition, then, orelse) if orelse is not None:
                self.under |= self.of((condition,))
                found, parts = yield self.together((then, orelse))
                return found, s if parts == (then, orelse) else If(condition, *parts)
            case Seq(stmts):
                found, parts = yield self.together(stmts)
                return found, s if parts == stmts else Seq(parts)
            case Remark(body=body) | Allocate(_, body):
                return (yield self.around(s, body))
            case Sync() | AllReduce():
                return None, s
        return _NONE, s

    def around(self, s: For | Let | Remark | Allocate, body: Stmt) -> Steps:
        found, made = yield self.visit(body)
        return found, s if made is body else with_body(s, made)

    def together(self, stmts: tuple[Stmt, ...]) -> Steps:
        """Of statements one after the other; with guards where they differ."""
        visited: list[tuple[_Axes | None, Stmt]] = []
        for s in stmts:
            visited.append((yield self.visit(s)))
        found = {axes for axes, _ in visited}
        if len(found) == 1:
            return found.pop(), tuple(s for _, s in visited)
        return None, tuple(self.guard(axes, s) for axes, s in visited)

    def guard(self, axes: _Axes | None, s: Stmt) -> Stmt:
        if not axes:
            return s
        return guarded(logical_and(*(v.equal(0) for v in self.axes if v in axes)), s)

    def by_first(self, s: Instr, found: _Axes) -> Stmt:
        """What one thread of the block asks for, with its guard: around it stands what all do."""
        own = {v for v, tag in self.axes.items() if tag.startswith("threadIdx")}
        if s.instruction.boxed == 0:  # others may ask for boxes of their own
            return self.guard(found & own, s)
        if not own <= found:
            tags = ", ".join(self.axes[v] for v in self.axes if v in own - found)
            name = s.operands[0].buffer.name
            raise LoweringError(
                f"{s.instruction.name} into {name!r} is not the same in all threads along {tags}: "
                "one thread of a block asks for a box. Leave the axes of that stage unbound, and "
                "put no condition on threads around it"
            )
        return self.guard(frozenset(own), s)

    def unused(self, written: Iterable[Store]) -> _Axes:
        """The axes whose threads all store the same, at the same place."""
        found = frozenset(self.axes)
        for store in written:
            if any(isinstance(x, Load) for index in store.indices for x in exprs(index)):
                return _NONE
            kinds = _SHARING.get(store.buffer.scope, ())
            mask = () if store.predicate is None else (store.predicate,)
            used = self.of((*store.indices, *mask)) | self.under
            found &= {v for v, tag in self.axes.items() if tag.startswith(kinds)} - used
        for condition in self.conditions:
            if not self.first_meets(condition, found):
                found -= self.of((condition,))
        # With fewer axes, what was shown of the first threads along all of them need not hold.
        return found if all(self.first_meets(c, found) for c in self.conditions) else _NONE

    def first_meets(self, condition: Expr, axes: _Axes) -> bool:
        """Whether the first threads along ``axes`` meet ``condition`` if any of their kind do."""
        if not self.of((condition,)) & axes:
            return True
        if not pure(condition) or any(
            v in self.depends and v not in self.axes and self.depends[v] & axes
            for v in free_vars(condition)
        ):
            return False
        first = substitute(condition, {v: const(0, v.dtype) for v in axes})
        with self.analyzer.assume(condition):
            return bool(self.analyzer.prove(first))

    def of(self, nodes: Iterable[Expr]) -> _Axes:
        """The axes that expressions depend on, other than through memory."""
        return _NONE.union(*(self.depends.get(v, _NONE) for e in nodes for v in free_vars(e)))
