"""What differs from one iteration of a loop to another."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.stmt import Allocate, AllReduce, Attr, For, If, Instr, Let, Seq, Stmt, Store
from tilewright.ir.visit import allocated, distinct


def mentions(node: Expr | Stmt, variables: set[Expr], buffers: set[Buffer]) -> bool:
    """Whether ``node`` uses any of the variables, or reads or writes any of the buffers."""
    for e in distinct(node):
        match e:
            case Var():
                found = e in variables
            case Load(buffer) | Store(buffer):
                found = buffer in buffers
            case AllReduce(_, written):
                found = not buffers.isdisjoint(written)
            case _:
                continue
        if found:
            return True
    return False


def dependent(var: Var, body: Stmt) -> tuple[set[Expr], set[Buffer]]:
    """The variables and the buffers allocated in ``body`` whose values depend on ``var``."""
    variables: set[Expr] = {var}
    buffers: set[Buffer] = set()
    inside = set(allocated(body))

    def visit(s: Stmt, under: bool) -> None:
        match s:
            case For(loop, low, extent, _, inner):
                if mentions(low, variables, buffers):
                    variables.add(loop)
                visit(inner, under or mentions(extent, variables, buffers))
            case Let(let, value, inner):
                if mentions(value, variables, buffers):
                    variables.add(let)
                visit(inner, under)
            case If(condition, then, orelse):
                under = under or mentions(condition, variables, buffers)
                visit(then, under)
                if orelse is not None:
                    visit(orelse, under)
            case Seq(stmts):
                for x in stmts:
                    visit(x, under)
            case Allocate(_, inner) | Attr(_, _, inner) | Instr(_, _, _, inner):
                visit(inner, under)
            case Store(buffer):
                if buffer in inside and (under or mentions(s, variables, buffers)):
                    buffers.add(buffer)
            case AllReduce(_, written):
                if under or mentions(s, variables, buffers):
                    buffers.update(inside.intersection(written))

    known = -1
    while known != len(variables) + len(buffers):
        known = len(variables) + len(buffers)
        visit(body, False)
    return variables, buffers
