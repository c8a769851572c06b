"""Comparisons, and what conditions choose: by a branch where a value must not be evaluated."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.codegen.llvm.builder import Value, constant, literal
from tilewright.codegen.llvm.indices import Indices
from tilewright.codegen.llvm.types import widen
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

_COMPARE = {
    E.EQ: ("eq", "oeq"), E.NE: ("ne", "une"), E.LT: ("lt", "olt"), E.LE: ("le", "ole"),
    E.GT: ("gt", "ogt"), E.GE: ("ge", "oge"),
}  # fmt: skip
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


class Conditions(Indices):
    """Writes conditions; under :attr:`mask`, those of vectors guard their lanes."""

    def comparison(self, e: E.Compare) -> Value:
        """Whether it holds, in every lane."""
        t = e.a.dtype
        integer, floating = _COMPARE[type(e)]
        if t.is_float:
            a, b = self.expr(e.a), self.expr(e.b)
            if self.types.narrow(t):
                a, b = widen(self.b, t, a), widen(self.b, t, b)
            return self.b.compare(f"fcmp {floating}", a, b)
        if t.lanes == 1 and t.kind == "int" and e.exact:
            a, b = self.index(e.a), self.index(e.b)
        else:
            a, b = self.expr(e.a), self.expr(e.b)
        x, y = constant(a), constant(b)
        if x is not None and y is not None and t.kind == "int":
            return Value("i1", "true" if _HOLDS[integer](x, y) else "false")
        if integer not in ("eq", "ne"):
            integer = ("s" if t.kind == "int" else "u") + integer
        return self.b.compare(f"icmp {integer}", a, b)

    def logical(self, e: Expr, x: Expr, y: Expr) -> Value:
        """``select`` and not ``and``: what the left operand rules out may be poison."""
        conjunction = isinstance(e, E.And)
        left = self.expr(x)
        known = uniform(left)
        if known is not None:  # where it decides, the right operand is not evaluated
            return self.expr(y) if known is conjunction else left
        if self.partial(y) and e.dtype.lanes == 1 and left.type == "i1":
            b, more, done = self.b, self.b.label("rhs"), self.b.label("end")
            came = b.block
            b.branch(left, *((more, done) if conjunction else (done, more)))
            b.start(more)
            with self.region():
                right = self.expr(y)
            last = b.block
            b.jump(done)
            b.start(done)
            return b.phi((Value("i1", "false" if conjunction else "true"), came), (right, last))
        if self.partial(y):
            with self.masked(left if conjunction else self._inverted(left)):
                right = self.expr(y)
        else:
            right = self.expr(y)
        if conjunction:
            return self.b.select(left, right, _false(left))
        return self.b.select(left, literal(left.type, 1), right)

    def _inverted(self, x: Value) -> Value:
        return self.b.binary("xor", x, literal(x.type, 1))

    @contextmanager
    def masked(self, mask: Value) -> Iterator[None]:
        """Evaluate under ``mask`` (a vector of i1), and under what holds already."""
        before = self.mask
        if before is not None and before.type == mask.type:
            mask = self.b.select(before, mask, _false(mask))
        self.mask = mask
        try:
            with self.region():
                yield
        finally:
            self.mask = before

    def choice(self, e: Expr, c: Expr, t: Expr, f: Expr) -> Value:
        """``t`` where ``c`` holds, else ``f``; ``e`` says whether the other one is evaluated."""
        b, lazy = self.b, isinstance(e, E.IfThenElse)
        condition = self.expr(c)
        known = uniform(condition)
        if known is not None:
            return self.expr(t if known else f)
        if not lazy or not (self.partial(t) or self.partial(f)):
            return b.select(condition, self.expr(t), self.expr(f))
        if condition.type != "i1":
            with self.masked(condition):
                yes = self.expr(t)
            with self.masked(self._inverted(condition)):
                no = self.expr(f)
            return b.select(condition, yes, no)
        then, other, done = b.label("then"), b.label("else"), b.label("end")
        b.branch(condition, then, other)
        incoming = []
        for label, value in ((then, t), (other, f)):
            b.start(label)
            with self.region():
                found = self.expr(value)
            incoming.append((found, b.block))
            b.jump(done)
        b.start(done)
        return b.phi(*incoming)


def uniform(x: Value) -> bool | None:
    """What a condition is known to be, in all lanes."""
    text = x.text.removeprefix("splat (i1 ").removesuffix(")")
    return True if text == "true" else False if text == "false" else None


def _false(like: Value) -> Value:
    return literal(like.type, 0)
