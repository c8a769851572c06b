"""What differs from one iteration of a loop to another."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Allocate, AllReduce, For, If, Instr, Let, Remark, Seq, Stmt, Store
from tilewright.ir.visit import Steps, allocated, contents, roots, run, statements


def mentions(node: Expr | Stmt, variables: set[Expr], buffers: set[Buffer]) -> bool:
    """Whether ``node`` uses any of the variables, or reads or writes any of the buffers."""
    if isinstance(node, Stmt):
        for s in statements(node):
            match s:
                case Store(buffer) if buffer in buffers:
                    return True
                case AllReduce(_, written) if not buffers.isdisjoint(written):
                    return True
    for e in roots(node):
        used, read = contents(e)
        if not (variables.isdisjoint(used) and buffers.isdisjoint(read)):
            return True
    return False


def dependent(var: Var, body: Stmt) -> tuple[set[Expr], set[Buffer]]:
    """The variables and the buffers allocated in ``body`` whose values depend on ``var``."""
    variables: set[Expr] = {var}
    buffers: set[Buffer] = set()
    inside = set(allocated(body))

    def visit(s: Stmt, under: bool) -> Steps:
        match s:
            case For(loop, low, extent, _, inner):
                if mentions(low, variables, buffers):
                    variables.add(loop)
                yield visit(inner, under or mentions(extent, variables, buffers))
            case Let(let, value, inner):
                if mentions(value, variables, buffers):
                    variables.add(let)
                yield visit(inner, under)
            case If(condition, then, orelse):
                under = under or mentions(condition, variables, buffers)
                yield visit(then, under)
                if orelse is not None:
                    yield visit(orelse, under)
            case Seq(stmts):
                for x in stmts:
                    yield visit(x, under)
            case Allocate(_, inner) | Remark(body=inner) | Instr(_, _, _, inner):
                yield visit(inner, under)
            case Store(buffer):
                if buffer in inside and (under or mentions(s, variables, buffers)):
                    buffers.add(buffer)
            case AllReduce(_, written):
                if under or mentions(s, variables, buffers):
                    buffers.update(inside.intersection(written))

    known = -1
    while known != len(variables) + len(buffers):
        known = len(variables) + len(buffers)
        run(visit(body, False))
    return variables, buffers
