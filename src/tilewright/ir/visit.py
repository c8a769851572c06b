"""Walking and rewriting programs: one generic rewriter, and the questions asked everywhere."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Binary,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    LetExpr,
    Load,
    Reduce,
    Reducer,
    StringImm,
    Var,
)
from tilewright.ir.stmt import Access, Allocate, For, Let, Stmt, Store

Node = Expr | Stmt

#: Expressions without others below them.
_LEAVES = frozenset({Var, IntImm, FloatImm, StringImm})

#: Fields that hold no expressions to descend into, by node class.
_OPAQUE: dict[type, tuple[str, ...]] = {
    Reduce: ("reducer", "axes", "index"),
}


@cache
def _fields(cls: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a node class, and whether there may be expressions or buffers in them."""
    names: tuple[str, ...] = cls.__match_args__
    skip = _OPAQUE.get(cls, ()) + ("dtype", "name", "kind", "tag", "annotations", "reducer")
    return tuple((name, name not in skip) for name in names)


@cache
def _inner(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Reads those fields of a node."""
    names = [name for name, descends in _fields(cls) if descends]
    read = operator.attrgetter(*names) if names else lambda node: ()
    return read if len(names) != 1 else lambda node: (read(node),)


class Rewriter:
    """Rebuilds a program from the leaves up, keeping every part that does not change.

    Override :meth:`expr` or :meth:`stmt`, match the nodes of interest and fall back to
    ``super()``, which descends::

        class Double(Rewriter):
            def expr(self, e: Expr) -> Expr:
                match e:
                    case IntImm(t, v): return const(2 * v, t)
                return super().expr(e)
    """

    def expr(self, e: Expr) -> Expr:
        """The expression that replaces ``e``."""
        cls: Any = type(e)
        if cls in _LEAVES:
            return e
        if isinstance(e, Binary | Compare):
            a, b = self.expr(e.a), self.expr(e.b)
            return e if a is e.a and b is e.b else cls(a, b)
        found: Expr = self._rebuilt(e, cls)
        return found

    def stmt(self, s: Stmt) -> Stmt:
        """The statement that replaces ``s``."""
        found: Stmt = self._rebuilt(s, type(s))
        return found

    def _rebuilt(self, node: Any, cls: Any) -> Any:
        args: list[Any] = []
        changed = False
        for name, descends in _fields(cls):
            old = getattr(node, name)
            if descends:
                new = self._field(old)
                changed = changed or new is not old
                old = new
            args.append(old)
        return cls(*args) if changed else node

    def buffer(self, b: Buffer) -> Buffer:
        """The buffer that replaces ``b`` wherever it is used."""
        return b

    def _field(self, old: Any) -> Any:
        if isinstance(old, Expr):
            return self.expr(old)
        if isinstance(old, Stmt):
            return self.stmt(old)
        if isinstance(old, Buffer):
            return self.buffer(old)
        if isinstance(old, tuple):
            new = [self._field(item) for item in old]
            return old if all(map(operator.is_, old, new)) else tuple(new)
        if isinstance(old, Access):
            found = Access(self.buffer(old.buffer), self._field(old.indices))
            same = found.buffer is old.buffer and found.indices is old.indices
            return old if same else found
        return old


class _Substitution(Rewriter):
    def __init__(self, mapping: Mapping[Expr, Expr]) -> None:
        self.mapping = mapping
        self.memo: dict[Expr, Expr] = {}

    def expr(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self.mapping.get(e)
            if found is None:
                found = super().expr(e)
            self.memo[e] = found
        return found


def substitute(node: Any, mapping: Mapping[Any, Expr]) -> Any:
    """``node`` with every expression that is a key replaced by its value, all at once.

    Replacements are put in as they are, without simplifying; type of ``node`` is kept.
    """
    if not mapping:
        return node
    rewriter = _Substitution(mapping)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


class _BufferReplacement(Rewriter):
    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        self.mapping = mapping

    def buffer(self, b: Buffer) -> Buffer:
        return self.mapping.get(b, b)


def replace_buffers(node: Any, mapping: Mapping[Buffer, Buffer]) -> Any:
    """``node`` with buffers replaced by others of the same rank."""
    rewriter = _BufferReplacement(mapping)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


def rewrite_exprs(node: Any, rule: Callable[[Expr], Expr | None]) -> Any:
    """Apply ``rule`` to every expression, children first; None keeps it."""

    class Bottom(Rewriter):
        def expr(self, e: Expr) -> Expr:
            e = super().expr(e)
            found = rule(e)
            return e if found is None else found

    return Bottom().expr(node) if isinstance(node, Expr) else Bottom().stmt(node)


def _below(node: Node) -> list[Node]:
    if isinstance(node, Binary | Compare):
        return [node.a, node.b]
    cls: Any = type(node)
    found: list[Node] = []
    if cls in _LEAVES:
        return found
    for value in _inner(cls)(node):
        if isinstance(value, (Expr, Stmt)):
            found.append(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, (Expr, Stmt)):
                    found.append(item)
                elif isinstance(item, Access):
                    found.extend(item.indices)
    return found


def children(node: Node) -> Iterator[Node]:
    """The expressions and statements directly below ``node``, in order of evaluation."""
    return iter(_below(node))


def walk(node: Node) -> Iterator[Node]:
    """Every expression and statement in ``node``, itself first, each occurrence once."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        if type(top) not in _LEAVES:
            stack.extend(reversed(_below(top)))


def statements(node: Node) -> Iterator[Stmt]:
    """Every statement in ``node``, itself first: :func:`walk` without the expressions."""
    stack: list[Stmt] = [node] if isinstance(node, Stmt) else []
    while stack:
        top = stack.pop()
        yield top
        stack.extend(s for s in reversed(_below(top)) if isinstance(s, Stmt))


def distinct(node: Node) -> Iterator[Node]:
    """Every statement in ``node``, and every expression once however often it occurs."""
    seen: set[Node] = set()
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Expr):
            if top in seen:
                continue
            seen.add(top)
        yield top
        if type(top) not in _LEAVES:
            stack.extend(reversed(_below(top)))


