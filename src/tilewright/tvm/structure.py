"""Whether expressions and programs are equal but for names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, LetExpr, Reduce, Reducer, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.stmt import Allocate, For, Let, Stmt


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two expressions, programs or lists of them are equal but for the names of what they
    declare: parameters, loops, axes and memory.

    Other variables and buffers are to be the same, or with ``map_free_vars`` one for one in the
    place of each other.
    """
    left, right = _whole(lhs), _whole(rhs)
    declared: tuple[set[Any], set[Any]] = (set(_declared(left)), set(_declared(right)))
    there: dict[Any, Any] = {}
    back: dict[Any, Any] = {}

    def equal(a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, (Var, Buffer)):
            if not map_free_vars and not (a in declared[0] and b in declared[1]):
                return a is b
            if isinstance(a, Buffer) and not equal(a.shape, b.shape):
                return False
            same = there.setdefault(a, b) is b and back.setdefault(b, a) is a
            return a.dtype == b.dtype and same
        if isinstance(a, (tuple, list)):
            return len(a) == len(b) and all(map(equal, a, b))
        if isinstance(a, IterVar):
            return equal(a.var, b.var) and equal(a.dom, b.dom) and a.kind == b.kind
        parts = _parts(a)
        return bool(a == b) if parts is None else all(map(equal, parts, _parts(b) or ()))

    return equal(left, right)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises :class:`ValueError` where :func:`structural_equal` does not hold."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"these differ:\n{lhs}\nand\n{rhs}")


def _whole(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return tuple(map(_whole, x))
    return x if isinstance(x, (Stmt, Func)) else ops.as_expr(x)


def _parts(node: Any) -> list[Any] | None:
    """What a node is made of, its name apart; None of what is no node."""
    if isinstance(node, Func):
        return [node.params, node.body]
    if isinstance(node, Range):
        return [node.min, node.extent]
    if isinstance(node, (Expr, Stmt, Reducer)):
        names = getattr(type(node), "__match_args__", ())
        return [getattr(node, n) for n in names if n != "name" or not isinstance(node, Reducer)]
    return None


def _declared(node: Any, every: bool = False) -> Iterator[Any]:
    """The variables and buffers that a program gives a meaning to: of a function, ``every`` one."""
    every = every or isinstance(node, Func)
    match node:
        case Var() | Buffer():
            if every:
                yield node
                yield from _declared(getattr(node, "shape", ()), every)
            return
        case For(var=var) | Let(var=var) | LetExpr(var=var):
            yield var
        case Allocate(buffer=buffer):
            yield buffer
        case Reduce(axes=axes):
            yield from (axis.var for axis in axes)
        case Reducer(lhs=lhs, rhs=rhs):
            yield from (*lhs, *rhs)
    inner = node if isinstance(node, tuple) else _parts(node) or ()
    for part in inner:
        yield from _declared(part, every)
