"""The accesses to fragments, which lie in the registers of a group of threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.distribution import Distribution
from tilewright.ir.expr import Expr, FloorDiv, FloorMod, Load, load
from tilewright.ir.func import Func
from tilewright.ir.stmt import Instr, Stmt, Store
from tilewright.ir.visit import Steps, children, distinct
from tilewright.lower.context import InContext, analyzer_of


@dataclass(frozen=True)
class Use:
    """An access to a fragment."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def held(self) -> Distribution:
        assert self.buffer.distribution is not None
        return self.buffer.distribution


def uses_of(s: Stmt) -> Iterator[Use]:
    """The accesses to fragments outside of instructions."""
    if isinstance(s, Instr):
        return
    if isinstance(s, Store) and s.buffer.scope == "fragment":
        yield Use(s.buffer, s.indices)
    for child in children(s):
        if isinstance(child, Stmt):
            yield from uses_of(child)
        elif isinstance(child, Expr):
            yield from loads_of(child)


def loads_of(e: Expr) -> Iterator[Use]:
    """Those of a value."""
    for x in distinct(e):
        if isinstance(x, Load) and x.buffer.scope == "fragment":
            yield Use(x.buffer, x.indices)


class Unfused(InContext):
    """Indices of fragments in which quotients and remainders of a fused axis meet again."""

    def __init__(self, func: Func) -> None:
        super().__init__(analyzer_of(func))

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Instr):
            return s
        made = yield from super().steps(s)
        if isinstance(made, Store) and made.buffer.scope == "fragment":
            return replace(made, indices=self.unfused(made.indices))
        return made

    def expr(self, e: Expr) -> Expr:
        made = super().expr(e)
        if isinstance(made, Load) and made.buffer.scope == "fragment":
            return load(made.buffer, self.unfused(made.indices))
        return made

    def unfused(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(
            self.analyzer.simplify(i)
            if any(isinstance(x, (FloorDiv, FloorMod)) for x in distinct(i))
            else i
            for i in indices
        )