def exprs(node: Node) -> Iterator[Expr]:
    """Every distinct expression in ``node``, each once however often it occurs."""
    found = distinct(node)
    if isinstance(node, Expr):  # below which there are only others
        return cast("Iterator[Expr]", found)
    return (e for e in found if isinstance(e, Expr))


def free_vars(node: Node) -> list[Var]:
    """Variables used in ``node`` and bound outside of it, in order of appearance."""
    used: dict[Var, None] = {}
    bound: set[Var] = set()
    for e in distinct(node):
        if isinstance(e, Var):
            used[e] = None
        elif isinstance(e, (For, Let, LetExpr)):
            bound.add(e.var)
        elif isinstance(e, Reduce):
            bound.update(axis.var for axis in e.axes)
    return [v for v in used if v not in bound]


def symbolic_extents(buffer: Buffer) -> list[Var]:
    """The variables in the buffer's shape, in order of appearance."""
    return list(dict.fromkeys(v for extent in buffer.shape for v in free_vars(extent)))


def uses(node: Node, variables: set[Var]) -> bool:
    """Whether any of ``variables`` occurs in ``node``."""
    if isinstance(node, Expr):
        return any(isinstance(e, Var) and e in variables for e in exprs(node))
    return any(isinstance(e, Var) and e in variables for e in distinct(node))


def indexes(s: For, scope: str) -> bool:
    """Whether a loop's variable says which elements of a buffer of ``scope`` its body reads or
    writes."""
    return any(
        isinstance(x, (Store, Load))
        and x.buffer.scope == scope
        and any(uses(i, {s.var}) for i in x.indices)
        for x in distinct(s.body)
    )


def loads(node: Node) -> Iterator[Load]:
    """Every read of a buffer in ``node``."""
    for e in walk(node):
        if isinstance(e, Load):
            yield e


def stores(node: Node) -> Iterator[Store]:
    """Every write to a buffer in ``node``."""
    for s in statements(node):
        if isinstance(s, Store):
            yield s


def allocated(node: Node) -> list[Buffer]:
    """The buffers that ``node`` allocates."""
    return [s.buffer for s in statements(node) if isinstance(s, Allocate)]


def apply_reducer(
    reducer: Reducer, left: tuple[Expr, ...], right: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """``reducer`` applied to two tuples of values."""
    mapping: dict[Expr, Expr] = dict(zip(reducer.lhs, left, strict=True))
    mapping.update(zip(reducer.rhs, right, strict=True))
    return tuple(substitute(e, mapping) for e in reducer.result)
