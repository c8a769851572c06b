"""Instructions that are declared as statements become these.

Until here, proofs and analyses have read the loops that an instruction stands for.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> from tilewright.ir.stmt import Access, Instr
>>> from tilewright.target.instruction import Argument, Axis, decl_instruction
>>> j, k, n = axes("j k n")
>>> own = buffer("own", 4)
>>> fill = decl_instruction(
...     "doc_fill", (Axis("k", 4),), (Argument("own", ("k",), "float32"),),
...     lambda own: own * 0.0 + 7.0, statement=(store(own[n - n], 7.0), ((own, (0,)),)),
... )
>>> A = buffer("A", 8, 4)
>>> body = loop(k, 4, store(A[j, k], A[j, k] * 0.0 + 7.0))
>>> made = Instr(fill, (k,), (Access(A, (j, k)),), body)
>>> print(write_statements(func(loop(j, 8, made))).body)
for j in range(8):
    A[j, 0] = T.float32(7)

It stands first of what code generators do, which write the statements like any others.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Instr, Stmt, Store
from tilewright.ir.visit import Rewriter, Steps, statements, substitute
from tilewright.lower.substitution import copy
from tilewright.target.instruction import Argument, views


def write_statements(func: Func) -> Func:
    """``func`` with the statements of its instructions in their place."""
    if any(isinstance(s, Instr) and s.instruction.statement for s in statements(func.body)):
        return replace(func, body=_Written().stmt(func.body))
    return func


class _Written(Rewriter):
    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Instr) and s.instruction.statement is not None:
            return _statement(s)
        return (yield from super().steps(s))


def _statement(s: Instr) -> Stmt:
    body, own = s.instruction.statement
    axes = [axis.name for axis in s.instruction.axes]
    places: dict[Buffer, tuple[Access, list[tuple[Var, int]]]] = {}
    strides: dict[Expr, Expr] = {}
    each = zip(own, s.operands, s.instruction.operands, views(s), strict=True)
    for (buffer, dimensions), access, argument, view in each:
        assert isinstance(argument, Argument)
        along = [axes.index(name) for name in argument.axes]
        places[buffer] = access, [(s.axes[k], d) for k, d in zip(along, dimensions, strict=True)]
        for k, d in zip(along, dimensions, strict=True):
            if buffer.layout is not None and isinstance(buffer.layout.strides[d], Var):
                strides[buffer.layout.strides[d]] = view.strides[k]
    made: Stmt = copy(substitute(_Placed(places, s.axes).stmt(body), strides))
    return made


class _Placed(Rewriter):
    """Elements of an instruction's own buffers become those of its operands."""

    def __init__(
        self, places: dict[Buffer, tuple[Access, list[tuple[Var, int]]]], axes: tuple[Var, ...]
    ) -> None:
        self.places = places
        self.first = {axis: const(0, axis.dtype) for axis in axes}

    def at(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        access, dimensions = self.places[buffer]
        given = {axis: indices[d] for axis, d in dimensions}
        return tuple(substitute(i, {**self.first, **given}) for i in access.indices)

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        if isinstance(e, Load) and e.buffer in self.places:
            return Load(self.places[e.buffer][0].buffer, self.at(e.buffer, e.indices), e.predicate)
        return e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        if isinstance(s, Store) and s.buffer in self.places:
            access, indices = self.places[s.buffer][0], self.at(s.buffer, s.indices)
            return replace(s, buffer=access.buffer, indices=indices)
        return s
