"""Small programs written down by hand: for docstrings, tests and trying a pass.

>>> i, j = axes("i j")
>>> A, B = buffer("A", 8, 4), buffer("B", 8)
>>> print(func(loop(i, 8, store(B[i], 0.0), loop(j, 4, store(B[i], B[i] + A[i, j])))))
def main(B: T.Buffer((8,), "float32"), A: T.Buffer((8, 4), "float32")):
    for i in range(8):
        B[i] = T.float32(0)
        for j in range(4):
            B[i] = B[i] + A[i, j]
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.ops import Value
from tilewright.ir.stmt import Allocate, For, ForKind, If, Pragma, Stmt, Store, seq
from tilewright.ir.visit import allocated, free_vars, walk
from tilewright.target.target import Target

__all__ = ["allocate", "axes", "buffer", "func", "loop", "store", "when"]


def axes(names: str, type: str = "int32") -> list[Var]:
    """Variables by their names, with blanks between them."""
    return [Var.make(name, type) for name in names.split()]


def buffer(name: str, *shape: Value, type: str = "float32", scope: str = "global") -> Buffer:
    """A dense buffer."""
    return Buffer(name, tuple(map(ops.as_index, shape)), dtype(type), scope)


def loop(
    var: Var,
    extent: Value,
    *body: Stmt,
    min: Value = 0,
    kind: str = "serial",
    tag: str = "",
    annotations: tuple[tuple[Pragma, Any], ...] = (),
) -> For:
    """A loop; one with a ``tag`` is over threads."""
    found = ForKind.THREAD if tag else ForKind(kind)
    tag = "vthread" if found is ForKind.VTHREAD else tag
    low, span = ops.as_expr(min, var.dtype), ops.as_expr(extent, var.dtype)
    return For(var, low, span, found, seq(*body), tag, annotations)


def store(place: Load, value: Value) -> Store:
    """``place = value``, where ``place`` is written like a read."""
    lanes = place.dtype.lanes
    made = ops.cast(place.buffer.dtype.with_lanes(lanes), ops.as_expr(value, place.buffer.dtype))
    return Store(place.buffer, place.indices, made, place.predicate)


def when(condition: Expr, *then: Stmt) -> If:
    """The statements where ``condition`` holds."""
    return If(condition, seq(*then))


def allocate(made: Buffer, *body: Stmt) -> Allocate:
    """The statements with a buffer."""
    return Allocate(made, seq(*body))


def func(*body: Stmt, target: str = "llvm") -> Func:
    """A function of the buffers that the statements use, then of their free variables."""
    s = seq(*body)
    own = set(allocated(s))
    used = {e.buffer: None for e in walk(s) if isinstance(e, (Load, Store))}
    params: list[Buffer | Var] = [b for b in used if b not in own]
    known = dict.fromkeys(free_vars(s))
    for b in used:
        known.update((v, None) for extent in b.shape for v in free_vars(extent))
    return Func("main", (*params, *known), s, (), Target.parse(target))
