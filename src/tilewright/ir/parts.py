"""Large expressions in parts: subexpressions get names, so that what is left is small.

Expressions are graphs without cycles, which users write to any height and in which an operand may
stand any number of times. Written out as a tree such a graph can be exponentially large.
:func:`in_parts` names what is too high or stands more than once, so that the parts together are
as large as the graph; whatever walks the parts may recurse, and visit every occurrence.

>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import unary
>>> e = x = Var.make("x", "float32")
>>> for _ in range(50):
...     e = unary("sqrt", e * e + e)
>>> parts, (value,) = in_parts((e,))
>>> len(parts), parts[1], value
(49, (part1, T.sqrt(part0 * part0 + part0)), T.sqrt(part48 * part48 + part48))

A part may be named ahead of where it is used, but is evaluated only where that would have been:
one that stands in a branch of a choice is itself a choice under the conditions of the branch,
which are parts too. Expressions that are not large stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import expr as E
from tilewright.ir.expr import Call, Expr, IfThenElse, LetExpr, Select, StringImm, Var
from tilewright.ir.ops import const, logical_and, logical_not, logical_or
from tilewright.ir.visit import BottomUp, below

#: No part is higher, in operations from its root to a leaf.
HEIGHT = 64
#: Expressions of as many occurrences of nodes, or fewer, need no parts for what they share.
_TREE = 1024
#: What stands more than once is written more than once up to this many occurrences of nodes.
_SMALL = 4
#: How many times as many occurrences as distinct nodes make an expression large.
_REPEATS = 4

#: A name and what it stands for, which may use the names before it.
Part = tuple[Var, Expr]


def in_parts(values: Sequence[Expr]) -> tuple[list[Part], tuple[Expr, ...]]:
    """Names for subexpressions of ``values``, and the values with these names in their place.

    There are no names where the values are not large. Values are scalars, without reductions.
    """
    graph = _Graph(values)
    if not graph.large:
        return [], tuple(values)
    return _Parts(graph, values).result()


def _operands(e: Expr) -> list[Expr]:
    """What is below ``e``, as far as it may be named: an address is of what stands there."""
    if isinstance(e, LetExpr) or (isinstance(e, Call) and e.name == "address_of"):
        return []
    return [x for x in below(e) if isinstance(x, Expr)]


class _Graph:
    """The distinct nodes, operands first, and of each how high and how large a tree it is."""

    def __init__(self, values: Sequence[Expr]) -> None:
        self.height: dict[Expr, int] = {}
        self.size: dict[Expr, int] = {}
        height, size = self.height, self.size
        stack: list[Expr] = list(reversed(values))
        while stack:
            top = stack[-1]
            if top in height:
                stack.pop()
                continue
            found = _operands(top)
            waiting = [x for x in found if x not in height]
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            height[top] = 1 + max((height[x] for x in found), default=-1)
            size[top] = 1 + sum(size[x] for x in found)

    @property
    def large(self) -> bool:
        """Whether some value is high, or a tree that repeats most of its nodes."""
        if not self.height:
            return False
        most = max(self.size.values())
        repeats = most > _TREE and most > _REPEATS * len(self.size)
        return repeats or max(self.height.values()) > HEIGHT


@dataclass(eq=False)
class _Scope:
    """Where something is evaluated: everywhere in ``parent`` where ``condition`` holds or fails,
    or where it is evaluated in one of two other scopes."""

    parent: _Scope | None = None
    condition: Expr | None = None
    holds: bool = True
    either: tuple[_Scope, ...] = ()
    depth: int = 0
    lazy: type[Select] = Select

    @property
    def above(self) -> tuple[_Scope, ...]:
        """The scopes that say where this one is."""
        return self.either or (() if self.parent is None else (self.parent,))


class _Parts:
    def __init__(self, graph: _Graph, values: Sequence[Expr]) -> None:
        self.graph, self.values = graph, values
        self.everywhere = _Scope()
        self.scopes: dict[Expr, _Scope] = dict.fromkeys(values, self.everywhere)
        self.children: dict[object, _Scope] = {}
        self.uses: dict[Expr, int] = {}
        for e in reversed(list(graph.height)):  # what uses an expression stands behind it
            self.enter(e)
        self.parts: list[Part] = []
        self.rebuilt = BottomUp()
        self.new = self.rebuilt.memo
        self.height: dict[Expr, int] = {}
        self.size: dict[Expr, int] = {}
        self.asked = {self.everywhere}  # scopes whose conditions come before what is in them
        self.known = {self.everywhere}  # scopes whose conditions are rebuilt
        self.guards: dict[_Scope, Expr] = {self.everywhere: const(True)}

    def enter(self, e: Expr) -> None:
        """Note where the operands of ``e`` are evaluated."""
        scope = self.scopes[e]
        match e:
            case Select(c, t, f):
                edges = [
                    (c, scope),
                    (c, scope),  # it is written again where it guards a part
                    (t, self.child(scope, c, True, type(e))),
                    (f, self.child(scope, c, False, type(e))),
                ]
            case E.And(a, b) | E.Or(a, b):
                holds = isinstance(e, E.And)
                edges = [(a, scope), (b, self.child(scope, a, holds, IfThenElse))]
            case _:
                edges = [(x, scope) for x in _operands(e)]
        for x, at in edges:
            self.uses[x] = self.uses.get(x, 0) + 1
            if self.nameable(x):
                known = self.scopes.get(x)
                self.scopes[x] = at if known is None else self.join(known, at)
            else:
                self.scopes.setdefault(x, at)

    def child(self, parent: _Scope, condition: Expr, holds: bool, lazy: type[Select]) -> _Scope:
        """Where ``condition`` has an outcome."""
        key = parent, condition, holds
        found = self.children.get(key)
        if found is None:
            kind = lazy if parent.lazy is Select else parent.lazy
            found = _Scope(parent, condition, holds, (), parent.depth + 1, kind)
            self.children[key] = found
        return found

    def join(self, a: _Scope, b: _Scope) -> _Scope:
        """Where something is evaluated that is in ``a`` and in ``b``."""
        p, q = a, b
        below_p = below_q = None
        while p is not q:
            if p.depth >= q.depth:
                assert p.parent is not None
                p, below_p = p.parent, p
            else:
                assert q.parent is not None
                q, below_q = q.parent, q
        if p is a or p is b:
            return p
        sides = below_p is a and below_q is b and a.condition is not None
        if sides and a.condition is b.condition:  # whatever its outcome
            return p
        key = (a, b)
        found = self.children.get(key)
        if found is None:
            lazy = IfThenElse if IfThenElse in (a.lazy, b.lazy) else Select
            found = self.children[key] = _Scope(p, None, True, key, p.depth + 1, lazy)
        return found

    def nameable(self, e: Expr) -> bool:
        """Whether a name may be worth it, by what the whole graph is."""
        if isinstance(e, StringImm) or e.dtype.kind == "handle":
            return False
        shared = self.uses[e] > 1 and self.graph.size[e] > _SMALL
        return shared or self.graph.height[e] >= HEIGHT // 2

    def result(self) -> tuple[list[Part], tuple[Expr, ...]]:
        """The parts, and the values in terms of them."""
        active: set[Expr] = set()
        stack = list(reversed(self.values))
        while stack:
            e = stack[-1]
            if e in self.new:
                stack.pop()
                continue
            waiting = [x for x in _operands(e) if x not in self.new]
            if e not in active:
                active.add(e)
                if self.nameable_here(e):  # its conditions first, but those that wait for it
                    conditions = self.conditions(self.scopes[e])
                    waiting += [c for c in conditions if c not in self.new and c not in active]
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            self.finish(e)
        return self.parts, tuple(self.new[e] for e in self.values)

    def nameable_here(self, e: Expr) -> bool:
        return e in self.uses and self.nameable(e)

    def conditions(self, scope: _Scope) -> list[Expr]:
        """What is to be known before it is said where a scope is, and was not asked for before."""
        found: list[Expr] = []
        stack = [scope]
        while stack:
            at = stack.pop()
            if at in self.asked:
                continue
            self.asked.add(at)
            if at.condition is not None:
                found.append(at.condition)
            stack += at.above
        return found

    def is_known(self, scope: _Scope) -> bool:
        """Whether it can be said where a scope is."""
        found: list[_Scope] = []
        stack = [scope]
        while stack:
            at = stack.pop()
            if at in self.known:
                continue
            if at.condition is not None and at.condition not in self.new:
                return False
            found.append(at)
            stack += at.above
        self.known.update(found)
        return True

    def finish(self, e: Expr) -> None:
        """Put ``e`` together from its operands, and name it where that is needed."""
        below_it = _operands(e)
        if not below_it:
            self.new[e] = e
            return
        operands = [self.new[x] for x in below_it]
        made = self.rebuilt.expr(e)
        height = 1 + max((self.height.get(x, 0) for x in operands), default=-1)
        size = 1 + sum(self.size.get(x, 1) for x in operands)
        shared = self.uses.get(e, 0) > 1 and size > _SMALL
        if (shared or height >= HEIGHT // 2) and self.nameable_here(e):
            scope = self.scopes[e]
            if self.is_known(scope):
                guard = self.guard(scope)
                if guard is not self.guards[self.everywhere]:
                    made = scope.lazy(guard, made, const(0, e.dtype))
                self.new[e] = self.name(made)
                return
        self.height[made], self.size[made] = height, size

    def name(self, value: Expr) -> Var:
        """A name for a value, from here on."""
        var = Var.of(f"part{len(self.parts)}", value)
        self.parts.append((var, value))
        return var

    def guard(self, scope: _Scope) -> Expr:
        """Whether a scope is evaluated, as a name; its conditions are known.

        Of the scopes around it, which are as many as choices are nested, some get names as well.
        """
        stack = [scope]
        while stack:
            at = stack[-1]
            line: list[_Scope] = []  # from one whose guard is known, which is not in it
            while at not in self.guards:
                line.append(at)
                if at.either:
                    break
                assert at.parent is not None
                at = at.parent
            waiting = [x for x in at.either if x not in self.guards]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if at.either and at not in self.guards:
                self.hold(at, logical_or(*(self.guards[x] for x in at.either)))
                line.pop()
            made = self.guards[at]
            for number, inner in enumerate(reversed(line), 1):
                assert inner.condition is not None
                known = self.new[inner.condition]
                made = logical_and(made, known if inner.holds else logical_not(known))
                if inner is line[0] or number % (HEIGHT // 4) == 0:
                    made = self.hold(inner, made)
        return self.guards[scope]

    def hold(self, scope: _Scope, guard: Expr) -> Expr:
        """Keep the guard of a scope under a name."""
        self.guards[scope] = guard if isinstance(guard, (Var, E.IntImm)) else self.name(guard)
        return self.guards[scope]
